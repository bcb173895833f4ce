"""The child processes of a cluster on this machine, started as a platform team would."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.config import load
from gateway.spark.jvm import java
from gateway.store.objects.bucket import Bucket
from gateway.store.objects.s3 import bucket_of
from gateway.store.readers.lake import health_path
from gateway_demo import tables
from gateway_demo.cluster.setup import Setup
from gateway_demo.nodes import Node, Nodes
from gateway_demo.processes import Failed, Job, Process

__all__ = ["Processes"]

_START_SECONDS = 120.0
_JOB_SECONDS = 600.0
"""Jars are fetched meanwhile, for the first time."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_WORKERS = 2


class Processes(Nodes):
    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.server: Process | None = None
        self.master: Process | None = None
        self.workers: list[Process] = []
        self.job: Job | None = None

    @property
    def bucket(self) -> Bucket:
        """Where the gateways' files go."""
        found = bucket_of(load(self.setup.job).spool)
        assert found is not None
        return found

    # -- starting ---------------------------------------------------------------------

    def start_server(self) -> None:
        """Start the S3 server and wait until it takes objects."""
        seaweed = self.setup.server
        self.server = Process(
            "the S3 server",
            seaweed.command,
            self.setup.directory / "s3.log",
            seaweed.environment,
        )
        self.server.wait_for(seaweed.takes_objects, _START_SECONDS)

    def start_cluster(self) -> None:
        """Start Spark's master and workers, and wait until the master has them."""
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        more = {
            "JAVA_HOME": str(java.find(os.environ).home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Not in a spark-env.sh of somebody else's.
            "SPARK_HOME": str(program.parents[1]),
        }
        directory = self.setup.directory
        local = ["--host", "127.0.0.1", "--webui-port", "0"]
        master = f"spark://127.0.0.1:{self.setup.master}"
        self.master = Process(
            "Spark's master",
            [str(program), _MASTER, *local, "--port", str(self.setup.master)],
            directory / "master.log",
            more,
        )
        self.master.wait_to_say("Starting Spark master", _START_SECONDS)
        for number in range(1, _WORKERS + 1):
            name = f"worker-{number}"
            words = [*local, "--cores", "1", "--memory", "1g"]
            self.workers.append(
                Process(
                    name,
                    [
                        str(program), _WORKER, master, *words,
                        "--work-dir", str(directory / name),
                    ],
                    directory / f"{name}.log",
                    more,
                    family=True,
                )
            )  # fmt: skip
        for worker in self.workers:
            worker.wait_to_say("Successfully registered with master", _START_SECONDS)

    def start_job(self) -> None:
        """Start the Spark job, once it can make its table, and wait until it reads."""
        assert self.server is not None
        self.server.wait_for(self.setup.server.takes_tables, _START_SECONDS)
        self.job = Job(
            self.setup.job,
            self.setup.directory / "job.log",
            {"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        try:
            self.job.wait_to_read(_JOB_SECONDS)
        except Failed as why:
            raise Failed(
                f"{why}\nIts jars come from Maven Central.  Where that is out of reach,"
                " --jars DIR names a folder that has them: after one start elsewhere they"
                " are in ~/.ivy2.5.2/jars"
            ) from None

    def start_senders(self, events: int, rate: int) -> None:
        """Start all; *events* of each, *rate* a second."""
        setup = self.setup
        self.send(
            setup.traffic, setup.nodes, setup.directory, events, rate,
            patience=_JOB_SECONDS,
        )  # fmt: skip

    # -- losing -----------------------------------------------------------------------

    def lose_gateway(self, node: Node) -> None:
        self.kill(node)
        shutil.rmtree(node.data)

    def lose_worker(self) -> Process:
        worker = self.workers[-1]
        self.away.add(worker.name)
        worker.kill()
        return worker

    # -- looking ----------------------------------------------------------------------

    def in_table(self) -> Mapping[str, int]:
        """How many events of each node are in the table, as the job says."""
        return tables.events_by_node(self.setup.job_data / "lake")

    def job_is_busy(self) -> bool:
        """Whether a batch is on its way into the table right now."""
        with contextlib.suppress(OSError, ValueError):
            told = json.loads(health_path(self.setup.job_data / "lake").read_bytes())
            return bool(told["busy"])
        return False

    def _needed(self) -> Sequence[Process | None]:
        started = reversed(self._all())
        return [one for one in started if one and one.name not in self.away]

    def _all(self) -> Sequence[Process | None]:
        return (
            *self.gateways.values(),
            self.job,
            *self.workers,
            self.master,
            self.server,
        )
