"""Shows how far a demo's events have come, until all are in the tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from gateway_demo.processes import Demo, Failed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Progress", "Trouble", "follow"]

_LINES_SECONDS = 3.0
_LOOK_SECONDS = 0.3


class Progress(Protocol):
    """Counts at one moment."""

    @property
    def sent(self) -> bool: ...

    @property
    def in_tables(self) -> int: ...

    @property
    def done(self) -> bool: ...

    def line(self) -> str: ...

    def table(self) -> Table:
        """The table for a terminal."""


_P = TypeVar("_P", bound=Progress)
_P_contra = TypeVar("_P_contra", bound=Progress, contravariant=True)


class Trouble(Protocol[_P_contra]):
    """Faults that happen on purpose."""

    @property
    def all(self) -> bool: ...

    def look(self, progress: _P_contra) -> None: ...


def follow(
    demo: Demo,
    look: Callable[[float], _P],
    console: Console,
    *,
    patience: float,
    log: Path,
    trouble: Trouble[_P] | None = None,
    busy: Callable[[], bool] = lambda: False,
) -> None:
    """Show the progress until all is in the tables, faults have happened, and the job is idle.

    *look* is told for how many seconds it goes on.  Raises `Failed` if for *patience* seconds
    after everything was sent no row comes; *log* may say why.
    """
    from rich.live import Live

    begun = said = moved = time.monotonic()
    rows = 0
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            demo.check()
            now = time.monotonic()
            progress = look(now - begun)
            if console.is_terminal:
                live.update(progress.table())
            elif now - said >= _LINES_SECONDS:
                said = now
                console.print(progress.line())
            if trouble is not None:
                trouble.look(progress)
            spared = trouble is not None and not trouble.all
            if progress.done and not spared and not busy():
                break
            if progress.in_tables != rows or not progress.sent:
                rows, moved = progress.in_tables, now
            elif progress.done and spared:
                raise Failed(
                    "everything was in the tables before all had gone wrong that is to;"
                    " send more: --events"
                )
            elif now - moved > patience:
                raise Failed(f"the tables do not catch up; see {log}")
            time.sleep(_LOOK_SECONDS)
    console.print(progress.table())
