"""Files of tables in object storage, as the audit reads them: only the columns that it asks
for, where they are, with no copy on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import NativeFile
from pyarrow.fs import FileSystem, S3FileSystem

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["Access", "Place", "Remote", "access_of", "opened"]

SCHEMES = ("s3", "s3a", "s3n")
"""Of URLs that `Access` reaches."""

_CATALOG = "lake"
"""Iceberg's, where `spark.table` names none."""


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """How to reach tables in object storage; what is None is found as AWS's clients do."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    virtual_hosted: bool = False

    @property
    def for_pyiceberg(self) -> dict[str, str]:
        """As properties of a table."""
        return _given(
            {
                "s3.endpoint": self.endpoint,
                "s3.region": self.region,
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
                "s3.force-virtual-addressing": str(self.virtual_hosted).lower(),
            }
        )

    @property
    def for_deltalake(self) -> dict[str, str]:
        """As storage options."""
        plain = (self.endpoint or "").startswith("http://")
        return _given(
            {
                "AWS_ENDPOINT_URL": self.endpoint,
                "AWS_REGION": self.region,
                "AWS_ACCESS_KEY_ID": self.access_key_id,
                "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(self.virtual_hosted).lower(),
                "AWS_ALLOW_HTTP": "true" if plain else None,
            }
        )

    @property
    def store(self) -> FileSystem:
        """For pyarrow."""
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
    """As the configuration says: what Spark is told of the table's catalog or of s3a goes
    before what the spool's bucket is reached by.
    """
    name = (config.spark.table or _CATALOG).partition(".")[0]
    catalog, s3a = f"spark.sql.catalog.{name}.", "spark.hadoop.fs.s3a."

    def told(*keys: str) -> str | None:
        return next((str(conf[key]) for key in keys if key in conf), None)

    conf, s3 = config.spark.conf, config.spool.s3
    key = told(f"{catalog}s3.access-key-id", f"{s3a}access.key")
    secret = told(f"{catalog}s3.secret-access-key", f"{s3a}secret.key")
    if key is None and s3.access_key_id and s3.secret_access_key:
        key = s3.access_key_id.get_secret_value()
        secret = s3.secret_access_key.get_secret_value()
    regions = f"{catalog}client.region", f"{s3a}endpoint.region"
    return Access(
        told(f"{catalog}s3.endpoint", f"{s3a}endpoint") or s3.endpoint,
        told(*regions) or s3.region,
        key,
        secret,
        s3.virtual_hosted,
    )


@dataclass(frozen=True, slots=True)
class Remote:
    """A file in object storage."""

    url: str
    _store: FileSystem = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.url

    def open(self) -> NativeFile:
        """Raises FileNotFoundError, OSError."""
        parts = urlsplit(self.url)
        return self._store.open_input_file(f"{parts.netloc}{parts.path}")


Place = Path | Remote


def opened(place: Place) -> Path | NativeFile:
    """What pyarrow reads it from."""
    return place.open() if isinstance(place, Remote) else place


def _given(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: one for key, one in settings.items() if one is not None}
