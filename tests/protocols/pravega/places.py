"""Where the bytes of streams lie: a journal, a spool and an archive, by hand."""

from functools import partial
from pathlib import Path
from typing import Any

from doubles import AtOnce
from gateway.event import Batch, Origin
from gateway.protocols.pravega import records
from gateway.protocols.pravega.history import History
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER
from gateway.store.directories import Directories
from gateway.store.finder import Finder
from gateway.store.opening import Start, open_node
from gateway.store.spool.retained import Retained
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine

ORIGIN = Origin("pravega", "p", "1", "192.0.2.1:1")
_WRITER = b"w" * 16
OTHER = Origin("other", "o", "1", "192.0.2.1:1")


class Places:
    """A journal that is written, published and archived by hand."""

    def __init__(self, root: Path, **decoding: Any) -> None:
        """*decoding* is as `records.decode` takes it."""
        self.decode = partial(records.decode, **decoding)
        self.disk = RealDisk()
        self.root = root
        self.directories = Directories.under(root)
        self.journal = self.directories.journal_of("n")
        self.open()
        self.state = Segments()
        for name in ("s", "t"):
            self.commit(self.state.create(name, 0))
        self.bytes = {"s": b"", "t": b""}
        self.numbers = {"s": NEVER, "t": NEVER}

    def open(self, *, remembering: bool = False) -> None:
        decoders = {"pravega": self.decode, "other": records.decode}
        opened = open_node(
            Start(
                "n",
                self.directories,
                Machine(self.disk),
                decoders,
                remembering=remembering,
            )
        )
        self.log, self.publisher = opened.log, opened.publisher

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
                name, _WRITER, self.numbers[name], data, 0, claimed=1, last=last
            )
        )
        self.bytes[name] += data

    def publish(self) -> Path:
        sealed = self.log.seal()
        assert sealed is not None
        [published] = self.publisher.publish(sealed)
        return published.path

    def archive(self) -> None:
        """Publish, and let the Spark job take it."""
        path = self.publish()
        path.rename(self.directories.archive / path.name)

    def retained(self) -> Retained:
        made = Retained(
            "n", self.directories.retained_of("n"), self.directories.archive, self.disk
        )
        made.needed = {"pravega": self.state.needed}
        return made

    def expire(self, retained: Retained | None = None) -> None:
        """Every file leaves the archive."""
        names = sorted(self.directories.archive.iterdir())
        for path in (retained or self.retained()).keep(names):
            self.disk.unlink(path)

    def kept(self) -> list[Path]:
        return sorted(self.directories.retained_of("n").iterdir())

    def published(self, **more: Any) -> Any:
        """All that is committed is in the spool: a look at it."""
        self.publish()
        return self.history(**more)

    def history(self) -> History:
        self.threads = AtOnce()
        return History(
            Finder(self.directories, "n", retained=True),
            protocol="pravega",
            lookups=self.threads,
        )

    def whole(self, history: History, name: str, *, size: int = 37) -> bytes:
        """A segment, read from its beginning in small pieces."""
        got = b""
        found = self.state.find(name)
        while len(got) < found.readable:
            lsn = found.lsn_near(len(got))
            assert lsn is not None
            more = history.fetch(name, len(got), size, lsn)
            assert 0 < len(more) <= size
            got += more
        return got


def events(*payloads: bytes) -> bytes:
    return b"".join(len(each).to_bytes(8) + each for each in payloads)


def fill(places: Places, *, archive: bool = False) -> None:
    for n in range(20):
        places.append(events(b"%d" % n * n, b"", b"x"))
        places.append(b"raw bytes %d" % n if n % 3 == 0 else events(b"t"), "t")
    if archive:
        places.archive()
