"""Makes guessing slow: who gave wrong credentials waits for the answer, longer each time."""

from __future__ import annotations

from collections import OrderedDict

from attrs import define
from twisted.internet.interfaces import IReactorTime

from gateway.event import network_of

_FIRST_SECONDS = 0.25
_MOST_SECONDS = 5.0
_FORGOTTEN_SECONDS = 60.0
_MOST_HOSTS = 4096


@define(eq=False, slots=False)
class Penalties:
    """The penalties of all listeners of a daemon, by address."""

    _clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self._hosts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """When it gave wrong credentials last, and what the next ones cost."""

    def add(self, host: str) -> float:
        """*host* gave wrong credentials.  How many seconds their answer is to wait.

        The first ones are answered at once: most are a mistake.
        """
        host, now = network_of(host), self._clock.seconds()
        last, seconds = self._hosts.pop(host, (now, 0.0))
        if now - last > _FORGOTTEN_SECONDS:
            seconds = 0.0
        following = min(2 * seconds, _MOST_SECONDS) if seconds else _FIRST_SECONDS
        self._hosts[host] = now, following
        if len(self._hosts) > _MOST_HOSTS:
            self._hosts.popitem(last=False)
        return seconds
