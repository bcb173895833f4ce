"""Guessing tokens and passwords is slow, and mistakes are not."""

from twisted.internet.task import Clock

from gateway.net import penalties
from gateway.net.penalties import Penalties
from gateway.sdk.interfaces import Connection, Refusal

_WRONG = Refusal("wrong password", key="options.users", wrong_credentials=True)


def deny(connection: Connection, data: bytes) -> None:
    raise Refusal(
        "wrong token", key="options.token", reply=b"no", wrong_credentials=True
    )


def test_each_guess_waits_longer():
    """Up to a limit; after a quiet minute the next one is a mistake again."""
    clock = Clock()
    waits = Penalties(clock)
    found = [waits.add("192.0.2.1") for _ in range(8)]
    assert found == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert waits.add("192.0.2.2") == 0.0
    clock.advance(60)
    assert waits.add("192.0.2.1") == 5.0
    clock.advance(61)
    assert waits.add("192.0.2.1") == 0.0


def test_it_forgets_the_oldest_host():
    """A million hosts do not fill the memory."""
    waits = Penalties(Clock())
    for number in range(penalties._MOST_HOSTS + 100):
        waits.add(f"host-{number}")
    assert len(waits._hosts) == penalties._MOST_HOSTS


def test_the_answer_to_a_guess_waits(make_net, warnings):
    """All are counted, one is logged; what is sent meanwhile is not looked at."""
    told: list[str] = []
    net = make_net(deny, keywords={"on_wrong_credentials": told.append})
    first, second = net.peer(), net.peer()
    first.send(b"guess")
    assert first.got() == b"no"
    assert first.transport.finished
    second.send(b"guess")
    second.send(b"another")
    assert net.server.data == b"guess"
    assert second.transport.producerState == "paused"
    assert not second.transport.finished
    net.pass_time(0.25)
    assert second.got() == b"no"
    assert second.transport.finished
    assert told == ["beats", "beats"]
    assert net.listener.rejected == {"protocol": 2}
    assert len(warnings()) == 1


def test_who_leaves_before_the_answer_is_gone(make_net):
    """Nothing is written to a connection that is over."""
    net = make_net(deny)
    net.peer().send(b"guess")
    peer = net.peer()
    peer.send(b"guess")
    peer.lose()
    net.pass_time(1)
    assert peer.got() == b""
    assert net.listener.connections == 1


def test_a_report_ends_nothing(make_net, warnings):
    """It is logged within the same quota as refusals are, and not counted as one."""
    told: list[str] = []

    def report(connection: Connection, data: bytes) -> None:
        connection.report(_WRONG)

    net = make_net(report, keywords={"on_wrong_credentials": told.append})
    peer = net.peer()
    for _ in range(500):
        peer.send(b"x")
    assert warnings() == ["beats: 192.0.2.1:4000: wrong password (options.users)"]
    assert not peer.transport.finished
    assert net.listener.rejected == {}
    assert len(told) == 500


def test_a_report_says_how_long_the_answer_is_to_wait(make_net):
    """On any connection of the address; what are no credentials costs nothing."""
    waits: list[float] = []

    def report(connection: Connection, data: bytes) -> None:
        waits.append(connection.report(_WRONG if data == b"guess" else Refusal("odd")))

    net = make_net(report)
    for data in (b"guess", b"odd", b"guess", b"guess"):
        net.peer().send(data)
    net.peer("192.0.2.2").send(b"guess")
    assert waits == [0.0, 0.0, 0.25, 0.5, 0.0]
