"""The doctor asks the bucket for all that a spool in it needs."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from gateway.config import Config
from gateway.doctor.bucket import examine
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.s3 import Missing
from gateway_testkit.bucket import MemoryBucket

Make = Callable[..., Config]


@pytest.fixture
def config(make) -> Config:
    return make(spool="{directory: 's3://bucket/prefix'}")


def looked(config: Config, bucket: MemoryBucket, **more: Any) -> tuple[str, str, str]:
    [look] = examine(config, connect=lambda _: bucket, **more)
    assert look.what == "bucket"
    return look.state, look.detail, look.advice


def test_a_spool_in_a_directory_needs_no_bucket(make):
    """Nothing is said."""
    assert list(examine(make())) == []


def test_a_bucket_that_does_all_of_it_is_fine(config, bucket):
    """And is left as it was."""
    state, detail, _ = looked(config, bucket, clock=count().__next__)
    assert state == "ok"
    assert detail == (
        "s3://bucket/prefix: objects can be made, read, listed, not made twice, and "
        "swapped once; 125 ms a request"
    )
    assert bucket.objects == {}


def test_a_server_that_knows_no_tags_is_told(config, bucket):
    """Two gateways of one name that start at once are told apart later there."""
    bucket.tagged = False
    assert "If-Match is passed over" in looked(config, bucket)[1]


def test_what_can_not_be_removed_is_told(config, bucket):
    """The Spark job takes out of it what is in the tables."""

    def fault(request: str, name: str) -> None:
        if request == "remove":
            raise BucketError("403 Forbidden")

    bucket.fault = fault
    assert "swapped once, but not removed: 403 Forbidden" in looked(config, bucket)[1]


def test_a_slow_bucket_is_told(config):
    """With `ack: spool` senders wait for it."""
    clock = count(step=9).__next__
    assert looked(config, MemoryBucket(), clock=clock)[0] == "warn"


def test_a_right_that_is_missing_is_named(config, bucket):
    """By the first request that was refused, after those that were not."""

    def fault(request: str, name: str) -> None:
        if request == "list":
            raise BucketError("403 Forbidden")

    bucket.fault = fault
    state, detail, advice = looked(config, bucket)
    assert state == "fail"
    assert "objects can be made, read; then 403 Forbidden" in detail
    assert "ListBucket" in advice


def test_a_server_without_conditional_puts_is_refused(config, bucket):
    """Two files of one name would be one."""
    bucket.conditional = False
    state, detail, _ = looked(config, bucket)
    assert state == "fail"
    assert "If-None-Match" in detail


def test_the_extra_is_named_where_it_is_missing(config):
    """Nothing else can be asked then."""

    def connect(spool: Any) -> None:
        raise Missing("pip install 'gateway[s3]'")

    [look] = examine(config, connect=connect)
    assert (look.state, look.detail) == ("fail", "pip install 'gateway[s3]'")
