"""Data directories for `gateway` to look into, and listeners for it to send to."""

import contextlib
import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from twisted.internet.task import Clock

from daemons import spawn
from deadlines import eventually, finish
from gateway import cli
from gateway.event import Batch, Origin, Rows
from gateway.plugins import installed
from gateway.sdk.protocol import Context
from gateway.store.directories import Directories
from gateway.store.finder import Finder
from gateway.store.hub.arrivals import Arrivals
from gateway.store.journal import Segment
from gateway.store.opening import Start, open_node
from gateway.store.spool import file_name
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings
from incarnations import A, rows_of
from making import Make
from spools import spool_file


def split(body: bytes) -> Rows:
    """The decoder of protocol `plain`: events are separated by 0x1f."""
    return Rows(body.split(b"\x1f"))


_NAMES = ["node", "lsn", "payload", "received_at"]


class Node:
    """One gateway process: a journal, and a publisher into the common spool."""

    def __init__(self, root: Path, name: str, *, remembers: bool) -> None:
        self.name = name
        self.root = root
        directories = Directories.under(root)
        self.journal = directories.journal_of(name)
        self.spool, self.archive = directories.spool, directories.archive
        self.decoders = {"plain": split}
        opened = open_node(
            Start(name, directories, Machine(), self.decoders, remembering=remembers)
        )
        self.log, self.publisher = opened.log, opened.publisher
        self.incarnation = opened.lineage.now.id

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

    def publish(self, *payloads: bytes, count: int = 0) -> Path:
        """Store, seal, publish; returns the file in the spool."""
        self.store(*payloads, count=count)
        [published] = self.publisher.publish(self.seal())
        return published.path

    def everywhere(self) -> None:
        """5 events in lake and archive, 4 in the spool, 3 in a sealed and 2 in the open
        segment of the journal.
        """
        self.take(self.publish(count=5))
        self.publish(count=4)
        self.store(count=3)
        self.seal()
        self.store(count=2)

    def take(self, path: Path, into: str | None = None) -> Path:
        """As the Spark job: put a spool file into the lake, then into the archive."""
        table = pq.read_table(path, columns=_NAMES)
        target = self.root / "lake/events/protocol=plain/date=2026-01-01"
        target.mkdir(parents=True, exist_ok=True)
        rows = rows_of(table, path.name)
        pq.write_table(rows, target / (into or f"part-{path.name}"))
        return path.rename(self.archive / path.name)


class System:
    """A data_dir."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def node(self, name: str = "gw-1", *, remembers: bool = False) -> Node:
        """One that *remembers* keeps its segments until a checkpoint covers them."""
        return Node(self.root, name, remembers=remembers)

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
        path = self.root / directory / (name or file_name(node, A, first, last))
        path.parent.mkdir(parents=True, exist_ok=True)
        payloads = [b'{"n":%d}' % n for n in range(last - first + 1)]
        path.write_bytes(spool_file(node, first, [Rows(payloads)]))
        return path

    def lake(
        self,
        lsns: Iterable[int],
        name: str,
        *,
        node: str = "gw-1",
        table: str = "events",
        by: str = A,
    ) -> Path:
        """A file of the tables with these events."""
        path = self.root / "lake" / table / "protocol=plain/date=2026-01-01" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lsn = pa.array(lsns, pa.int64())
        columns = {
            "node": pa.array([node] * len(lsn), pa.string()),
            "lsn": lsn,
            "incarnation": pa.array([by] * len(lsn), pa.string()),
        }
        pq.write_table(pa.table(columns), path)
        return path


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    """The audit does not wait before it looks at a moving system again."""
    monkeypatch.setattr("gateway.audit.proof._PAUSE_SECONDS", 0)


@pytest.fixture
def system(tmp_path) -> System:
    return System(tmp_path / "data")


@pytest.fixture
def node(system) -> Node:
    return system.node()


@pytest.fixture
def gateway(system, capsys) -> Make[tuple[int, str, str]]:
    """Run `gateway COMMAND … --data-dir` on the system: status, output, errors."""

    def run(*argv: object, where: bool = True) -> tuple[int, str, str]:
        extra = ["--data-dir", str(system.root)] if where else []
        status = cli.main([*map(str, argv), *extra])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def says(gateway) -> Make[str]:
    """Run `gateway COMMAND …` as `gateway` does: it ends with this status, and its output."""

    def run(status: int, *argv: object, **more: Any) -> str:
        got, out, _ = gateway(*argv, **more)
        assert got == status, out
        return str(out)

    return run


@pytest.fixture
def warns(gateway) -> Make[str]:
    """Run `gateway COMMAND …` as `gateway` does: it ends with this status, and its errors."""

    def run(status: int, *argv: object, **more: Any) -> str:
        got, out, err = gateway(*argv, **more)
        assert got == status, out
        return str(err)

    return run


# -- ports, and listeners to send to ---------------------------------------------------

Talk = Callable[[socket.socket], None]


class Port(threading.Thread):
    """A port of this process; *talk* has each of its connections, in a thread."""

    def __init__(self, talk: Talk, tls: ssl.SSLContext | None) -> None:
        super().__init__(daemon=True)
        self._talk = talk
        self._tls = tls
        self._talking: list[threading.Thread] = []
        self._port = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                peer, _ = self._port.accept()
            except OSError:
                return
            talking = threading.Thread(target=self._serve, args=[peer], daemon=True)
            self._talking.append(talking)
            talking.start()

    def _serve(self, peer: socket.socket) -> None:
        if self._tls is not None:
            try:
                peer = self._tls.wrap_socket(peer, server_side=True)
            except OSError:
                return
        with peer, contextlib.suppress(OSError):
            self._talk(peer)

    def close(self) -> None:
        """Nobody is left who would go on while other tests run."""
        self._port.shutdown(socket.SHUT_RDWR)
        self.join()
        self._port.close()
        eventually(
            lambda: not any(each.is_alive() for each in self._talking),
            "the end of all connections",
        )


@pytest.fixture
def serve() -> Iterator[Make[str]]:
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


class Listener:
    """A listener of an installed protocol at a port, with a disk that is quick.

    It hangs up once: after so many *reads*, or when so many *batches* are stored, of
    which nobody knows the last.
    """

    address = ""

    def __init__(
        self, protocol: str, reads: int = 0, batches: int = 0, **options: Any
    ) -> None:
        self.journal = ManualJournal()
        self._clock = Clock()
        self._clock.advance(1_700_000_000)
        plugin = installed().protocols[protocol]
        kind = plugin.options()
        assert kind is not None
        if protocol == "pomelo":
            options.setdefault("session_events", False)
        listener = settings(kind, **options)
        self._decode = plugin.decoder([listener.options])
        nowhere = Path("/nonexistent")
        service = plugin.service(
            Context(
                node="gw-1",
                listeners=[listener],
                journal=self.journal,
                reactor=self._clock,
                decode=self._decode,
                feeds={},
                data_dir=nowhere,
                disk=RealDisk(),
                files=Finder(Directories.under(nowhere), "gw-1"),
                address=lambda name: self.address,
                arrivals=Arrivals(
                    "gw-1", Directories.under(nowhere), RealDisk(), lambda _: None
                ),
            )
        )
        port, *_ = service.ports(listener)
        self._accept = port.accept
        self._reads = reads
        self._batches = batches
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
                if self._is_time():
                    break
            peer.sendall(answer)
        with self._lock:
            connection.lose()

    def _is_time(self) -> bool:
        """To hang up."""
        self._reads -= 1
        if self._reads == 0:
            return True
        if self._batches and len(self.journal.stored) >= self._batches:
            self._batches = 0
            return True
        return False

    @property
    def rows(self) -> list[Rows]:
        """All that is stored, by batch."""
        return [self._decode(each.batch.body) for each in self.journal.stored]

    @property
    def payloads(self) -> list[bytes]:
        return [payload for rows in self.rows for payload in rows.each()]

    @property
    def ids(self) -> list[str]:
        """`event.id` of all that is stored, also where v1 has made it one key."""
        events = [json.loads(payload) for payload in self.payloads]
        return [each.get("event.id") or each["event"]["id"] for each in events]


@pytest.fixture
def listen(serve) -> Make[Listener]:
    """Open a listener, `listen(protocol, tls=None, reads=0, batches=0, **options)`."""

    def make(protocol: str, tls: ssl.SSLContext | None = None, **more: Any) -> Listener:
        made = Listener(protocol, **more)
        made.address = serve(made.talk, tls)
        return made

    return make


@pytest.fixture
def send(gateway_command) -> Make:
    """Run `gateway send …` to its end."""
    return lambda *words, **more: gateway_command("send", *words, **more)


@pytest.fixture
def send_until(tmp_path) -> Make[str]:
    """Run `gateway send …`, which has nothing acknowledged and tries again, until it says
    *complaint*; then it is stopped.  What it said.
    """

    def run(complaint: str, *words: object) -> str:
        log = tmp_path / "send.log"
        command = [sys.executable, "-m", "gateway", "send", *map(str, words)]
        process = spawn(command, log)

        def complains() -> bool:
            ended = process.poll() is not None
            said = complaint in log.read_text()
            assert said or not ended, log.read_text()
            return said

        try:
            eventually(complains, complaint)
            process.terminate()
            finish(process)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 1
        return log.read_text()

    return run
