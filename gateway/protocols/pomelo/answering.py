"""Answers from a game's own service: requests of some routes are put to it once durable.

    -> POST {"requests": [{"route": "shop.buy", "id": 7, "session": "…", "uid": "alice",
                           "lsn": 4711, "body": {…}}, …]}
    <- 200 {"answers": [{…}, …],                       as many, in the same order
            "groups": [{"join": "room-7", "session": "…"}, …]}      changed before that

Those that wait go together, `batch` of them, in `requests` posts at a time.  Whatever the
service does, each request is answered once: by it, or with `late` when its time is over.
A service that is slow holds back its own routes and nothing else.

Clients take turns, and none has more requests waiting than there are places left.  A
client's request may make the service fail a whole post.  The others in it have no answer,
unless they may be put to the service again, each in a post of its own.  Those whose requests were
in it are asked about alone for a while (`apart`).
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec
from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.protocols.pomelo.apart import Apart
from gateway.protocols.pomelo.push.row import GroupChange, Membership, membership_of
from gateway.protocols.pomelo.text import text
from gateway.sdk.fair import FairQueue
from gateway.sdk.http_client import (
    QUIET_SECONDS,
    Backend,
    Reply,
    Unconnected,
    Unreachable,
)

_POST_BYTES = 1 << 20
"""Bytes of bodies at which a post ends; the last one may exceed them."""

_DEPTH = 32
_MOST_NUMBER = 2**1000
"""The largest number that every JSON library can read, as a double at least."""

OUTCOMES = ("answered", "late", "failed", "refused")


@define(eq=False)
class Question:
    """A request that waits; *tell* is called once, with the answer in JSON or with None."""

    said: dict[str, Any]
    """Fields for the service beside the body."""
    body: bytes
    _tell: Callable[[Question, bytes | None], None]
    client: str = ""
    """The client whose share of the service it uses (`feeds.shares`)."""
    asked_at: float = 0.0
    open: bool = True
    """Whether it is not answered yet."""

    def close(self, answer: bytes | None) -> bool:
        """Answer it, unless that was done."""
        if not self.open:
            return False
        self.forget()
        self._tell(self, answer)
        return True

    def forget(self) -> None:
        """Drop the body: the answer is not waited for any more."""
        self.open = False
        self.body = b""

    def as_json(self) -> dict[str, Any]:
        """The request for the service; base64 for a body that not every JSON library reads."""
        try:
            body = text(self.body).encode()
            if _is_plain(msgspec.json.decode(body), _DEPTH):
                return {**self.said, "body": msgspec.Raw(body)}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        encoded = base64.b64encode(self.body).decode()
        return {**self.said, "body": None, "base64": encoded}


def _is_plain(value: object, depth: int) -> bool:
    """Nested no deeper than *depth*, without numbers that are infinite as doubles."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(each, depth - 1) for each in value)
    return not isinstance(value, int) or -_MOST_NUMBER < value < _MOST_NUMBER


class _Answers(msgspec.Struct):
    answers: list[msgspec.Raw]
    groups: list[GroupChange] = []


@define(eq=False, slots=False)
class Answering:
    """One service, and the requests that wait for it.

    A request waits for *seconds*; *waiting* of them at most, others not at all.
    Without a *backend* another program answers it (`Questions.answer`).

    *change* is called with the changes of groups that the service asks for in an answer.

    20 attributes: seven are given; the others are the posts under way, and what failed of late.
    """

    _log = Logger()

    _backend: Backend | None
    _clock: IReactorTime
    _seconds: float
    _requests: int
    _batch: int
    _most: int = field(alias="waiting")
    _change: Callable[[Sequence[Membership]], object]

    def __attrs_post_init__(self) -> None:
        self._queue: FairQueue[Question] = FairQueue()
        self._alone: FairQueue[Question] = FairQueue()
        """Requests that are put to the service each in a post of its own."""
        self._alone_next = False
        self._apart = Apart()
        self._shares: Counter[str] = Counter()
        """How many requests of each client have no answer."""
        self._open: dict[Question, None] = {}
        """Open requests, in the order in which their time is over."""
        self._useless = 0
        """Answers, since the log had a line about them."""
        self._told_useless_at = float("-inf")
        self._posts = 0
        self._sending: IDelayedCall | None = None
        self._timer: IDelayedCall | None = None
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Outcomes of requests: answered by the service; too late; no or no useful answer from it;
        too many waited."""
        self.seconds = 0.0
        """All the time that those took that it answered."""

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._open)

    def answer(self, question: Question, answer: bytes) -> None:
        self.seconds += self._clock.seconds() - question.asked_at
        self._close(question, answer, "answered")

    @property
    def elsewhere(self) -> bool:
        return self._backend is None

    @property
    def trouble(self) -> str | None:
        """The reason why the service does not answer, if so."""
        return None if self._backend is None else self._backend.trouble

    def give_up(self, question: Question) -> None:
        """There is no more time to wait for its answer."""
        self._close(question, None, "late")

    def refuse(self, question: Question) -> None:
        self._close(question, None, "refused")

    def ask(self, question: Question) -> None:
        """Put it to the service, with others that come in this turn."""
        free = self._most - len(self._open)
        if free <= 0 or self._shares[question.client] > free:
            self._close(question, None, "refused")
            return
        question.asked_at = self._clock.seconds()
        self._open[question] = None
        self._shares[question.client] += 1
        if self._backend is not None:
            self._queue_of(question.client).put(question.client, question)
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._expire)
        self._send_soon()

    def forget(self, question: Question) -> None:
        """Drop the request of a client that has gone."""
        question.forget()
        self._let_go(question)

    def useless(self, why: str) -> None:
        """Nothing can be done with an answer: tell the log, once a minute at most."""
        self._useless += 1
        now = self._clock.seconds()
        if now - self._told_useless_at >= QUIET_SECONDS:
            self._log.error(
                "{who}: {count} answers of no use, of late: {why}",
                who="answers" if self._backend is None else self._backend.url,
                count=self._useless,
                why=why,
            )
            self._told_useless_at, self._useless = now, 0

    def close(self) -> None:
        """The daemon stops."""
        for call in (self._timer, self._sending):
            if call is not None:
                call.cancel()
        self._timer = self._sending = None
        if self._backend is not None:
            self._backend.close()

    def _send_soon(self) -> None:
        waits = self._queue or self._alone
        if self._sending is None and waits and self._posts < self._requests:
            self._sending = self._clock.callLater(0, self._send)

    def _send(self) -> None:
        self._sending = None
        if self._backend is not None and (batch := self._next()):
            self._posts += 1
            posted = self._backend.post({"requests": [one.as_json() for one in batch]})
            posted.addCallback(self._answered, batch)
            posted.addErrback(self._failed, batch)
            posted.addBoth(self._posted)
            posted.addErrback(lambda why: self._log.failure("answers", why))
        self._send_soon()

    def _queue_of(self, client: str) -> FairQueue[Question]:
        """Where its next request waits, behind those before it."""
        now = self._clock.seconds()
        alone = self._apart.asked_alone(client, now) or client in self._alone
        return self._alone if alone else self._queue

    def _next(self) -> list[Question]:
        """The requests of the next post: in turn a single one, and a shared one."""
        if self._alone and (self._alone_next or not self._queue):
            self._alone_next = False
            return [self._alone.take()]
        self._alone_next = True
        batch: list[Question] = []
        size = 0
        while self._queue and len(batch) < self._batch and size < _POST_BYTES:
            batch.append(self._queue.take())
            size += len(batch[-1].body)
        return batch

    def _posted(self, result: object) -> object:
        self._posts -= 1
        self._send_soon()
        return result

    def _answered(self, reply: Reply, batch: list[Question]) -> None:
        try:
            self._take(reply, batch)
        except Unreachable as why:
            self.useless(str(why))
            raise

    def _take(self, reply: Reply, batch: list[Question]) -> None:
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
        self._change(changes)
        now = self._clock.seconds()
        for question, answer in zip(batch, answers, strict=True):
            if question.open:
                self.seconds += now - question.asked_at
            self._close(question, bytes(answer), "answered")
        for client in {question.client for question in batch}:
            self._apart.answered(client)

    def _failed(self, why: Any, batch: list[Question]) -> None:
        why.trap(Unreachable)
        assert self._backend is not None
        again = self._backend.repeat and len(batch) > 1
        for question in batch:
            if not again:
                self._close(question, None, "failed")
            elif question.open:
                self._alone.put(question.client, question)
        clients = dict.fromkeys(question.client for question in batch)
        if len(clients) > 1 and not why.check(Unconnected):
            self._apart.failed(clients, self._clock.seconds())
        for client in clients:
            if self._queue_of(client) is self._alone:
                for question in self._queue.take_all(client):
                    self._alone.put(client, question)

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
        self._let_go(question)
        if question.close(answer):
            self.outcomes[outcome] += 1

    def _let_go(self, question: Question) -> None:
        for queue in (self._queue, self._alone):
            queue.remove(question.client, question)
        if question in self._open:
            del self._open[question]
            self._shares[question.client] -= 1
            if not self._shares[question.client]:
                del self._shares[question.client]
