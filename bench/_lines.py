"""The lines of the table of figures: what is measured for each, and how it is said.

`table.py` runs the benchmarks and prints the lines; `results.json` has the figures of
record, and `_pages.py` writes what is printed for these into README and docs/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

__all__ = [
    "LINES",
    "MEASUREMENTS",
    "Line",
    "Measurement",
    "needed",
    "said",
    "short",
    "table",
    "worse",
]

HEAD = "| what | measured | in the same run |\n|---|---|---|"
SHORT_HEAD = "| what | measured |\n|---|---|"
_WORSE = 0.10


@dataclass(frozen=True)
class Measurement:
    """One benchmark, with the words it is run with."""

    script: str
    words: str
    quick: str | None
    """Instead of these, when there is little time; None: not then."""


@dataclass(frozen=True)
class Field:
    """A number of a benchmark: its name there."""

    name: str
    better: int
    """1: the more the better; -1: the less; 0: neither."""
    scale: float = 1.0


def more(name: str) -> Field:
    return Field(name, 1)


def less(name: str, scale: float = 1.0) -> Field:
    return Field(name, -1, scale)


def told(name: str, scale: float = 1.0) -> Field:
    return Field(name, 0, scale)


@dataclass(frozen=True)
class Line:
    """What is printed of one case."""

    key: str
    """What pages call it (`_pages.py`)."""
    case: str
    measurement: str
    figure: str
    beside: Sequence[str]
    """Against peers and floors of the same run; what was not measured is left out."""
    fields: Mapping[str, Field]
    """Those in braces in *figure* and *beside*."""
    short: str = ""
    """Its case, as the README's few lines say it, if it is one of them."""

    def values(self, numbers: Mapping[str, float]) -> dict[str, float] | None:
        """By field; None if the benchmark did not measure all that the figure needs."""
        found = {
            key: numbers[field.name] * field.scale
            for key, field in self.fields.items()
            if field.name in numbers
        }
        return found if needed(self.figure) <= found.keys() else None

    def said(self, values: Mapping[str, float]) -> str:
        """The row of the table."""
        texts = {key: said(value) for key, value in values.items()}
        beside = [
            each.format(**texts) for each in self.beside if needed(each) <= texts.keys()
        ]
        return f"| {self.case} | {self.figured(values)} | {'; '.join(beside)} |"

    def figured(self, values: Mapping[str, float]) -> str:
        """What was measured."""
        return self.figure.format(**{key: said(one) for key, one in values.items()})


def needed(template: str) -> set[str]:
    """The fields that stand in it."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


@dataclass(frozen=True)
class Worse:
    """A figure that is worse than the one of record."""

    case: str
    field: Field
    was: float
    now: float

    def __str__(self) -> str:
        change = abs(self.now / self.was - 1) * 100
        direction = "more" if self.now > self.was else "less"
        figures = f"{said(self.was)} → {said(self.now)}"
        return f"{self.case}: {self.field.name}: {figures} ({change:.0f} % {direction})"


def worse(
    record: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, float]]
) -> Iterator[Worse]:
    """What of *found* is worse than the *record* by more than a tenth, line by line."""
    for line in LINES:
        was, now = record.get(line.case, {}).get("values", {}), found.get(line.case, {})
        for key, field in line.fields.items():
            if key not in was or key not in now or not was[key]:
                continue
            if field.better * (now[key] / was[key] - 1) < -_WORSE:
                yield Worse(line.case, field, was[key], now[key])


def said(number: float) -> str:
    """For readers: three digits of what is large, two of what is not."""
    if number == math.inf:
        return "∞"
    if abs(number) >= 1000:
        digits = len(f"{abs(number):.0f}") - 3
        return f"{round(number, -digits):,.0f}"
    if abs(number) >= 100:
        return f"{number:.0f}"
    return f"{number:#.2g}".rstrip(".")


def short(record: Mapping[str, Mapping[str, Any]]) -> str:
    """The README's few lines: those that have a short name, without what is beside."""
    rows = [
        f"| {line.short} | {line.figured(record[line.case]['values'])} |"
        for line in LINES
        if line.short and line.case in record
    ]
    return "\n".join([SHORT_HEAD, *rows]) + "\n"


def table(record: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole one: all lines that have a record, in their order."""
    rows = (
        line.said(record[line.case]["values"]) for line in LINES if line.case in record
    )
    return "\n".join([HEAD, *rows]) + "\n"


# -- what there is ---------------------------------------------------------------------

_BEATS = (
    "--case top,sustained,sustained-tls,sustained-small,sustained-documents,"
    "sustained-ids,sustained-python,latency,go-lumber,go-lumber-documents"
)
_BRIEFLY = "--filling 5 --lasting 7 --backlog 256MiB --warm-up 1.5 --seconds 3"
MEASUREMENTS = {
    "beats": Measurement("lumberjack", _BEATS, f"{_BEATS} {_BRIEFLY}"),
    "pomelo": Measurement(
        "pomelo",
        "--case tcp,web,depth1,notify,one --seconds 8",
        "--case tcp,web,depth1,notify,one --seconds 2.5",
    ),
    "pravega": Measurement(
        "pravega",
        "--case top,sustained,latency,tail,memory,spool",
        f"--case top,sustained,latency,tail,memory,spool {_BRIEFLY} --events 200",
    ),
    "rsio": Measurement(
        "rsio",
        "--case sustained,packed,rivals",
        "--case sustained,packed,rivals --filling 5 --lasting 7 --backlog 256MiB "
        "--seconds 2",
    ),
    "pipeline": Measurement(
        "pipeline", "--warm-up 30 --seconds 45", "--warm-up 6 --seconds 10"
    ),
    "restart": Measurement("restart", "", "--bytes 268435456"),
    "full": Measurement(
        "memory", "--case full --seconds 600", "--case full --seconds 12"
    ),
    "stalled": Measurement("memory", "--case stalled", None),
    "idle": Measurement("idle", "", None),
    "cost": Measurement("cost", "--case rows,start,small", None),
}


def _beats(
    key: str, case: str, name: str, *beside: str, short: str = "", **fields: Field
) -> Line:
    """Of a rate that lasts."""
    return Line(
        key,
        case,
        "beats",
        "{rate} events/s sustained, {cpu} µs of CPU an event, Parquet included",
        beside,
        {
            "rate": more(f"{name}: events/s that last"),
            "cpu": less(f"{name}: CPU of an event"),
            **fields,
        },
        short,
    )


def _latency(key: str, case: str, measurement: str, what: str, short: str = "") -> Line:
    """At half of the rate that lasts."""
    return Line(
        key,
        case,
        measurement,
        "median {p50} ms, p99 {p99} ms",
        ["one `fdatasync` of such a commit group, {size} MB: {sync} ms"],
        {
            "p50": less(f"latency: {what}, p50"),
            "p99": less(f"latency: {what}, p99"),
            "size": told("latency: a commit group"),
            "sync": told("latency: one fdatasync of it"),
        },
        short,
    )


def _peer(name: str) -> dict[str, Field]:
    return {
        "times": more(f"{name}: rate that lasts ÷ go-lumber's"),
        "share": less(f"{name}: CPU ÷ go-lumber's"),
    }


def _pomelo(key: str, case: str, name: str) -> Line:
    return Line(
        key,
        case,
        "pomelo",
        "{rate}/s sustained, {cpu} µs of CPU each",
        [
            "npm's pomelo, which stores nothing: {theirs}/s, {cost} µs",
            "{times} × its rate, {share} × its CPU",
        ],
        {
            "rate": more(f"{name}: rate that lasts"),
            "cpu": less(f"{name}: CPU"),
            "theirs": told(f"{name}: pomelo's rate"),
            "cost": told(f"{name}: pomelo's CPU"),
            "times": more(f"{name}: rate ÷ pomelo's"),
            "share": less(f"{name}: CPU ÷ pomelo's"),
        },
    )


_GO_LUMBER = (
    "go-lumber's server, which decodes each event and stores nothing: "
    "{times} × its rate, {share} × its CPU"
)
LINES = [
    _beats(
        "beats",
        "Beats, windows of 2048 events of 546 B, level 3, plain TCP",
        "sustained",
        "inflating alone (ISA-L): {floor} µs",
        _GO_LUMBER,
        short="Beats, windows of 2048 events of 546 B",
        floor=told("floor: isal_us"),
        **_peer("sustained"),
    ),
    Line(
        "burst",
        "a burst of these, until 20 GiB wait",
        "beats",
        "{rate} events/s for {minutes} min",
        [],
        {
            "rate": more("top: events/s"),
            "minutes": told("top: so it lasts", 1 / 60),
        },
    ),
    _beats("tls", "the same over TLS 1.3", "sustained-tls"),
    _beats("small", "windows of 50 events, 100 connections", "sustained-small"),
    _beats(
        "documents",
        "windows of 2048 of Filebeat's documents with Kubernetes metadata, 1.3 KB",
        "sustained-documents",
        _GO_LUMBER,
        **_peer("sustained-documents"),
    ),
    _beats("ids", "windows of 2048 of ids and free text, 450 B", "sustained-ids"),
    _beats(
        "python",
        "the first of these lines without the kernel in C (`gateway-native`)",
        "sustained-python",
    ),
    _latency(
        "ack",
        "whole window to acknowledgement, at half of the sustained rate",
        "beats",
        "last byte to ack",
        "a window to its acknowledgement, at half of that rate",
    ),
    Line(
        "lake",
        "last byte of a window to its rows in `lake/events`, Spark included",
        "pipeline",
        "median {p50} s, p99 {p99} s at {rate} events/s",
        ["roll 1 s + trigger 1 s"],
        {
            "p50": less("last byte to lake/events, p50"),
            "p99": less("last byte to lake/events, p99"),
            "rate": told("events/s"),
        },
        "a window to its rows in the table, Spark included",
    ),
    Line(
        "restart",
        "ready again after `kill -9`",
        "restart",
        "{ready} s with {size} MiB of journal",
        ["importing: {imports} s, reading the journal: {read} s; {times} × both"],
        {
            "ready": less("ready after"),
            "size": told("journal"),
            "imports": told("floor: imports"),
            "read": told("floor: reading the journal from the disk"),
            "times": told("ready ÷ both floors"),
        },
        "ready again after `kill -9`",
    ),
    Line(
        "row",
        "a document of 1.3 KB, twenty columns of one's own, into Parquet tables by Spark",
        "cost",
        "{cpu} µs of CPU a row, of it {compiling} in Java's compilers, which end",
        [
            "a job written by hand, `from_json`, the same columns: {hand} µs; {ratio} × that",
            "a copy of the spool's columns into the same folders: {copy} µs",
        ],
        {
            "cpu": less("rows, ours: CPU of a row"),
            "compiling": told("rows, ours: of it compiling"),
            "hand": told("rows, by hand: CPU of a row"),
            "ratio": less("rows: ours beside by hand"),
            "copy": told("rows, a copy: CPU of a row"),
        },
    ),
    Line(
        "once",
        "`gateway spark --once` with 300,000 of these, from start to end",
        "cost",
        "{cpu} s of CPU",
        ["the job by hand with `availableNow`: {hand} s; {ratio} × that"],
        {
            "cpu": less("start, ours: CPU"),
            "hand": told("start, by hand: CPU"),
            "ratio": less("start: ours beside by hand"),
        },
    ),
    Line(
        "flow",
        "`gateway run` at 500 events/s, all processes, in the second minute",
        "cost",
        "{cpu} % of a core, {memory} MiB, a row is there after {late} s (p99)",
        ["nothing comes: {idle} %; a bare session of Spark: {bare} MiB"],
        {
            "cpu": less("small, 500/s: CPU"),
            "memory": less("small, 500/s: memory"),
            "late": less("small, 500/s: until a row can be read, p99"),
            "idle": told("small, idle: CPU"),
            "bare": told("a bare session of Spark: memory"),
        },
        "`gateway run` at 500 events/s, Spark included",
    ),
    Line(
        "memory",
        "memory at full load, the processes that write files included",
        "full",
        "{peak} MiB in {seconds} s",
        ["`journal.memory_bytes` 256 MiB"],
        {"peak": less("full: peak"), "seconds": told("full: seconds")},
        "memory at full load, all processes of the daemon",
    ),
    Line(
        "stalled",
        "the same with a hung disk",
        "stalled",
        "{peak} MiB",
        ["`journal.memory_bytes` 256 MiB"],
        {"peak": less("stalled: peak")},
    ),
    Line(
        "idle",
        "an idle connection",
        "idle",
        "{silent} KiB; {spoken} KiB after its first window",
        ["bare Twisted: {bare} KiB"],
        {
            "silent": less("never spoke"),
            "spoken": less("idle after one window"),
            "bare": told("bare Twisted"),
        },
    ),
    Line(
        "idle-tls",
        "an idle connection over TLS 1.3",
        "idle",
        "{silent} KiB; {spoken} KiB after its first window",
        [],
        {
            "silent": less("tls: never spoke"),
            "spoken": less("tls: idle after one window"),
        },
    ),
    Line(
        "idle-mtls",
        "the same with client certificates",
        "idle",
        "{silent} KiB; {spoken} KiB after its first window",
        [],
        {
            "silent": less("mtls: never spoke"),
            "spoken": less("mtls: idle after one window"),
        },
    ),
    Line(
        "pravega",
        "Pravega, blocks of events of 100 B, ten writers",
        "pravega",
        "{rate} events/s sustained, {cpu} µs of CPU an event, Parquet included",
        ["copying an event once: {copy} µs"],
        {
            "rate": more("sustained: events/s that last"),
            "cpu": less("sustained: CPU of an event"),
            "copy": told("floor: copying an event of 100 B"),
        },
    ),
    Line(
        "pravega-burst",
        "Pravega, a burst of these, until 20 GiB wait",
        "pravega",
        "{rate} events/s for {minutes} min",
        [],
        {
            "rate": more("top: events/s"),
            "minutes": told("top: so it lasts", 1 / 60),
        },
    ),
    _latency(
        "pravega-ack",
        "Pravega, append to acknowledgement, at half of the sustained rate",
        "pravega",
        "block to DataAppended",
    ),
    Line(
        "pravega-read",
        "Pravega, reading back",
        "pravega",
        "{memory} MB/s from memory; from the spool {spool} MB/s ten segments at once, "
        "{alone} MB/s one of ten alone",
        ["a waiting reader has an event {tail} ms after its acknowledgement (p99)"],
        {
            "memory": more("memory: ten at once"),
            "spool": more("spool: ten at once"),
            "alone": more("spool: one alone"),
            "tail": told("tail: ack to the reader, p99"),
        },
    ),
    _pomelo(
        "pomelo",
        "Pomelo, requests answered when durable, 100 connections, 10 in flight each",
        "tcp",
    ),
    _pomelo("pomelo-web", "the same over WebSocket", "web"),
    _pomelo("pomelo-depth1", "the same over TCP, one in flight each", "depth1"),
    _pomelo("notify", "Pomelo, 99 notifies before each request", "notify"),
    Line(
        "pomelo-one",
        "Pomelo, one client, one request in flight",
        "pomelo",
        "median {p50} ms, p99 {p99} ms",
        ["one sync: {sync} ms; {times} × that"],
        {
            "p50": less("one: request to answer, median"),
            "p99": less("one: the same, p99"),
            "sync": told("one: a sync, median"),
            "times": less("one: median wait ÷ median sync"),
        },
    ),
    Line(
        "rsio",
        "RS.io, elements of 128 B, one connection, a window of 16,384",
        "rsio",
        "{rate}/s sustained, {cpu} µs of CPU each, Parquet included",
        ["{rsocket} × rsocket-py's rate, {grpc} × grpcio's, which store nothing"],
        {
            "rate": more("sustained: elements/s that last"),
            "cpu": less("sustained: CPU"),
            "rsocket": more("rsocket: ours ÷ its"),
            "grpc": more("grpc: ours ÷ its"),
        },
    ),
    Line(
        "packed",
        "RS.io, packed elements of 8 B",
        "rsio",
        "{rate}/s a core, Parquet included",
        [],
        {"rate": more("packed: so with Parquet keeping up")},
    ),
]
