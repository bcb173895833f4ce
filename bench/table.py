"""The table of figures: each case, its figure, and what a peer or a floor did beside it.

    python bench/table.py                 all lines (40 minutes)
    python bench/table.py --quick         most of them, shorter (6 minutes)
    python bench/table.py --only pomelo,rsio
    python bench/table.py --record        and these are the figures of record from now on
    python bench/table.py --pages         measures nothing: writes the record into the pages

It runs the benchmarks, prints the lines that it could measure, and then what is worse
than the figures of record (`results.json`) by more than a tenth.  `--record` writes them
there and into the pages that show them (`_pages.py`); lines that were not measured stay.
The exit status is 1 if a promise was broken, something is worse, or a benchmark failed.

Sustained is a rate at which what was acknowledged went to Parquet, too, with a bounded
backlog.  A burst is what is acknowledged while what waits grows, with how long the
default `spool.max_bytes` lets it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _lines import LINES, MEASUREMENTS, Measurement, table, worse
from _machine import machine
from _pages import pages, written

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RECORD = HERE / "results.json"


def measured(
    measurement: Measurement, options: argparse.Namespace
) -> dict[str, Any] | None:
    """What the benchmark reported; None if it failed, which is told."""
    words = measurement.quick if options.quick else measurement.words
    script = str(HERE / f"{measurement.script}.py")
    command = [sys.executable, script, "--json", *shlex.split(words or "")]
    if options.directory:
        command += ["--directory", str(options.directory)]
    print(f"== {measurement.script} {words}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        print(f"{measurement.script} failed, see above", file=sys.stderr)
        return None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def numbers(report: Mapping[str, Any]) -> dict[str, float]:
    """By name; the floors, too."""
    floors = report["floors"] or {}
    return {
        **{f"floor: {name}": value for name, value in floors.items()},
        **report["numbers"],
    }


def broken(report: Mapping[str, Any]) -> list[str]:
    """The promises that were not kept."""
    return [
        f"{report['title']}: {claim['what']}: {claim['figure']}, limit {claim['limit']}"
        for claim in report["claims"]
        if not claim["kept"]
    ]


def recorded(path: Path = RECORD) -> dict[str, dict[str, Any]]:
    """The figures of record, by case."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def where() -> dict[str, str]:
    """Day and machine, for the record."""
    facts = machine(Path.cwd())
    day = dt.datetime.now(dt.UTC).date().isoformat()
    names = ("cpu", "cores", "memory", "kernel", "python", "load before")
    return {"day": day, **{name: facts[name] for name in names}}


def bench() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="in 6 minutes")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="measurements")
    parser.add_argument("--record", action="store_true", help="for the pages, too")
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    parser.add_argument("--directory", type=Path, help="write data here")
    options = parser.parse_args()
    if options.pages:
        show(recorded())
        return 0
    only = options.only.split(",")
    if unknown := set(only) - MEASUREMENTS.keys():
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    here = {**where(), "run": "quick" if options.quick else "whole"}
    record = recorded()
    found: dict[str, dict[str, float]] = {}
    wrong: list[str] = []
    for name, measurement in MEASUREMENTS.items():
        if name not in only or (options.quick and measurement.quick is None):
            continue
        report = measured(measurement, options)
        if report is None:
            wrong.append(f"{name} could not be measured")
            continue
        wrong += broken(report)
        print("".join(f"{note}\n" for note in report["notes"]), end="", file=sys.stderr)
        for line in LINES:
            values = line.values(numbers(report))
            if line.measurement == name and values is not None:
                found[line.case] = values
    now = {case: {**here, "values": values} for case, values in found.items()}
    print(table(now))
    if unmeasured := [line.case for line in LINES if line.case not in found]:
        print(f"Not measured: {'; '.join(unmeasured)}.\n")
    wrong += compared(record, now)
    fine = "Nothing is worse than the figures of record."
    if not record.keys() & now.keys():
        fine = "There are no figures of record to compare with."
    print("\n".join(wrong) or fine)
    if options.record:
        write(record | now)
    return 1 if wrong else 0


def compared(
    record: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What is worse than the record, and where that is from."""
    found = list(worse(record, {case: one["values"] for case, one in now.items()}))
    days = {
        f"{one['day']}, {one['cpu']}, {one['cores']} cores, a {one['run']} run"
        for case, one in record.items()
        if case in now
    }
    told = [f"Worse than the figures of record ({'; '.join(sorted(days))}):"]
    return [*told, *(f"  {one}" for one in found)] if found else []


def write(record: Mapping[str, Mapping[str, Any]]) -> None:
    """The record, and what the pages say of it."""
    kept = {line.case: record[line.case] for line in LINES if line.case in record}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    RECORD.write_text(text + "\n", "utf-8")
    show(kept)


def show(record: Mapping[str, Mapping[str, Any]]) -> None:
    """The figures of record, in every page that shows some."""
    for page in pages(ROOT):
        was = page.read_text("utf-8")
        if (now := written(was, record)) != was:
            page.write_text(now, "utf-8")


if __name__ == "__main__":
    sys.exit(bench())
