"""Many gateways at a glance: a row for each, and for a job that tells of itself, made of
what its `/api/status` says.

    GET /api/gateways    {"gateways": [{…}, …]}, this one first

No clock and no I/O: the daemon asks the others (`gateway.daemon.others`), and `gateway
status --all` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.admin.freshness import Level
from gateway.figures.reported import Reported
from gateway.spoken import duration

_TEXT_CHARACTERS = 400
_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One of them."""

    address: str
    """The address of its admin port."""
    kind: Literal["gateway", "job", "unknown"] = "unknown"
    name: str = ""
    """The node; of a job, `Spark job`."""
    incarnation: str = ""
    """The incarnation of a gateway: no other one has the same."""
    version: str = ""
    level: Level = "bad"
    sentence: str
    """The gateway's first sentence, or why there is none."""
    age_seconds: float | None = None
    """How old its oldest event in no table is; of a job, the oldest file in none."""
    connections: int | None = None
    waiting_bytes: int | None = None
    room_seconds: float | None = None
    """Seconds until senders are held back, at the rate of the last minute; None: not in sight."""
    heard_seconds: float | None = None
    """Ago; None: it was never heard."""


def row_of(address: str, told: Mapping[str, Any], now: float) -> Row:
    """The row of an answer, at *now* since the epoch.  Raises ValueError if it is none."""
    try:
        if "node" in told:
            return _gateway(address, told)
        if "state" in told:
            return _job(address, told, now)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as why:
        raise ValueError(f"it says nothing of use: {why!r}") from None
    raise ValueError("what answers there is neither a gateway nor a job")


def silent(address: str, why: str, before: Row | None = None) -> Row:
    """The row of one that does not answer; *before* is the last one."""
    since = ""
    if before is not None and before.heard_seconds is not None:
        since = f"; it did {duration(before.heard_seconds)} ago"
    known = Row(address=address, sentence="") if before is None else before
    return Row(
        address=address,
        kind=known.kind,
        name=known.name,
        version=known.version,
        sentence=f"It does not answer ({why[:_TEXT_CHARACTERS]}){since}.",
        heard_seconds=known.heard_seconds,
    )


def verdict(told: Mapping[str, Any]) -> tuple[str, Level]:
    """The gateway's verdict on itself: the sentence, and how bad that is."""
    level = (told.get("freshness") or {}).get("level")
    sentence = told.get("sentence")
    if not sentence:
        why = told.get("not_ready_reason") or "it says nothing about itself"
        sentence = f"The gateway is not ready: {why}."
    return str(sentence), level if level in ("good", "warning") else "bad"


def _gateway(address: str, told: Mapping[str, Any]) -> Row:
    fresh = told.get("freshness") or {}
    sentence, level = verdict(told)
    return Row(
        address=address,
        kind="gateway",
        name=str(told["node"])[:_NAME_CHARACTERS],
        incarnation=str((told.get("incarnation") or {}).get("id", "")),
        version=str(told.get("version", ""))[:_NAME_CHARACTERS],
        level=level,
        sentence=sentence[:_TEXT_CHARACTERS],
        age_seconds=_number(fresh.get("age_seconds")),
        connections=sum(int(one["connections"]) for one in told["listeners"]),
        waiting_bytes=int(fresh.get("waiting_bytes", 0)),
        room_seconds=_number(fresh.get("room_seconds")),
        heard_seconds=0.0,
    )


def _job(address: str, told: Mapping[str, Any], now: float) -> Row:
    state, said = str(told["state"]), max(0.0, now - _finite(told["at"]))
    oldest = told.get("oldest_file") or {}
    age = max(0.0, now - _finite(oldest["at"])) if "at" in oldest else 0.0
    level: Level = "good"
    if state in ("starting", "running") and not Reported(told).up(said):
        level, sentence = "bad", f"Spark has been silent for {duration(said)}."
    elif state == "starting":
        doing = f" ({told['doing']})" if told.get("doing") else ""
        sentence = f"Spark is starting{doing}."
    elif state == "running":
        last = told.get("last_batch_at")
        when = "committed nothing yet"
        if last is not None:
            when = f"committed its last batch {duration(max(0.0, now - _finite(last)))} ago"
        sentence = f"Spark runs, and {when}."
    else:
        why = f": {told['last_error']}" if told.get("last_error") else ""
        level, sentence = "bad", f"The Spark job is {state}{why}."
    return Row(
        address=address,
        kind="job",
        name="Spark job",
        version=str(told.get("version", ""))[:_NAME_CHARACTERS],
        level=level,
        sentence=sentence[:_TEXT_CHARACTERS],
        age_seconds=age,
        heard_seconds=0.0,
    )


def _number(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _finite(value: Any) -> float:
    """A number that can be told as a time.  Raises ValueError, OverflowError, TypeError."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no time")
    return number
