"""What a stored Pomelo batch decodes to."""

from itertools import chain

import pytest

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.events import (
    UNDECODABLE_ZLIB,
    decode,
    head,
    packed,
    plain_head,
    repacked,
    session_body,
)

pytestmark = pytest.mark.usefixtures("each_way")


def test_a_uniform_batch_needs_no_overrides():
    """One route and one kind: the row says so once."""
    body = plain_head(100) + wire.notify("a", b"{}") * 3
    rows = decode(body)
    assert (rows.channel, rows.kind, rows.seqs) == ("a", "notify", [0, 0, 0])
    assert not rows.channels
    assert not rows.kinds
    assert not rows.flaws


@pytest.mark.parametrize("odd", [b'{"n":1}', b"[]", b"", b'{"n":"\xff"}', b"{"])
def test_many_messages(odd):
    """Each has its body, number, route, kind and flaw, however many there are."""
    bodies = [b'{"n":%d}' % number for number in range(99)]
    bodies[50] = odd
    packages = b"".join(
        wire.request(number, 7 if number % 10 else "b", body)
        if number % 30
        else wire.notify(7, body)
        for number, body in enumerate(bodies)
    )
    rows = decode(head(100, {7: "a"}, ()) + packages)
    assert list(rows.each()) == bodies
    assert list(rows.seqs or ()) == [n if n % 30 else 0 for n in range(99)]
    assert (rows.channel, rows.kind) == ("a", "notify")
    assert rows.channels == {n: "b" for n in range(0, 99, 10) if n % 30}
    assert rows.kinds == {n: "request" for n in range(99) if n % 30}
    assert set(rows.flaws) == (set() if odd == b'{"n":1}' else {50})


def test_rows_that_differ():
    """Other routes, other kinds, in the order in which they came."""
    packages = (
        wire.request(9, "a", b"1") + wire.notify("b", b"2") + wire.notify(7, b"3")
    )
    rows = decode(head(100, {7: "a"}, ()) + packages)
    assert rows.payloads == [b"1", b"2", b"3"]
    assert (rows.channel, rows.kind) == ("a", "request")
    assert [rows.channels.get(row, rows.channel) for row in range(3)] == ["a", "b", "a"]
    assert rows.kinds == {1: "notify", 2: "notify"}
    assert rows.seqs == [9, 0, 0]


def test_codes_keep_their_meaning():
    """What a code stood for is in the batch, whatever the dictionary says today."""
    found = decode(head(100, {1: "x.y.z", 2: "你好"}, ()) + wire.notify(2, b"{}"))
    assert found.channel == "你好"


def test_the_limit_is_that_of_its_time():
    """A body that was let in is not oversized because the limit has changed since."""
    body = b'{"a":"' + b"x" * 100 + b'"}'
    assert decode(plain_head(200) + wire.notify("a", body)).flaws == {}
    assert decode(plain_head(50) + wire.notify("a", body)).flaws == {}
    flawed = decode(plain_head(50) + wire.notify("a", b"[" + b" " * 100 + b"]"))
    assert flawed.flaws == {0: "oversized"}


def test_flaws_of_the_edge():
    """What could not be made JSON is octets, and is not judged again."""
    packages = repacked(0, "a", b"{}") + repacked(3, "a", b"\x78\x9c")
    rows = decode(head(100, {}, [(1, UNDECODABLE_ZLIB)]) + packages)
    assert rows.flaws == {1: "undecodable-zlib"}
    assert rows.content_types == {1: "application/octet-stream"}
    assert rows.seqs == [0, 3]


@pytest.mark.parametrize(
    ("payload", "mended", "flaw"),
    [
        (b'{"a":"\xed\xa0\xbd\xed\xb8\x80"}', '{"a":"😀"}'.encode(), None),
        (b'"\xed\xa0\xbd\xed\xb8\x80"', '"😀"'.encode(), "not-an-object"),
        (b"{\xed\xa0\xbd\xed\xb8\x80", "{😀".encode(), "invalid-json"),
        (b'{"a":"\xed\xa0\xbd"}', b'{"a":"\xed\xa0\xbd"}', "invalid-utf8"),
        (b'{"a":"\xc3\xbc"}', b'{"a":"\xc3\xbc"}', None),
        (b"[" * 200_000, b"[" * 200_000, "too-deep"),
    ],
)
def test_text(payload, mended, flaw):
    """What browsers write for characters beyond the BMP is mended; no more."""
    rows = decode(plain_head(1 << 20) + wire.notify("a", payload))
    assert rows.payloads == [mended]
    assert rows.flaws.get(0) == flaw


@pytest.mark.parametrize("body", [b"", b"\x02" + bytes(10), plain_head(9) + b"\x04"])
def test_a_damaged_body(body):
    """It is an error, for the spool to keep the body as it is."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever
        decode(body)


ALIKE = [
    plain_head(100) + wire.request(1, "a", b"{}"),
    plain_head(100) + wire.notify("你", b"[1]"),
    plain_head(100) + wire.request(300, "b", b'{"a":"\xed\xa0\xbd\xed\xb8\x80"}'),
    plain_head(100) + wire.notify("b", b""),
]
WITH_CODE = head(100, {7: "x"}, ()) + wire.request(5, 7, b"{}")
WITH_ANOTHER = head(100, {8: "y", 9: "z"}, ()) + wire.notify(9, b"{}")


SOUND = [WITH_CODE] + [
    plain_head(100) + wire.request(n, "ab"[n // 50], b'{"n":%d}' % n) for n in range(90)
]


def test_batches_together(pomelo):
    """They are what they are alone: routes, kinds, numbers, flaws, mended text."""
    several = ALIKE[0] + wire.notify("b", b"{}") + wire.request(7, "a", b"[]")
    coded = [WITH_CODE, WITH_ANOTHER, *ALIKE, several, WITH_ANOTHER, several, WITH_CODE]
    for bodies in (ALIKE, coded, SOUND):
        alone = [[*pomelo.rows(decode(body))] for body in bodies]
        together = decode.together(bodies, [*map(len, alone)])
        assert [*pomelo.rows(together)] == [*chain(*alone)]


@pytest.mark.parametrize(
    "odd",
    [
        plain_head(101) + wire.request(1, "a", b"{}"),
        head(100, {7: "another"}, ()) + wire.request(5, 7, b"{}"),
        head(100, {}, [(0, UNDECODABLE_ZLIB)]) + wire.request(1, "a", b"{}"),
        head(100, {}, (), zipped=True) + wire.request(1, "a", b"{}"),
        packed(ALIKE[0]),
        session_body([b"{}"]),
        plain_head(100) + 2 * wire.request(1, "a", b"{}"),
        plain_head(100)
        + wire.request(1, "a", b"{}")
        + wire.request(1, "a", b"{}")[:-1],
        plain_head(100),
        plain_head(100) + wire.request(1, "a", b"{}")[:-1],
        plain_head(100) + b"\x04\0\0\x40" + bytes(60),
        b"",
    ],
)
def test_what_is_not_alike_ends_them(odd):
    """It is left to be decoded alone, and so is what follows."""
    for before in ([WITH_CODE, *ALIKE], SOUND):
        bodies = [*before, odd, *ALIKE]
        for count in (1, 3):
            counts = [count if body is odd else 1 for body in bodies]
            assert decode.together(bodies, counts).count == len(before)


def test_a_large_batch(pomelo):
    """Rows come back in order, each with its own."""
    packages = [
        wire.request(n, f"r{n % 3}", b"%d" % n) if n % 2 else wire.notify("n", b"{}")
        for n in range(1, 3000)
    ]
    rows = decode(plain_head(100) + b"".join(packages))
    for row, (kind, seq, channel, payload, _, _) in enumerate(pomelo.rows(rows)):
        n = row + 1
        if n % 2:
            assert (kind, seq, channel) == ("request", n, f"r{n % 3}")
            assert payload == b"%d" % n
        else:
            assert (kind, seq, channel, payload) == ("notify", 0, "n", b"{}")
