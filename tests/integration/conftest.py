"""Clients from the npm registry, and sockets that speak Lumberjack."""

import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemons import spawn
from deadlines import excerpt, run
from making import Make
from programs import ask_registry, end, kept, program

_PUBLISHED = ("needs_go", "needs_maven", "needs_node", "needs_npm", "needs_pravega")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of a published client's tests `make test` runs those that are marked `smoke`."""
    if item.get_closest_marker("smoke") is None and any(
        item.get_closest_marker(name) for name in _PUBLISHED
    ):
        item.add_marker("long")


@pytest.fixture(scope="session")
def npm(tmp_path_factory) -> Make[Callable[..., str]]:
    """Install `NAME@VERSION …`; returns a way to run a program that requires them.

    Where npm is not there or cannot reach its registry, the test is skipped; in CI it
    fails.
    """

    def install(*packages: str) -> Make[str]:
        node, npm = program("node"), program("npm")
        words = [
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]
        found = kept(
            "npm",
            [each.encode() for each in (*words, *packages)],
            lambda home: ask_registry(npm, *words, home, *packages, cwd=home),
        )
        home = tmp_path_factory.mktemp("npm")
        (home / "node_modules").symlink_to(found / "node_modules")
        return lambda text, *words: _run(node, home, text, words)

    return install


def _run(node: str, home: Path, text: str, words: tuple[object, ...]) -> str:
    """What the program prints; it must end well, and in time."""
    path = home / "program.js"
    path.write_text(text)
    done = run(node, path, *words, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def browse(tmp_path) -> Iterator[Callable[[str], Path]]:
    """Open a page in a headless Chromium that believes any certificate; returns the
    browser's directory, where DevToolsActivePort will be.
    """
    found = program("chromium", "chromium-browser", "google-chrome")
    started: list[subprocess.Popen[bytes]] = []
    profile = tmp_path / "browser"
    profile.mkdir()

    def browse(url: str) -> Path:
        words = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
            "--disable-background-networking --disable-dev-shm-usage "
            "--ignore-certificate-errors --enable-logging=stderr "
            "--remote-debugging-port=0"
        )
        command = [found, *words.split(), f"--user-data-dir={profile}", url]
        started.append(spawn(command, profile / "browser.log"))
        return profile

    yield browse
    for process in started:
        end(process)
    for log in profile.glob("browser.log"):
        print(excerpt(log))


class Peer:
    """A socket that speaks Lumberjack v2 as badly as a test wants."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.sequence = 0

    @property
    def name(self) -> str:
        """As the daemon sees it."""
        return "{}:{}".format(*self.socket.getsockname())

    def window(self, *events: bytes) -> bytes:
        """A window; sequence numbers go on from one to the next."""
        frames = [struct.pack(">2sI", b"2W", len(events))]
        for event in events:
            self.sequence += 1
            frames.append(struct.pack(">2sII", b"2J", self.sequence, len(event)))
            frames.append(event)
        return b"".join(frames)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def acks(self) -> Iterator[int]:
        """The sequence numbers acknowledged, until the daemon's FIN; without the zeros by
        which it says that it lives while a window waits."""
        tail = b""
        while data := self.socket.recv(1 << 16):
            tail += data
            while len(tail) >= 6:
                kind, number = struct.unpack_from(">2sI", tail)
                assert kind == b"2A"
                tail = tail[6:]
                if number:
                    yield number
        assert not tail

    def ack(self) -> int:
        return next(self.acks())

    def rest(self) -> bytes:
        """All until the daemon's FIN; raises ConnectionResetError if it is none."""
        return b"".join(iter(lambda: self.socket.recv(1 << 16), b""))


@pytest.fixture
def connect() -> Iterator[Make[Peer]]:
    """Connect to an address; from *source*, which may be any 127.x.y.z."""
    peers: list[Peer] = []

    def connect(address: tuple[str, int], source: str = "127.0.0.1") -> Peer:
        made = socket.create_connection(address, source_address=(source, 0))
        peers.append(Peer(made))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.socket.close()
