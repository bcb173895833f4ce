"""The demo of edges: its set-up, its lines, what goes wrong when; starts no gateway."""

import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import config
from gateway.protocols.forward.options import Options as Forward
from gateway_demo.edge.faults import Faults
from gateway_demo.edge.line import Line
from gateway_demo.edge.progress import EdgeProgress, Progress
from gateway_demo.edge.setup import EDGES, prepare
from gateway_testkit.daemon import free_port


def test_edges_may_forward_to_the_hub(tmp_path):
    """Over a line each, with its token; only the hub's directory has tables."""
    setup = prepare(tmp_path / "demo")
    hub = config.load(setup.hub.config)
    [taking] = hub.listeners
    assert isinstance(taking.options, Forward)
    tokens = taking.options.tokens
    assert str(taking.listen) == f"tcp:127.0.0.1:{setup.port}"
    assert len({*setup.lines.values(), setup.port}) == len(EDGES) + 1
    for edge in setup.edges:
        loaded = config.load(edge.config)
        assert loaded.forward is not None
        assert loaded.forward.token == tokens[loaded.node]
        assert loaded.spool.after == "forward"
        assert loaded.data_dir != hub.data_dir


def test_every_sender_has_its_listener(tmp_path):
    """And every edge has two senders."""
    setup = prepare(tmp_path / "demo")
    edges = {edge.name: edge for edge in setup.edges}
    for name, traffic in setup.traffic:
        listeners = {one.name: one for one in config.load(edges[name].config).listeners}
        assert listeners[traffic.listener].protocol == traffic.protocol
        address = edges[name].addresses[traffic.listener]
        assert str(listeners[traffic.listener].listen) == f"tcp:{address}"
    assert sorted(name for name, _ in setup.traffic) == sorted(EDGES * 2)


# -- the line ----------------------------------------------------------------------------


@pytest.fixture
def echoing() -> Iterator[int]:
    """The port of who says again what is said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def echo() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(1 << 16):
                        connection.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def line(echoing) -> Iterator[Line]:
    line = Line(free_port(), echoing)
    yield line
    line.close()


def connected(line: Line) -> socket.socket:
    return socket.create_connection(("127.0.0.1", line.begin))


def said(connection: socket.socket) -> bytes:
    connection.sendall(b"hello")
    found = b""
    while len(found) < 5:
        found += connection.recv(5)
    return found


def test_a_line_is_cut_and_mended(line):
    """What is on it ends, whoever connects is refused, and later it is as before."""
    with connected(line) as first:
        assert said(first) == b"hello"
        line.cut()
        assert first.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connected(line)
    line.mend()
    with connected(line) as again:
        assert said(again) == b"hello"
    assert line.carried == 10


def test_the_other_end_is_told(line):
    """An edge that hangs up has hung up at the hub."""
    with connected(line) as first:
        assert said(first) == b"hello"
    # The echo takes one at a time: the next one is heard when the first is over.
    with connected(line) as second:
        assert said(second) == b"hello"


# -- what goes wrong, and when -----------------------------------------------------------


class Edges:
    """What can be cut and killed, and was."""

    def __init__(self) -> None:
        self.done: list[str] = []
        cut, mend = self._does("cut a"), self._does("mend a")
        self.lines = {"a": SimpleNamespace(cut=cut, mend=mend)}

    def _does(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)

    def kill(self, node: Any) -> None:
        self.done.append(f"kill {node.name}")

    def start_gateway(self, node: Any) -> None:
        self.done.append(f"start {node.name}")


def progress(a: tuple[int, int], b: tuple[int, int], *, sent: bool = False) -> Progress:
    edges = [
        EdgeProgress(name, True, acknowledged, at_hub, 0, True, 0)
        for name, (acknowledged, at_hub) in (("a", a), ("b", b))
    ]
    return Progress(1.0, edges, sent)


@pytest.fixture
def edges() -> Edges:
    return Edges()


@pytest.fixture
def faults(edges) -> Faults:
    first, second = SimpleNamespace(name="a"), SimpleNamespace(name="b")
    return Faults(edges, first, second, 50, lambda _: None)  # type: ignore[arg-type]


def test_the_line_stays_away_until_much_waits(edges, faults):
    """And the other edge is killed meanwhile, while it has more to come."""
    for early in (progress((49, 49), (0, 0)), progress((90, 90), (0, 0), sent=True)):
        faults.look(early)
        assert edges.done == []
    faults.look(progress((60, 50), (0, 0)))
    assert edges.done == ["cut a"]
    faults.look(progress((99, 50), (49, 40)))
    assert edges.done == ["cut a"]
    faults.look(progress((120, 50), (60, 50)))
    assert edges.done == ["cut a", "kill b", "start b"]
    assert not faults.all
    faults.look(progress((99, 50), (60, 50)))
    assert not faults.all
    for _ in range(2):
        faults.look(progress((100, 50), (60, 50)))
    assert edges.done == ["cut a", "kill b", "start b", "mend a"]
    assert faults.all


def test_it_is_mended_when_nothing_more_comes(edges, faults):
    """However little waits."""
    faults.look(progress((60, 50), (0, 0)))
    faults.look(progress((60, 50), (60, 50)))
    faults.look(progress((61, 50), (60, 60), sent=True))
    assert faults.all


def test_senders_that_end_before_the_other_edge_is_killed(edges, faults):
    """The line is back all the same, so that it can be said at once what was not done."""
    faults.look(progress((60, 50), (0, 0)))
    faults.look(progress((60, 50), (40, 40), sent=True))
    assert edges.done == ["cut a", "mend a"]
    assert not faults.all


def test_it_is_done_when_all_is_at_the_hub_and_in_the_tables():
    """An edge that is gone may have more; so may one whose sender is at work."""
    there = EdgeProgress("a", True, 10, 10, 10, True, 0)
    not_all = [
        EdgeProgress("b", True, 10, 9, 10, False, 100),
        EdgeProgress("b", True, 10, 10, 9, True, 0),
        EdgeProgress("b", False, 0, 0, 10, False, 0),
    ]
    assert Progress(1.0, [there], True).done
    assert not Progress(1.0, [there], False).done
    for one in not_all:
        found = Progress(1.0, [there, one], True)
        assert not found.done
        assert "b " in found.line()
        assert found.table().row_count == 2
    assert "no line" in Progress(1.0, not_all[:1], True).line()
