"""`gateway send` for every protocol: rate, time-outs, the file of acknowledged ids.

`Sending` is one run.  `Feeding` is one whose clients themselves reconnect and send
again what was not acknowledged; most protocols' are, and then only differ in `client`.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from gateway.sdk.command import WrongUse, failure, printable, reason, say
from gateway.sdk.outgoing import PIPE_ENDED
from gateway.sdk.sender import Unacknowledged
from gateway.sdk.source import Events, Generated, Lines, Sample, source
from gateway.spoken import many

if TYPE_CHECKING:
    from twisted.python.failure import Failure

__all__ = ["Client", "Feeding", "Sending", "Totals"]

_OPENING_SECONDS = 0.05
"""Time for new connections in one turn of the reactor."""
_READ_AHEAD = 256
_WATCH_SECONDS = 0.2
_UNTRUSTED = "certificate verify failed"
_SILENT_SECONDS = 0.5
"""Trouble that is over sooner is not worth a word."""
_CLOSING_SECONDS = 2.0
_LINE_SECONDS = 5.0
_MOST_NAMED = 10


@dataclass
class Totals:
    """The result of a run."""

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
    refused: int = 0
    """Events that the other end does not take."""

    def __str__(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0.0
        return (
            f"{self.acknowledged} of {self.sent} events acknowledged in "
            f"{self.seconds:.1f} s ({rate:,.0f}/s), {self.resent} sent again, "
            f"{many(self.connections, 'connection')}{self._missing()}"
        )

    def _missing(self) -> str:
        """A description of what is missing, if anything."""
        missing = self.sent - self.acknowledged
        found = [f"{missing} NOT acknowledged"] if missing else []
        if self.refused:
            found.append(f"{self.refused} of them refused")
        if not self.ended:
            found.append("stopped before the end of the input")
        elif not self.complete and not missing:
            found.append("it failed on the way")
        return "".join(f"; {each}" for each in found)


class Sending(ABC):
    """One run, from the first connection to the totals.

    17 attributes: what one line of the totals, and the end of the run, depend on.
    """

    def __init__(self, args: Namespace, sample: Sample) -> None:
        from twisted.internet import reactor

        self.args = args
        self.reactor: Any = args.reactor or reactor
        # Twisted's own clock is the wall's.
        self._seconds = time.monotonic if args.reactor is None else args.reactor.seconds
        self.totals = Totals()
        self.stopping = False
        self._source = source(args, sample)
        self._ahead: deque[tuple[str, bytes]] = deque()
        self._reading: list[Deferred[None]] | None = None
        """Waiters for events that are being read."""
        self._suspects: dict[tuple[str, bytes], int] = {}
        """Events that were set aside, and the number of acknowledged ones by then."""
        self._again: deque[tuple[str, bytes]] = deque()
        """Events that were set aside and are to be tried once more."""
        self._running = 0
        self._ended = self._failed = False
        self._due = self._heard = self._seconds()
        self._acked: TextIO | None = None
        self._told = ""

    def run(self) -> Totals:
        """Send everything; return when it is acknowledged or hopeless."""
        totals, started = self.totals, self._seconds()
        if self.args.acked is not None:
            try:
                self._acked = self.args.acked.open("a")
            except OSError as why:
                words = f"--acked {self.args.acked}: {failure(why)}"
                raise WrongUse(words) from None
        self.reactor.callWhenRunning(self.begin)
        self.reactor.addSystemEventTrigger("before", "shutdown", self._halt)
        with _progress() as show:
            self.reactor.callLater(0, self._watch, show)
            self.reactor.run()
        if self._acked is not None:
            self._acked.close()
        self.tally()
        totals.seconds = round(self._seconds() - started, 3)
        whole = self._ended and not self._failed
        totals.complete = whole and totals.sent == totals.acknowledged
        totals.ended = self._ended
        return totals

    # What a protocol does itself

    @abstractmethod
    def begin(self) -> None:
        """Connect, and `spawn` what takes lots and has them acknowledged."""

    @abstractmethod
    def close(self) -> Iterable[Deferred[None]]:
        """Close every connection."""

    @property
    @abstractmethod
    def trouble(self) -> str:
        """The reason why nothing is acknowledged; empty if it is not known."""

    def tally(self) -> None:  # noqa: B027 - they may be
        """Bring the totals up to date."""

    # What it does it with

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; when the last one is done, so are we."""
        self._running += 1
        Deferred.fromCoroutine(work).addCallbacks(self._done, self._broken)

    async def take(self, most: int) -> Events | None:
        """The next events, *most* of them, when it is their time; None at the end."""
        if self._is_second_time():
            return [self._again.popleft()]
        rate = self.args.rate
        if rate is not None:
            most = min(most, max(1, int(rate / 20)))
            now = self._seconds()
            due = self._due = max(self._due, now - 1.0) + most / rate
            if due > now:
                await deferLater(self.reactor, due - now)
        while not (self._ahead or self._ended or self.stopping):
            await self._read(max(most, _READ_AHEAD))
        if self.stopping:
            return None
        if not self._ahead and self._again:
            return [self._again.popleft()]
        lot = [self._ahead.popleft() for _ in range(min(most, len(self._ahead)))]
        if rate is not None:
            self._due -= (most - len(lot)) / rate
        self.totals.sent += len(lot)
        return lot or None

    def safe(self, lot: Events) -> None:
        if not lot:
            return
        self._heard = self._seconds()
        self.totals.acknowledged += len(lot)
        if self._acked is not None:
            self._acked.write("".join(f"{identity}\n" for identity, _ in lot))
            self._acked.flush()

    def settled(self, lot: Events, refused: Mapping[int, str], trouble: str) -> None:
        """Note that a lot was acknowledged, but for what was *refused*.

        An event refused without a known reason may be lost by a fault of the gateway, which hangs
        up for others, too.  It is tried once more when other events were acknowledged.
        """
        earlier = self.totals.acknowledged
        self.safe([one for at, one in enumerate(lot) if at not in refused])
        for at, why in refused.items():
            event = lot[at]
            before = self._suspects.get(event)
            if why or before not in (None, self.totals.acknowledged):
                self._suspects.pop(event, None)
                self.totals.refused += 1
                text = reason(why or trouble)
                say(f"gateway send: {_named(event)} is refused, and left out: {text}")
            else:
                others_behind = len(lot) - at > sum(each >= at for each in refused)
                now = self.totals.acknowledged
                self._suspects[event] = earlier if others_behind else now
                self._again.append(event)

    def stop(self) -> None:
        """Close everything, and end the run."""
        if self.stopping:
            return
        self._halt()
        closed = DeferredList(list(self.close()))
        closed.addTimeout(_CLOSING_SECONDS, self.reactor)
        closed.addBoth(lambda _: self.reactor.stop())

    async def _read(self, most: int) -> None:
        if isinstance(self._source, Generated):
            events = self._source.read(most)
        else:
            if self._reading is not None:
                waiter: Deferred[None] = Deferred()
                self._reading.append(waiter)
                await waiter
                return
            self._reading = []
            try:
                events = await deferToThread(self._source.read, most)
            finally:
                waiting, self._reading = self._reading, None
                # From the reactor: who is woken here may wake others in turn.
                for each in waiting:
                    self.reactor.callLater(0, each.callback, None)
            self._heard = self._seconds()
        if events is None:
            self._ended = self._ended or not self.stopping
        else:
            self._ahead += events

    def _watch(self, show: Callable[[Totals], None]) -> None:
        self.reactor.callLater(_WATCH_SECONDS, self._watch, show)
        self.tally()
        totals = self.totals
        show(totals)
        waiting = totals.sent > totals.acknowledged or not totals.connections
        if waiting and not self.stopping:
            self._tell_trouble()
        why = self._hopeless() or (self._why_give_up() if waiting else None)
        if why and not self.stopping:
            say(f"gateway send: {why}")
            self._failed = True
            self.stop()

    def _is_second_time(self) -> bool:
        """One that was set aside is to be tried again now."""
        if self.stopping or not self._again:
            return False
        return self._suspects[self._again[0]] < self.totals.acknowledged

    def _hopeless(self) -> str | None:
        """Trouble that will be the same the next time, too."""
        trouble = reason(self.trouble)
        lasts = any(words in trouble for words in (_UNTRUSTED, PIPE_ENDED))
        return trouble if lasts else None

    def _why_give_up(self) -> str | None:
        trouble, patience = reason(self.trouble), self.args.patience
        if self._seconds() - self._heard <= patience:
            return None
        why = f"nothing was acknowledged for {patience:g} s: {trouble or 'no answer'}"
        if self._suspects:
            names = ", ".join(map(_named, islice(self._suspects, _MOST_NAMED)))
            why += f"; lost each time that it was sent alone: {names}"
        return why

    def _tell_trouble(self) -> None:
        """Say once why nothing is acknowledged, while it is tried again."""
        silent = self._seconds() - self._heard
        trouble = reason(self.trouble)
        if silent < _SILENT_SECONDS or not trouble or trouble == self._told:
            return
        self._told = trouble
        left = max(self.args.patience - silent, 0)
        say(f"gateway send: {trouble}, trying again (gives up in {left:.0f} s)")

    def _done(self, _: None) -> None:
        self._running -= 1
        if not self._running:
            self.stop()

    def _broken(self, why: Failure) -> None:
        if not self._failed:  # whatever else was being sent fails for the same reason
            say(f"gateway send: {printable(why.getErrorMessage())}")
        self._failed = True
        self.stop()

    def _halt(self) -> None:
        """Take no more; a thread that waits for a line stops waiting."""
        self.stopping = True
        if isinstance(self._source, Lines):
            self._source.stopped = True


class Client(Protocol):
    """Sends on connection after connection."""

    connections: int
    trouble: str

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""

    def start(self) -> None:
        """Connect, and stay connected."""

    def offer(self, events: Sequence[bytes]) -> Awaitable[Mapping[int, str]]:
        """Send events; fires when they are acknowledged or refused: those, by place, and why.

        Without a reason they were lost with the connection each time that they were sent
        alone.  Raises `Unacknowledged` after `stop`.
        """

    def stop(self) -> Deferred[None]: ...


class Feeding(Sending):
    """A run with clients that know by themselves what to send again."""

    def __init__(
        self, args: Namespace, sample: Sample, *, size: int, lots: int
    ) -> None:
        """Each client has *lots* of at most *size* events to send at a time."""
        super().__init__(args, sample)
        self._size = size
        self._lots = lots
        self._clients: list[Client] = []

    @abstractmethod
    def client(self) -> Client: ...

    def bodies(self, events: Sequence[bytes]) -> list[bytes]:
        """The events as they are sent."""
        return list(events)

    def begin(self) -> None:
        self._open(self.args.connections)

    def _open(self, missing: int) -> None:
        """Open connections for a moment in each turn of the reactor, which hears signals."""
        ends = self._seconds() + _OPENING_SECONDS
        while missing and not self.stopping:
            if self._seconds() > ends:
                self.reactor.callLater(0, self._open, missing)
                return
            missing -= 1
            client = self.client()
            self._clients.append(client)
            client.start()
            for _ in range(self._lots):
                self.spawn(self._feed(client))

    def close(self) -> Iterable[Deferred[None]]:
        return [client.stop() for client in self._clients]

    @property
    def trouble(self) -> str:
        return next((one.trouble for one in self._clients if one.trouble), "")

    def tally(self) -> None:
        self.totals.resent = sum(client.resent for client in self._clients)
        self.totals.connections = sum(client.connections for client in self._clients)

    async def _feed(self, client: Client) -> None:
        while (lot := await self.take(self._size)) is not None:
            try:
                refused = await client.offer(self.bodies([event for _, event in lot]))
            except Unacknowledged:
                return
            self.settled(lot, refused, client.trouble)


def _named(event: tuple[str, bytes]) -> str:
    identity, body = event
    return f"{printable(identity)} ({len(body):,} bytes)"


@contextmanager
def _progress() -> Iterator[Callable[[Totals], None]]:
    """How far we are: a live line on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        shown = time.monotonic()

        def line(totals: Totals) -> None:
            nonlocal shown
            if time.monotonic() - shown > _LINE_SECONDS:
                shown = time.monotonic()
                say(f"{totals.acknowledged} of {totals.sent} events acknowledged")

        yield line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True) as live:
        yield lambda totals: live.update(
            f"[bold]{totals.acknowledged:,}[/] acknowledged, "
            f"{totals.sent - totals.acknowledged:,} on their way"
        )
