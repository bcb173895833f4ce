"""What is written is sent at the end of the turn, and only what the kernel refuses waits.

On real sockets: it is about what the reactor is asked, and what the kernel takes.
"""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from gateway.net import twisted_internals
from gateway.net.sends import Sends


@pytest.mark.parametrize("listen", ["tcp:127.0.0.1:0", "unix:SCRATCH/s"])
def test_an_answer_is_sent_without_asking_whether_it_can_be(with_reactor, listen):
    """No change of the epoll set for any of them."""
    result = with_reactor(f"""
        LISTEN = {listen!r}.replace("SCRATCH", os.environ["SCRATCH"])

        def talk():
            listener = serve(listen=LISTEN)
            if LISTEN.startswith("unix:"):
                client = socket.socket(socket.AF_UNIX)
                client.connect(LISTEN[5:])
            else:
                client = connect(listener)
            in_reactor(count, reactor, "addWriter")
            in_reactor(count, reactor, "removeWriter")
            result["echo"] = ""
            for _ in range(20):
                client.sendall(b"?")
                result["echo"] += received(client, 1).decode()
            result["asked"] = dict(asked)
    """)
    assert result == {"echo": "?" * 20, "asked": {}}


def test_what_is_written_in_one_turn_is_sent_in_one_go(with_reactor):
    """Fifty acknowledgements of a commit are one segment, not fifty."""
    result = with_reactor("""
        class Many(Echo):
            def received(self, data):
                count(self.connection.transport, "_send_all")
                for number in range(50):
                    self.connection.write(b"%02d" % number)

        def talk():
            client = connect(serve(Many))
            client.sendall(b"?")
            result["got"] = received(client, 100).decode()
            result["sent"] = asked["_send_all"]
    """)
    assert result == {"got": "".join(f"{n:02}" for n in range(50)), "sent": 1}


def test_much_in_pieces_is_sent_at_once(with_reactor):
    """With what was written before it, and nobody is told to write or read less; also
    where the kernel takes fewer pieces in one call."""
    result = with_reactor("""
        LARGE = os.urandom(100 * 1024)

        class Pieces(Echo):
            def received(self, data):
                self.connection.write(b"before")
                self.connection.write_each([b"head", memoryview(LARGE), b"", b"tail"])
                self.connection.write_each([b"%064d" % n for n in range(1100)])
                self.connection.write(b"behind")

        def talk():
            client = connect(serve(Pieces))
            for name in ("addWriter", "removeWriter", "removeReader"):
                in_reactor(count, reactor, name)
            many = b"".join(b"%064d" % n for n in range(1100))
            whole = b"beforehead" + LARGE + b"tail" + many + b"behind"
            result["whole"] = []
            for _ in range(3):
                client.sendall(b"?")
                result["whole"].append(received(client, len(whole)) == whole)
            result["asked"] = dict(asked)
    """)
    assert result == {"whole": [True] * 3, "asked": {}}


@pytest.mark.parametrize(
    "write", ["write(LARGE)", "write_each([LARGE[:9], LARGE[9:]])"]
)
def test_what_the_kernel_does_not_take_waits_and_arrives(with_reactor, write):
    """Megabytes to a slow reader, then a little more: whole, and in their order."""
    result = with_reactor(
        f"""
        def write(connection):
            connection.{write}
        """
        """
        from hashlib import sha256
        LARGE = os.urandom(1 << 18)

        class Large(Echo):
            left = 40
            def received(self, data):
                write(self.connection)
                self.left -= 1
                if self.left > 0:
                    reactor.callLater(0, self.received, b"")
                elif self.left == 0:
                    self.connection.write(b"end")

        def talk():
            listener = serve(Large)
            listener.unread_bytes = 1 << 30
            in_reactor(count, reactor, "addWriter")
            client = connect(listener)
            client.sendall(b"?")
            until(lambda: asked["addWriter"])
            got = received(client, 40 * len(LARGE) + 3)
            result["whole"] = got == 40 * LARGE + b"end"
            client.sendall(b"?")
            result["again"] = received(client, len(LARGE)) == LARGE
    """
    )
    assert result == {"whole": True, "again": True}


@pytest.mark.parametrize("sizes", [[1 << 20, 7], [1 << 17, 1, 1 << 17], [3, 4, 5]])
def test_pieces_of_any_size_arrive_in_their_order(with_reactor, sizes):
    """In one turn, and again when the kernel took the last of them; nothing is left."""
    result = with_reactor(f"""
        SIZES = {sizes!r}
        PIECES = [os.urandom(size) for size in SIZES]

        class Pieces(Echo):
            def received(self, data):
                for piece in PIECES:
                    self.connection.write(piece)

        def talk():
            listener = serve(Pieces)
            listener.unread_bytes = 1 << 30
            client = connect(listener)
            result["got"] = []
            for _ in range(3):
                client.sendall(b"?")
                got = received(client, sum(SIZES))
                result["got"].append(got == b"".join(PIECES))
            transport = Pieces.made[0].connection.transport
            until(lambda: transport.unsent_bytes == 0)
            result["peer"] = transport.getPeer().port == client.getsockname()[1]
    """)
    assert result == {"got": [True] * 3, "peer": True}


@pytest.mark.parametrize("end", ["close", "abort"])
def test_the_end_comes_after_what_was_written(with_reactor, end):
    """`close` in the turn of the last words: they arrive, then FIN.  `abort`: RST."""
    result = with_reactor(f"""
        class Ends(Echo):
            def received(self, data):
                self.connection.write(b"last ")
                self.connection.write(b"words")
                self.connection.{end}()

        def talk():
            listener = serve(Ends)
            client = connect(listener)
            client.sendall(b"?")
            got = b""
            try:
                while piece := client.recv(99):
                    got += piece
                result["end"] = got.decode()
            except ConnectionResetError:
                result["end"] = "reset"
            client.close()
            until(lambda: listener.connections == 0 and Ends.made[0].gone)
    """)
    assert result["end"] == {"close": "last words", "abort": "reset"}[end]


def test_a_peer_that_is_gone_does_not_disturb_the_others(with_reactor):
    """Written to in one turn with somebody else: it is lost, the other is answered."""
    result = with_reactor("""
        class Waits(Echo):
            def received(self, data):
                self.connection.pause()
                self.data += data

        def answer():
            for server in Echo.made:
                server.connection.write(b"answer")
                server.connection.write(b"answer")

        def talk():
            listener = serve(Waits)
            gone, stays = connect(listener), connect(listener)
            for client in (gone, stays):
                client.sendall(b"?")
            until(lambda: len(Echo.made) == 2 and all(one.data for one in Echo.made))
            linger = struct.pack("ii", 1, 0)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            gone.close()
            in_reactor(answer)
            result["got"] = received(stays, 12).decode()
            until(lambda: listener.connections == 1)
            result["gone"] = sorted(one.gone for one in Echo.made)
    """)
    assert result == {"got": "answeranswer", "gone": [False, True]}


class Writer:
    """In place of an accepted socket."""

    unsent_bytes = 0
    little_to_send = b""

    def __init__(self, sends: Sends, sent: list[Writer], error: bool = False) -> None:
        self.sends, self.sent, self.error = sends, sent, error

    def send(self) -> None:
        self.sent.append(self)
        if self.error:
            raise RuntimeError("a producer raised")


def test_thousands_are_sent_to_in_turns():
    """The reactor serves others in between, and everybody gets theirs once, in order."""
    clock, sent = Clock(), list[Writer]()
    sends = Sends(clock)
    writers = [Writer(sends, sent) for _ in range(1000)]
    for writer in writers:
        sends.add(writer)  # type: ignore[arg-type]
    sends.remove(writers[3])  # type: ignore[arg-type]
    turns = 0
    while clock.getDelayedCalls():
        turns += 1
        before = len(sent)
        clock.calls.pop(0).func()
        assert 0 < len(sent) - before <= 256
    assert sent == writers[:3] + writers[4:]
    assert turns == 4


def test_who_raises_keeps_nobody_from_being_sent_to():
    """The error is the reactor's to log; the others are sent to in the next turn."""
    clock, sent = Clock(), list[Writer]()
    sends = Sends(clock)
    writers = [Writer(sends, sent, error=number == 1) for number in range(3)]
    for writer in writers:
        sends.add(writer)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="a producer raised"):
        clock.advance(0)
    clock.advance(0)
    assert sent == writers


def test_what_is_written_while_others_are_sent_to_goes_next(monkeypatch):
    """To one that was sent to already, in the call for many."""
    clock, sent = Clock(), list[Writer]()
    sends = Sends(clock)
    little, much = Writer(sends, sent), Writer(sends, sent)
    calls: list[list[Writer]] = []

    def send_little(some: list[Writer]) -> list[Writer]:
        calls.append(some)
        return [one for one in some if one is little]

    monkeypatch.setattr("gateway.net.sends.send_little", send_little)
    much.send = lambda: sends.add(little)  # type: ignore[arg-type, method-assign]
    for writer in (much, little):
        sends.add(writer)  # type: ignore[arg-type]
    clock.advance(0)
    assert calls == [[much, little], [little]]


@pytest.mark.parametrize("sent", range(10))
def test_the_rest_of_some_pieces(sent):
    """Wherever the kernel has stopped: within a piece, between two, before empty ones."""
    pieces = [b"", b"abc", memoryview(b"xdefx")[1:4], b"", b"", memoryview(b"ghi"), b""]
    assert b"".join(twisted_internals._rest(pieces, sent)) == b"abcdefghi"[sent:]
