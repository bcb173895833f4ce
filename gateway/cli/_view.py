"""The screen of `gateway top`: the daemon's states in, a screen out; no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from gateway.admin.gateways import verdict
from gateway.cli._columns import table
from gateway.sdk.command import printable
from gateway.spoken import duration, many, milliseconds, size

_STYLE = {"good": "bold green", "warning": "bold yellow", "bad": "bold white on red"}
_REJECTIONS = 5
_EXPENDABLE = ("address", "events", "bytes/s", "rejected", "protocol", "connections")
"""Columns that a narrow terminal does without, these first."""
_STAGES = ("senders", "listeners", "journal", "spool", "spark", "tables")
_KEYS = "q quits   p stops the picture, and lets it go on"


@dataclass
class View:
    """The newest state of one gateway, and the one before it for what happens a second."""

    address: str
    status: dict[str, Any] | None = None
    sample: dict[str, Any] | None = None
    rejections: Sequence[Mapping[str, Any]] = ()
    trouble: str = ""
    """Why no state comes."""
    stopped: bool = False
    """The picture is not to change."""
    _at: float = 0.0
    _rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Events and bytes a second, by listener."""

    def heard(self, kind: str, data: Any, now: float) -> None:
        """An event of the feed, at a moment in seconds."""
        self.trouble = ""
        if kind == "rejections":
            self.rejections = data
        elif kind == "status":
            self._compare(data["status"], now)
            self.status, self.sample = data["status"], data.get("sample")

    def _compare(self, status: Mapping[str, Any], now: float) -> None:
        seconds, self._at = now - self._at, now
        before = {one["name"]: one for one in (self.status or {}).get("listeners", ())}
        self._rates = {
            one["name"]: tuple(
                max(0.0, (one[key] - before[one["name"]][key]) / seconds)
                for key in ("events", "bytes")
            )
            for one in status["listeners"]
            if one["name"] in before and seconds > 0
        }

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield from self._parts(options.max_width)

    def _parts(self, width: int) -> Iterator[RenderableType]:
        if self.trouble:
            yield Text(
                f" No gateway answers at {self.address}: {printable(self.trouble)}; "
                "trying again … ",
                style=_STYLE["bad"],
            )
        if self.status is None:
            if not self.trouble:
                yield Text(f"Asking the gateway at {self.address} …")
            return
        sentence, level = verdict(self.status)
        if not self.trouble:
            yield Text(f" {printable(sentence)} ", style=_STYLE[level])
        yield Text("")
        yield self._way(self.status)
        yield Text("")
        yield from self._numbers(self.status)
        yield Text("")
        yield self._listeners(self.status, width)
        if self.rejections:
            yield Text("")
            yield self._rejected(width)
        yield Text("")
        yield Text(
            "the picture stands; p lets it go on" if self.stopped else _KEYS, "dim"
        )

    def _way(self, status: Mapping[str, Any]) -> Text:
        """Where events go through, and where they stand."""
        stands = (status.get("freshness") or {}).get("stands")
        text = Text()
        for stage in _STAGES:
            if text:
                text.append(" → ")
            text.append(stage, _STYLE["bad"] if stage == stands else "bold")
        return text

    def _numbers(self, status: Mapping[str, Any]) -> Iterator[Text]:
        sample, fresh = self.sample or {}, status.get("freshness") or {}
        events = sum(rate for rate, _ in self._rates.values())
        received = sum(rate for _, rate in self._rates.values())
        yield _line(
            node=status["node"],
            up=duration(status["uptime_seconds"]),
            connections=f"{sum(one['connections'] for one in status['listeners']):,}",
        )
        yield _line(
            taken=f"{events:,.0f} events/s, {size(received)}/s",
            acknowledged=f"{_milli(sample.get('ack_p50'))} median, "
            f"{_milli(sample.get('ack_p99'))} p99",
        )
        yield _line(
            oldest=_age(fresh.get("age_seconds")),
            waiting=size(fresh.get("waiting_bytes") or status["spool"]["bytes"]),
            room=_age(fresh.get("room_seconds")),
            spool=many(status["spool"]["files"], "file"),
        )
        spark = status.get("spark") or {}
        if spark:
            yield _line(
                spark="runs" if spark.get("up") else "is silent",
                **{"last batch": _age(spark.get("last_batch_seconds"))},
                rows=f"{spark.get('rows') or 0:,}",
            )

    def _listeners(self, status: Mapping[str, Any], width: int) -> Text:
        ages = (status.get("freshness") or {}).get("listeners") or {}
        rows = []
        for one in status["listeners"]:
            events, received = self._rates.get(one["name"], (0.0, 0.0))
            rows.append(
                (
                    *(one[key] for key in ("name", "protocol", "address")),
                    f"{one['connections']:,}",
                    f"{events:,.0f}",
                    size(received),
                    f"{one['events']:,}",
                    f"{sum(one.get('rejected', {}).values()):,}",
                    _age(ages.get(one["name"])),
                )
            )
        head = (
            "listener", "protocol", "address", "connections", "events/s", "bytes/s",
            "events", "rejected", "oldest",
        )  # fmt: skip
        return _under_its_head(table(head, rows, width, _EXPENDABLE))

    def _rejected(self, width: int) -> Text:
        rows = [
            (
                *(str(one.get(key)) for key in ("listener", "peer", "why")),
                one.get("count", 1),
            )
            for one in self.rejections[:_REJECTIONS]
        ]
        head = ("rejected lately", "peer", "why", "times")
        return _under_its_head(table(head, rows, width))


def _under_its_head(text: str) -> Text:
    head, _, rest = text.partition("\n")
    return Text(f"{head}\n", "bold", no_wrap=True) + Text(rest)


def _line(**facts: str) -> Text:
    """Names and values beside each other."""
    text = Text()
    for name, value in facts.items():
        text.append(f"{name} ", "dim")
        text.append(printable(value))
        text.append("   ")
    return text


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _milli(seconds: float | None) -> str:
    return "-" if seconds is None else milliseconds(seconds)
