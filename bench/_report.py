"""Figures with their limits, for people and for programs."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _machine import Floors

__all__ = [
    "Broken", "Claim", "Lacking", "Report", "arguments", "main", "short", "workplace",
]  # fmt: skip


class Broken(Exception):
    """The benchmark could not be carried out; the message says why, logs included."""


class Lacking(Exception):
    """What ours is to be compared with can not be had here; str() says why."""


@dataclass
class Claim:
    """One figure that the project promises, and whether this run kept it."""

    what: str
    figure: float | None
    """None: could not be measured."""
    unit: str
    limit: float
    at_least: bool = False
    """The limit is a floor, not a ceiling."""

    @property
    def kept(self) -> bool:
        if self.figure is None:
            return False
        if self.at_least:
            return self.figure >= self.limit
        return self.figure <= self.limit

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        figure = "none" if self.figure is None else short(self.figure)
        verdict = "kept" if self.kept else "BROKEN"
        limit = f"{sign} {short(self.limit)} {self.unit}"
        return f"  {verdict:7} {figure:>12} {self.unit:10} {limit:22} {self.what}"


@dataclass
class Report:
    """What one benchmark prints."""

    title: str
    machine: dict[str, str]
    floors: Floors | None = None
    claims: list[Claim] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    """Name and figure of everything else worth reading."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The same for programs, by name."""
    notes: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, figure: object, unit: str = "") -> None:
        text = str(figure)
        if isinstance(figure, int | float):
            self.numbers[name] = figure
            text = short(figure)
        self.rows.append((name, f"{text} {unit}".rstrip()))

    def spread(self, name: str, found: dict[str, float] | None, unit: str) -> None:
        """Percentiles of one figure, if there are any; each is a number of its own."""
        if not found:
            return
        self.numbers.update({f"{name}, {key}": value for key, value in found.items()})
        text = "  ".join(f"{key} {value:.2f}" for key, value in found.items())
        self.add(name, text, unit)

    def ratios(self, name: str, us_per_event: float) -> None:
        """The figure beside the floors of this run."""
        if self.floors is None:
            return
        self.add(f"{name}: ÷ ISA-L inflate", us_per_event / self.floors.isal_us, "x")
        self.add(f"{name}: ÷ zlib inflate", us_per_event / self.floors.zlib_us, "x")
        self.add(f"{name}: ÷ memcpy", us_per_event / self.floors.memcpy_us, "x")

    def finish(self, *, as_json: bool) -> int:
        """Print; the exit status is 0 when every claim was kept, else 1."""
        if as_json:
            print(json.dumps(self._json(), indent=2))
        else:
            self._print()
        return 0 if all(claim.kept for claim in self.claims) else 1

    def _json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "machine": self.machine,
            "floors": self.floors.json() if self.floors else None,
            "claims": [asdict(claim) | {"kept": claim.kept} for claim in self.claims],
            "figures": dict(self.rows),
            "numbers": self.numbers,
            "notes": self.notes,
            "raw": self.raw,
        }

    def _print(self) -> None:
        print(f"\n{self.title}\n{'=' * len(self.title)}")
        print("machine")
        for fact, value in self.machine.items():
            print(f"  {fact:16} {value}")
        if self.floors:
            print("floors (one core, this run, before the load)")
            for name, floor in self.floors.json().items():
                print(f"  {name:24} {short(floor)}")
        print("figures")
        width = max((len(name) for name, _ in self.rows), default=0)
        for name, text in self.rows:
            print(f"  {name:{width}}  {text}")
        for note in self.notes:
            print(f"  note: {note}")
        print("claims")
        for claim in self.claims:
            print(claim.line())


def short(number: float) -> str:
    if isinstance(number, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 100 else f"{number:.0f}"


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--directory", type=Path, help="write here (default: a temporary directory)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave data and logs where they are"
    )
    return parser


@contextmanager
def workplace(options: argparse.Namespace) -> Iterator[Path]:
    """A fresh directory for the run's data, on the disk the user wants measured."""
    if options.directory:
        options.directory.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="gateway-bench-", dir=options.directory))
    try:
        yield path
    finally:
        if options.keep:
            print(f"kept: {path}", file=sys.stderr)
        else:
            shutil.rmtree(path, ignore_errors=True)


def main(run: Callable[[], int]) -> None:
    """Run and exit: 0 every promise kept, 1 one broken, 2 nothing was measured."""
    try:
        status = run()
    except Broken as why:
        print(why, file=sys.stderr)
        status = 2
    sys.exit(status)
