"""Files of tables in object storage, of which the audit reads the columns it needs.

They are read where they are, with no copy on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyarrow import NativeFile
from pyarrow.fs import FileSystem, S3FileSystem

from gateway.sink import kind_of

if TYPE_CHECKING:
    from gateway.config import Config

_SCHEMES = ("s3", "s3a", "s3n")
"""Schemes of URLs that `Access` reaches."""

_S3A = {
    "endpoint": "spark.hadoop.fs.s3a.endpoint",
    "region": "spark.hadoop.fs.s3a.endpoint.region",
    "access_key_id": "spark.hadoop.fs.s3a.access.key",
    "secret_access_key": "spark.hadoop.fs.s3a.secret.key",
}
"""Hadoop's keys for it."""


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """How to reach tables in object storage; what is None is found as AWS's clients do."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    virtual_hosted: bool = False

    @property
    def store(self) -> FileSystem:
        scheme, _, server = (self.endpoint or "").rpartition("://")
        return S3FileSystem(
            access_key=self.access_key_id,
            secret_key=self.secret_access_key,
            region=self.region,
            scheme=scheme or None,
            endpoint_override=server or None,
            force_virtual_addressing=self.virtual_hosted,
        )


def access_of(config: Config) -> Access:
    """The access that the configuration has.

    Settings for Spark of the table's catalog or of s3a go before those of the spool's bucket.
    """
    s3, found = config.spool.s3, dict(kind_of(config.spark.sink).access(config.spark))
    for name, key in _S3A.items():
        if key in config.spark.conf:
            found.setdefault(name, str(config.spark.conf[key]))
    if "access_key_id" not in found and s3.access_key_id and s3.secret_access_key:
        found["access_key_id"] = s3.access_key_id.get_secret_value()
        found["secret_access_key"] = s3.secret_access_key.get_secret_value()
    return Access(
        found.get("endpoint") or s3.endpoint,
        found.get("region") or s3.region,
        found.get("access_key_id"),
        found.get("secret_access_key"),
        s3.virtual_hosted,
    )


def path_of(name: str) -> Path | None:
    """The path of a file on this machine, as Hadoop and Iceberg spell it: with nothing encoded;
    None for one in object storage.

    Raises OSError for one that is elsewhere.
    """
    scheme = urlsplit(name).scheme
    if scheme in _SCHEMES:
        return None
    if scheme not in ("", "file"):
        raise OSError(
            f"{name}: the audit reads tables on disks of this machine and at s3://, not"
            f" at {scheme}://"
        )
    return Path(name.removeprefix("file:").removeprefix("//"))


@dataclass(frozen=True, slots=True)
class Remote:
    """A file in object storage."""

    url: str
    _store: FileSystem = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.url

    def open(self) -> NativeFile:
        """Raises FileNotFoundError, OSError."""
        return self._store.open_input_file(self.url.partition("://")[2])


Place = Path | Remote


def opened(place: Place) -> Path | NativeFile:
    """The object that pyarrow reads it from."""
    return place.open() if isinstance(place, Remote) else place
