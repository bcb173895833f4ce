"""A cache for several threads: each value is made once, and kept while there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Objects that were used last; all together weigh at most *most*."""

    def __init__(self, most: int, weigh: Callable[[_T], int] = lambda _: 1) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._lock = threading.Lock()
        self._items: OrderedDict[Any, tuple[_T, int]] = OrderedDict()
        self._making: dict[Any, Future[_T]] = {}

    def get(self, key: Any) -> _T | None:
        """The object, which is then the last one used."""
        with self._lock:
            return self._get(key)

    def peek(self, key: Any) -> _T | None:
        """The object, which is not counted as used."""
        with self._lock:
            return self._items.get(key, (None, 0))[0]

    def put(self, key: Any, value: _T) -> None:
        """The last one stays, whatever it weighs."""
        weight = self._weigh(value)
        with self._lock:
            self._drop(key)
            self._items[key] = value, weight
            self._weight += weight
            while self._weight > self._most and len(self._items) > 1:
                self._weight -= self._items.popitem(last=False)[1][1]

    def drop(self, key: Any) -> None:
        with self._lock:
            self._drop(key)

    def made(self, key: Any, make: Callable[[], _T]) -> _T:
        """The object, made if it is not there; other threads that want it wait meanwhile.

        Raises what *make* raises, in all that waited for it.
        """
        with self._lock:
            found = self._get(key)
            if found is not None:
                return found
            making = self._making.get(key)
            mine = making is None
            if making is None:
                making = self._making[key] = Future()
        if not mine:
            return making.result()
        try:
            value = make()
            self.put(key, value)
            making.set_result(value)
        except BaseException as why:
            making.set_exception(why)
            raise
        finally:
            with self._lock:
                del self._making[key]
        return value

    def _get(self, key: Any) -> _T | None:
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def _drop(self, key: Any) -> None:
        if (found := self._items.pop(key, None)) is not None:
            self._weight -= found[1]
