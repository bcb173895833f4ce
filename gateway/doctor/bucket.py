"""Looks at the bucket of a spool: does it do what a commit rests on?

One small object is made, read, listed, made a second time, which must be refused, swapped
for another one, and removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gateway.config import Config, model
from gateway.doctor.look import Look, fail, ok, warn
from gateway.spoken import milliseconds
from gateway.store.objects.bucket import Bucket, BucketError, Unfit, probe
from gateway.store.objects.s3 import Missing, bucket_of

_SLOW_SECONDS = 1.0
_REQUESTS = 8


def examine(
    config: Config,
    *,
    connect: Callable[[model.Spool], Bucket | None] = bucket_of,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Look]:
    where = config.spool.bucket
    if where is None:
        return
    said: list[str] = []
    begun = clock()
    try:
        bucket = connect(config.spool)
        assert bucket is not None
        probe(bucket, config.node, said.append)
    except Missing as why:
        yield fail("bucket", str(why), "install it where the daemon runs")
        return
    except Unfit as why:
        yield fail("bucket", str(why), "take a server, or a version, that does")
        return
    except BucketError as why:
        done = f"{', '.join(said)}; then " if said else ""
        advice = (
            "spool.directory, spool.s3 and the credentials of the daemon's user must "
            "allow GetObject, PutObject, DeleteObject and ListBucket there"
        )
        yield fail("bucket", f"{where}: {done}{why}", advice)
        return
    seconds = (clock() - begun) / _REQUESTS
    detail = f"{where}: {', '.join(said)}; {milliseconds(seconds)} a request"
    if seconds <= _SLOW_SECONDS:
        yield ok("bucket", detail)
        return
    advice = "with `ack: spool` senders wait for one: take a bucket that is nearer"
    yield warn("bucket", detail, advice)
