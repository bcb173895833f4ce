"""Running `gateway` as a shell would, and directories for it to look into."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway import cli
from gateway.event import Batch, Origin, Rows, Stored
from gateway.store.disk import RealDisk
from gateway.store.journal import Log, Segment
from gateway.store.spool import Catalog, Publisher, file_name, parquet
from gateway.testing import FakeConnection, ManualJournal

_ROOT = Path(__file__).parents[2]
_START = "import sys; from gateway.cli import main; sys.exit(main())"


@pytest.fixture
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command line in a process of its own."""

    def run(*words: str | Path, first: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", first + _START, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def split(body: bytes) -> Rows:
    """The decoder of protocol `plain`: events are separated by 0x1f."""
    return Rows(body.split(b"\x1f"))


class Node:
    """One gateway process: a journal, and a publisher into the common spool."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.root = root
        self.disk = RealDisk()
        self.journal = root / "journal" / name
        self.spool, self.archive = root / "spool", root / "archive"
        for directory in (self.journal, self.spool, self.archive):
            directory.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog(self.journal, self.disk)
        self.log = Log(self.journal, self.disk, 1)
        self.decoders = {"plain": split}

    def store(self, *payloads: bytes, count: int = 0) -> None:
        """Make a batch durable: these payloads, or *count* small ones."""
        payloads = payloads or tuple(b'{"n":%d}' % n for n in range(count))
        body = b"\x1f".join(payloads)
        origin = Origin("plain", "beats", "s-1", "127.0.0.1:9")
        self.log.commit([Batch(origin, 5_000_000, len(payloads), body, len(body))])

    def seal(self) -> Segment:
        segment = self.log.seal()
        assert segment is not None
        return segment

    def remember(self, body: bytes = b"metadata") -> None:
        """Make a batch without events durable."""
        origin = Origin("plain", "beats", "s-1", "127.0.0.1:9")
        self.log.commit([Batch(origin, 5_000_000, 0, body, 0)])

    def publish(self, *payloads: bytes, count: int = 0, keep: bool = False) -> Path:
        """Store, seal, publish; returns the file in the spool."""
        self.store(*payloads, count=count)
        publisher = Publisher(
            self.name,
            self.spool,
            self.catalog,
            self.disk,
            self.decoders,
            "zstd",
            keep=keep,
        )
        published = publisher.publish(self.seal())
        assert published is not None
        return published.path

    def take(self, path: Path, into: str | None = None) -> Path:
        """As the Spark job: put a spool file into the lake, then into the archive."""
        table = pq.read_table(path, columns=["node", "lsn", "payload"])
        target = self.root / "lake/events/protocol=plain/date=2026-01-01"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target / (into or f"part-{path.name}"))
        return path.rename(self.archive / path.name)


class System:
    """A data_dir."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def node(self, name: str = "gw-1") -> Node:
        return Node(self.root, name)

    def spooled(
        self,
        first: int,
        last: int,
        *,
        node: str = "gw-1",
        directory: str = "spool",
        name: str | None = None,
    ) -> Path:
        """A spool file with these lsns, whoever else has them; *name* may lie."""
        path = self.root / directory / (name or file_name(node, first, last))
        path.parent.mkdir(parents=True, exist_ok=True)
        count = last - first + 1
        body = b"\x1f".join(b'{"n":%d}' % n for n in range(count))
        batch = Batch(
            Origin("plain", "beats", "s-1", "127.0.0.1:9"), 5, count, body, len(body)
        )
        with path.open("wb") as sink:
            parquet.write(
                [Stored(batch, first)],
                sink,
                node=node,
                decoders={"plain": split},
                compression="zstd",
                on_undecodable=lambda stored, why: None,
            )
        return path

    def lake(
        self,
        lsns: Iterable[int],
        name: str,
        *,
        node: str = "gw-1",
        table: str = "events",
    ) -> Path:
        """A file of the tables with these events."""
        path = self.root / "lake" / table / "protocol=plain/date=2026-01-01" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lsn = pa.array(lsns, pa.int64())
        columns = {"node": pa.array([node] * len(lsn), pa.string()), "lsn": lsn}
        pq.write_table(pa.table(columns), path)
        return path


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path / "data")


@pytest.fixture
def gateway(
    system: System, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `gateway COMMAND … --data-dir` on the system: status, output, errors."""

    def run(*argv: object, where: bool = True) -> tuple[int, str, str]:
        extra = ["--data-dir", str(system.root)] if where else []
        status = cli.main([*map(str, argv), *extra])
        out, err = capsys.readouterr()
        return status, out, err

    return run


# -- senders, and what they send to ----------------------------------------------------

Talk = Callable[[socket.socket], None]


class Port(threading.Thread):
    """A port of this process; *talk* has each of its connections, in a thread."""

    def __init__(self, talk: Talk, tls: ssl.SSLContext | None) -> None:
        super().__init__(daemon=True)
        self._talk = talk
        self._tls = tls
        self._port = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                peer, _ = self._port.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        if self._tls is not None:
            try:
                peer = self._tls.wrap_socket(peer, server_side=True)
            except OSError:
                return
        with peer, contextlib.suppress(OSError):
            self._talk(peer)

    def close(self) -> None:
        self._port.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Open ports, `serve(talk, tls=None)`; the address of each."""
    ports = []

    def make(talk: Talk, tls: ssl.SSLContext | None = None) -> str:
        port = Port(talk, tls)
        ports.append(port)
        port.start()
        return port.address

    yield make
    for port in ports:
        port.close()


class Daemon:
    """A listener of ours on doubles, at a port; its disk is quick.

    It hangs up once, after *mishap* reads, when all is stored and nobody knows.
    """

    def __init__(
        self, accept: Any, journal: ManualJournal, clock: Any, *, mishap: int = 0
    ) -> None:
        self.journal = journal
        self._accept = accept
        self._clock = clock
        self._mishap = mishap
        self._lock = threading.Lock()

    def talk(self, peer: socket.socket) -> None:
        connection = FakeConnection()
        with self._lock:
            connection.serve(self._accept(connection))
        while not connection.closed and (data := peer.recv(1 << 16)):
            with self._lock:
                connection.deliver(data)
                self.journal.store_all()
                self._clock.advance(0)
                answer = connection.sent
                connection.clear()
                self._mishap -= 1
                if not self._mishap:
                    break
            peer.sendall(answer)
        with self._lock:
            connection.lose()


@pytest.fixture
def make_daemon() -> type[Daemon]:
    return Daemon


@pytest.fixture
def send() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `gateway send …` to its end."""

    def run(
        *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", _START, "send", *arguments],
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
