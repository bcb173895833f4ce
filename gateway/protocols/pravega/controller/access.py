"""Permissions: the rules of `options.access`, and a count of what was denied.

    access absent    all who are let in may do everything
    access: [...]    nothing is allowed but what a rule says

A rule names principals and, for each permission, patterns of `scope/stream`.  `wire` and its
like say what a wire command needs, `call_permissions` what a call of the controller needs.
A reload changes the rules for connections that are open, too.

No I/O but the log, no clock.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from twisted.logger import Logger

from gateway.protocols.pravega.controller.names import (
    MARK,
    OF_CLIENTS,
    READER_GROUP,
    TABLE,
)
from gateway.protocols.pravega.errors import NAME_IN_LOGS, Denied, Need
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from pydantic import SecretStr

    from gateway.protocols.pravega.options import Rule

_KEY = "options.access"
_SEGMENT_PARTS = 3
_MOST_KNOWN, _MOST_KNOWN_CHARACTERS = 10_000, 600
"""The most decisions that are remembered, and the most characters of the names in one.

A scope's or a stream's name has 255 at most, while a client may ask for one of a MiB."""
_MOST_PRINCIPALS = 1000
"""The most principals whose rights are remembered."""
_MOST_TOLD_OF, _MOST_TOLD = 1000, 100
"""Principals whose denials the log has, and how many of each, until the rules change."""


_GROUPS = "groups"
_LISTS: dict[Need, tuple[str, ...]] = {
    Need.READ: ("read",),
    Need.WRITE: ("write",),
    Need.MANAGE: ("manage",),
    Need.ANY: ("read", "write", "manage"),
    Need.USE: ("read", "write", "manage", _GROUPS),
}
"""The keys of a rule of which one must name the stream."""


class Kind(Enum):
    """Kinds of resources; the value names it in a sentence."""

    SCOPE = "the scope"
    """A scope with all that is in it: `scope/*`."""
    STREAM = ""
    """Or a key-value table, by its own name."""
    GROUP = "the reader group"
    """A reader group of Java's client: its stream `_RG…`."""
    TABLE = "the table"
    """A key-value table, or a reader group of Rust's client and Python's, by the name of its
    segments, which tells them not apart."""
    NONE = "the segment"
    """A segment of no stream: no rule can name it."""


class Resource(NamedTuple):
    """A resource that a client wants to use; the name is empty for a scope."""

    kind: Kind
    scope: str
    name: str = ""

    def __str__(self) -> str:
        path = f"{self.scope}/{self.name}" if self.name else self.scope
        return f"{self.kind.value} {path[:NAME_IN_LOGS]!r}".strip()


def of_stream(scope: str, name: str) -> Resource:
    if name.startswith(READER_GROUP):
        return Resource(Kind.GROUP, scope, name.removeprefix(READER_GROUP))
    if name.startswith(MARK):  # the watermarks of a stream belong to it
        return Resource(Kind.STREAM, scope, name.removeprefix(MARK))
    if name.endswith(TABLE):
        return Resource(Kind.TABLE, scope, name.removesuffix(TABLE))
    return Resource(Kind.STREAM, scope, name)


def of_segment(name: str) -> Resource:
    """The resource of a segment's stream, which has transactions, too."""
    parts = name.split("/")
    if len(parts) != _SEGMENT_PARTS:
        return Resource(Kind.NONE, name)
    return of_stream(parts[0], parts[1])


class _Pattern:
    """`scope/stream`, of which each part may have stars."""

    __slots__ = ("_name", "_scope", "has_star", "name")

    def __init__(self, text: str) -> None:
        scope, _, self.name = text.partition("/")
        self._scope = re.compile(_expression(scope, "[^/]*"))
        self._name = re.compile(self.expression, re.DOTALL)
        self.has_star = "*" in self.name

    @property
    def expression(self) -> str:
        return _expression(self.name, "[^/]*")

    def in_scope(self, scope: str) -> bool:
        return self._scope.fullmatch(scope) is not None

    def matches(self, scope: str, name: str) -> bool:
        return self.in_scope(scope) and self._name.fullmatch(name) is not None


class _Compiled:
    def __init__(self, rule: Rule) -> None:
        self._who = [
            re.compile(_expression(one, ".*"), re.DOTALL) for one in rule.principals
        ]
        self.lists = {
            "read": [_Pattern(one) for one in rule.read],
            "write": [_Pattern(one) for one in rule.write],
            "manage": [_Pattern(one) for one in rule.manage],
            _GROUPS: [_Pattern(one) for one in rule.groups],
        }

    def names(self, who: str) -> bool:
        """Whether *who* is one of its principals."""
        return any(one.fullmatch(who) for one in self._who)


class Rights:
    """The rights of one principal, by all rules that name it."""

    def __init__(self, rules: Iterable[_Compiled] | None = None) -> None:
        """None: everything."""
        self._all = rules is None
        self._lists: defaultdict[str, list[_Pattern]] = defaultdict(list)
        for rule in rules or ():
            for key, patterns in rule.lists.items():
                self._lists[key] += patterns

    def allows(self, need: Need, what: Resource) -> bool:
        if self._all:
            return True
        lists = _LISTS[need]
        match what.kind:
            case Kind.NONE:
                return False
            case Kind.SCOPE if need is Need.MANAGE:
                manage = self._lists["manage"]
                return any(
                    one.name == "*" and one.in_scope(what.scope) for one in manage
                )
            case Kind.SCOPE:
                every = (one for each in self._lists.values() for one in each)
                return any(one.in_scope(what.scope) for one in every)
            case Kind.GROUP:
                lists = (_GROUPS,)
            case Kind.TABLE:
                lists = (*lists, _GROUPS)
        return any(
            one.matches(what.scope, what.name)
            for key in lists
            for one in self._lists[key]
        )

    def streams(self, scope: str) -> Callable[[str], bool]:
        """Whether it is told of a stream of a scope, by its name: as `allows(Need.ANY, …)`
        says, in less time where there are thousands.
        """
        if self._all:
            return lambda _: True
        patterns = [
            one
            for key in _LISTS[Need.ANY]
            for one in self._lists[key]
            if one.in_scope(scope)
        ]
        names = {one.name for one in patterns if not one.has_star}
        stars = {one.expression: None for one in patterns if one.has_star}
        matches = re.compile("|".join(stars) or "(?!)", re.DOTALL).fullmatch

        def seen(name: str) -> bool:
            if name.startswith(OF_CLIENTS) or name.endswith(TABLE):
                return self.allows(Need.ANY, of_stream(scope, name))
            return name in names or matches(name) is not None

        return seen


class Access:
    """The rules in force, for controller and segment store."""

    _log = Logger()

    def __init__(self, rules: Iterable[Rule] | None = None) -> None:
        """*rules* as in `configure`."""
        self._given: list[Rule] | None = None
        self._rules: list[_Compiled] | None = None
        self._told: dict[str, set[str]] = {}
        self.denied = dict.fromkeys([*(need.value for need in Need), _GROUPS], 0)
        """How many commands and calls were denied, by what they asked for."""
        self.configure(rules)

    @property
    def ruled(self) -> bool:
        """There are rules: nothing is allowed but what one of them says."""
        return self._rules is not None

    def configure(self, rules: Iterable[Rule] | None) -> bool:
        """Go by these from now on; None: everything is allowed.

        False: they are those that were in force.
        """
        given = None if rules is None else list(rules)
        if given == self._given:
            return False
        self._given = given
        self._rules = None if given is None else [_Compiled(one) for one in given]
        self._rights = lru_cache(_MOST_PRINCIPALS)(self._rights_of)
        self._known = lru_cache(_MOST_KNOWN)(self._decided)
        self._told.clear()
        return True

    def rights(self, who: str) -> Rights:
        """The rights of a principal; one without a name (empty) has none."""
        return Rights() if self._rules is None else self._rights(who)

    def _rights_of(self, who: str) -> Rights:
        rules = self._rules if who else None
        return Rights([rule for rule in rules or () if rule.names(who)])

    def allows(self, who: str, need: Need, what: Resource) -> bool:
        if self._rules is None:
            return True
        short = len(what.scope) + len(what.name) <= _MOST_KNOWN_CHARACTERS
        return (self._known if short else self._decided)(who, need, what)

    def _decided(self, who: str, need: Need, what: Resource) -> bool:
        return self._rights(who).allows(need, what)

    def denial(self, who: str, need: Need, what: Resource) -> Denied | None:
        """Count that it is denied, and say why; None: it is allowed."""
        if self.allows(who, need, what):
            return None
        of_group = what.kind is Kind.GROUP
        self.denied[_GROUPS if of_group else need.value] += 1
        name = repr(who[:NAME_IN_LOGS]) if who else "a client without a name"
        verb = (Need.USE if of_group else need).value
        why = Refusal(f"{name} may not {verb} {what}", key=_KEY)
        self._tell(who, str(why))
        return Denied(why)

    def _tell(self, who: str, why: str) -> None:
        """Log it, once: who asks for a thousand names is told of a hundred times."""
        if len(self._told) >= _MOST_TOLD_OF and who not in self._told:
            return
        told = self._told.setdefault(who, set())
        if why not in told and len(told) < _MOST_TOLD:
            told.add(why)
            self._log.warn("Denied: {why}", why=why)


def _expression(pattern: str, star: str) -> str:
    """The regular expression of a pattern.

    Text between two stars is taken where it is first, and nowhere else is tried: names are
    the client's choice, and must not cost more than their length.
    """
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    *between, last = rest
    found = "".join(f"(?>{star}?{each})" for each in between)
    return f"{first}{found}{star}{last}"


def in_sentences(rules: Sequence[Rule] | None) -> list[str]:
    """The rules in sentences, for `gateway check`."""
    if rules is None:
        return []
    told = []
    for rule in rules:
        rights = [
            f"{verb} {_joined(patterns)}"
            for verb, patterns in (
                ("read", rule.read),
                ("write", rule.write),
                ("manage", rule.manage),
                ("use the reader groups", rule.groups),
            )
            if patterns
        ]
        told.append(f"{_joined(rule.principals)} may {_joined(rights)}")
    return [*told, "nobody may do anything else"]


def _joined(words: Sequence[str]) -> str:
    *some, end = words
    return f"{', '.join(some)} and {end}" if some else end


class Credentials:
    """The callers that are known."""

    def __init__(
        self, users: Mapping[str, SecretStr], tokens: Mapping[str, SecretStr]
    ) -> None:
        """*users* are passwords by name, *tokens* bearer tokens by name; without both, no
        credentials are required.
        """
        self._users = {name.encode(): _bytes(word) for name, word in users.items()}
        self._tokens = {_bytes(token): name for name, token in tokens.items()}

    @property
    def required(self) -> bool:
        return bool(self._users or self._tokens)

    def name(self, authorization: str) -> str | None:
        """The name that the header authenticates; None if it is missing or wrong."""
        scheme, _, rest = authorization.strip().partition(" ")
        match scheme.lower():
            case "basic":
                return self._basic(rest.strip())
            case "bearer":
                return self._bearer(rest.strip().encode(errors="replace"))
        return None

    def _basic(self, encoded: str) -> str | None:
        try:
            name, _, password = b64decode(encoded, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return None
        known = self._users.get(name)
        # Compare for unknown names too: it must take as long.
        same = hmac.compare_digest(password, known or b"")
        return name.decode() if same and known else None

    def _bearer(self, token: bytes) -> str | None:
        found = None
        for known, name in self._tokens.items():
            if hmac.compare_digest(known, token):
                found = name
        return found


def _bytes(secret: SecretStr) -> bytes:
    return secret.get_secret_value().encode()
