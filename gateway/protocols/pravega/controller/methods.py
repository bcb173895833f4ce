"""What the calls have in common: who calls, what a method is, how lists are cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.protocols.pravega.controller.catalog import Catalog, Scope, Stream
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, new

__all__ = [
    "FAILURE",
    "SUCCESS",
    "Caller",
    "Method",
    "Methods",
    "find",
    "page",
    "status",
]

SUCCESS, FAILURE = 0, 1
"""The same in every enum."""

_PAGE = 1000


@dataclass(slots=True, frozen=True)
class Caller:
    """Whoever makes a call."""

    authority: str
    """`host:port` as it calls us."""
    name: str
    """Who it proved to be; empty if nobody had to."""
    submitter: Any = None
    """A `container.Submitter`: hears of the events that become durable by the call."""
    origin: Any = None
    """Where those events come from."""


Method: TypeAlias = tuple[str, Callable[[Message, Caller], Message]]
"""Name of the request's message; what makes the answer.  May raise `Failed`."""

Methods: TypeAlias = Mapping[str, Method]


def status(code: int) -> Message:
    """An answer that is one enum."""
    return new("Status", status=code)


def find(catalog: Catalog, info: Message) -> tuple[Scope, Stream]:
    """The stream of a `StreamInfo`; raises `Failed`."""
    scope = catalog.scopes.get(info.scope)
    stream = scope.stream(info.stream) if scope is not None else None
    if scope is None or stream is None:
        raise Failed(Code.NOT_FOUND, f"no stream {info.scope}/{info.stream}")
    return scope, stream


def page(names: Iterable[str], token: str) -> tuple[list[str], Message]:
    """The next names behind *token*, sorted, and the token of the next page.

    Clients ask until a page is empty; a token is the last name that they have.
    """
    ordered = sorted(names)
    begin = bisect_right(ordered, token) if token else 0
    found = ordered[begin : begin + _PAGE]
    return found, new("ContinuationToken", token=found[-1] if found else token)
