"""What an incarnation says of itself, in a bucket."""

from __future__ import annotations

from pathlib import Path

from gateway.store.names import file_name
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.objects.word import (
    Speaker,
    Word,
    at_hub,
    forget_some,
    hear,
    read_all,
)
from gateway.store.system.disk import RealDisk
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


def numbered(at: int) -> str:
    """An id."""
    return f"{at:010}".translate(str.maketrans("0123456789", "abcdefghij"))


def test_words_do_not_grow_with_each_start(tmp_path: Path) -> None:
    """Of a directory fifty stay, and those of which a file waits for the job, or that are of
    another directory; each of those that stay names the fifty before it.
    """
    bucket = MemoryBucket()
    before: Incarnation | None = None
    for at in range(130):
        earlier = () if before is None else (*before.earlier, before.id)
        this = Incarnation(numbered(at), 1 + at, 7, earlier, begins=(1,) * at)
        lineage = Lineage(this, tmp_path, RealDisk())
        Speaker(bucket, "gw", lineage, "journal", lambda: 0, lambda: 0).say()
        for name in bucket.written:
            bucket.written[name] -= 1
        if at == 3:
            waits = file_name("gw", this.id, 4, 4)
            bucket.create(waits, b"")
            kept = this.id
        before = this
    stranger = Incarnation("z" * 10, 1, 8)
    Speaker(
        bucket,
        "gw",
        Lineage(stranger, tmp_path, RealDisk()),
        "journal",
        lambda: 0,
        lambda: 0,
    ).say()
    words = [heard.word for heard in read_all(bucket, "gw") if heard.word]
    there = {word.incarnation for word in words}
    assert before is not None
    assert there == {kept, stranger.id, before.id, *before.earlier[-50:]}
    assert len(words[-2].earlier) == 50


def test_nor_do_they_at_a_hub(tmp_path: Path) -> None:
    """Likewise of an edge."""
    folder, spool, disk = tmp_path / "arrivals", tmp_path / "spool", RealDisk()
    spool.mkdir()
    ids = [numbered(at) for at in range(130)]
    (spool / file_name("gw", ids[3], 4, 4)).touch()
    lost = Word("zzzzzzzzzz", 1, 9, 1.0, "journal")
    assert hear(folder, "gw", lost, 1.0, disk)
    assert hear(folder, "gw-1", Word(ids[0], 1, 9, 1.0, "journal"), 1.0, disk)
    for at, this in enumerate(ids):
        word = Word(
            this, 1 + at, at, 9.0, "journal", earlier=tuple(ids[max(0, at - 50) : at])
        )
        assert hear(folder, "gw", word, 2.0 + at, disk)
        assert not hear(folder, "gw", word, 2.5 + at, disk)
        forget_some(folder, spool, "gw", disk)
    there = {one.word.incarnation for one in at_hub(folder, "gw") if one.word}
    assert {ids[3], "zzzzzzzzzz", *ids[-48:]} <= there
    assert len(there) <= 52
    assert len([*at_hub(folder, "gw-1")]) == 1
