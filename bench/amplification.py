"""What hostile input costs us, per byte that is sent.

Each row is one attack on one connection, in a process of its own: its unit is sent again
and again, up to --bytes, in reads of 256 KiB, to the protocol's real server.  Network and
disk are in memory, and everything is durable after each turn; so what is measured is the
protocol's work on the event loop.  tests/plugins/attacks has the attacks, and
tests/test_amplification.py holds them to their ceilings by counts.

turn      the longest time that the event loop was held; the claim is ≤ 20 ms;
          on a busy machine look at its CPU time
cpu       seconds per MiB sent
journal   bytes of the journal's records per byte sent
rows      events acknowledged per byte sent
memory    peak above that of an idle process
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _machine import machine
from _report import Claim, Report, arguments, main, workplace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

from attacks import ATTACKS
from gateway_testkit.attacks import Attack, Trial

_MIB = 1 << 20


def measure(attack: Attack, home: Path, most: int | None) -> dict[str, float]:
    """One attack, in this process."""
    trial = Trial(attack, home)
    found = dict.fromkeys(("turn", "turn cpu", "cpu"), 0.0)

    def around(turn: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        turn()
        spent = time.thread_time() - cpu
        found["turn"] = max(found["turn"], time.perf_counter() - wall)
        found["turn cpu"] = max(found["turn cpu"], spent)
        found["cpu"] += spent

    gc.freeze()
    before = resource.getrusage(resource.RUSAGE_SELF)
    trial.run(most, around=around)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return found | {
        "sent": trial.sent,
        "journal": trial.journal_bytes,
        "rows": trial.events,
        "turns": trial.turns,
        "memory": (after.ru_maxrss - before.ru_maxrss) * 1024,
        "refused": trial.refused is not None,
    }


def _in_child(index: int, home: Path, most: int | None) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        return pool.apply(_by_index, (index, home, most))


def _by_index(index: int, home: Path, most: int | None) -> dict[str, float]:
    return measure(ATTACKS[index], home, most)


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--bytes", type=int, help="sent by each (default: what shows its ceiling)"
    )
    parser.add_argument("--protocol", help="only this one's attacks")
    parser.add_argument("--cpu", action="store_true", help="claim CPU time, not time")
    options: argparse.Namespace = parser.parse_args()
    with workplace(options) as home:
        report = Report("amplification", machine(home))
        for index, attack in enumerate(ATTACKS):
            if options.protocol in (None, attack.protocol):
                found = _in_child(index, home, options.bytes)
                _add(report, attack, found, "turn cpu" if options.cpu else "turn")
    return report.finish(as_json=options.json)


def _add(report: Report, attack: Attack, found: dict[str, float], held: str) -> None:
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
    longest = Claim(f"{name}: event loop held", found[held] * 1000, "ms", 20)
    most = 4 * sent + (64 << 10)
    stored = Claim(f"{name}: journal", found["journal"], "bytes", most)
    report.claims += [longest, stored]
    report.raw[name] = found


if __name__ == "__main__":
    main(bench)
