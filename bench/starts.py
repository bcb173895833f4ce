"""What a ledger, and what else is kept of each start, takes after many starts of gateways: a
pod that restarts each minute for a week, or 200 nodes that do so daily for a year.

Each start gives ten events, and is a batch of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway.audit import audit
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store.directories import Directories
from gateway.store.names import Life
from gateway.store.node.incarnation import Incarnation, Record, derived
from gateway.store.node.mark import Mark
from gateway.store.readers.lake import INTERNAL


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--starts", type=int, default=10_080, help="of all nodes")
    parser.add_argument("--nodes", type=int, default=1)
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("starts without end", machine(home))
        _measure(report, home, options.starts, options.nodes)
    return report.finish(as_json=options.json)


def _measure(report: Report, home: Path, starts: int, nodes: int) -> None:
    lake = home / "lake"
    path = lake / INTERNAL / "events.json"
    path.parent.mkdir(parents=True)
    closing, ledger = Closing(lake, Lake()), Ledger()
    most = text = 0.0
    begun = time.process_time()
    for number in range(starts):
        node, round_ = f"gw-{number % nodes}", number // nodes
        first, mine = 1 + 10 * round_, Life(node, derived(node, str(round_)))
        took = Ranges()
        took.add(mine, first, first + 9)
        before = derived(node, str(round_ - 1)) if round_ else ""
        after = ledger.after("q", number, took, {mine: Record(first, before)})
        ledger = closing.close(after)
        if number % 97 == 0:
            took_text = time.process_time()
            most = max(most, len(ledger.text()))
            text += time.process_time() - took_text
    spent = time.process_time() - begun
    ledger.save(Lake(), path)
    whole = _seconds(lambda: closing.whole(Ledger.load(Lake(), path)))
    report.add("closed", len(ledger.committed.closed.by), "incarnations")
    report.add("of a batch's CPU", spent / starts * 1e3, "ms")
    report.add("to write its words", text * 1e3 / (1 + starts // 97), "ms")
    report.add("to read all of it at a start", whole, "s")
    this: Incarnation | None = None
    for number in range(starts // nodes):
        this = Incarnation.new(1 + 10 * number, (1, 1), this)
    assert this is not None
    report.add("the journal's record", len(msgspec.json.encode(this)), "B")
    mark = Mark(incarnation=this.id, earlier=this.whole)
    report.add("the mark", len(msgspec.json.encode(mark)), "B")
    (path.parent / "sink.json").write_text(json.dumps({"sink": "x:y"}))
    places = Directories.under(home)
    report.add("an audit", _seconds(lambda: audit(places, pause=lambda _: None)), "s")
    report.claims.append(Claim("a commit's words", most / 1000, "KB", 256))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


if __name__ == "__main__":
    main(bench)
