"""The requests of one connection that services of the game's are to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import define, field

from gateway.event import Stored, client_of
from gateway.protocols.pomelo.answering import Answering, Question
from gateway.protocols.pomelo.ready import Ready, ServiceRequest
from gateway.protocols.pomelo.registry import Client
from gateway.protocols.pomelo.wire import HIGH_FIRST
from gateway.sdk.interfaces import Journal

_ANSWER_BYTES = 512
"""The bytes that a due answer counts as."""


@define(eq=False)
class Questions:
    """Requests of one client that have no answer yet; they count as memory of the journal's.

    *services* answer the requests of their routes, *late* is the answer if they do not;
    *tell* is called with the package of each answer.
    """

    _client: Client
    _journal: Journal
    _services: Mapping[str, Answering]
    _late: Mapping[str, Mapping[str, Any]]
    _tell: Callable[[bytes], None]
    open: dict[Question, int] = field(factory=dict, init=False)
    held_bytes: int = field(default=0, init=False)
    """Bytes that these and the due answers count as."""

    def __len__(self) -> int:
        return len(self.open)

    def keep(self, ready: Ready) -> int:
        """Reserve memory for its requests; the bytes, or 0 without room: services answer none."""
        journal, size = self._journal, ready.asked_bytes
        if not journal.reserve(size):
            journal.reserve(-size)
            ready.drop_asked()
            return 0
        return size

    def put(
        self, stored: Stored, ids: list[int], requests: Mapping[int, ServiceRequest]
    ) -> None:
        """Ask about these requests, which are durable, by their positions in *ids*."""
        client, share = self._client, client_of(self._client.origin)
        for at, asked in requests.items():
            number, body = ids[at], asked.body or b""
            said = {
                "route": asked.route,
                "id": number % HIGH_FIRST,
                "session": client.origin.session,
                "uid": client.uid,
                "principal": client.origin.principal,
                "lsn": stored.lsn + asked.row,
            }
            tell = partial(self._answered, number)
            question = Question(said, body, tell, share)
            self.open[question] = len(body)
            self.held_bytes += len(body) + _ANSWER_BYTES
            self._journal.reserve(len(body))
            service = self._services[asked.route]
            if asked.body is None:
                service.refuse(question)
            else:
                service.ask(question)

    def answer(self, number: int, answer: bytes) -> bool:
        """Answer the oldest request of this id with JSON, if rows may; False if none waits."""
        for question in self.open:
            service = self._services[question.said["route"]]
            if question.said["id"] == number and service.elsewhere:
                service.answer(question, answer)
                return True
        return False

    def give_up(self) -> None:
        for question in list(self.open):
            self._services[question.said["route"]].give_up(question)

    def forget(self) -> None:
        for question in list(self.open):
            self._services[question.said["route"]].forget(question)
            self._let_go(question)

    def _let_go(self, question: Question) -> None:
        size = self.open.pop(question)
        self.held_bytes -= size + _ANSWER_BYTES
        self._journal.reserve(-size)

    def _answered(self, number: int, question: Question, answer: bytes | None) -> None:
        self._let_go(question)
        route, terms = question.said["route"], self._client.terms
        package = None
        if answer is not None:
            try:
                package = terms.answered(number, route, answer)
            except ValueError as why:
                self._services[route].useless(f"on {route} it can not be sent: {why}")
        self._tell(package or terms.late(number, route, self._late[route]))
