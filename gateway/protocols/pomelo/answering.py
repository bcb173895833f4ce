"""Answers from a game's own service: requests of some routes are put to it once durable.

    -> POST {"requests": [{"route": "shop.buy", "id": 7, "session": "…", "uid": "alice",
                           "lsn": 4711, "body": {…}}, …]}
    <- 200 {"answers": [{…}, …],                       as many, in the same order
            "groups": [{"join": "room-7", "session": "…"}, …]}      changed before that

Those that wait go together, `batch` of them, in `requests` posts at a time.  Whatever the
service does, each request is answered once: by it, or with `late` when its time is over.
A service that is slow holds back its own routes and nothing else.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.protocols.payload import check
from gateway.protocols.pomelo.backend import Backend, Reply, Unreachable
from gateway.protocols.pomelo.push.membership import Asked, Membership, membership_of

__all__ = ["OUTCOMES", "Answering", "Question"]

_POST_BYTES = 1 << 20
"""Of the bodies of one post, and the last one."""

OUTCOMES = ("answered", "late", "failed", "refused")


class Question:
    """A request that waits for its answer."""

    __slots__ = ("_tell", "asked_at", "body", "open", "said")

    def __init__(
        self,
        said: dict[str, Any],
        body: bytes,
        tell: Callable[[Question, bytes | None], None],
    ) -> None:
        """*said* is what the service is told beside *body*; *tell* is called once, with
        the JSON of the answer, or with None if there is none.
        """
        self.said = said
        self.body = body
        self._tell = tell
        self.asked_at = 0.0
        self.open = True
        """It is not answered yet."""

    def close(self, answer: bytes | None) -> bool:
        """Answer it, unless that was done."""
        if not self.open:
            return False
        self.open = False
        self.body = b""
        self._tell(self, answer)
        return True

    def forget(self) -> None:
        """Nobody waits for the answer any more."""
        self.open = False
        self.body = b""

    def as_json(self) -> dict[str, Any]:
        """What the service gets; a body that is not JSON goes as base64."""
        try:
            check(self.body)
            self.body.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = base64.b64encode(self.body).decode()
            return {**self.said, "body": None, "base64": text}
        return {**self.said, "body": msgspec.Raw(self.body)}


class _Answers(msgspec.Struct):
    answers: list[msgspec.Raw]
    groups: list[Asked] = []


class Answering:
    """One service, and the requests that wait for it."""

    _log = Logger()

    def __init__(
        self,
        backend: Backend | None,
        clock: IReactorTime,
        *,
        seconds: float,
        requests: int,
        batch: int,
        waiting: int,
        change: Callable[[Membership], object],
    ) -> None:
        """A request waits for *seconds*; *waiting* of them at most, others not at all.
        Without a *backend* somebody else answers it (`Questions.answer`).

        *change* is called with each change of groups that the service asks for.
        """
        self._change = change
        self._backend = backend
        self._clock = clock
        self._seconds = seconds
        self._requests = requests
        self._batch = batch
        self._most = waiting
        self._queue: deque[Question] = deque()
        self._open: dict[Question, None] = {}
        """In the order in which their time is over."""
        self._posts = 0
        self._sending: IDelayedCall | None = None
        self._timer: IDelayedCall | None = None
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Of the requests so far: answered by the service; too late; it was away, or its
        answer of no use; too many waited."""
        self.seconds = 0.0
        """All the time that those took that it answered."""

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._open)

    def answer(self, question: Question, answer: bytes) -> None:
        """Somebody answers it."""
        self.seconds += self._clock.seconds() - question.asked_at
        self._close(question, answer, "answered")

    @property
    def elsewhere(self) -> bool:
        """No service is asked."""
        return self._backend is None

    def give_up(self, question: Question) -> None:
        """There is no more time to wait for its answer."""
        self._close(question, None, "late")

    def refuse(self, question: Question) -> None:
        """Do not put it to the service."""
        self._close(question, None, "refused")

    def ask(self, question: Question) -> None:
        """Put it to the service, with others that come in this turn."""
        if max(len(self._open), len(self._queue) // 4) >= self._most:
            self._close(question, None, "refused")
            return
        question.asked_at = self._clock.seconds()
        self._open[question] = None
        if self._backend is not None:
            self._queue.append(question)
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._expire)
        self._send_soon()

    def forget(self, question: Question) -> None:
        """Its client is gone."""
        question.forget()
        self._open.pop(question, None)

    def close(self) -> None:
        """The daemon stops."""
        for call in (self._timer, self._sending):
            if call is not None:
                call.cancel()
        self._timer = self._sending = None
        if self._backend is not None:
            self._backend.close()

    def _send_soon(self) -> None:
        if self._sending is None and self._queue and self._posts < self._requests:
            self._sending = self._clock.callLater(0, self._send)

    def _send(self) -> None:
        self._sending = None
        batch: list[Question] = []
        size = 0
        while self._queue and len(batch) < self._batch and size < _POST_BYTES:
            question = self._queue.popleft()
            if question.open:
                batch.append(question)
                size += len(question.body)
        if batch and self._backend is not None:
            self._posts += 1
            posted = self._backend.post({"requests": [one.as_json() for one in batch]})
            posted.addCallback(self._answered, batch)
            posted.addErrback(self._failed, batch)
            posted.addBoth(self._posted)
            posted.addErrback(lambda why: self._log.failure("answers", why))
        self._send_soon()

    def _posted(self, result: object) -> object:
        self._posts -= 1
        self._send_soon()
        return result

    def _answered(self, reply: Reply, batch: list[Question]) -> None:
        if reply.code != 200:
            raise Unreachable(f"answers {reply.code}")
        found: _Answers = reply.json(_Answers)
        answers = found.answers
        if len(answers) != len(batch):
            raise Unreachable(f"{len(answers)} answers to {len(batch)} requests")
        try:
            changes = [membership_of(asked) for asked in found.groups]
        except ValueError as why:
            raise Unreachable(f"groups: {why}") from None
        for change in changes:
            self._change(change)
        now = self._clock.seconds()
        for question, answer in zip(batch, answers, strict=True):
            if question.open:
                self.seconds += now - question.asked_at
            self._close(question, bytes(answer), "answered")

    def _failed(self, why: Any, batch: list[Question]) -> None:
        why.trap(Unreachable)
        for question in batch:
            self._close(question, None, "failed")

    def _expire(self) -> None:
        self._timer = None
        due = self._clock.seconds() - self._seconds
        late = []
        for question in self._open:
            if question.asked_at > due:
                break
            late.append(question)
        for question in late:
            self._close(question, None, "late")
        for question in islice(self._open, 1):
            pause = question.asked_at - due
            self._timer = self._clock.callLater(pause, self._expire)

    def _close(self, question: Question, answer: bytes | None, outcome: str) -> None:
        self._open.pop(question, None)
        if question.close(answer):
            self.outcomes[outcome] += 1
