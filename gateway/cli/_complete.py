"""`gateway table complete`: whether a day of the tables is whole, and who holds it if not."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.figures.reported import SILENT, Reported
from gateway.sdk.command import WrongUse, located, nobody_reads, printable
from gateway.store.readers.complete import NAMELESS, Completeness, moment, of_lake
from gateway.store.readers.lake import health_path, sink_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_LOOK_SECONDS = 5.0


def run(
    args: argparse.Namespace,
    lake: Path,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """0: it is complete, 1: it is not.  Raises `WrongUse` where there are no tables."""
    day = args.day or datetime.fromtimestamp(clock(), UTC).date() - timedelta(days=1)
    told: list[str] = []
    while True:
        found = _look(lake, day, clock())
        if found["complete"] or not args.wait:
            break
        if nobody_reads():
            raise BrokenPipeError
        if (holders := _holders(found)) != told:
            told = holders
            for line in told:
                print(printable(line), file=sys.stderr, flush=True)
        sleep(_LOOK_SECONDS)
    if args.json:
        print(json.dumps(found))
    else:
        known = found["through"]
        through = (
            f"the tables are, through {known}" if known else "nobody knows since when"
        )
        verdict = "is complete" if found["complete"] else f"is not complete: {through}"
        print(f"{day} {verdict}")
        for line in _holders(found) if not found["complete"] else ():
            print(printable(line))
    return 0 if found["complete"] else 1


def _holders(found: dict[str, Any]) -> list[str]:
    return [f"  {one['node']} {one['why']}" for one in found["held_by"]]


def _look(lake: Path, day: date, now: float) -> dict[str, Any]:
    try:
        sink = sink_of(lake)
        jobs = {} if sink is None else json.loads(sink.get("complete", "{}"))
        known = of_lake(lake)
        others = {
            job: Completeness.read(one) if one else Completeness()
            for job, one in jobs.items()
        }
    except (ValueError, KeyError, TypeError, OSError) as why:
        raise WrongUse(f"{lake}: {located(why)}") from None
    if sink is None:
        raise WrongUse(f"no tables in {lake}")
    reported = Reported.read(health_path(lake))
    moments = [one.through for one in (known, *others.values())]
    if "complete_through" in reported.words:  # newer than the last commit
        through = reported.number("complete_through")
        moments[0] = None if through is None else int(through * 1e6)
    return {
        "day": day.isoformat(),
        "complete": all(one.has(day) for one in (known, *others.values())),
        "through": moment(min(filter(None, moments))) if all(moments) else None,
        "taken_back": known.taken_back.get(day.toordinal(), 0),
        "held_by": [*_held(reported, day, others, now)],
    }


def _held(
    reported: Reported, day: date, others: dict[str, Completeness], now: float
) -> Iterator[dict[str, str]]:
    silent = reported.silent_seconds(now)
    if not reported.up(silent):
        state = reported.state or "has never run here"
        yield {"node": "the Spark job", "why": f"does not run ({state})"}
    elif silent > SILENT:
        yield {"node": "the Spark job", "why": "says nothing any more"}
    named = {job: f"job {job}" if job else NAMELESS for job in others}
    for job, one in others.items():
        if not one.has(day):
            last = f"since {moment(one.through)}" if one.through else "yet"
            why = f"has not said that it is complete, {last}"
            yield {"node": named[job], "why": why}
    for holder in reported.words.get("held_by") or ():
        if isinstance(holder, dict) and holder.get("node") not in named.values():
            yield {"node": str(holder.get("node")), "why": str(holder.get("why"))}
