"""Reloads: reads the configuration again when asked to, one reload at a time.

The file is read in a thread, because a thousand listeners take a second; the result is
applied in the reactor's, in one go.  A request while a file is being read gets the result
of one more reload after that, together with all requests meanwhile.  The file may have
changed behind what was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from gateway import config
from gateway.admin.status import ReloadStatus
from gateway.figures import section
from gateway.sdk.protocol import Statistics

_STOPPING = "the daemon is stopping"
_STARTING, _READY, _ENDED = range(3)


@dataclass
class Outcome:
    """The result of one reload."""

    applied: bool = True
    """The configuration that was read is in force, but for what `restart` names."""
    problems: list[str] = field(default_factory=list)
    """Why nothing changed; or, if it is applied, files that can not be used."""
    changed: list[str] = field(default_factory=list)
    """Keys whose new values are in force."""
    restart: list[str] = field(default_factory=list)
    """Keys whose new values need a restart, each with the reason."""
    job: list[str] = field(default_factory=list)
    """Keys whose new values only the Spark job reads, when it starts again."""

    @property
    def successful(self) -> bool:
        """Nothing is wrong with the configuration and its files."""
        return self.applied and not self.problems


def refused(*why: str) -> Outcome:
    """Nothing has changed."""
    return Outcome(applied=False, problems=list(why))


@define(eq=False, slots=False)
class Reloads:
    """The reloads of one daemon; all calls come from the reactor's thread.

    *load* reads the file and raises `config.Invalid`; *in_thread* calls it, *apply* takes
    what it gives.  *began* and *ended* are told of each reload.  *clock* is the wall
    clock.

    16 attributes: six are given, the others are how the last reload went, and who waits.
    """

    _log = Logger()

    load: Callable[[], config.Config]
    """Reads the configuration."""
    _apply: Callable[[config.Config], Outcome]
    _in_thread: Callable[..., Deferred[Any]]
    _began: Callable[[], object] = lambda: None
    _ended: Callable[[], object] = lambda: None
    _clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self._phase = _STARTING
        self._reading = False
        self._waiting: list[Deferred[Outcome]] = []
        """Waiters for the reload after the one that is under way."""
        self._wanted = False
        """Whether a signal wants the reload after the one that is under way."""
        self.last = Outcome()
        """The start counts as the first."""
        self._restart: list[str] = []
        """Keys that wait for a restart, after the last reload that was applied."""
        self._at = self._good_at = self._read_at = self._clock()
        """When the last one ended, the last good one did, and the last one began."""
        self._count = {"applied": 0, "refused": 0}

    def ask(self) -> Deferred[Outcome]:
        """Reload as soon as the daemon has started, and no other reload is under way."""
        if self._phase == _ENDED:
            self._log.warn("Configuration not reloaded: {why}", why=_STOPPING)
            return succeed(refused(_STOPPING))
        asked: Deferred[Outcome] = Deferred()
        self._waiting.append(asked)
        self._next()
        return asked

    def want(self) -> None:
        """Reload as `ask` does, without an answer: a signal, which may come any number of times."""
        if self._phase == _ENDED:
            self._log.warn("Configuration not reloaded: {why}", why=_STOPPING)
            return
        self._wanted = True
        self._next()

    def begin(self) -> None:
        if self._phase == _STARTING:
            self._phase = _READY
            self._next()

    def end(self) -> None:
        """Tell all that wait that the daemon stops."""
        self._phase = _ENDED
        if not self._reading:
            self._answer(self._take(), refused(_STOPPING))

    def _take(self) -> list[Deferred[Outcome]]:
        asked, self._waiting = self._waiting, []
        return asked

    def _next(self) -> None:
        if self._reading or self._phase != _READY:
            return
        if self._waiting or self._wanted:
            self._reading, self._wanted = True, False
            Deferred.fromCoroutine(self._reload())

    async def _reload(self) -> None:
        """Reload once, for all who asked by now."""
        read_at = self._clock()
        self._began()
        asked = self._take()
        outcome = await self._read_and_apply()
        self._reading = False
        self._read_at = read_at
        self._note(outcome)
        self._ended()
        if self._phase == _ENDED:
            asked += self._take()
        self._answer(asked, outcome)
        self._next()

    async def _read_and_apply(self) -> Outcome:
        """Read the file, and apply it unless the daemon has begun to stop."""
        try:
            wanted = await self._in_thread(self.load)
            return refused(_STOPPING) if self._phase == _ENDED else self._apply(wanted)
        except config.Invalid as why:
            return refused(*str(why).splitlines())
        except Exception as why:  # ours is wrong, or a plug-in's code
            self._log.failure("the reload failed")
            return refused(f"{type(why).__name__}: {why}")

    def _answer(self, asked: list[Deferred[Outcome]], outcome: Outcome) -> None:
        for each in asked:
            each.callback(outcome)

    def _note(self, outcome: Outcome) -> None:
        self.last = outcome
        self._at = self._clock()
        if outcome.successful:
            self._good_at = self._at
        self._count["applied" if outcome.applied else "refused"] += 1
        if outcome.applied:
            self._restart = outcome.restart
        else:
            self._log.error(
                "Configuration not reloaded, nothing has changed: {why}",
                why="; ".join(outcome.problems),
            )
            return
        self._log.info(
            "Configuration, certificates and definitions read again; changed: {changed}",
            changed=", ".join(outcome.changed) or "nothing",
        )
        for problem in outcome.problems:
            self._log.error("Reload: {problem}", problem=problem)
        for key in outcome.restart:
            self._log.warn("Reload: {key}", key=key)
        if outcome.job:
            self._log.info(
                "Reload: for the Spark job, when it starts again: {keys}",
                keys=", ".join(outcome.job),
            )

    def status(self) -> ReloadStatus:
        last = self.last
        return ReloadStatus(
            at=self._at,
            began=self._read_at,
            successful=last.successful,
            applied=last.applied,
            problems=last.problems,
            changed=last.changed,
            restart=self._restart,
            job=last.job,
        )

    def statistics(self) -> Iterator[Statistics]:
        """Section `config`."""
        yield section("config").of(
            {
                "successful": self.last.successful,
                "succeeded_at": self._good_at,
                "restart": len(self._restart),
                "reloads": dict(self._count),
            }
        )
