"""The requests of one connection that services of the game's are to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from gateway.event import Origin, Stored
from gateway.feeds.shares import client_of
from gateway.interfaces import Journal
from gateway.protocols.pomelo.answering import Answering, Question
from gateway.protocols.pomelo.handshake import Terms
from gateway.protocols.pomelo.session import Asked

__all__ = ["Client", "Questions"]

_ANSWER_BYTES = 512
"""What an answer that is owed counts."""


class Client(Protocol):
    """Whose requests they are."""

    @property
    def origin(self) -> Origin:
        """The origin of its events."""

    @property
    def terms(self) -> Terms:
        """What it was sent in its handshake."""

    @property
    def uid(self) -> str | None:
        """The user that it belongs to; None if it named none."""


class Questions:
    """Those that have no answer yet; what is kept of them is memory of the journal's."""

    __slots__ = ("_client", "_journal", "_late", "_open", "_services", "_tell", "bytes")

    def __init__(
        self,
        client: Client,
        journal: Journal,
        services: Mapping[str, Answering],
        late: Mapping[str, Mapping[str, Any]],
        tell: Callable[[bytes], None],
    ) -> None:
        """*services* answer the requests of their routes, *late* is said if they do not;
        *tell* is called with the package of each answer.
        """
        self._client = client
        self._journal = journal
        self._services = services
        self._late = late
        self._tell = tell
        self._open: dict[Question, int] = {}
        self.bytes = 0
        """What they, and the answers that are owed, count."""

    def __len__(self) -> int:
        return len(self._open)

    def put(
        self, stored: Stored, ids: list[int], requests: Mapping[int, Asked]
    ) -> None:
        """Ask about these requests, which are durable, by their positions in *ids*."""
        client, share = self._client, client_of(self._client.origin)
        for at, asked in requests.items():
            number, body = ids[at], asked.body or b""
            said = {
                "route": asked.route,
                "id": number,
                "session": client.origin.session,
                "uid": client.uid,
                "principal": client.origin.principal,
                "lsn": stored.lsn + asked.row,
            }
            tell = partial(self._answered, number)
            question = Question(said, body, tell, share)
            self._open[question] = len(body)
            self.bytes += len(body) + _ANSWER_BYTES
            self._journal.reserve(len(body))
            service = self._services[asked.route]
            if asked.body is None:
                service.refuse(question)
            else:
                service.ask(question)

    def answer(self, number: int, answer: bytes) -> bool:
        """The JSON that answers the oldest request with this id, if rows answer those.

        False if none waits.
        """
        for question in self._open:
            service = self._services[question.said["route"]]
            if question.said["id"] == number and service.elsewhere:
                service.answer(question, answer)
                return True
        return False

    def give_up(self) -> None:
        """Wait no longer for any answer."""
        for question in list(self._open):
            self._services[question.said["route"]].give_up(question)

    def forget(self) -> None:
        """The client is gone."""
        for question in list(self._open):
            self._services[question.said["route"]].forget(question)
            self._let_go(question)

    def _let_go(self, question: Question) -> None:
        size = self._open.pop(question)
        self.bytes -= size + _ANSWER_BYTES
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
