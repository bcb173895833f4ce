"""Every limit of docs/rsio-v0.md: what happens to a peer that exceeds it, and the one line
that is logged.
"""

import zlib
from dataclasses import fields
from typing import Any, NamedTuple

import pytest

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import (
    Cancel,
    ClientHello,
    Compress,
    Goodbye,
    OnError,
    OnSubscribe,
    Request,
    Subscribe,
    Token,
)

MiB = 1 << 20
HELLO = wire.encode(ClientHello(0, ()))
STARTED = HELLO + wire.encode(OnSubscribe(1, 0))
FIXED = HELLO + wire.encode(OnSubscribe(1, 8))
NAMED = wire.encode(ClientHello(0, (4,)))
PINGING = wire.encode(ClientHello(0, (1,)))


class Case(NamedTuple):
    """What is said within a limit, and beyond it; the rule that is then named."""

    within: bytes
    beyond: bytes
    rule: str
    limit: int
    key: str | None


def head(code: int, *numbers: int) -> bytes:
    return bytes((code,)) + b"".join(map(wire.varint, numbers))


def text(code: int, size: int, *before: int) -> bytes:
    return head(code, *before, size) + b"x" * size


def block(octets: bytes) -> bytes:
    packer = zlib.compressobj(9)
    return wire.block(packer.compress(octets) + packer.flush(zlib.Z_SYNC_FLUSH))


def elements(count: int, last: int) -> bytes:
    """In a block, of 16 KiB each but for the last."""
    return block(wire.on_next(1, [*[bytes(16 << 10)] * count, bytes(last)]))


CANCEL = wire.encode(Cancel(9))
COMPRESSED = wire.encode(ClientHello(0, (6,))) + wire.encode(Compress(1))
STARTED_COMPRESSED = COMPRESSED + wire.encode(OnSubscribe(1, 0))

ENDS: dict[str, list[Case]] = {
    "extensions": [
        Case(
            head(1, 0, 64, *range(100, 164)), head(1, 0, 65),
            "hello with 65 extensions", 64, None,
        ),
    ],
    "name_bytes": [
        Case(
            HELLO + text(0x10, 255) + b"\x07\x00", HELLO + head(0x10, 256),
            "subscribe with 256 octets", 255, None,
        ),
        Case(
            NAMED, NAMED + head(0x44, 256),
            "token with 256 octets", 255, None,
        ),
    ],
    "text_bytes": [
        Case(
            STARTED + text(0x23, 4096, 1), STARTED + head(0x23, 1, 4097),
            "on_error with 4097 octets", 4096, None,
        ),
        Case(
            HELLO, HELLO + head(0x03, 4097),
            "goodbye with 4097 octets", 4096, None,
        ),
        Case(
            PINGING + text(0x40, 4096), PINGING + head(0x40, 4097),
            "ping with 4097 octets", 4096, None,
        ),
        Case(
            NAMED, NAMED + b"\x44\x04name" + head(0x44, 4097)[1:],
            "token with 4097 octets", 4096, None,
        ),
    ],
    "declared_bytes": [
        Case(
            STARTED + head(0x21, 1, MiB), STARTED + head(0x21, 1, 16 * MiB + 1),
            "element of 16777217 octets", 16 * MiB, "limits.message_bytes",
        ),
        Case(
            FIXED + head(0x24, 1, 2 * MiB), FIXED + head(0x24, 1, 2 * MiB + 1),
            "2097153 packed elements of 8 octets", 16 * MiB, "limits.message_bytes",
        ),
        Case(
            HELLO + head(0x20, 1, MiB), HELLO + head(0x20, 1, 16 * MiB + 1),
            "elements of 16777217 octets", 16 * MiB, "limits.message_bytes",
        ),
    ],
    "part_bytes": [
        Case(
            STARTED + head(0x25, 1, 7, MiB), STARTED + head(0x25, 1, 7, MiB + 1),
            "on_next_part with 1048577 octets", MiB, None,
        ),
        Case(
            COMPRESSED + head(0x47, MiB), COMPRESSED + head(0x47, MiB + 1),
            "block of 1048577 octets", MiB, None,
        ),
    ],
    "block_signals": [
        Case(
            COMPRESSED + block(CANCEL * 16_000), COMPRESSED + block(CANCEL * 20_000),
            "blocks with too many messages for their size", 16_384, None,
        ),
    ],
    "inflated_bytes": [
        Case(
            STARTED_COMPRESSED + elements(1023, 11_265),
            STARTED_COMPRESSED + elements(1023, 11_266),
            "block that inflates to too much", 16 * MiB, None,
        ),
    ],
}  # fmt: skip

CANCELS: dict[str, list[Case]] = {
    "element_bytes": [
        Case(
            STARTED + head(0x21, 1, MiB), STARTED + head(0x21, 1, MiB + 1),
            "element of 1048577 octets", MiB, "options.element_bytes",
        ),
        Case(
            HELLO + head(0x20, 1, MiB), HELLO + head(0x20, 1, MiB + 1),
            "element of 1048577 octets", MiB, "options.element_bytes",
        ),
        Case(
            STARTED + text(0x25, MiB, 1, 7), STARTED + text(0x25, MiB, 1, 7)
            + text(0x26, 1, 1, 7),
            "element of 1048577 octets", MiB, "options.element_bytes",
        ),
    ],
    "unfinished_elements": [
        Case(
            STARTED + b"".join(text(0x25, 1, 1, n) for n in range(64)),
            STARTED + b"".join(text(0x25, 1, 1, n) for n in range(65)),
            "65 unfinished elements", 64, None,
        ),
    ],
    "unfinished_bytes": [
        Case(
            STARTED + b"".join(text(0x25, MiB, 1, n) for n in range(16)),
            STARTED + b"".join(text(0x25, MiB, 1, n) for n in range(16))
            + text(0x25, 1, 1, 16),
            "16777217 octets of unfinished elements", 16 * MiB, None,
        ),
    ],
}  # fmt: skip

ELSEWHERE = {"streams", "remembered"}


def each(table: dict[str, list[Case]]) -> list[Any]:
    return [
        pytest.param(case, id=f"{name}-{case.rule}")
        for name, cases in table.items()
        for case in cases
    ]


def test_every_limit_is_here():
    """None was added without a test."""
    named = {one.name for one in fields(Limits)}
    assert named == ENDS.keys() | CANCELS.keys() | ELSEWHERE


@pytest.mark.parametrize("case", each(ENDS))
def test_what_ends_the_conversation(make_gate, case):
    """A goodbye that names the rule; the refusal has limit and key, for the one line
    that the listener makes of it.
    """
    gate = make_gate()
    gate.say(case.within)
    assert not gate.connection.closed
    gate = make_gate()
    gate.say(case.beyond)
    assert gate.heard()[-1] == Goodbye(case.rule)
    assert gate.connection.closed
    why = gate.connection.refused
    assert (why.rule, why.limit, why.key) == (case.rule, case.limit, case.key)
    assert gate.connection.reported == []


def _that_is_told(said: bytes) -> list[bytes]:
    """The same of a peer that knows extension 8."""
    hello = wire.encode(ClientHello(0, (6, 8) if b"\x45\x01" in said[:8] else (8,)))
    length = 4 if said[2] else 3
    return [hello, said[length:]]


def test_who_is_not_told_hears_why(make_gate):
    """The reason names element, size and limit: cancel alone says nothing."""
    gate = make_gate(element_bytes=100)
    gate.say(STARTED, wire.on_next(1, [b"{}"] * 2), head(0x21, 1, 101))
    cancelled, goodbye = gate.heard()[-2:]
    assert cancelled == Cancel(1)
    assert goodbye == Goodbye("E413 element 3 of 'events' has 101 octets, 100 at most")
    assert gate.connection.refused.key == "options.element_bytes"
    gate.journal.store_all()
    assert [batch.batch.count for batch in gate.journal.stored] == [2]


@pytest.mark.parametrize("case", each(CANCELS))
def test_what_cancels_a_stream(make_gate, case):
    """The stream and no other; one line names rule, limit and key."""
    gate = make_gate()
    gate.say(case.within)
    assert not any(isinstance(one, Cancel) for one in gate.heard())
    assert gate.connection.reported == []
    gate = make_gate()
    gate.say(*_that_is_told(case.beyond))
    assert gate.heard()[-1] == Cancel(1)
    assert not gate.connection.closed
    (why,) = gate.connection.reported
    assert why.rule.endswith(f" 'events': {case.rule}")
    assert (why.limit, why.key) == (case.limit, case.key)


def test_too_many_streams(make_gate):
    """Each that is too much is rejected; one line tells of them all."""
    gate = make_gate(streams=2)
    gate.say(HELLO, *[Subscribe("check/never", number, 1) for number in range(5)])
    errors = [one for one in gate.heard() if isinstance(one, OnError)]
    assert errors == [OnError(n, "E429 more than 2 streams") for n in (2, 3, 4)]
    assert not gate.connection.closed
    (why,) = gate.connection.reported
    assert why.rule.endswith(": more streams")
    assert (why.limit, why.key) == (2, "options.streams")


def test_more_than_asked_for(make_gate):
    """The first time costs the stream, the second one the connection."""
    gate = make_gate(window=2, subscribe=("a", "b"))
    gate.say(HELLO, OnSubscribe(1, 0), OnSubscribe(2, 0))
    gate.say(wire.on_next(1, [b"{}"] * 3))
    assert gate.heard()[-1] == Cancel(1)
    (why,) = gate.connection.reported
    assert why.rule.endswith(": more elements than were asked for (1.1)")
    gate.say(wire.on_next(2, [b"{}"] * 3))
    goodbye = gate.heard()[-1]
    assert goodbye == Goodbye("more elements than were asked for, again (1.1)")
    assert gate.connection.closed
    gate.journal.store_all()
    assert gate.connection.counted == 4  # those that were asked for


def test_forgotten_streams(opened, happened):
    """Only so many cancelled streams are remembered; what comes late of older ones
    ends the conversation.
    """
    session = opened(server=False, limits=Limits(remembered=2))
    streams = [session.consumer.subscribe("a", 9) for _ in range(3)]
    for stream in streams:
        happened(session, wire.encode(OnSubscribe(stream.id, 0)))
        session.consumer.cancel(stream)
    for stream in streams[1:]:
        assert happened(session, wire.on_next(stream.id, [b"x"])) == ([], None)
    _, why = happened(session, wire.on_next(streams[0].id, [b"x"]))
    assert why is not None
    assert "which we never asked for" in why.rule


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "no hello"), (b"\x01\x00", "no hello"), (NAMED, "no token")],
)
def test_too_late(make_gate, said, reason):
    """Whoever does not say hello, all of it, or who it is, in time."""
    gate = make_gate(hello_timeout=3.0)
    gate.say(said)
    gate.clock.advance(3.1)
    assert gate.heard()[-1] == Goodbye(reason)
    why = gate.connection.refused
    assert (why.rule, why.limit, why.key) == (reason, "3 s", "options.hello_timeout")


@pytest.mark.parametrize(
    "said",
    [
        [HELLO],
        [NAMED, Token("bearer", b"wrong")],
        [NAMED, Token("name", b"ann")],
        [NAMED, Token("basic", b"ann:s3cret")],
        [NAMED, Request(1, 1), Subscribe("check/never", 1, 1)],
    ],
)
def test_refused_tokens(make_gate, said):
    """Nothing is subscribed to, either way; the key says where the tokens are."""
    gate = make_gate(tokens={"ann": "s3cret"})
    gate.say(*said)
    assert not [one for one in gate.heard() if isinstance(one, Subscribe | OnSubscribe)]
    why = gate.connection.refused
    assert why.key == "options.tokens"
    assert why.rule.startswith("E401 ")
    assert "wrong" not in str(why), "a secret is told to nobody"
    assert gate.connection.closed


def test_other_limits(make_gate):
    """`limits.message_bytes` and `options.element_bytes` are what is applied, and told; no
    other limit keeps out what they allow.
    """
    gate = make_gate(message_bytes=1000, element_bytes=100)
    gate.say(*_that_is_told(STARTED + head(0x21, 1, 101)))
    heard = gate.heard()
    assert messages.Limits(100) in heard
    assert heard[-1] == Cancel(1)
    gate = make_gate(message_bytes=1000, element_bytes=100)
    gate.say(STARTED, head(0x21, 1, 1001))
    why = gate.connection.refused
    assert (why.limit, why.key) == (1000, "limits.message_bytes")
    gate = make_gate(message_bytes=1000)
    gate.say(*_that_is_told(STARTED + text(0x25, 600, 1, 7) * 2))
    assert gate.connection.reported[0].key == "limits.message_bytes"
    gate = make_gate(message_bytes=17 * MiB, element_bytes=17 * MiB)
    gate.say(STARTED, *[text(0x25, MiB, 1, 7)] * 17)
    assert not gate.connection.reported
