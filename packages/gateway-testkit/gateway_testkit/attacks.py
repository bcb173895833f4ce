r"""Attacks: what a peer sends to make us work, and counts of the work that it made.

    attack = Attack("syslog", "lines of nothing", repeated(b"\n"), endless=True)
    trial = Trial(attack, tmp_path)
    trial.run(1 << 18)
    trial.check_bounds()

One connection, without network, disk and time: everything is durable after each turn.
Costs are counts of what was done, the same on every machine: bytes of the journal's
records, and of a turn its events and the bytes that it inflated.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isal import igzip_lib, isal_zlib

from gateway.plugins import installed
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Protocol
from gateway.store.journal.segment import Encoder, Header
from gateway.testing.plugins import FakeDaemon

__all__ = ["READ", "Attack", "Trial", "Units", "repeated"]

#: Bytes that one read brings.
READ = 1 << 18

Units = Callable[[], Iterator[bytes]]
"""Makes an attack's bytes, without end."""


def repeated(unit: Callable[[], bytes] | bytes) -> Units:
    return lambda: itertools.repeat(unit if isinstance(unit, bytes) else unit())


@dataclass(frozen=True)
class Attack:
    """An attack: all that one peer sends."""

    protocol: str
    name: str
    units: Units
    """Units after the opening; each is sent whole or not at all."""
    opening: tuple[bytes, ...] = ()
    """Sent before, in so many reads."""
    port: str = ""
    """`Port.suffix` of where it connects."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The listener's options, as in the configuration file."""
    endless: bool = False
    """Whether it makes no progress, and is to be refused in the end."""
    most: int = READ
    """Enough bytes to see what it costs."""
    apart: bool = False
    """Each unit comes in a read of its own."""

    def reads(self, size: int) -> list[bytes]:
        """Units of about *size* bytes together, one at least, as they are read."""
        found, left = [], size
        for unit in self.units():
            found.append(unit)
            left -= len(unit)
            if left <= 0:
                break
        if self.apart:
            return found
        data = b"".join(found)
        return [data[at : at + READ] for at in range(0, len(data), READ)]


class Trial:
    """An attack on one connection, and what it cost."""

    def __init__(
        self,
        attack: Attack,
        home: Path,
        protocol: Protocol | None = None,
        *,
        limits: Mapping[str, object] | None = None,
    ) -> None:
        """*protocol* is the plug-in, if it is not installed; *limits* are other ones."""
        self.attack = attack
        self.sent = 0
        """Bytes that the connection took."""
        self.journal_bytes = 0
        """Bytes of the records, those of origins included."""
        self.events = 0
        """Acknowledged."""
        self.turns = 0
        self.most_events = 0
        """The most events of one turn."""
        self.most_inflated = 0
        """Bytes that one turn inflated."""
        self.most_deflated = 0
        """Bytes that one turn read to inflate them."""
        protocol = protocol or installed().protocols[attack.protocol]
        self.daemon = FakeDaemon(protocol, home, options=attack.options, limits=limits)
        self.connection = self.daemon.connect(attack.port)
        self.connection.stepwise = True
        self._encoder = Encoder(Header(1, 0, 0))
        self._inflated = _Inflated()

    @property
    def refused(self) -> Refusal | None:
        """Why the connection was refused, if it was."""
        return self.connection.refused

    @property
    def over(self) -> bool:
        """The connection takes nothing more."""
        return self.connection.closed or self.connection.aborted

    def check_bounds(self, *, most_deflated: int = 96 << 10) -> None:
        """Assert the ceilings of any attack: of the journal, and of each turn."""
        assert self.journal_bytes <= 4 * self.sent + (64 << 10)
        assert self.most_events <= 1 << 16
        assert self.most_inflated <= 1 << 20
        assert self.most_deflated <= most_deflated

    def run(
        self,
        size: int | None = None,
        *,
        around: Callable[[Callable[[], None]], None] = lambda turn: turn(),
        keep: bool = False,
    ) -> None:
        """Send *size* bytes, or as many as the attack says; call *around* with each turn.

        With *keep*, `daemon.rows()` has the events afterwards.
        """
        attack = self.attack
        reads = attack.reads(attack.most if size is None else size)
        with _counted(self._inflated):
            for read in (*attack.opening, *reads):
                self._deliver(read, around, keep=keep)
        assert self.connection.failure is None, self.connection.failure

    def _deliver(
        self, read: bytes, around: Callable[[Callable[[], None]], None], *, keep: bool
    ) -> None:
        connection = self.connection
        if self.over:
            return
        self.sent += len(read)
        self._turn(lambda: connection.deliver(read), around, keep=keep)
        while connection.turn_due and not self.over:
            self._turn(connection.take_turn, around, keep=keep)

    def _turn(
        self,
        turn: Callable[[], None],
        around: Callable[[Callable[[], None]], None],
        *,
        keep: bool,
    ) -> None:
        journal, inflated = self.daemon.journal, self._inflated
        inflated.made = inflated.read = 0
        around(turn)
        self.turns += 1
        events = sum(batch.count for batch in journal.submitted)
        self.most_events = max(self.most_events, events)
        self.most_inflated = max(self.most_inflated, inflated.made)
        self.most_deflated = max(self.most_deflated, inflated.read)
        for batch in journal.submitted:
            chunks = self._encoder.batch(batch, journal.durable_lsn + 1, 0)
            self.journal_bytes += sum(map(len, chunks))
        self.daemon.store()
        self.events += events
        journal.submitted.clear()
        self.connection.clear()
        if not keep:
            journal.stored.clear()


@dataclass
class _Inflated:
    """Bytes of a turn."""

    made: int = 0
    read: int = 0


class _Inflater:
    def __init__(self, inner: Any, count: _Inflated) -> None:
        self._inner, self._count = inner, count

    def decompress(self, data: Any, *given: Any, **named: Any) -> bytes:
        self._count.read += len(data)
        found: bytes = self._inner.decompress(data, *given, **named)
        self._count.made += len(found)
        self._count.read -= len(getattr(self._inner, "unconsumed_tail", b""))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextlib.contextmanager
def _counted(count: _Inflated) -> Iterator[None]:
    """Count what is inflated meanwhile, by whomever, with `zlib` and with `isal`."""
    makers: tuple[tuple[Any, str], ...] = (
        (zlib, "decompressobj"),
        (isal_zlib, "decompressobj"),
        (igzip_lib, "IgzipDecompressor"),
    )
    kept = [(*maker, getattr(*maker)) for maker in makers]

    def counting(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: _Inflater(make(*given, **named), count)

    for module, name, make in kept:
        setattr(module, name, counting(make))
    try:
        yield
    finally:
        for module, name, make in kept:
            setattr(module, name, make)
