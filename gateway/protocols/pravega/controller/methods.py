"""What the controller's methods share: their type, the caller, error texts, pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from gateway.interfaces import Refusal
from gateway.protocols.pravega.controller.catalog import Catalog, Stream
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, new

__all__ = [
    "FAILURE",
    "NO_SCALING",
    "NO_TABLES",
    "SUCCESS",
    "Caller",
    "Method",
    "Methods",
    "Unfinished",
    "find",
    "over_limit",
    "page",
    "status",
]

SUCCESS, FAILURE = 0, 1
"""These two codes are the same in the status of every method."""

NO_SCALING = "the gateway does not scale streams"
NO_TABLES = "the gateway has no key-value tables"

_PAGE = 1000


class Unfinished(Exception):
    """The call needs another turn: then it is made again, from its beginning.

    Raised before anything is changed.
    """


@dataclass(slots=True, frozen=True)
class Caller:
    """The client that makes a call."""

    authority: str
    """`host:port` as the client addressed the controller."""
    name: str
    """The name it authenticated with; empty where no credentials are required."""
    submitter: Any = None
    """A `container.Submitter`, which is told of the events that the call makes durable."""
    origin: Any = None
    """The `Origin` of those events."""


_Answer = TypeVar("_Answer", bound=Callable[[Any, Message, Caller], Message])

Method: TypeAlias = tuple[str, Callable[[Message, Caller], Message]]
"""Name of the request's message, and what makes the answer; that may raise `Failed`."""


class Methods:
    """The methods of a class that clients can call: `@methods(REQUEST, NAME…)`."""

    def __init__(self) -> None:
        self._marked: list[tuple[str, str, Callable[[Any, Message, Caller], Message]]]
        self._marked = []

    def __call__(self, request: str, *names: str) -> Callable[[_Answer], _Answer]:
        """Marks what answers a *request* message to a method of these *names*."""

        def mark(answer: _Answer) -> _Answer:
            self._marked += [(name, request, answer) for name in names]
            return answer

        return mark

    def of(self, one: object) -> dict[str, Method]:
        """Those of *one* object of the class, by the name that clients call."""
        return {
            name: (request, partial(answer, one))
            for name, request, answer in self._marked
        }


def status(code: int) -> Message:
    """An answer that is only a status."""
    return new("Status", status=code)


def find(catalog: Catalog, info: Message) -> Stream:
    """The stream of a `StreamInfo`; raises `Failed` with `NOT_FOUND`."""
    stream = catalog.stream(info.scope, info.stream)
    if stream is None:
        raise Failed(Code.NOT_FOUND, f"no stream {info.scope}/{info.stream}")
    return stream


def over_limit(
    what: str,
    limit: int,
    key: str | None = None,
    *,
    code: Code = Code.RESOURCE_EXHAUSTED,
) -> Failed:
    """The error of a call that goes over a limit; *key* is its configuration key."""
    return Failed(code, str(Refusal(what, limit=limit, key=key)))


def page(names: Iterable[str], token: str) -> tuple[list[str], Message]:
    """The names after *token*, sorted, at most 1000; and the token of the next page.

    A token is the last name of the page before.  Clients ask until a page is empty.
    """
    ordered = sorted(names)
    begin = bisect_right(ordered, token) if token else 0
    found = ordered[begin : begin + _PAGE]
    return found, new("ContinuationToken", token=found[-1] if found else token)
