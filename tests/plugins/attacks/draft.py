"""Attacks on Pravega's segment store, the draft of 2016."""

import itertools
from collections.abc import Iterator
from typing import Any

from gateway.protocols.pravega import draft_wire as d
from gateway.protocols.pravega.frames import frame
from gateway_testkit.attacks import Attack, Units, repeated
from pravega_draft import partial, read_segment

_W = b"w" * 16
_OPENING = (d.setup_append(_W, "s"),)


def _attack(name: str, units: Units, **more: Any) -> Attack:
    return Attack("pravega", f"2016, {name}", units, **{"opening": _OPENING} | more)


def _blocks(events: bytes, *, opened: bool = False) -> Units:
    def units() -> Iterator[bytes]:
        size = len(events)
        for at in itertools.count(0, size):
            yield b"".join(
                (
                    d.block(d.BEGIN_BLOCK, _W, at, d.OPEN if opened else size),
                    events,
                    d.block(d.END_BLOCK, _W, at, size),
                )
            )

    return units


def _writers() -> Iterator[bytes]:
    return (d.setup_append(number.to_bytes(16), "s") for number in itertools.count())


def _parts() -> Iterator[bytes]:
    yield d.block(d.BEGIN_BLOCK, _W, 0, d.OPEN) + partial(d.BEGIN, b"")
    yield from itertools.repeat(partial(d.MIDDLE, b""))


ATTACKS = [
    _attack("blocks of an empty event", _blocks(d.event(b""))),
    _attack("open blocks of an empty event", _blocks(d.event(b""), opened=True)),
    _attack(
        "blocks of an empty event, a long name",
        _blocks(d.event(b"")),
        opening=(d.setup_append(_W, "n" * 1024),),
    ),
    _attack(
        "blocks of 16 MB of empty events",
        _blocks(d.event(b"") * ((1 << 21) - 16)),
        most=16 << 20,
    ),
    _attack(
        "open blocks of 16 MB of empty events",
        _blocks(d.event(b"") * ((1 << 21) - 16), opened=True),
        most=16 << 20,
    ),
    _attack("blocks of nothing", _blocks(b""), endless=True, most=1 << 20),
    _attack("empty parts", _parts, endless=True),
    _attack("SetupAppends", repeated(_OPENING[0]), endless=True, most=1 << 20),
    _attack("SetupAppends, a writer each", _writers, most=1 << 20, endless=True),
    _attack("KeepAlives", repeated(frame(d.KEEP_ALIVE)), endless=True),
    _attack("reads at the tail", repeated(read_segment("s", 0, 1)), endless=True),
    _attack("reads of no segment", repeated(read_segment("", 0, 1)), endless=True),
]
