"""Bytes of a channel, read back from the journal, the spool and the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from gateway.disk import RealDisk
from gateway.event import Batch, Origin
from gateway.history import Gone, History
from gateway.journal import log, segment
from gateway.pravega import records
from gateway.pravega.segments import Segments
from gateway.pravega.wire import NEVER
from gateway.spool import Catalog, Publisher

ORIGIN = Origin("pravega", "p", "1", "192.0.2.1:1")
OTHER = Origin("other", "o", "1", "192.0.2.1:1")
W = b"w" * 16


def at_once(call: Callable[..., bytes], *args: Any) -> Deferred[bytes]:
    return succeed(call(*args))


class Places:
    """A journal that is written, published and archived by hand."""

    def __init__(self, root: Path) -> None:
        self.disk = RealDisk()
        self.root = root
        for name in ("journal", "spool", "archive"):
            (root / name).mkdir()
        self.log = log.Log(root / "journal", self.disk, 1)
        self.catalog = Catalog(root / "journal", self.disk)
        self.publisher = Publisher(
            "n",
            root / "spool",
            self.catalog,
            self.disk,
            {"pravega": records.decode, "other": records.decode},
            "zstd",
        )
        self.state = Segments()
        for name in ("s", "t"):
            self.commit(self.state.create(name, 0))
        self.bytes = {"s": b"", "t": b""}
        self.numbers = {"s": NEVER, "t": NEVER}

    def commit(self, change: Any, origin: Origin = ORIGIN) -> None:
        batch = Batch(origin, 0, change.count, change.body, change.payload_bytes)
        lsn = self.log.commit([batch])
        if origin is ORIGIN:
            list(self.state.stored(change.body, lsn))

    def append(self, data: bytes, name: str = "s") -> None:
        last = self.numbers[name]
        self.numbers[name] = max(last, 0) + 1
        self.commit(
            self.state.append(
                name, W, self.numbers[name], data, 0, claimed=1, last=last
            )
        )
        self.bytes[name] += data

    def publish(self) -> Path:
        sealed = self.log.seal()
        assert sealed is not None
        return self.publisher.publish(sealed).path

    def history(self) -> History:
        return History(
            "n",
            self.disk,
            journal=self.root / "journal",
            spool=self.root / "spool",
            archive=self.root / "archive",
            protocol="pravega",
            decode=records.decode,
            in_thread=at_once,
        )

    def whole(self, history: History, name: str, *, size: int = 37) -> bytes:
        """A segment, read from its beginning in small pieces."""
        got = b""
        found = self.state.find(name)
        while len(got) < found.readable:
            lsn = found.place(len(got))
            assert lsn is not None
            more = history.fetch(name, len(got), size, lsn)
            assert 0 < len(more) <= size
            got += more
        return got


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def events(*payloads: bytes) -> bytes:
    return b"".join(len(each).to_bytes(8) + each for each in payloads)


def fill(places: Places) -> None:
    for n in range(20):
        places.append(events(b"%d" % n * n, b"", b"x"))
        places.append(b"raw bytes %d" % n if n % 3 == 0 else events(b"t"), "t")


@pytest.mark.parametrize("published", [0, 1, 2])
def test_wherever_it_lies(places: Places, published: int) -> None:
    """Journal, spool, archive, or all three: the bytes are the bytes."""
    paths = []
    for _ in range(3):
        fill(places)
        if len(paths) < published:
            paths.append(places.publish())
        else:
            places.log.seal()
    fill(places)
    if paths:
        paths[0].rename(places.root / "archive" / paths[0].name)
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]


def test_files_that_move_meanwhile(places: Places) -> None:
    """What was in the journal a moment ago is found in the spool, then the archive."""
    fill(places)
    history = places.history()
    assert places.whole(history, "s") == places.bytes["s"]
    path = places.publish()
    assert places.whole(history, "s") == places.bytes["s"]
    path.rename(places.root / "archive" / path.name)
    assert places.whole(history, "t") == places.bytes["t"]


def test_what_is_gone(places: Places) -> None:
    """A file that was deleted takes its bytes along; the first lsn says so."""
    fill(places)
    path = places.publish()
    first = len(places.bytes["s"])
    fill(places)
    history = places.history()
    assert history.first_lsn == 1
    path.unlink()
    with pytest.raises(Gone):
        history.fetch("s", 0, 10, 1)
    assert (
        history.first_lsn
        == segment.parse_name(
            min(p.name for p in (places.root / "journal").glob("*.journal"))
        )[0]
    )  # type: ignore[index]
    place = places.state.find("s").place(first)
    assert place is not None
    assert (
        history.fetch("s", first, 8, history.first_lsn)
        == places.bytes["s"][first : first + 8]
    )


def test_nothing_at_all(tmp_path: Path) -> None:
    """Without any file everything is gone."""
    places = Places(tmp_path)
    for path in (tmp_path / "journal").glob("*.journal"):
        path.unlink()
    history = places.history()
    assert history.first_lsn == 2**63 - 1
    with pytest.raises(Gone):
        history.fetch("s", 0, 10, 1)


def test_other_protocols_are_not_ours(places: Places) -> None:
    """A channel of the same name in another protocol is another channel."""
    change = Segments().create("s", 0)
    state = Segments()
    state.create("s", 0)
    other = state.append("s", W, 1, events(b"not ours"), 0, claimed=1, last=NEVER)
    places.commit(other, OTHER)
    places.append(events(b"ours"))
    assert places.whole(places.history(), "s") == events(b"ours")
    places.publish()
    assert places.whole(places.history(), "s") == events(b"ours")
    assert change.count == 0


def test_in_a_thread(places: Places) -> None:
    """`read` is `fetch`, somewhere else."""
    places.append(events(b"abc"))
    got: list[bytes] = []
    places.history().read("s", 8, 100, 1).addCallback(got.append)
    assert got == [b"abc"]
