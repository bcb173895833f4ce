"""Common parts of the controller's methods: their type, the caller, error texts, pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.access import Rights
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import Part
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.messages import Message
from gateway.sdk.costs import Turn

SUCCESS, FAILURE = 0, 1
"""Two codes that are the same in the status of every method."""


_PAGE = 1000
_NAME = 0.7
"""The cost of a name in a list, be it shown or not."""


class Unfinished(Exception):
    """The call needs another turn, and is made again from its beginning: what it has changed
    it does not do twice.
    """


@dataclass(slots=True, frozen=True)
class Caller:
    """The client that makes a call."""

    authority: str
    """`host:port` as the client addressed the controller."""
    name: str
    """The name it proved; empty where it has to prove none."""
    rights: Rights = field(default_factory=Rights)
    """The caller's rights: what it may do, and which names it may see."""
    submitter: Any = None
    """A `container.Submitter`, which is told of the events that the call makes durable."""
    origin: Any = None
    """The `Origin` of those events."""
    turn: Turn = field(default_factory=Turn)
    """Is charged for what takes more than most calls."""


_Request = TypeVar("_Request", bound=Message)
_Answer: TypeAlias = Callable[[Any, _Request, Caller], Message]

Method: TypeAlias = tuple[type[Message], Callable[[Any, Caller], Message]]
"""The request's message, and what makes the answer of one; that may raise `Failed`."""


class Methods:
    """The methods of a class that clients can call: `@methods(REQUEST, NAME…)`."""

    def __init__(self) -> None:
        self._marked: list[tuple[str, type[Message], _Answer[Any]]] = []

    def __call__(
        self, request: type[_Request], *names: str
    ) -> Callable[[_Answer[_Request]], _Answer[_Request]]:
        """Marks what answers a *request* message to a method of these *names*."""

        def mark(answer: _Answer[_Request]) -> _Answer[_Request]:
            self._marked += [(name, request, answer) for name in names]
            return answer

        return mark

    def of(self, one: object) -> dict[str, Method]:
        """The methods of *one* object of the class, by the name that clients call."""
        return {
            name: (request, partial(answer, one))
            for name, request, answer in self._marked
        }


def status(code: int) -> messages.Status:
    return messages.Status(status=code)


def find(catalog: Catalog, info: messages.StreamInfo) -> Stream:
    """The stream of a `StreamInfo`; raises `Failed` with `NOT_FOUND`."""
    stream = catalog.stream(info.scope, info.stream)
    if stream is None:
        raise Failed(Code.NOT_FOUND, f"no stream {info.scope}/{info.stream}")
    return stream


def segment_range(scope: str, stream: str, part: Part) -> messages.SegmentRange:
    info = messages.StreamInfo(scope=scope, stream=stream)
    segment = messages.SegmentId(stream_info=info, number=part.id)
    return messages.SegmentRange(segment=segment, low=part.low, high=part.high)


def page(
    names: Iterable[str], token: str, seen: Callable[[str], bool], turn: Turn
) -> tuple[list[str], messages.ContinuationToken]:
    """A page of the names that may be *seen*: sorted, 1000 at most; and the next page's token.

    A token is the last name of the page before, empty for the first page.  Clients ask until
    a page is empty.
    """
    ordered = sorted(names)
    turn.charge(_NAME * len(ordered))
    begin = bisect_right(ordered, token) if token else 0
    found = list(islice(filter(seen, islice(ordered, begin, None)), _PAGE))
    return found, messages.ContinuationToken(token=found[-1] if found else token)
