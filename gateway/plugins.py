"""Finds the installed protocols: the entry points of the group `gateway.protocols`.

A broken package costs the others nothing.  It is left out, and a configuration or command
that names its protocol is told which package it is and why it can not be used.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from gateway.sdk.command import WrongUse
from gateway.sdk.protocol import Command, Protocol, Sender

if TYPE_CHECKING:
    from gateway.event import Decode

GROUP = "gateway.protocols"
#: What a stranger's code may raise, and cost nobody else anything: it may call `exit`.
RAISED = (Exception, SystemExit)

_NAME = re.compile(r"[a-z][a-z0-9-]{0,49}")


@dataclass(frozen=True, slots=True)
class Installed:
    """The protocols of this environment."""

    protocols: Mapping[str, Protocol]
    """Usable protocols by name."""
    broken: Mapping[str, str]
    """Unusable protocols by name: a sentence that names the package and says why."""

    def why_not(self, name: str) -> str:
        """Why there is no protocol *name*, and what to do about it."""
        if name in self.broken:
            return self.broken[name]
        for meant, protocol in self.protocols.items():
            if name.lower() in protocol.spoken_by:
                return f"no protocol {name!r}: what {name} speaks is {meant!r} here"
        known = ", ".join(self.protocols) or "none"
        close = difflib.get_close_matches(name, self.protocols, n=1)
        if close:
            return f"protocol {name!r} is not installed; did you mean {close[0]!r}?"
        return (
            f"protocol {name!r} is not installed; installed: {known}.  A package brings "
            f"it that has an entry point in the group {GROUP}"
        )

    def check(self, names: Iterable[str]) -> None:
        """Raise `WrongUse` if one of these is no protocol that can be used."""
        for name in names:
            if name not in self.protocols:
                raise WrongUse(self.why_not(name))

    def each(self, hook: str, *arguments: object) -> Iterator[tuple[str, Any]]:
        """The name of each protocol and what it answers; those that raise are left out.

        Standard error says which, once.
        """
        for name, protocol in self.protocols.items():
            try:
                answer = getattr(protocol, hook)(*arguments)
                _check(hook, answer)
            except RAISED as why:
                complain(failure(name, hook, why))
            else:
                yield name, answer

    def commands(self) -> dict[str, Command]:
        """The commands that all protocols add to `gateway --help`."""
        found: dict[str, Command] = {}
        for _, commands in self.each("commands"):
            found |= commands
        return found


def failure(name: str, hook: str, why: BaseException) -> str:
    """The sentence that says what a protocol's code raised."""
    return f"protocol {name!r} fails in {hook}: {type(why).__name__}: {why}"


def _check(hook: str, answer: Any) -> None:
    """Raise TypeError unless it is what that hook should give."""
    match hook:
        case "commands":
            fine = isinstance(answer, Mapping) and all(
                isinstance(each, Command) for each in answer.values()
            )
        case "sender":
            fine = answer is None or isinstance(answer, Sender)
        case _:
            fine = callable(answer)
    if not fine:
        raise TypeError(f"it gives {answer!r}"[:200])


@cache
def complain(text: str) -> None:
    """Say it on standard error, once."""
    sys.stderr.write(f"gateway: {text}\n")


@cache
def installed() -> Installed:
    """The protocols that are installed here; looked up once."""
    return find(entry_points(group=GROUP))


def examples() -> tuple[str, str]:
    """Two installed protocols' names, for commands that people can type: what shippers
    speak first.
    """
    known = installed()
    shipped = [name for name, one in known.protocols.items() if one.spoken_by]
    sent = [name for name, sender in known.each("sender") if sender is not None]
    both = [name for name in sent if name in shipped]
    named = dict.fromkeys([*both, *sent, *known.protocols])
    first, *more = named or ["PROTOCOL"]
    return first, more[0] if more else first


def decoders() -> dict[str, Decode]:
    """Every installed protocol's decoder with the options' defaults."""
    return dict(installed().each("decoder", ()))


def find(points: Iterable[EntryPoint]) -> Installed:
    """The protocols that these entry points name."""
    by_name: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for point in points:
        # an installation over another may list an entry point twice
        if point not in by_name[point.name]:
            by_name[point.name].append(point)
    protocols: dict[str, Protocol] = {}
    broken: dict[str, str] = {}
    for name, same in sorted(by_name.items()):
        try:
            protocols[name] = _load(name, same)
        except RAISED as why:
            broken[name] = (
                f"protocol {name!r} can not be used: "
                f"{' and '.join(map(_package, same))}: {why}"
            )
    return Installed(protocols, broken)


def _load(name: str, points: list[EntryPoint]) -> Protocol:
    if len(points) > 1:
        raise ValueError("each brings a protocol of this name; uninstall all but one")
    [point] = points
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the entry point's name {name!r} is no protocol's: it must be lower case "
            "letters, digits and dashes"
        )
    try:
        found: Any = point.load()
    except RAISED as why:
        raise ImportError(f"{point.value}: {type(why).__name__}: {why}") from why
    if not isinstance(found, Protocol):
        raise TypeError(
            f"{point.value} is of type {type(found).__name__}, not an object of a "
            "subclass of gateway.sdk.protocol.Protocol"
        )
    if not isinstance(found.limits, Mapping):
        raise TypeError(f"{point.value}: limits are {found.limits!r}, not a mapping")
    own = getattr(found, "name", None)
    if own != name:
        raise ValueError(
            f"{point.value} is named {own!r}, and its entry point {name!r}"
        )
    return found


def _package(point: EntryPoint) -> str:
    if point.dist is None:
        return "a package without metadata"
    return f"package {point.dist.name} {point.dist.version}"
