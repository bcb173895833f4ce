"""Reloads: which keys of a changed configuration take effect, and which need a restart.

Each key says it itself (`Section.reload`, `Section.reloads`), and docs/reload.md is made
of that: `python -m gateway.config.reload` prints its table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, get_origin

from gateway import plugins
from gateway.config.explain import sections_in
from gateway.config.listener import Listener, options_of_all
from gateway.config.model import Config
from gateway.sdk.section import AT_ONCE, Reload, Section, restart

_UNSAID = restart("its protocol does not say that it may change")
_REMEMBERED = "what its protocol remembers is read when the daemon starts"


@dataclass
class Plan:
    """The difference of two configurations."""

    effective: Config
    """The configuration after the reload: the new one, but for what needs a restart."""
    changed: list[str] = field(default_factory=list)
    """Keys that take effect: `spool.retention`, `listeners: beats.limits.idle`."""
    restart: list[str] = field(default_factory=list)
    """Keys that do not: `node: needs a restart, because …`."""
    job: list[str] = field(default_factory=list)
    """Keys that only the Spark job reads, when it starts again."""


def plan(
    running: Config, wanted: Config, served: Mapping[str, Sequence[Listener]]
) -> Plan:
    """Plan the change from *running* to *wanted*.

    *served* has, by protocol, the listeners that its service began with; a protocol that is
    not in it does not run yet.
    """
    found = Plan(wanted)
    merged = _merge(running, wanted, "", AT_ONCE, found)
    listeners = list(_listeners(running, wanted, served, found))
    found.effective = merged.model_copy(update={"listeners": listeners})
    return found


def _merge(
    running: Section, wanted: Section, at: str, around: Reload, found: Plan
) -> Any:
    """*wanted*, with the values of *running* where those stay."""
    rule = type(wanted).reload or around
    stay: dict[str, Any] = {}
    for key in type(wanted).model_fields:
        before, after = getattr(running, key), getattr(wanted, key)
        if before == after or (key == "listeners" and not at):
            continue
        own = type(wanted).reloads.get(key)
        if own is None and isinstance(after, Section) and type(after) is type(before):
            of_options = type(wanted) is Listener and key == "options"
            inner = _UNSAID if of_options else rule
            stay[key] = _merge(before, after, f"{at}{key}.", inner, found)
            continue
        if not _note(f"{at}{key}", own or rule, found):
            stay[key] = before
    return wanted.model_copy(update=stay) if stay else wanted


def _note(key: str, rule: Reload, found: Plan) -> bool:
    """Whether the change of *key* takes effect."""
    if rule.when == "restart":
        found.restart.append(f"{key}: needs a restart, because {rule.why}")
    elif rule.when == "job":
        found.job.append(key)
    else:
        found.changed.append(key)
    return rule.when != "restart"


def _listeners(
    running: Config,
    wanted: Config,
    served: Mapping[str, Sequence[Listener]],
    found: Plan,
) -> Iterator[Listener]:
    """The listeners after the reload.  Two are the same if name and protocol are.

    Where a new one has to wait for a restart, the one whose place it would take stays.
    """
    before = {(one.name, one.protocol): one for one in running.listeners}
    for one in wanted.listeners:
        at = f"listeners: {one.name}"
        old = before.pop((one.name, one.protocol), None)
        if old is not None:
            yield _merge(old, one, f"{at}.", AT_ONCE, found)
        elif why := _why_not(one, served):
            found.restart.append(f"{at}{why}")
            if (place := _place_of(one, before.values(), wanted)) is not None:
                yield before.pop((place.name, place.protocol))
        else:
            found.changed.append(f"{at} is new")
            yield one
    found.changed += [f"listeners: {name} is gone" for name, _ in before]


def _place_of(
    one: Listener, running: Iterable[Listener], wanted: Config
) -> Listener | None:
    """The listener that goes, and whose name or endpoint *one* takes."""
    stay = {(each.name, each.protocol) for each in wanted.listeners}
    gone = [each for each in running if (each.name, each.protocol) not in stay]
    for each in gone:
        if each.name == one.name:
            return each
    return next((each for each in gone if each.listen == one.listen), None)


def _why_not(one: Listener, served: Mapping[str, Sequence[Listener]]) -> str | None:
    """Why a new listener can not be opened before a restart."""
    if one.protocol not in served:
        remembers = plugins.installed().protocols[one.protocol].remembers
        return f": needs a restart, because {_REMEMBERED}" if remembers else None
    kind = type(one.options)
    for key, about in kind.model_fields.items():
        rule = kind.reloads.get(key, kind.reload or _UNSAID)
        known = [getattr(each.options, key) for each in served[one.protocol]]
        known.append(about.get_default(call_default_factory=False))
        if rule.when == "restart" and getattr(one.options, key) not in known:
            return f".options.{key}: needs a restart, because {rule.why}"
    return None


# -- for docs/reload.md -------------------------------------------------------


def rules() -> Iterator[tuple[str, Reload]]:
    """Every key, options of the gateway's own protocols included."""
    yield from _rules(Config, "", AT_ONCE)
    for name, kind in options_of_all():
        if kind.__module__.startswith("gateway.protocols."):
            yield from _rules(kind, f"{name}: options.", _UNSAID)


def _rules(
    kind: type[Section], at: str, around: Reload
) -> Iterator[tuple[str, Reload]]:
    rule = kind.reload or around
    for key, about in kind.model_fields.items():
        if at == "listeners[]." and key == "options":
            continue
        own = kind.reloads.get(key)
        if own is None and (inner := sections_in(about.annotation)):
            each = "[]" if get_origin(about.annotation) is list else ""
            yield from _rules(inner[0], f"{at}{key}{each}.", rule)
        else:
            yield f"{at}{key}", own or rule


def table() -> str:
    """Markdown: what a reload does with each key.

    What most keys of a section have in common is one row, so that one more needs none.
    """
    lines = ["| key | reload |", "|---|---|"]
    for key, rule, but in _rows(list(rules()), 0):
        when = {"job": "restart of the Spark job"}.get(rule.when, rule.when)
        why = f": {rule.why}" if rule.why else ""
        lines.append(f"| `{key}`{but} | {when}{why} |")
    return "\n".join(lines) + "\n"


def _rows(
    found: list[tuple[str, Reload]], depth: int
) -> Iterator[tuple[str, Reload, str]]:
    """Rows of keys that have the first *depth* names in common."""
    own = [rule for key, rule in found if key.count(".") == depth]
    usual = Counter(own or (rule for _, rule in found)).most_common(1)[0][0]
    if depth:
        section = ".".join(found[0][0].split(".")[:depth])
        alike = all(rule == usual for _, rule in found)
        yield f"{section}.*", usual, "" if alike else ", but for what follows"
    for _, group in groupby(found, lambda row: row[0].split(".")[: depth + 1]):
        match list(group):
            case [(key, rule)]:
                if not depth or rule != usual:
                    yield key, rule, ""
            case rows:
                if not depth or any(rule != usual for _, rule in rows):
                    yield from _rows(rows, depth + 1)


if __name__ == "__main__":
    sys.stdout.write(table())
