"""What becomes of the packages that a client sends: batches, responses, refusals."""

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.session import HEARTBEAT, TICKS, Session
from gateway.sdk import native
from gateway.sdk.interfaces import Refusal

from .conftest import zipped

ACK = wire.package(wire.ACK)
MOVE, SAY = "area.player.move", "chat.room.say"


def _json(code: int = 200) -> bytes:
    return b'{"code":%d}' % code


def _working(pomelo: Any, **changes: Any) -> Session:
    session: Session = pomelo.session(**changes)
    assert pomelo.outcome([pomelo.hello()], session).refusal is None
    return session


# The way in


def test_handshake_ack_and_data_in_one_segment(pomelo):
    """Packages count in their order; the original loses the second and the third."""
    found = pomelo.outcome([pomelo.hello() + wire.request(1, "a.b.c", b"{}")])
    assert found.handshake is not None
    assert found.sent == found.handshake.reply + HEARTBEAT
    assert found.events == [("request", 1, "a.b.c", b"{}", None, "application/json")]
    assert found.responses == wire.response(1, _json())


def test_the_first_heartbeat_is_ours(pomelo):
    """Right after the acknowledgement; not if there are none."""
    session = pomelo.session()
    reply = pomelo.outcome([pomelo.handshake()], session).sent
    assert reply.startswith(b"\x01")
    assert pomelo.outcome([ACK], session).sent == HEARTBEAT
    assert pomelo.outcome([ACK], session).sent == b""
    silent = pomelo.session(heartbeat=0)
    assert pomelo.outcome([pomelo.hello()], silent).sent.startswith(b"\x01")
    assert not pomelo.outcome(
        [pomelo.hello()], pomelo.session(heartbeat=0)
    ).sent.endswith(HEARTBEAT)


@pytest.mark.parametrize(
    ("package", "rule"),
    [
        (ACK, "acknowledgement before the handshake"),
        (HEARTBEAT, "heartbeat before the handshake"),
        (wire.notify("a", b"{}"), "message before the handshake"),
        (wire.request(1, "a", b"{}"), "message before the handshake"),
    ],
)
def test_before_the_handshake(pomelo, package, rule):
    """A kick with a reason, where the original is silent until its timeout."""
    found = pomelo.outcome([package])
    assert rule in str(found.refusal)
    assert found.refusal.reply.startswith(b"\x05")


def test_before_the_acknowledgement(pomelo):
    """A heartbeat is fine, a message is not."""
    session = pomelo.session()
    assert pomelo.outcome([pomelo.handshake(), HEARTBEAT], session).sent.endswith(
        HEARTBEAT
    )
    found = pomelo.outcome([wire.notify("a", b"{}")], session)
    assert "before the handshake was acknowledged" in str(found.refusal)


def test_a_second_handshake(pomelo):
    """A client that lost its way is told so."""
    found = pomelo.outcome([pomelo.hello() + pomelo.handshake()])
    assert "second handshake" in str(found.refusal)


def test_bodies_where_none_belong(pomelo):
    """Acknowledgements and heartbeats with a body are what they are."""
    stream = pomelo.handshake() + wire.package(wire.ACK, b"x") + b"\x03\0\0\x02{}"
    found = pomelo.outcome([stream])
    assert found.refusal is None
    assert found.sent.endswith(HEARTBEAT * 2)


REQUEST = wire.request(1, "a", b"{}")


@pytest.mark.parametrize(
    "stream", [REQUEST, REQUEST * 2, REQUEST * 200, wire.notify(MOVE, b"")]
)
def test_whole_messages_leave_nothing(pomelo, stream):
    """A tuple says so: whoever counts what is held need not ask."""
    session = _working(pomelo)
    [ready] = steps = session.received(stream)
    assert isinstance(steps, tuple)
    assert ready.taken_bytes == len(stream)
    assert session.held_bytes == 0


@pytest.mark.parametrize(
    ("stream", "count"),
    [
        (REQUEST[:-1], 0),
        (REQUEST + REQUEST[:5], 1),
        (REQUEST + HEARTBEAT + REQUEST, 2),
        (REQUEST + wire.notify(999, b"{}"), 1),
        (REQUEST + wire.package(wire.DATA, b"\x02\x01\xff"), 1),
        (REQUEST * 1025, 1025),
    ],
)
def test_others_are_looked_at_one_by_one(pomelo, stream, count):
    """What came before a cause to refuse, or behind a part that was held, is taken."""
    session = _working(pomelo)
    assert not isinstance(session.received(stream), tuple)
    found = pomelo.outcome([stream], session)
    assert len(found.events) == count
    assert (found.refusal is not None) == (b"\xff" in stream or b"\x03\xe7" in stream)
    if count == 0:
        assert pomelo.outcome([REQUEST[-1:]], session).events


@pytest.mark.parametrize(("count", "more"), [(9, b""), (999, b""), (999, b"\x04")])
@pytest.mark.parametrize("route", [2, SAY])
def test_messages_are_looked_for_once(pomelo, monkeypatch, route, count, more):
    """Without the kernel that is most of the work, whether each has something to do or
    not; of a few that end inside a message twice.
    """
    monkeypatch.setattr(native, "kernel", None)
    session = _working(pomelo, definitions=pomelo.definitions)
    looks, scan = [], wire.scan

    def looked(buffer: bytes, at: int, *rest: Any) -> int:
        looks.append(at)
        return scan(buffer, at, *rest)

    monkeypatch.setattr(wire, "scan", looked)
    [ready] = session.received(wire.request(1, route, b"{}") * count + more)
    assert ready.count == count
    assert looks.count(0) == 1


def test_every_heartbeat_is_answered(pomelo):
    """At once, between messages too."""
    stream = HEARTBEAT + wire.notify("a", b"1") + HEARTBEAT + wire.notify("a", b"2")
    found = pomelo.outcome([stream], _working(pomelo))
    assert found.sent == HEARTBEAT * 2
    assert found.batches == 1
    assert [event[3] for event in found.events] == [b"1", b"2"]


# Messages


def test_what_lies_together_is_one_batch(pomelo):
    """Requests and notifies of several routes, answered one by one."""
    stream = b"".join(
        (
            wire.request(5, "a", b'{"n":1}'),
            wire.notify("b", b'{"n":2}'),
            wire.request(300, "a", b'{"n":3}'),
            wire.notify("a", b'{"n":4}'),
        )
    )
    found = pomelo.outcome([stream], _working(pomelo))
    assert found.batches == 1
    assert [event[:4] for event in found.events] == [
        ("request", 5, "a", b'{"n":1}'),
        ("notify", 0, "b", b'{"n":2}'),
        ("request", 300, "a", b'{"n":3}'),
        ("notify", 0, "a", b'{"n":4}'),
    ]
    assert found.responses == wire.response(5, _json()) + wire.response(300, _json())


def test_id_zero_is_a_notify(pomelo):
    """It is stored as one and not answered, as by the original."""
    found = pomelo.outcome([wire.request(0, "a", b"{}")], _working(pomelo))
    assert found.events[0][:2] == ("notify", 0)
    assert found.responses == b""


def test_the_same_id_twice(pomelo):
    """Two events, two responses: ids wrap in some clients."""
    found = pomelo.outcome([wire.request(7, "a", b"{}") * 2], _working(pomelo))
    assert len(found.events) == 2
    assert found.responses == wire.response(7, _json()) * 2


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b'{"a": 1.0 }', None),
        (b"", "empty"),
        (b"[1]", "not-an-object"),
        (b"null", "not-an-object"),
        (b"{", "invalid-json"),
        (b'{"a":"\xff"}', "invalid-utf8"),
        (b"\x00\x01", "invalid-json"),
    ],
)
def test_bodies_are_stored_as_sent(pomelo, body, flaw):
    """Whatever they are, with a flaw if they are no object, and answered 200."""
    found = pomelo.outcome([wire.request(1, "a", body)], _working(pomelo))
    assert found.events == [("request", 1, "a", body, flaw, "application/json")]
    assert found.responses == wire.response(1, _json())


@pytest.mark.parametrize(
    "route", ["", "nodots", "a.b", "a.b.c.d", ".constructor", "你好"]
)
def test_any_route(pomelo, route):
    """A route is a channel; it needs no shape, and reaches no prototype."""
    found = pomelo.outcome([wire.request(1, route, b"{}")], _working(pomelo))
    assert found.events[0][2] == route
    assert found.responses == wire.response(1, _json())


def test_routes_of_browsers(pomelo):
    """Surrogate halves in a route are a character as well; other bytes are refused."""
    stream = wire.package(4, b"\x02\x06\xed\xa0\xbd\xed\xb8\x80{}")
    found = pomelo.outcome([stream], _working(pomelo))
    assert found.events[0][2] == "😀"
    found = pomelo.outcome([wire.package(4, b"\x02\x01\xff{}")], _working(pomelo))
    assert found.refusal.rule == "route is not UTF-8"


# The dictionary


def test_codes(pomelo):
    """A code is a route; so is the route, of a client that does not compress."""
    session = _working(pomelo, definitions=pomelo.definitions)
    stream = wire.request(1, 2, b"{}") + wire.notify(SAY, b"{}") + wire.notify(2, b"{}")
    found = pomelo.outcome([stream], session)
    assert [event[2] for event in found.events] == [SAY] * 3
    assert found.batches == 1


@pytest.mark.parametrize("code", [0, 3, 65535])
def test_unknown_codes(pomelo, code):
    """A kick says so; what came before it is stored."""
    session = _working(pomelo, definitions=pomelo.definitions)
    stream = wire.request(1, 2, b"{}") + wire.request(2, code, b"{}")
    found = pomelo.outcome([stream], session)
    assert f"route code {code} is not in the dictionary" in str(found.refusal)
    assert [event[1] for event in found.events] == [1]
    assert found.responses == wire.response(1, _json())


def test_codes_that_were_never_told(pomelo):
    """Without a dictionary every code is unknown."""
    found = pomelo.outcome([wire.notify(1, b"{}")], _working(pomelo))
    assert "route code 1" in str(found.refusal)


# Protobuf


def test_protobuf(pomelo):
    """Bodies of defined routes become JSON, between others that stay as they are."""
    session = _working(pomelo, definitions=pomelo.definitions)
    body = bytes.fromhex("0a0408021003 1202c3bc 180201ac02")
    stream = b"".join(
        (
            wire.notify(SAY, b'{"n":1}'),
            wire.request(1, 1, body),
            wire.notify(MOVE, b""),
            wire.request(2, SAY, b'{"n":2}'),
        )
    )
    found = pomelo.outcome([stream], session)
    decoded = '{"to":{"x":1,"y":-2},"note":"ü","tags":[1,300]}'.encode()
    assert [event[2:5] for event in found.events] == [
        (SAY, b'{"n":1}', None),
        (MOVE, decoded, None),
        (MOVE, b"{}", None),
        (SAY, b'{"n":2}', None),
    ]
    assert found.batches == 1
    expected = wire.response(1, bytes.fromhex("08c801")) + wire.response(2, _json())
    assert found.responses == expected


@pytest.mark.parametrize(
    "body", [b"{}", b'{"to":1}', b"\x78\x01", b"\x0a", b"\x0a\x04\x08"]
)
def test_undecodable_protobuf(pomelo, body):
    """JSON where protobuf was agreed on, an unknown tag, half a message: kept, raw."""
    session = _working(pomelo, definitions=pomelo.definitions)
    stream = wire.notify(SAY, b"{}") + wire.request(1, MOVE, body)
    found = pomelo.outcome([stream], session)
    assert found.events[1] == (
        "request", 1, MOVE, body, "undecodable-protobuf", "application/octet-stream",
    )  # fmt: skip
    assert found.responses == wire.response(1, bytes.fromhex("08c801"))


def test_who_was_told_no_protos_sends_json(pomelo):
    """pitaya's clients, on the same routes."""
    session = pomelo.session(definitions=pomelo.definitions)
    sys = {"platform": "mac", "libVersion": "1"}
    stream = pomelo.hello(sys) + wire.request(1, MOVE, b'{"x":1}')
    found = pomelo.outcome([stream], session)
    assert found.events[0][2:5] == (MOVE, b'{"x":1}', None)
    assert found.responses == wire.response(1, _json())


# Compressed bodies


def test_compressed_bodies(pomelo):
    """zlib and gzip, as pitaya's clients send; plain JSON with that bit is JSON."""
    gzip = zlib.compressobj(wbits=31)
    bodies = [
        zlib.compress(b'{"z":1}'),
        gzip.compress(b'{"z":1}') + gzip.flush(),
        b'{"z":1}',
    ]
    for body in bodies:
        stream = wire.notify("b", b"{}") + zipped(wire.request(1, "a", body))
        found = pomelo.outcome([stream], _working(pomelo))
        assert found.events[1] == (
            "request",
            1,
            "a",
            b'{"z":1}',
            None,
            "application/json",
        )
        assert found.responses == wire.response(1, _json())


def test_a_bit_that_is_not_so_holds_nothing():
    """A message that only says it is compressed is taken whole, as any other is."""
    package = zipped(wire.notify("b", b"x" * 60_000))
    decoder = wire.Decoder(1 << 20, 1 << 10)
    decoder.open = True
    decoder.feed(package)
    assert decoder.take() is not None
    assert decoder.held_bytes == 0
    assert decoder.take() is None


def test_compressed_protobuf_by_code(pomelo):
    """The bit goes with codes and definitions as well."""
    session = _working(pomelo, definitions=pomelo.definitions)
    body = zlib.compress(bytes.fromhex("0a0408021003"))
    found = pomelo.outcome([zipped(wire.request(1, 1, body))], session)
    assert found.events[0][2:5] == (MOVE, b'{"to":{"x":1,"y":-2}}', None)
    assert found.responses == wire.response(1, bytes.fromhex("08c801"))
    found = pomelo.outcome([zipped(wire.notify(2, zlib.compress(b"{}")))], session)
    assert found.events[0][2:5] == (SAY, b"{}", None)


def test_bad_compression(pomelo):
    """Kept raw, with a flaw; a bomb is refused, having been inflated to the limit."""
    for body in (zlib.compress(b"{}")[:-1], b"\x78\x9cxxxx"):
        found = pomelo.outcome([zipped(wire.notify("a", body))], _working(pomelo))
        assert found.events[0][3:] == (
            body, "undecodable-zlib", "application/octet-stream",
        )  # fmt: skip
    bomb = zipped(wire.notify("a", zlib.compress(bytes(10_000_000))))
    found = pomelo.outcome([wire.notify("a", b"{}") + bomb], _working(pomelo))
    assert "limits.message_bytes" in str(found.refusal)
    assert len(found.events) == 1


# The way out


def test_a_farewell_is_no_refusal(pomelo):
    """A client may say that it goes."""
    found = pomelo.outcome([wire.kick("bye")], _working(pomelo))
    assert found.refusal is None


# Time


def _ticks(session: Session, ticks: int, *, paused: bool = False) -> list[bool]:
    return [session.tick(paused=paused) for _ in range(ticks)]


def test_cut_off_at_twice_the_interval(pomelo):
    """Silence for two intervals, counted in ticks; one more is needed for what came
    just before the first.
    """
    session = _working(pomelo)
    _ticks(session, 2 * TICKS)
    with pytest.raises(Refusal, match="no sign of life") as caught:
        session.tick(paused=False)
    assert (caught.value.limit, caught.value.key) == ("6 s", "options.heartbeat")


@pytest.mark.parametrize("package", [HEARTBEAT, wire.notify("a", b"{}"), b"\x04"])
def test_anything_is_a_sign_of_life(pomelo, package):
    """Data counts, as it does not with the original."""
    session = _working(pomelo)
    _ticks(session, 2 * TICKS)
    list(session.received(package))
    _ticks(session, 2 * TICKS)


def test_a_quiet_server_speaks(pomelo):
    """A client that was told nothing for more than an interval gets a heartbeat."""
    session = _working(pomelo)
    session.spoke = True
    assert _ticks(session, 7) == [False] * 5 + [True, False]


def test_while_we_do_not_read(pomelo):
    """Nobody is cut off for what we did not read; heartbeats go on."""
    session = _working(pomelo)
    assert any(_ticks(session, 50, paused=True))
    assert pomelo.session(patience=1).tick(paused=True) is False


def test_who_answers_our_answers_comes_to_rest(pomelo):
    """As pypomelo does: an hour of that is far from too many packages."""
    session = _working(pomelo)
    for _ in range(3600 * TICKS // 3):
        answered = 1
        while answered:
            answered = pomelo.outcome([HEARTBEAT] * answered, session).sent.count(
                HEARTBEAT
            )
        assert session.tick(paused=False)
    assert not session.tick(paused=False)


def test_no_heartbeats(pomelo):
    """Without an interval a client may be silent for ever."""
    assert not any(_ticks(_working(pomelo, heartbeat=0), 100))


def test_patience(pomelo):
    """A client that does not get to work is sent away, whatever it says."""
    session = pomelo.session(patience=3)
    pomelo.outcome([pomelo.handshake()], session)
    _ticks(session, 3)
    with pytest.raises(Refusal, match=r"options\.handshake_timeout"):
        session.tick(paused=False)


# Anything


@settings(deadline=None)
@given(st.data())
def test_any_slicing(pomelo, strategies, data):
    """The slicing decides what is one batch, and nothing else."""
    pieces = data.draw(strategies.sliced(strategies.streams))
    use = data.draw(st.booleans())
    definitions = pomelo.definitions if use else None
    whole = pomelo.outcome([b"".join(pieces)], pomelo.session(definitions))
    sliced = pomelo.outcome(pieces, pomelo.session(definitions))
    assert (sliced.events, sliced.sent) == (whole.events, whole.sent)
    assert sliced.responses == whole.responses
    assert str(sliced.refusal) == str(whole.refusal)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=5), st.booleans())
def test_garbage(pomelo, pieces, greet):
    """Nothing but batches and refusals comes of any bytes."""
    start = [pomelo.hello()] if greet else []
    found = pomelo.outcome(start + pieces, pomelo.session(pomelo.definitions))
    assert found.refusal is None or found.refusal.reply


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=40), st.integers(0, 255))
def test_garbage_in_messages(pomelo, body, flag):
    """… nor of any message."""
    session = _working(pomelo, definitions=pomelo.definitions)
    pomelo.outcome([wire.package(wire.DATA, bytes((flag,)) + body)], session)
