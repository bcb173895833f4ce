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

from attrs import define
from twisted.internet.interfaces import IReactorTime

from gateway.sdk.publisher import Elements, Fault, Finished, Publisher, Request, Source

_LARGEST = 1 << 24
_ENDLESS = range((1 << 63) - 1)
_AT_ONCE = 256
"""Elements that a source gives at most in one call."""
_TICK_SECONDS = 0.1


@define(eq=False)
class _Numbers:
    """An element for each number; then the end, or *fault*."""

    _left: range
    _spell: Callable[[int], bytes] = lambda number: b"%d" % number
    _at_once: int = _AT_ONCE
    size: int = 0
    _fault: Fault | None = None

    def take(self, most: int) -> Elements | None:
        if not self._left:
            raise self._fault or Finished
        most = min(most, self._at_once)
        some, self._left = self._left[:most], self._left[most:]
        return Elements([self._spell(number) for number in some])

    def close(self) -> None:
        pass


class _Slow(_Numbers):
    """One number per tick, requested or not; those not requested wait."""

    def __init__(
        self, clock: IReactorTime, number: int, wake: Callable[[], None]
    ) -> None:
        super().__init__(range(number))
        self._clock = clock
        self._wake = wake
        self._to_come, self._there = number, 0
        self._tick = clock.callLater(_TICK_SECONDS, self._next)

    def _next(self) -> None:
        self._there += 1
        self._to_come -= 1
        if self._to_come > 0:
            self._tick = self._clock.callLater(_TICK_SECONDS, self._next)
        self._wake()

    def take(self, most: int) -> Elements | None:
        found = super().take(min(most, self._there))
        self._there -= len(found or ())
        return found

    def close(self) -> None:
        if self._tick.active():
            self._tick.cancel()


@define(eq=False)
class _Made:
    """A publisher with a function for its sources; *resumes*: they heed `Request.offset`."""

    _make: Callable[[Request, Callable[[], None]], Source]
    _resumes: bool = False

    def subscribe(self, request: Request, wake: Callable[[], None]) -> Source:
        if request.offset and not self._resumes:
            raise Fault(416, f"{request.name} can not resume")
        return self._make(request, wake)


def check_publishers(clock: IReactorTime) -> dict[str, Publisher]:
    def counting(request: Request, _: object) -> Source:
        size = _number(request, "size", 0, most=8)
        if not size:
            return _Numbers(_from(request))
        return _Numbers(
            _from(request),
            lambda number: (number % (1 << 8 * size)).to_bytes(size),
            size=size,
        )

    def endless(request: Request, _: object) -> Source:
        return _Numbers(_ENDLESS[request.offset or 0 :])

    def failing(request: Request, _: object) -> Source:
        return _Numbers(_from(request), fault=Fault(500, "as asked"))

    def slow(request: Request, wake: Callable[[], None]) -> Source:
        return _Slow(clock, _number(request, "n", 1), wake)

    def silent(request: Request, _: object) -> Source:
        return _Numbers(_ENDLESS, at_once=0)

    def large(request: Request, _: object) -> Source:
        number, octets = _number(request, "n", 1), _number(request, "octets", 1 << 17)
        return _Numbers(range(number), lambda _: b"x" * octets, at_once=1)

    return {
        "check/count": _Made(counting, resumes=True),
        "check/endless": _Made(endless, resumes=True),
        "check/fail": _Made(failing, resumes=True),
        "check/slow": _Made(slow),
        "check/never": _Made(silent),
        "check/large": _Made(large),
    }


def _from(request: Request) -> range:
    """The numbers that are left of the first *n* at its offset."""
    numbers, offset = range(_number(request, "n", 0)), request.offset or 0
    if offset > len(numbers):
        raise Fault(416, f"offset {offset} of {len(numbers)} elements")
    return numbers[offset:]


def _number(request: Request, key: str, default: int, *, most: int = _LARGEST) -> int:
    text = request.query.get(key, str(default))
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise Fault(400, f"{key} is no number of at most {most}")
    return int(text)
