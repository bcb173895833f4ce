"""Prepares the demo of a cluster: its directory, ports, and a configuration for each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_demo.nodes import Node, make, write
from gateway_demo.setup import Traffic, empty
from gateway_testkit.daemon import free_port
from gateway_testkit.seaweed import NAMESPACE, Seaweed

__all__ = ["CATALOG", "NODES", "TABLE", "Setup", "prepare"]

NODES = ("gw-1", "gw-2", "gw-3")
CATALOG = "lake"
TABLE = f"{NAMESPACE}.events"
"""The name of the table in the catalog."""

_KEY = ("gateway", "a-secret-of-this-demo")
_BUCKET, _WAREHOUSE = "gateway", "warehouse"


@dataclass(frozen=True, slots=True)
class Setup:
    """A prepared demo."""

    directory: Path
    server: Seaweed
    storage: Path
    """The directory of the S3 server."""
    nodes: Sequence[Node]
    master: int
    """Port of Spark's master."""
    job: Path
    """Configuration of the Spark job."""
    job_data: Path
    traffic: Sequence[tuple[str, Traffic]]
    """The traffic, each with the node that gets it."""


def prepare(directory: Path, jars: Path | None = None) -> Setup:
    """Set up a demo in *directory*; an earlier demo there is deleted.

    *jars* has Spark's, if they do not come from Maven Central.  Raises
    `demo.setup.NotADemo`, `seaweed.NoSeaweed`, OSError.
    """
    empty(directory)
    storage = directory / "s3"
    storage.mkdir()
    server = Seaweed.at(storage, free_port, bucket=_BUCKET, key=_KEY, tables=_WAREHOUSE)
    nodes = [_node(directory, name, server) for name in NODES]
    master = free_port()
    job = directory / "job.yaml"
    write(job, _job(server, master, jars))
    return Setup(
        directory, server, storage, nodes, master, job, directory / "job", _traffic()
    )


def _node(directory: Path, name: str, server: Seaweed) -> Node:
    game = {
        "routes": ["area.player.move"],
        "trust_uid": True,
        "session_events": False,
    }
    listeners: list[dict[str, Any]] = [
        {"name": "beats", "protocol": "lumberjack"},
        {"name": "game", "protocol": "pomelo", "options": game},
        {"name": "meters", "protocol": "rsio"},
    ]
    more = {
        "ack": "spool",
        "spool": {
            "directory": f"s3://{_BUCKET}/spool",
            "s3": server.settings,
            "roll_interval": "500ms",
        },
    }
    return make(directory, name, listeners, more)


def _job(server: Seaweed, master: int, jars: Path | None) -> dict[str, Any]:
    """The driver has a disk of its own, which neither gateways nor workers use."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": server.catalog,
        f"{catalog}.warehouse": f"s3://{_WAREHOUSE}/",
        f"{catalog}.credential": ":".join(_KEY),
        f"{catalog}.rest.auth.type": "oauth2",
        f"{catalog}.oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens",
        f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "700m",
    }
    spark: dict[str, Any] = {
        "master": f"spark://127.0.0.1:{master}",
        "sink": "iceberg",
        "table": f"{CATALOG}.{TABLE}",
        "trigger": "2s",
        "conf": conf,
    }
    if jars is not None:
        spark["jars_directory"] = str(jars.absolute())
    return {
        "node": "job",
        "data_dir": "job",
        # A configuration has one; the job binds no port.
        "listeners": [
            {"name": "none", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
        ],
        "spool": {"directory": f"s3://{_BUCKET}/spool", "s3": server.settings},
        "spark": spark,
    }


def _traffic() -> Sequence[tuple[str, Traffic]]:
    beats = [
        (name, Traffic(f"Beats to {name}", "beats", "lumberjack", ())) for name in NODES
    ]
    game = Traffic("Game clients to gw-1", "game", "pomelo", ("--connections", "5"))
    meters = Traffic("Reactive streams to gw-3", "meters", "rsio", ())
    return (*beats, ("gw-1", game), ("gw-3", meters))
