"""A SeaweedFS of a test's own: a server of somebody else's, with a disk below it."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from deadlines import eventually, excerpt
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.store.objects.s3 import S3
from gateway_testkit.seaweed import NoSeaweed, Seaweed
from gateway_testkit.settings import options_of
from programs import end

__all__ = ["BUCKET", "TABLES", "bucket_at", "keep_versions", "settings_of"]

BUCKET, TABLES = "gateway", "warehouse"
_KEY = ("gateway", "secret-of-tests")


def settings_of(endpoint: str) -> dict[str, Any]:
    """`spool.s3`, for a server there."""
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": _KEY[0],
        "secret_access_key": _KEY[1],
    }


def bucket_at(endpoint: str, prefix: str = "spool") -> S3:
    """What is below *prefix* there."""
    settings = options_of(model.S3, **settings_of(endpoint))
    return S3(BucketUrl(BUCKET, prefix), settings)


def keep_versions(server: Seaweed) -> None:
    """Have its bucket keep from now on what is removed or written over."""
    words = dict(one.split("=", 1) for one in server.command if "=" in one)
    servers = [
        f"-{one}=127.0.0.1:{words[f'-{one}.port']}.{words[f'-{one}.port.grpc']}"
        for one in ("master", "filer")
    ]
    subprocess.run(
        [server.command[0], "shell", *servers],
        input=f"s3.bucket.versioning -name {server.bucket} -enable\nexit\n",
        text=True,
        capture_output=True,
        check=True,
        timeout=60,
    )


@pytest.fixture
def seaweed(tmp_path, free_port) -> Iterator[Seaweed]:
    """One that takes objects, on this machine alone."""
    home = tmp_path / "seaweed"
    home.mkdir()
    try:
        server = Seaweed.at(home, free_port, bucket=BUCKET, key=_KEY, tables=TABLES)
    except NoSeaweed as why:
        pytest.skip(str(why))
    log = tmp_path / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.command,
            env={**os.environ, **server.environment},
            stdout=output,
            stderr=output,
            cwd=home,
        )

    def ready() -> bool:
        assert process.poll() is None, excerpt(log)
        return server.takes_objects()

    try:
        eventually(ready, "SeaweedFS is ready")
        yield server
    finally:
        end(process, 20)
