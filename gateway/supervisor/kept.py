"""A process that is kept running: whenever it ends it is started again, later each time.

starting ──► up ──► waiting ──► starting …        it ended, and that was not asked for
    └─────────┴────────┴──► stopping ──► over     it was
starting ──► over                                 a *vital* one that can not begin at all
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import define
from twisted.internet.error import ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from gateway.supervisor.child import STOP_SECONDS, keep_interrupts_away

_FIRST_SECONDS, _MOST_SECONDS = 1.0, 60.0
_STEADY_SECONDS = 60.0
"""Seconds of running after which the next pause is a short one again."""
_MOST_LINE_BYTES = 64 << 10


class State(enum.Enum):
    """The state of a process, in words for people."""

    STARTING = "starting"
    UP = "up"
    WAITING = "ended, starts again"
    STOPPING = "stopping"
    OVER = "stopped"


class Hears(Protocol):
    """The callbacks of one who keeps processes."""

    def line(self, kept: Kept, descriptor: int, text: str) -> None:
        """A line came, on standard output (1) or standard error (2)."""

    def told(self, text: str) -> None:
        """Something is to be said about it."""

    def over(self, kept: Kept) -> None:
        """The process has ended, and is not started again."""


@define(eq=False, slots=False)
class Kept:
    """One of them; `start` begins.

    18 attributes: nine are given; the others are of the process that runs now.
    """

    name: str
    title: str
    """The words for it in sentences."""
    _words: list[str]
    _environ: Mapping[str, str]
    _reactor: Any
    _hears: Hears
    _vital: bool = False
    """Whether there is no use in another try when it says that it can not even begin."""
    _once: bool = False
    """Whether it is over when it ends, and not started again."""
    _most_silent_looks: int | None = None
    """The `look`s in a row without a word of it after which it hangs."""

    def __attrs_post_init__(self) -> None:
        self.state = State.OVER
        self.failed = False
        """Whether it ended and should not have, or had to be killed."""
        self._silent_looks: int | None = None
        """Looks since the last sign of life of this process; None: there was none yet.

        Looks are counted, and not seconds: after ^Z, or when the machine has slept, it may
        speak first."""
        self._was_up = False
        self._up_at: float | None = None
        self._failures = 0
        self._timer: Any = None
        self._transport: Any = None
        self._last_error = ""

    def start(self) -> None:
        self.state, self._up_at, self._silent_looks = State.STARTING, None, None
        self._last_error = ""
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            with keep_interrupts_away():
                self._transport = self._reactor.spawnProcess(
                    _Process(self),
                    self._words[0],
                    self._words,
                    env=dict(self._environ),
                    childFDs={0: nothing, 1: "r", 2: "r"},
                )
        except OSError as why:  # no memory for one more, say
            self._wait(why)
        finally:
            os.close(nothing)

    def up(self) -> None:
        if self.state is State.STARTING:
            self.state, self._up_at = State.UP, self._reactor.seconds()
            self._was_up = True

    def heard(self) -> None:
        self._silent_looks = 0

    def look(self) -> None:
        """Once a second: end it if it hangs."""
        if self._silent_looks is None or self.state not in (State.STARTING, State.UP):
            return
        self._silent_looks += 1
        if self._silent_looks == self._most_silent_looks:
            self._hears.told(
                f"{self.title} hangs: it has given no sign of life for"
                f" {self._silent_looks} s, and is killed; what was acknowledged stays"
            )
            self._signal("KILL")

    def stop(self) -> None:
        match self.state:
            case State.WAITING:
                self._timer.cancel()
                self._over()
            case State.STARTING | State.UP:
                self.state = State.STOPPING
                self._timer = self._reactor.callLater(STOP_SECONDS, self._too_long)
                self._signal("TERM")

    def kill(self) -> None:
        """End it at once."""
        self.stop()
        if self.state is State.STOPPING:
            self._signal("KILL")

    def said(self, descriptor: int, text: str) -> None:
        if descriptor == 2 and not text.startswith((" ", "\t")):
            self._last_error = text
        self._hears.line(self, descriptor, text)

    def ended(self, why: Exception | None) -> None:
        """Start again, or be over; *why* is None after exit status 0."""
        self._transport = None
        if self.state is State.STOPPING:
            if self._timer.active():
                self._timer.cancel()
            self.failed = why is not None and _signal_of(why) != signal.SIGTERM
            self._over()
            return
        if self._once:
            self._over()
            return
        if self._vital and not self._was_up and why and not _signal_of(why):
            self.failed = True
            self._hears.told(f"{self.title} can not start, and said why")
            self._over()
            return
        self._wait(why)

    def _wait(self, why: Exception | None) -> None:
        now = self._reactor.seconds()
        if self._up_at is not None and now - self._up_at >= _STEADY_SECONDS:
            self._failures = 0
        seconds = min(_MOST_SECONDS, _FIRST_SECONDS * 2**self._failures)
        self._failures += 1
        self.state = State.WAITING
        self._timer = self._reactor.callLater(seconds, self.start)
        self._hears.told(
            f"{self.title} ended ({self._how(why)}); it is started again in {seconds:g} s"
        )

    def _how(self, why: Exception | None) -> str:
        """Why, as far as that can be seen from outside."""
        if why is None:
            return "exit status 0, though nobody here asked for it"
        if isinstance(why, OSError):
            return f"it could not be started: {why.strerror}"
        if (number := _signal_of(why)) is not None:
            return f"killed by {signal.Signals(number).name}"
        last = f": {self._last_error}" if self._last_error else ""
        return f"exit status {getattr(why, 'exitCode', '?')}{last}"

    def _too_long(self) -> None:
        self._hears.told(
            f"{self.title} has not stopped in {STOP_SECONDS:g} s and is killed; what was"
            " acknowledged stays"
        )
        self._signal("KILL")

    def _signal(self, name: str) -> None:
        if self._transport is None:
            return
        if name == "KILL":
            # It leads a group once it is `child`.  Its Java may be what hangs, and the next
            # life would wait for that.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._transport.pid, signal.SIGKILL)
        self._transport.signalProcess(name)

    def _over(self) -> None:
        self.state = State.OVER
        self._hears.over(self)


def _signal_of(why: Exception) -> int | None:
    return why.signal if isinstance(why, ProcessTerminated) else None


class _Process(ProcessProtocol):
    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._begun = {1: b"", 2: b""}
        """The incomplete last line of each descriptor."""
        self._heard_bytes = 0

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        self._heard_bytes += len(data)
        *lines, rest = (self._begun[childFD] + data).split(b"\n")
        if len(rest) > _MOST_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._begun[childFD] = rest
        for line in lines:
            self._said(childFD, line)

    def processExited(self, reason: Failure) -> None:
        """Read the pipes empty, and close them: children may hold them open."""
        transport: Any = self.transport
        for pipe in list(transport.pipes.values()):
            before = -1
            while before != (before := self._heard_bytes) and not pipe.doRead():
                pass
        transport.loseConnection()
        for descriptor, rest in self._begun.items():
            if rest:
                self._said(descriptor, rest)
        why = reason.value if isinstance(reason.value, ProcessTerminated) else None
        self._kept.ended(why)

    def _said(self, descriptor: int, line: bytes) -> None:
        self._kept.said(descriptor, line.decode("utf-8", "backslashreplace"))
