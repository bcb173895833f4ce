"""Makes many requests at once: a server answers after tens of milliseconds, and to many."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

REQUESTS = 64
"""How many a job's inbox makes at once, to fetch, and as many to take out."""


class AtOnce(Protocol):
    """Does the same with many things, in any order: the builtin `map`, or `by_threads`."""

    def __call__(self, work: Callable[[_T], _R], many: Sequence[_T], /) -> Iterable[_R]:
        """The results of *work*, in the order of *many*."""


def by_threads(work: Callable[[_T], _R], many: Sequence[_T]) -> list[_R]:
    """An `AtOnce` of up to `REQUESTS` threads, which have all ended when it returns; a
    process that ends waits for none of them.
    """
    futures: list[Future[_R]] = [Future() for _ in many]
    left = deque(zip(futures, many, strict=True))

    def run() -> None:
        while True:
            try:
                future, one = left.popleft()  # one step: each is one thread's
            except IndexError:
                return
            try:
                future.set_result(work(one))
            except BaseException as why:
                future.set_exception(why)

    for _ in range(min(REQUESTS, len(many))):
        threading.Thread(target=run, name="inbox-request", daemon=True).start()
    wait(futures)
    return [future.result() for future in futures]


def asked(
    at_once: AtOnce, work: Callable[[_T], _R], many: Sequence[_T]
) -> tuple[list[tuple[_T, _R]], list[OSError]]:
    """The results of *work*, each beside what it was asked for; and the OSErrors that it raised."""

    def one(each: _T) -> _R | OSError:
        try:
            return work(each)
        except OSError as why:
            return why

    done: list[tuple[_T, _R]] = []
    failures: list[OSError] = []
    for each, result in zip(many, at_once(one, many), strict=True):
        if isinstance(result, OSError):
            failures.append(result)
        else:
            done.append((each, result))
    return done, failures
