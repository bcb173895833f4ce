"""What an incarnation says of itself, in a bucket."""

from __future__ import annotations

from pathlib import Path

from gateway.store.disk import RealDisk
from gateway.store.incarnation import Incarnation
from gateway.store.lineage import Lineage
from gateway.store.word import Speaker
from gateway_testkit.bucket import MemoryBucket


def test_another_gateway_of_this_name_is_noticed(tmp_path: Path) -> None:
    """By its word that is newer than our first one; not one that was killed before, nor those
    of this directory.
    """
    bucket = MemoryBucket()

    def passes(seconds: float) -> None:
        for name in bucket.written:
            bucket.written[name] -= seconds

    def speaker(this: Incarnation) -> Speaker:
        lineage = Lineage(this, tmp_path, RealDisk())
        return Speaker(bucket, "gw", lineage, "journal", lambda: 0, lambda: 0)

    def says(own: Speaker) -> str:
        for _ in range(5):
            own.say()
        return own.twin

    killed, earlier = Incarnation("killed", 1, 0), Incarnation("earlier", 1, 0)
    speaker(killed).say()
    passes(10)
    own = speaker(Incarnation("own", 1, 0, (earlier.id,)))
    assert says(own) == ""
    passes(10)
    speaker(earlier).say()
    assert says(own) == ""
    passes(10)
    speaker(Incarnation("another", 1, 0)).say()
    assert says(own) == "another"
    passes(1000)
    assert says(own) == ""
