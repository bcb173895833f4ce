"""Throws JSON and frames at the kernel in C, and compares it with the reference.

    python tests/fuzz/native.py SECONDS [LIBRARY]

What must hold: it finds the frames, pieces and messages that the reference finds, accepts no body
that has a flaw by the reference, accepts every object that has none, and gives back what came.  LIBRARY is another build of it, as one with sanitizers: what it is given has no
byte around it that it might read unseen.
"""

import ctypes
import importlib.machinery
import importlib.util
import json
import random
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from gateway.protocols.lumberjack import frames
from gateway.protocols.pomelo import wire as pomelo
from gateway.protocols.pravega import events as pravega
from gateway.protocols.rsio import decoder as rsio
from gateway.protocols.rsio.wire import varint
from gateway.sdk import native
from gateway.sdk.payload import DEPTH, flaw_of

_ANY = 1 << 20

#: What JSON is made of, and what looks like it.
PARTS = [
    *(bytes((c,)) for c in b'{}[]:,"\\ \n\r\t0123456789-+.eEutrnaf/\0\x1f\x7f\x80\xff'),
    *(b"true", b"false", b"null", b"NaN", b"Infinity", b"-0", b"1e5", b"0.5", b"01"),
    *(
        b'"a"',
        b'"a":',
        b"{}",
        b"[]",
        b'{"a":1}',
        b'"\\"',
        b"\\u00e9",
        b"\\uD83D\\uDE00",
    ),
    *(
        b"\\uD83D",
        b"\\uDE00",
        b"\\uD83D\\u0041",
        b"\\ud83d\\n",
        b"\\x",
        b"\\u12",
        b"\\/",
    ),
    *("ä".encode(), "€".encode(), "😀".encode(), b"\xed\xa0\x80", b"\xc0\x80"),
    *(b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xc3", b"\xe2\x82"),
    *(b"\xef\xbb\xbf", b"\xc2\xa0", b"x" * 15, b"x" * 16, b"x" * 17, b"1" * 20),
    *(some * many for some in (b"[", b"]") for many in (DEPTH - 1, DEPTH)),
    *(b'{"a":' * 9, b"}" * 9),
]


def documents(chance: random.Random) -> bytes:
    """A sound object."""

    def value(deep: int) -> Any:
        kind = chance.randrange(9 if deep else 7)
        if kind == 7:
            return [value(deep - 1) for _ in range(chance.randrange(4))]
        if kind == 8:
            return {text(): value(deep - 1) for _ in range(chance.randrange(5))}
        return (None, True, False, chance.getrandbits(70), chance.random() * 1e20,
                -chance.getrandbits(9), text())[kind]  # fmt: skip

    def text() -> str:
        some = '"\\\n\taäé€😀\x7f' if chance.random() < 0.3 else "abc/ .:-"
        return "".join(chance.choices(some, k=chance.choice((0, 3, 14, 16, 17, 40))))

    found = {text(): value(3) for _ in range(chance.randrange(8))}
    indent = chance.choice((None, None, None, 0, 2))
    ascii_only = chance.random() < 0.3
    return json.dumps(found, indent=indent, ensure_ascii=ascii_only).encode()


def spoiled(chance: random.Random, body: bytes) -> bytes:
    """The same with a few changes."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(body) + 1)
        gone = chance.choice((0, 0, 1, 1, 2, 9))
        new = chance.choice(PARTS) if chance.random() < 0.8 else b""
        body = body[:at] + new + body[at + gone :]
    return body


def exact(some: bytes) -> Any:
    """A buffer with these bytes, and none behind them."""
    return (ctypes.c_char * len(some)).from_buffer_copy(some)


def check_rows(kernel: Any, bodies: Sequence[bytes], seqs: Sequence[int]) -> None:
    """Whether the kernel says of bodies what the reference does."""
    joined = b"".join(
        b"2J" + struct.pack(">II", seq, len(body)) + body
        for seq, body in zip(seqs, bodies, strict=True)
    )
    sizes = struct.pack(f"<{len(bodies)}H", *map(len, bodies))
    found = kernel.rows(exact(joined), sizes)
    good = all(b.startswith(b"{") and flaw_of(b, _ANY) is None for b in bodies)
    if found is None:
        assert not good, bodies
        return
    assert good, bodies
    block, ends, numbers = found
    assert block == b"".join(bodies)
    at = 0
    for body, end, seq, number in zip(
        bodies, array("q", ends), seqs, array("q", numbers), strict=True
    ):
        at += len(body)
        assert (at, seq) == (end, number)


def check_run(kernel: Any, stream: bytes, at: int, version: int, most: int) -> None:
    """Whether the kernel finds the frames that the reference finds."""
    found = kernel.run(exact(stream), at, version, most)
    assert found == frames.run(stream, at, version, most), (stream, at, version, most)


def check_walk(
    kernel: Any, stream: bytes, at: int, head: bytes, most: int, largest: int
) -> None:
    """Whether the kernel finds the messages of RS.io, and the events of Pravega, that the
    reference finds.
    """
    found = kernel.walk(exact(stream), at, head, False, most, largest)
    about = (stream, at, head, most, largest)
    assert found == rsio.walk(stream, at, head, most, largest), about
    native.kernel = None
    wanted = pravega._walk(stream, at, most)
    native.kernel = kernel
    assert pravega._walk(exact(stream), at, most) == wanted, about


def check_pieces(
    kernel: Any, stream: bytes, head: bytes, largest: int, *, json: bool
) -> None:
    """Whether the kernel gathers what the reference would, or leaves it to that."""
    wanted: list[bytes] | None = []
    at = 0
    while at < len(stream) and wanted is not None:
        count, size, at = rsio.walk(stream, at, head, 1, largest)
        wanted = [*wanted, stream[at - size : at]] if count else None
    _compare(
        kernel.pieces(exact(stream), 0, head, False, largest, json), wanted, json=json
    )
    native.kernel = None
    events = pravega.split(stream, 0)
    native.kernel = kernel
    found = kernel.pieces(exact(stream), 0, bytes(4), True, len(stream), json)
    _compare(found, events and events[0], json=json)


def check_messages(kernel: Any, stream: bytes, at: int, most: int, few: int) -> None:
    """Whether the kernel finds Pomelo's messages that the reference finds, and sums them up."""
    native.kernel = None
    wanted: list[Any] = []
    stop = pomelo.scan(stream, at, len(stream), most, wanted, few)
    native.kernel = kernel
    found: list[Any] = []
    about = stream, at, most, few
    there = exact(stream)
    assert kernel.scan(there, at, len(stream), most, found, few) == stop, about
    assert found == wanted, about
    native.kernel = None
    sums, _ = pomelo.sums(stream, at, len(stream), most, few)
    native.kernel = kernel
    assert kernel.sums(there, at, len(stream), most, few) == sums, about


def check_gathered(kernel: Any, stream: bytes, at: int) -> None:
    """Whether the kernel gathers what is in Pomelo's messages, if there is nothing else."""
    native.kernel = None
    each: list[Any] = []
    all_found = pomelo.scan(stream, at, len(stream), _ANY, each) == len(stream)
    native.kernel = kernel
    gathered = kernel.messages(exact(stream), at, 1)
    bodies = [stream[begin:end] for _, _, begin, end in each]
    wanted = bodies if all_found and each else None
    _compare(gathered and gathered[:2], wanted, json=True)
    if gathered:
        _, _, seqs, stops, changes = gathered
        assert [*array("q", seqs)] == [number & 0xFFFFFFFF for number, *_ in each]
        assert [*array("q", stops)] == [stop for *_, stop in each]
        kinds = [(number > 0, route) for number, route, _, _ in each]
        before = [None, *kinds]
        assert changes == [
            (row, *kind) for row, kind in enumerate(kinds) if kind != before[row]
        ]
        assert kernel.messages(exact(stream), at, len(each) + 1) is None


def some_messages(kernel: Any, chance: random.Random, bodies: Sequence[bytes]) -> None:
    """Pomelo's, as they are meant, and with changes."""
    routes = ("area.move", "", "ü", 7, 300)
    ids = (0, 1, 127, 128, 1 << 14, (1 << 32) - 1, (1 << 32) + 128)
    stream = b"".join(
        pomelo.request(number, chance.choice(routes), body)
        if (number := chance.choice(ids))
        else pomelo.notify(chance.choice(routes), body)
        for body in bodies
    )
    if chance.random() < 0.5:
        stream = spoiled(chance, stream)
    start = chance.choice((0, 0, 0, chance.randrange(len(stream) + 1)))
    most = chance.choice((20, 1 << 20))
    check_messages(kernel, stream, start, most, chance.choice((1, 99)))
    check_gathered(kernel, stream, start)


def _compare(
    found: tuple[bytes, bytes] | None, wanted: list[bytes] | None, *, json: bool
) -> None:
    if found is None:
        good = wanted is not None and not (json and any(map(_doubtful, wanted)))
        assert not good, wanted
        return
    assert wanted is not None
    block, ends = found
    assert block == b"".join(wanted)
    assert [*array("q", ends)] == [*accumulate(map(len, wanted))]
    assert not json or all(flaw_of(each, _ANY) is None for each in wanted), wanted


def _doubtful(body: bytes) -> bool:
    """The kernel may leave it to the reference."""
    return not body.startswith(b"{") or flaw_of(body, _ANY) is not None


def some_pieces(kernel: Any, chance: random.Random, bodies: Sequence[bytes]) -> None:
    """Messages of RS.io, or events of Pravega, as they are meant, and with changes."""
    head = b"\x21" + varint(chance.choice((0, 1, 300, 1 << 40, (1 << 64) - 1)))
    largest = chance.choice((0, 20, 127, 128, _ANY, _ANY))
    if chance.random() < 0.5:
        stream = b"".join(head + varint(len(each)) + each for each in bodies)
    else:
        stream = b"".join(struct.pack(">II", 0, len(each)) + each for each in bodies)
    if chance.random() < 0.5:
        stream = spoiled(chance, stream)
    check_pieces(kernel, stream, head, largest, json=chance.random() < 0.7)
    start = chance.choice((0, 0, chance.randrange(len(stream) + 1)))
    check_walk(kernel, stream, start, head, chance.randrange(7), largest)


def one(kernel: Any, chance: random.Random) -> None:
    """One look at each function."""
    bodies = [documents(chance) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
    if chance.random() < 0.8:
        at = chance.randrange(len(bodies))
        bodies[at] = b"{" + spoiled(chance, bodies[at])[1:]
    seqs = [chance.choice((0, 1, 1 << 31, (1 << 32) - 1)) for _ in bodies]
    check_rows(kernel, bodies, seqs)
    some_pieces(kernel, chance, bodies)
    some_messages(kernel, chance, bodies)
    stream = b"".join(
        chance.choice((b"1", b"2", b"2"))
        + b"J"
        + struct.pack(">II", seq, len(body))
        + body
        for seq, body in zip(seqs, bodies, strict=True)
    )
    if chance.random() < 0.5:
        stream = spoiled(chance, stream)
    stream = stream[: chance.randrange(len(stream) + 1) or None]
    start = chance.choice((0, 0, chance.randrange(len(stream) + 1)))
    check_run(kernel, stream, start, chance.choice(b"12"), chance.randrange(1, 7))


def build(library: str | None) -> Any:
    """The kernel: the installed one, or that of a file."""
    if library is None:
        import gateway_native

        return gateway_native
    loader = importlib.machinery.ExtensionFileLoader("gateway_native.kernel", library)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def corpora(kernel: Any) -> None:
    """Each line of the vectors, whatever it is, and each way to cut it short."""
    for path in sorted(Path(__file__).parents[1].joinpath("vectors").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            for body in (line, line[: len(line) // 2], b"{" + line):
                if len(body) < 1 << 16:
                    check_rows(kernel, [body, b"{}"], [1, 2])
            stream = bytes.fromhex(json.loads(line).get("hex", ""))
            for cut in range(min(len(stream), 200) + 1):
                check_run(kernel, stream[: len(stream) - cut], 0, b"2"[0], 9)
                check_walk(kernel, stream[: len(stream) - cut], 0, b"\x21\x01", 9, 99)
                check_messages(kernel, stream[: len(stream) - cut], 0, 99, 9)
                check_gathered(kernel, stream[: len(stream) - cut], 0)
    for part in PARTS:
        for other in PARTS:
            for body in (b'{"a":%b%b}', b'{"a":"%b%b"}', b"{%b%b}"):
                check_rows(kernel, [body % (part, other)], [7])


def main(seconds: float, library: str | None = None) -> None:
    """Until the time is over; a seed that fails says its number."""
    kernel = build(library)
    corpora(kernel)
    end = time.monotonic() + seconds
    seed = random.SystemRandom().getrandbits(40)
    first = seed
    while time.monotonic() < end:
        for _ in range(100):
            seed += 1
            try:
                one(kernel, random.Random(seed))
            except BaseException:
                print(f"seed {seed}", file=sys.stderr)
                raise
    print(f"{seed - first} looks")


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
