"""First questions to the demo's tables: who talks most, and how often it fails.

Reads the tables' Parquet files without Spark.  `talkers` and `traffic` answer with
numbers, `draw` saves them as a picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_demo.tables import files

__all__ = ["SLICE_SECONDS", "Talker", "Traffic", "draw", "talkers", "traffic"]

SLICE_SECONDS = 5
"""How long a point of `Traffic` is."""

_STATUS = r'HTTP/1\.1" (?P<status>[0-9]{3}) '


@dataclass(slots=True)
class Talker:
    """A host that writes an access log."""

    host: str | None
    requests: int
    errors: int
    """Requests with a status of 400 or more."""


@dataclass(slots=True)
class Traffic:
    """Events over the time of the demo, in slices of `SLICE_SECONDS`."""

    seconds: Sequence[float]
    """When each slice begins, from the first one on."""
    rates: Mapping[str, Sequence[float]]
    """Events a second of each listener, one number per slice."""
    errors: Sequence[float]
    """Share of requests with a status of 400 or more, one number per slice."""


def talkers(lake: Path, most: int = 5) -> Sequence[Talker]:
    """The *most* hosts with the most requests, the loudest first."""
    requests = _requests(lake)
    if requests is None:
        return []
    counts = requests.group_by("host").aggregate([([], "count_all"), ("failed", "sum")])
    rows = counts.sort_by([("count_all", "descending"), ("host", "ascending")])
    return [
        Talker(row["host"], row["count_all"], row["failed_sum"])
        for row in rows.slice(0, most).to_pylist()
    ]


def traffic(lake: Path) -> Traffic | None:
    """How many events came when, at which listener; None if there are none."""
    import pyarrow.compute as pc

    events = _read(lake, ["received_at", "listener"])
    requests = _requests(lake)
    if events is None or requests is None:
        return None
    first = pc.min(events["received_at"]).as_py()
    slices = _slices(events, first)
    count = pc.max(slices).as_py() + 1
    rates = {
        name: [0.0] * count
        for name in sorted(pc.unique(events["listener"]).to_pylist())
    }
    for row in _counted(events, slices, "listener"):
        rates[row["listener"]][row["slice"]] = row["count_all"] / SLICE_SECONDS
    asked, failed = [0] * count, [0] * count
    for row in _counted(requests, _slices(requests, first), "failed"):
        asked[row["slice"]] += row["count_all"]
        failed[row["slice"]] += row["count_all"] if row["failed"] else 0
    return Traffic(
        [slice_ * SLICE_SECONDS for slice_ in range(count)],
        rates,
        [bad / all_ if all_ else 0.0 for bad, all_ in zip(failed, asked, strict=True)],
    )


def draw(found: Traffic, to: Path) -> None:
    """Save *found* as a picture of the format of *to*.  Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    above, below = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    # A slice lasts to the next one's beginning: the last is drawn to its end.
    ends = [*found.seconds, len(found.seconds) * SLICE_SECONDS]
    above.stackplot(
        ends,
        *([*rates, rates[-1]] for rates in found.rates.values()),
        labels=list(found.rates),
        step="post",
    )
    above.set_ylabel("events/s")
    figure.suptitle("What the gateway took, by listener", x=0.02, ha="left")
    figure.legend(loc="outside upper right", ncols=6, frameon=False, fontsize="small")
    errors = [100 * share for share in found.errors]
    below.step(ends, [*errors, errors[-1]], color="C3", where="post")
    below.set_ylim(0, max(1.0, 1.2 * max(errors)))
    below.set_xlim(0, ends[-1])
    below.set_ylabel("errors, %")
    below.set_xlabel("seconds since the first event")
    figure.savefig(to)


def _read(lake: Path, columns: Sequence[str]) -> Any:
    """The columns of the table `events`; None if it has no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [pq.read_table(path, columns=columns) for path in files(lake / "events")]
    return pa.concat_tables(parts) if parts else None


def _requests(lake: Path) -> Any:
    """host, received_at and failed of each line of an access log; None: no table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = _read(lake, ["host", "received_at", "message"])
    if table is None:
        return None
    found = pc.extract_regex(table["message"], _STATUS)
    table = table.filter(pc.is_valid(found))
    status = pc.struct_field(found.drop_null(), "status").cast(pa.int16())
    failed = pc.greater_equal(status, 400)
    return table.select(["host", "received_at"]).append_column("failed", failed)


def _slices(table: Any, first: Any) -> Any:
    """The number of each row's slice, *first* being in slice 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = table["received_at"]
    passed = pc.microseconds_between(pa.scalar(first, times.type), times)
    return pc.divide(passed, SLICE_SECONDS * 1_000_000)


def _counted(table: Any, slices: Any, column: str) -> Sequence[dict[str, Any]]:
    """How many rows there are of each slice and each value of *column*."""
    counts = table.select([column]).append_column("slice", slices)
    found: list[dict[str, Any]] = (
        counts.group_by([column, "slice"]).aggregate([([], "count_all")]).to_pylist()
    )
    return found
