"""The publishers `check/…` that the conformance tests subscribe to.

Any implementation can have them; ours are switched on by `options.check_publishers`.

check/count?n=N[&size=S]    the numbers 0 … N-1, as decimal text, or with a fixed
                            size as big-endian integers of S octets; then the end
check/endless               the same numbers without an end
check/fail?n=N              N numbers, then onError("E500 as asked")
check/slow?n=N              N numbers, one in a tenth of a second
check/never                 accepted, and silent
check/large?n=N&octets=B    N elements of B octets each

check/count, check/endless and check/fail resume at any offset that they reach; the
others refuse one (E416).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from twisted.internet.interfaces import IReactorTime

from gateway.sdk.publisher import Elements, Fault, Finished, Publisher, Request, Source

_LARGEST = 1 << 24
_AT_ONCE = 256
"""Elements that a source gives at most in one call."""
_TICK_SECONDS = 0.1


class _Numbers:
    """The numbers from 0 on; then the end, or *fault*."""

    def __init__(
        self,
        numbers: range | None,
        size: int = 0,
        fault: Fault | None = None,
        offset: int | None = None,
    ) -> None:
        first = offset or 0
        if numbers is not None and first > len(numbers):
            raise Fault(416, f"offset {first} of {len(numbers)} elements")
        self.size = size
        self._numbers = iter(count(first) if numbers is None else numbers[first:])
        self._left = None if numbers is None else len(numbers) - first
        self._fault = fault

    def take(self, most: int) -> Elements | None:
        if self._left == 0:
            raise self._fault or Finished
        most = min(most, _AT_ONCE if self._left is None else min(self._left, _AT_ONCE))
        if self._left is not None:
            self._left -= most
        numbers = [next(self._numbers) for _ in range(most)]
        if self.size:
            spelled = [(n % (1 << 8 * self.size)).to_bytes(self.size) for n in numbers]
        else:
            spelled = [b"%d" % n for n in numbers]
        return Elements(spelled)

    def close(self) -> None:
        pass


class _Large:
    """Large elements, which are sent in parts."""

    size = 0

    def __init__(self, number: int, octets: int) -> None:
        self._left = number
        self._octets = octets

    def take(self, most: int) -> Elements | None:
        if not self._left:
            raise Finished
        if not most:
            return None
        self._left -= 1
        return Elements([b"x" * self._octets])

    def close(self) -> None:
        pass


class _Slow:
    """One number per tick, requested or not; those not requested wait."""

    size = 0

    def __init__(
        self, clock: IReactorTime, number: int, wake: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._there = self._given = 0
        self._number = number
        self._tick = clock.callLater(_TICK_SECONDS, self._next)

    def _next(self) -> None:
        self._there += 1
        if self._there < self._number:
            self._tick = self._clock.callLater(_TICK_SECONDS, self._next)
        self._wake()

    def take(self, most: int) -> Elements | None:
        if self._given == self._number:
            raise Finished
        first, self._given = self._given, min(self._there, self._given + most)
        return Elements([b"%d" % number for number in range(first, self._given)])

    def close(self) -> None:
        if self._tick.active():
            self._tick.cancel()


class _Never:
    """No element, and no end."""

    size = 0

    def take(self, most: int) -> Elements | None:
        return None

    def close(self) -> None:
        pass


class _Made:
    """A publisher whose sources are made by a function."""

    def __init__(
        self,
        make: Callable[[Request, Callable[[], None]], Source],
        *,
        resumes: bool = False,
    ) -> None:
        """*resumes*: *make* takes care of `Request.offset`."""
        self._make = make
        self._resumes = resumes

    def subscribe(self, request: Request, wake: Callable[[], None]) -> Source:
        if request.offset and not self._resumes:
            raise Fault(416, f"{request.name} can not resume")
        return self._make(request, wake)


def check_publishers(clock: IReactorTime) -> dict[str, Publisher]:
    """All of them, by name."""

    def slow(request: Request, wake: Callable[[], None]) -> Source:
        return _Slow(clock, _number(request, "n", 1), wake)

    return {
        "check/count": _Made(
            lambda request, _: _Numbers(
                range(_number(request, "n", 0)),
                _number(request, "size", 0, most=8),
                offset=request.offset,
            ),
            resumes=True,
        ),
        "check/endless": _Made(
            lambda request, _: _Numbers(None, offset=request.offset), resumes=True
        ),
        "check/fail": _Made(
            lambda request, _: _Numbers(
                range(_number(request, "n", 0)),
                fault=Fault(500, "as asked"),
                offset=request.offset,
            ),
            resumes=True,
        ),
        "check/slow": _Made(slow),
        "check/never": _Made(lambda request, _: _Never()),
        "check/large": _Made(
            lambda request, _: _Large(
                _number(request, "n", 1), _number(request, "octets", 1 << 17)
            )
        ),
    }


def _number(request: Request, key: str, default: int, *, most: int = _LARGEST) -> int:
    text = request.query.get(key, str(default))
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise Fault(400, f"{key} is no number of at most {most}")
    return int(text)
