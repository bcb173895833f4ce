"""Endings of incarnations, where requests fail."""

import msgspec

from gateway.spark.bucket.endings import Endings
from gateway.store.names import Life
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.node_record import EVERY_SECONDS, NodeRecord, name_of
from gateway_testkit.bucket import MemoryBucket
from incarnations import A


def test_a_record_that_could_not_be_read_once_is_read_again():
    """The last one of an incarnation does not change any more."""
    bucket, now = MemoryBucket(), 0.0
    record = NodeRecord(A, 1, 10, 5.0, "journal", exact=True)
    bucket.replace(name_of("gw", A), msgspec.json.encode(record))
    endings = Endings(bucket, lambda: now)

    def unavailable(request: str, name: str) -> None:
        if request == "read":
            raise BucketError("503 Slow Down")

    bucket.fault = unavailable
    endings.hear(map)
    assert endings.ends == {}
    listed, [heard] = endings.heard
    assert listed
    assert (heard.node, heard.record) == ("gw", None)
    bucket.fault = lambda request, name: None
    for _ in range(2):
        now += EVERY_SECONDS
        endings.hear(map)
        end = endings.ends[Life("gw", A)]
        assert end is not None
        assert end.acknowledged == 10
    assert [one.record for one in endings.heard[1]] == [record]
    assert [request for request, _ in bucket.requests].count("read") == 2
