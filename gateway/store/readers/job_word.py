"""The Spark job's word in a bucket of how far it is behind.

Gateways make larger files meanwhile: a file costs the job the same, whatever is in it.

    .gateway-job          a `JobWord` as JSON; Spark passes the object over
    .gateway-job-name     the name of the job that has this prefix, if it has one

The job writes it (`gateway.spark.bucket`), every few seconds while it looks.  A gateway
reads it as often, and only with `ack: journal`: with `ack: spool` senders wait for each file.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping

import msgspec
from attrs import define

from gateway.store.objects.bucket import AlreadyThere, Bucket, BucketError, NotThere

EVERY_SECONDS = 10.0
"""Seconds between two words, and two reads."""
_SILENT_SECONDS = 60.0
"""A job that has written nothing for so long does not run, and has taken nothing since."""

_NAME = ".gateway-job"
_OWNER = ".gateway-job-name"


def owner_of(bucket: Bucket, job: str) -> str:
    """The name of the job that has this prefix for good.

    It is *job*, if that has a name and no other job was here before.  Raises `BucketError`.
    """
    if job:
        with contextlib.suppress(AlreadyThere):
            bucket.create(_OWNER, job.encode())
    try:
        return bucket.read(_OWNER).decode("utf-8", "replace")
    except NotThere:
        return ""


class JobWord(msgspec.Struct, frozen=True):
    """The content of the object."""

    at: float
    """Seconds since the epoch, by the job's clock: its readers see that it is a new one."""
    waiting: Mapping[str, int] = {}
    """Files in the bucket that are in no table, by node."""


@define(eq=False, slots=False)
class JobWriter:
    """The job's side."""

    _bucket: Bucket
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self._said_at = -math.inf

    def __call__(self, waiting: Mapping[str, int]) -> None:
        """Say so in place of what was said before, if that was a while ago.  Blocks."""
        if (now := self._clock()) - self._said_at < EVERY_SECONDS:
            return
        self._said_at = now
        files = {node: count for node, count in waiting.items() if count}
        said = msgspec.json.encode(JobWord(self._wall_clock(), files))
        with contextlib.suppress(BucketError):  # it is said again
            self._bucket.replace(_NAME, said)


@define(eq=False, slots=False)
class JobBacklog:
    """How many files of *node* the job has not taken, as of the last look.

    *uploaded* counts those that were ever put there by this run.
    """

    _bucket: Bucket
    _node: str
    _uploaded: Callable[[], int]
    _clock: Callable[[], float]

    def __attrs_post_init__(self) -> None:
        self.files = self.all_files = 0
        """Any thread may read them; those of all nodes are as the job has said last."""
        self._last: JobWord | None = None
        self._changed = self._clock()
        self._uploaded_then = 0

    def look(self) -> None:
        """Read what is said.  Raises `BucketError`; blocks."""
        try:
            said = msgspec.json.decode(self._bucket.read(_NAME), type=JobWord)
        except (NotThere, msgspec.DecodeError):  # no job, or one of another version
            self.files = self.all_files = 0
            return
        now = self._clock()
        if said != self._last:
            self._last, self._changed = said, now
            self._uploaded_then = self._uploaded()
        self.all_files = sum(said.waiting.values())
        files = said.waiting.get(self._node, 0)
        if now - self._changed > _SILENT_SECONDS:
            files += self._uploaded() - self._uploaded_then
        self.files = files
