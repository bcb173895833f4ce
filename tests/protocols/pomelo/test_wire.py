"""Packages and messages, against what the published codec says."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pomelo import text, wire
from gateway.sdk.interfaces import Refusal
from gateway.sdk.varint import varint

pytestmark = pytest.mark.usefixtures("each_way")


def _decoder(*, data_bytes: int = 1 << 20) -> wire.Decoder:
    decoder = wire.Decoder(data_bytes, 4096)
    decoder.open = True
    return decoder


def _tokens(decoder: wire.Decoder, *pieces: bytes) -> list[Any]:
    found: list[Any] = []
    for piece in pieces:
        decoder.feed(piece)
        while (token := decoder.take()) is not None:
            found.append(token)
    return found


def _messages(*pieces: bytes) -> list[tuple[int, wire.Route, bytes]]:
    return [
        (number, route, run.buffer[at:stop])
        for run in _tokens(_decoder(), *pieces)
        for number, route, at, stop in run.found
    ]


def _refused(stream: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        _messages(stream)
    return caught.value


def test_package_heads(vectors):
    """Packages of all types and sizes are those of pomelo-protocol."""
    for vector in vectors("packages"):
        made = wire.package(vector["type"], b"a" * vector["size"])
        assert made[:4].hex() == vector["head"]


def test_messages_to_bytes(vectors):
    """Messages are those of pomelo-protocol: ids, routes, codes, without bodies."""
    make: dict[str, Callable[..., bytes]] = {
        "request": lambda v, body: wire.request(v["id"], v["route"], body),
        "notify": lambda v, body: wire.notify(v["route"], body),
        "push": lambda v, body: wire.push(v["route"], body),
        "response": lambda v, body: wire.response(v["id"], body),
    }
    rows = vectors("messages")
    assert len(rows) > 100
    for vector in rows:
        made = make[vector["kind"]](vector, bytes.fromhex(vector["body"]))
        assert made[4:].hex() == vector["hex"]


def test_messages_from_clients(vectors):
    """… and are read as they were meant, by the server."""
    for vector in vectors("messages"):
        package = wire.package(wire.DATA, bytes.fromhex(vector["hex"]))
        if vector["kind"] in ("request", "notify"):
            [(number, route, body)] = _messages(package)
            name = text.text(route) if isinstance(route, bytes) else route
            assert (number, name) == (vector["id"], vector["route"])
            assert body.hex() == vector["body"]
        else:
            assert f"{vector['kind']} from a client" in _refused(package).rule


def test_messages_from_servers(vectors):
    """… and by the client."""
    for vector in vectors("messages"):
        found = bytes.fromhex(vector["hex"])
        if vector["kind"] in ("response", "push"):
            message = wire.message(found)
            route = message.route
            name = text.text(route) if isinstance(route, bytes) else route
            assert (message.id, name) == (vector["id"], vector["route"])
            assert message.body.hex() == vector["body"]
            assert not message.error
        else:
            with pytest.raises(ValueError, match="from a server"):
                wire.message(found)


@pytest.mark.parametrize("number", [1, 2**31 - 1, 2**31, 2**32 - 1])
def test_every_id_of_32_bits(number):
    """Ids that keep the original busy for ever are read like any other."""
    assert _messages(wire.request(number, "a", b"{}")) == [(number, b"a", b"{}")]
    assert wire.message(wire.response(number, b"{}")[4:]).id == number


@pytest.mark.parametrize(
    ("number", "meant"), [("80808000", 0), ("808100", 128), ("ff80808000", 127)]
)
def test_ids_longer_than_they_need_be(number, meant):
    """An id may have idle groups, up to five bytes."""
    body = bytes.fromhex(f"00{number}0161")
    assert _messages(wire.package(wire.DATA, body)) == [(meant, b"a", b"")]


@pytest.mark.parametrize(
    ("octets", "number"),
    [
        ("8100", 128),
        ("8400", 512),
        ("818000", 16384),
        ("828500", 2 << 14 | 5 << 7),
        ("8f80808000", 15 << 28),
    ],
)
def test_ids_with_the_high_group_first(octets, number):
    """What ends in an empty group is such an id; it is answered and repeated as it came."""
    body = bytes.fromhex(f"00{octets}0161")
    found = wire.HIGH_FIRST + number
    assert _messages(wire.package(wire.DATA, body)) == [(found, b"a", b"")]
    assert wire.request(found, "a", b"") == wire.package(wire.DATA, body)
    answer = bytes.fromhex(f"04{octets}") + b"{}"
    assert wire.response(found, b"{}") == wire.package(wire.DATA, answer)
    assert wire.message(answer).id == found


def test_ids_of_clients_with_the_high_group_first_are_told_apart():
    """No two of such a client's ids are one number here, and each has its own octets."""
    seen = {}
    for number in range(1, 70_000):
        octets = varint(number)
        groups = bytes(octet & 0x7F for octet in reversed(octets))
        sent = bytes((*(group | 0x80 for group in groups[:-1]), groups[-1]))
        [(found, _, _)] = _messages(wire.package(wire.DATA, b"\0" + sent + b"\1a"))
        assert wire.response(found, b"")[5:] == sent
        seen[found % wire.HIGH_FIRST] = number
    assert len(seen) == 69_999


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("", "without a flag"),
        ("00", "inside its id"),
        ("0080", "inside its id"),
        ("0001", "inside its route"),
        ("02", "inside its route"),
        ("020561", "inside its route"),
        ("0301", "inside its route"),
        ("008080808010", "above 4294967295"),
        ("00ffffffff1f", "above 4294967295"),
        ("00808080808001", "above 4294967295"),
        ("0401", "response from a client"),
        ("060161", "push from a client"),
        ("08", "unknown type 4"),
        ("0e", "unknown type 7"),
        ("220161", "unknown flag bits 0x20"),
        ("c20161", "unknown flag bits 0xc0"),
    ],
)
def test_bad_messages(message, rule):
    """Each is refused with its reason, which the kick tells the client as well."""
    found = wire.package(wire.DATA, bytes.fromhex(message))
    why = _refused(found)
    assert rule in why.rule
    assert why.reply == wire.kick(why.rule)
    good = wire.notify("a", b"{}")
    decoder = _decoder()
    decoder.feed(good + found + good)
    run = decoder.take()
    assert isinstance(run, wire.Messages)
    assert len(run.found) == 1
    with pytest.raises(Refusal, match=rule):
        decoder.take()


@pytest.mark.parametrize("kind", [0, 6, 0x16, 0x47, 0xFF])
def test_unknown_package_types(kind):
    """The first byte is enough to know that this is not Pomelo."""
    assert f"package of type {kind}" in _refused(bytes((kind,))).rule


def test_sizes_are_refused_from_the_head():
    """A size above the limit is refused before its first byte is there."""
    decoder = _decoder(data_bytes=100)
    assert len(_tokens(decoder, wire.notify("a", b"x" * 97))) == 1
    with pytest.raises(Refusal) as caught:
        _tokens(decoder, b"\x04\x00\x00\x65")
    assert str(caught.value) == (
        "package of 101 bytes, limit 100 (limits.message_bytes)"
    )
    with pytest.raises(Refusal, match=r"options\.handshake_bytes"):
        _tokens(_decoder(), b"\x01\xff\xff\xff")


def test_messages_before_their_time():
    """Until the handshake is over a message is refused from its head."""
    with pytest.raises(Refusal, match="before the handshake was acknowledged"):
        _tokens(wire.Decoder(100, 100), b"\x04\x00\x00\x10")


def test_a_large_package_in_crumbs():
    """A package is put together once, and nothing is held after it."""
    decoder = _decoder()
    package = wire.notify("a", b"x" * 300_000)
    pieces = [package[at : at + 1000] for at in range(0, len(package), 1000)]
    [run] = _tokens(decoder, *pieces)
    assert run.buffer[run.start : run.stop] == package
    assert decoder.held_bytes == 0


@settings(deadline=None)
@given(st.data())
def test_any_slicing(strategies, data):
    """However the network slices the stream, the same messages come out."""
    packages = data.draw(st.lists(strategies.packages, max_size=8))
    stream = b"".join(packages)
    pieces = data.draw(strategies.sliced(st.just(stream)))

    def read(*parts: bytes) -> list[tuple[int, wire.Route, bytes]]:
        return [
            (number, route, run.buffer[at:stop])
            for run in _tokens(_decoder(), *parts)
            if isinstance(run, wire.Messages)
            for number, route, at, stop in run.found
        ]

    assert read(*pieces) == read(stream)


def test_text_of_browsers():
    """Halves of surrogate pairs, each encoded for itself, become the character."""
    assert text.text("a😀ü".encode()) == "a😀ü"
    assert text.text(b"a\xed\xa0\xbd\xed\xb8\x80\xc3\xbc") == "a😀ü"
    for broken in (b"\xff", b"\xed\xa0\xbd", b"\xed\xb8\x80\xed\xa0\xbd"):
        with pytest.raises(UnicodeDecodeError):
            text.text(broken)


def test_ascii():
    """JSON for clients is ASCII, and otherwise as it was."""
    found = '{ "a": 1.0, "b":"ü😀\\n" }'
    assert text.ascii_text(found.encode()) == (
        b'{ "a": 1.0, "b":"\\u00fc\\ud83d\\ude00\\n" }'
    )
    assert text.ascii_json({"ü": 1}) == b'{"\\u00fc":1}'


def test_what_does_not_fit():
    """No package is made that could not be read."""
    with pytest.raises(ValueError, match="255 at most"):
        wire.push("x" * 256, b"{}")
    with pytest.raises(ValueError, match="16777215 at most"):
        wire.push("x", bytes(1 << 24))
