"""The address of a spool in object storage: `s3://bucket/prefix`."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "s3://"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class BucketUrl:
    """A bucket, and what the names of all objects in it begin with."""

    bucket: str
    prefix: str = ""
    """No slash at either end; may be empty."""

    def __str__(self) -> str:
        return SCHEME + "/".join(filter(None, (self.bucket, self.prefix)))

    def of(self, name: str) -> str:
        """The address of one object below it."""
        return f"{self}/{name}"

    @property
    def hadoop(self) -> str:
        """The same for Spark, whose file system for it is `s3a`."""
        return f"s3a://{str(self).removeprefix(SCHEME)}"


def parse_bucket_url(text: str) -> BucketUrl:
    """Parse `s3://bucket` or `s3://bucket/prefix`; ValueError for anything else."""
    bucket, _, prefix = text.removeprefix(SCHEME).rstrip("/").partition("/")
    parts = prefix.split("/") if prefix else []
    if (
        not text.startswith(SCHEME)
        or not _BUCKET.fullmatch(bucket)
        or not all(map(_PART.fullmatch, parts))
    ):
        raise ValueError(
            "must be like s3://bucket/prefix, the bucket of 3 to 63 lower case letters, "
            "digits, dots and dashes, the parts of the prefix of letters, digits, dots, "
            f"dashes and _, the first a letter or a digit, not {text!r}"
        )
    return BucketUrl(bucket, prefix)
