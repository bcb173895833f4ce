"""What hostile input costs us, per byte that is sent.

Each row is one attack on one connection, in a process of its own: its unit is sent again
and again, up to --bytes, in reads of 256 KiB, to the protocol's real server.  Network and
disk are in memory, and everything is durable after each turn; so what is measured is the
protocol's work on the event loop.

turn      the longest time that the event loop was held; the claim is ≤ 20 ms;
          on a busy machine look at its CPU time
cpu       seconds per MiB sent
journal   bytes of batches per byte sent, each with 64 bytes for its record
rows      events acknowledged per byte sent
memory    peak above that of an idle process
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway.interfaces import Refusal
from gateway.plugins import installed
from gateway.protocols.lumberjack import wire
from gateway.testing.plugins import FakeDaemon

_READ = 1 << 18
_MIB = 1 << 20
_RECORD = 64
"""Of the journal, around a batch."""
_V1, _V2 = b"12"


@dataclass
class Attack:
    """Rows of the table: add your protocol's to `ATTACKS`."""

    protocol: str
    name: str
    unit: Callable[[], bytes]
    """Sent again and again."""
    opening: bytes = b""
    """Sent once before."""


def _lumberjack(name: str, unit: Callable[[], bytes]) -> Attack:
    return Attack("lumberjack", name, unit)


def _squeezed(frames: bytes) -> bytes:
    return wire.compressed(_V2, frames, 9)


def _one(body: bytes) -> bytes:
    return wire.window(_V2, 1) + wire.json(_V2, 1, body)


def _array(element: bytes, count: int) -> bytes:
    array = b"[" + b",".join([element] * count) + b"]"
    return wire.window(_V2, 1) + _squeezed(wire.json(_V2, 1, array))


def _pairs() -> bytes:
    frame = wire.data(_V1, 1, [(b"", b"")] * 1024)
    return wire.window(_V1, 1000) + _squeezed(frame * 1000)


ATTACKS = [
    _lumberjack("arrays of 32 Ki {}", lambda: _array(b"{}", 1 << 15)),
    _lumberjack("arrays of 65 000 {}", lambda: _array(b"{}", 65_000)),
    _lumberjack("arrays of 524 000 numbers", lambda: _array(b"1", 524_000)),
    _lumberjack("60 000 W 0 in a C", lambda: _squeezed(wire.window(_V2, 0) * 60_000)),
    _lumberjack("30 000 windows in a C", lambda: _squeezed(_one(b"{}") * 30_000)),
    _lumberjack("1 000 D of empty pairs", _pairs),
    _lumberjack(
        "W in a C, an event of 15 MiB",
        lambda: _squeezed(_one(b'{"a":"%s"}' % (b"x" * (15 << 20)))),
    ),
    _lumberjack("bare windows of one event", lambda: _one(b"{}")),
]


def measure(attack: Attack, home: Path, most: int) -> dict[str, float]:
    """One attack, in this process."""
    daemon = FakeDaemon(installed().protocols[attack.protocol], home)
    connection = daemon.connect()
    unit = attack.unit()
    data = unit * max(1, most // len(unit))
    before = resource.getrusage(resource.RUSAGE_SELF)
    connection.stepwise = True
    found = dict.fromkeys(
        ("sent", "turn", "turn cpu", "cpu", "journal", "rows", "turns"), 0.0
    )

    def turn(call: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        found["turn"] = max(found["turn"], time.perf_counter() - wall)
        spent = time.process_time() - cpu
        found["cpu"] += spent
        found["turn cpu"] = max(found["turn cpu"], spent)
        found["turns"] += 1
        _settle(daemon, found)

    pieces = [data[at : at + _READ] for at in range(0, len(data), _READ)]
    for piece in filter(None, (attack.opening, *pieces)):
        if connection.closed or connection.aborted:
            break
        found["sent"] += len(piece)
        turn(functools.partial(connection.deliver, piece))
        while connection.turn_due and not (connection.closed or connection.aborted):
            turn(connection.take_turn)
    after = resource.getrusage(resource.RUSAGE_SELF)
    found["memory"] = (after.ru_maxrss - before.ru_maxrss) * 1024
    found["refused"] = float(isinstance(connection.refused, Refusal))
    return found


def _settle(daemon: FakeDaemon, found: dict[str, Any]) -> None:
    """Everything is durable, counted, and forgotten."""
    daemon.store()
    for stored in daemon.journal.stored:
        found["journal"] += len(stored.batch.body) + _RECORD
        found["rows"] += stored.batch.count
    daemon.journal.stored.clear()
    daemon.journal.submitted.clear()


def _in_child(attack: Attack, home: Path, most: int) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        return pool.apply(_by_index, (ATTACKS.index(attack), home, most))


def _by_index(index: int, home: Path, most: int) -> dict[str, float]:
    return measure(ATTACKS[index], home, most)


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--bytes", type=int, default=16 << 10, help="sent by each")
    parser.add_argument("--protocol", help="only this one's attacks")
    options: argparse.Namespace = parser.parse_args()
    with workplace(options) as home:
        report = Report("amplification", machine(home))
        for attack in ATTACKS:
            if options.protocol in (None, attack.protocol):
                _add(report, attack, _in_child(attack, home, options.bytes))
    return report.finish(as_json=options.json)


def _add(report: Report, attack: Attack, found: dict[str, float]) -> None:
    name, sent = f"{attack.protocol}: {attack.name}", found["sent"]
    refused = ", refused" if found["refused"] else ""
    figures = (
        f"turn {found['turn'] * 1000:6.1f} ms ({found['turn cpu'] * 1000:.1f} of CPU)",
        f"cpu {found['cpu'] / sent * _MIB:8.2f} s/MiB",
        f"journal {found['journal'] / sent:6.2f} x",
        f"rows {found['rows'] / sent:8.2f} /B",
        f"memory {found['memory'] / _MIB:6.1f} MiB",
        f"turns {found['turns']:,.0f}",
        f"sent {sent:,.0f} B{refused}",
    )
    report.add(name, "  ".join(figures))
    longest = Claim(f"{name}: event loop held", found["turn"] * 1000, "ms", 20)
    most = 4 * sent + (64 << 10)
    stored = Claim(f"{name}: journal", found["journal"], "bytes", most)
    report.claims += [longest, stored]
    report.raw[name] = found


if __name__ == "__main__":
    main(bench)
