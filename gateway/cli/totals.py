"""Counts of `gateway send`: events sent, acknowledged and sent again, as lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Totals", "progress"]

_LINE_SECONDS = 5.0


@dataclass
class Totals:
    """What became of it."""

    sent: int = 0
    """Events that were handed to a connection."""
    acknowledged: int = 0
    resent: int = 0
    """Events that went out again, on another connection."""
    connections: int = 0
    seconds: float = 0.0
    complete: bool = False
    """The source ended and everything was acknowledged."""
    ended: bool = False
    """The source ended: nothing is left unsent."""

    def __str__(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0.0
        plural = "" if self.connections == 1 else "s"
        return (
            f"{self.acknowledged} of {self.sent} events acknowledged in "
            f"{self.seconds:.1f} s ({rate:,.0f}/s), {self.resent} sent again, "
            f"{self.connections} connection{plural}{self._missing()}"
        )

    def _missing(self) -> str:
        """What did not happen, if it did not."""
        missing = self.sent - self.acknowledged
        found = [f"{missing} NOT acknowledged"] if missing else []
        if not self.ended:
            found.append("stopped before the end of the input")
        elif not self.complete and not missing:
            found.append("it failed on the way")
        return "".join(f"; {each}" for each in found)


@contextmanager
def progress() -> Iterator[Callable[[Totals], None]]:
    """How far we are: a live line on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        shown = time.monotonic()

        def line(totals: Totals) -> None:
            nonlocal shown
            if time.monotonic() - shown > _LINE_SECONDS:
                shown = time.monotonic()
                print(
                    f"{totals.acknowledged} of {totals.sent} events acknowledged",
                    file=sys.stderr,
                )

        yield line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True) as live:
        yield lambda totals: live.update(
            f"[bold]{totals.acknowledged:,}[/] acknowledged, "
            f"{totals.sent - totals.acknowledged:,} on their way"
        )
