"""A queue whose clients take turns: none waits behind all that another has put.

Two that are fair otherwise can not be such queues.  `net.memory` takes away instead of
giving, from the one that holds most.  `store.journal.shares` keeps the order of events, so
a crowd is not overtaken but not let in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

_T = TypeVar("_T")


class FairQueue(Generic[_T]):
    """Items in the order of each client; the clients one after another, one item each."""

    __slots__ = ("_clients",)

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[_T, None]] = OrderedDict()
        """The clients with something in the queue; the first one's turn is next."""

    def __bool__(self) -> bool:
        return bool(self._clients)

    def __contains__(self, client: str) -> bool:
        return client in self._clients

    def put(self, client: str, item: _T, *, first: bool = False) -> None:
        """Put *item* behind the client's others, unless it is there already, or before them."""
        items = self._clients.setdefault(client, OrderedDict())
        items[item] = None
        if first:
            items.move_to_end(item, last=False)

    def take(self) -> _T:
        """The next one.  Raises KeyError if there is none."""
        client, items = self._clients.popitem(last=False)
        item, _ = items.popitem(last=False)
        if items:
            self._clients[client] = items
        return item

    def take_all(self, client: str) -> Iterable[_T]:
        """All that this client has, in its order."""
        return self._clients.pop(client, ())

    def remove(self, client: str, item: _T) -> None:
        """Not this one, if it is still there."""
        items = self._clients.get(client, OrderedDict())
        items.pop(item, None)
        if not items:
            self._clients.pop(client, None)
