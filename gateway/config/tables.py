"""Configuration of a table by rule: which events it takes, its own columns, its retention.

A rule sees the event as it came: its envelope and the JSON, not columns.  It is judged twice,
by the job (`Fields.java`) and here (`table_of`, for `gateway test`);
`tests/vectors/rules.json` holds both to one answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator

from gateway.config.columns import (
    EVENT_TIME,
    OF_PROTOCOLS,
    USUAL,
    Column,
    ColumnName,
    Default,
    disagreeing,
    keys,
    sources_of,
)
from gateway.config.fields import OneOrSeveral
from gateway.sdk.fields import Text
from gateway.sdk.section import Place, Section
from gateway.sdk.units import Time
from gateway.tables import EVENTS, QUARANTINE, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Tables by rule of one job.
MOST = 20
#: Conditions of one rule.
_MOST_CONDITIONS = 20
#: Bytes of the texts that an expression is looked for in, of a list all together: RE2 in Java
#: needs 16 µs a byte where expression and text are at their worst.
MOST_SEARCHED = 16 << 10

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
#: Folders that the lake has for something else, and what `gateway table` shows beside tables.
_TAKEN = frozenset((*Tables().all, "delta", "iceberg", "complete"))


def _table_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            "must be at most 63 lower case letters, digits and _ and begin with a letter,"
            f" not {value!r}"
        )
    if value in _TAKEN or value.endswith("_stats"):
        raise ValueError(f"{value} is something else in the lake; choose another name")
    return value


TableName = Annotated[
    str,
    PlainValidator(_table_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"}),
]


def _expression(value: object) -> str:
    """A regular expression as RE2 has them: no input makes one slow."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")  # noqa: TRY004 - pydantic's
    if "(?<" in value:
        raise ValueError(
            f"RE2 looks neither ahead nor back, and a group is named (?P<name>…): {value!r}"
        )
    import pyarrow as pa

    try:
        _found(value, "")
    except pa.ArrowInvalid as why:
        said = str(why).removeprefix("Invalid regular expression: ")
        raise ValueError(f"is no regular expression of RE2: {said}") from None
    return value


class Condition(Section):
    """A condition of a rule: one part of the event, and what it must be."""

    path: Text | None = Field(
        default=None, description="A value of the JSON: keys joined by dots"
    )
    field: Literal["protocol", "listener", "channel", "principal"] | None = Field(
        default=None, description="Or a field of the event's envelope"
    )
    attribute: Text | None = Field(
        default=None, description="Or an attribute of the event, by its name"
    )
    equals: Default | None = Field(
        default=None, description="The value, as text; of a list one of its elements"
    )
    matches: Annotated[str, PlainValidator(_expression)] | None = Field(
        default=None,
        description="Or a regular expression of RE2 that is found in it, in 16 KiB at most",
    )

    @field_validator("path")
    @classmethod
    def _some_keys(cls, path: str | None) -> str | None:
        if path is not None:
            keys(path)
        return path

    def misfits(self) -> Iterator[tuple[Place, str]]:
        for names in (("path", "field", "attribute"), ("equals", "matches")):
            if sum(getattr(self, name) is not None for name in names) != 1:
                yield (), f"needs one of {', '.join(names)}"

    @property
    def text(self) -> str | None:
        """The text that *equals* asks for: as JSON has the value."""
        if self.equals is None or isinstance(self.equals, str):
            return self.equals
        return json.dumps(self.equals)

    def holds(self, event: Mapping[str, Any], document: object) -> bool:
        """Whether it is true of an *event*, a row of the spool, with this JSON."""
        if self.path is not None:
            return self._fits(_texts(document, keys(self.path)))
        if self.field is not None:
            value = event.get(self.field)
        else:
            value = (event.get("attributes") or {}).get(self.attribute)
        return value is not None and self._fits([value])

    def _fits(self, values: list[str]) -> bool:
        """Whether one of the *values* is it; an expression is found in the first ones alone."""
        if self.matches is None:
            return self.text in values
        left = MOST_SEARCHED
        for value in values:
            left -= len(value.encode())
            if left < 0:
                return False
            if _found(self.matches, value):
                return True
        return False


class TableByRule(Section):
    """A table that takes events by a rule."""

    where: OneOrSeveral[Condition] = Field(
        description="Which events: a condition, or several that all hold"
    )
    columns: dict[ColumnName, OneOrSeveral[Column]] = Field(
        default={}, description="Columns of its own, beside those of spark.columns"
    )
    partition_by: list[Text] | None = Field(
        default=None,
        description="delta, iceberg: its partitions (null: as those of events)",
    )
    retention: Annotated[float, Time("1d", "36500d")] | None = Field(
        default=None,
        description="How long its rows stay (time, null: as long as those of events)",
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        if not self.conditions:
            yield (
                ("where",),
                "must have a condition, or the table would take everything",
            )
        if len(self.conditions) > _MOST_CONDITIONS:
            yield ("where",), f"must have at most {_MOST_CONDITIONS} conditions"

    @property
    def conditions(self) -> Sequence[Condition]:
        """The conditions of its rule, which all hold."""
        return self.where if isinstance(self.where, list) else [self.where]


def disagreeing_tables(
    tables: Mapping[str, TableByRule], columns: Mapping[str, Any]
) -> Iterator[tuple[Place, str]]:
    """Places and reasons where tables do not agree with each other or with `spark.columns`."""
    if len(tables) > MOST:
        yield (), f"must be at most {MOST} tables"
    own = {name: sources_of(given)[0].type for name, given in columns.items() if given}
    known = {**USUAL, **own}
    for table, one in tables.items():
        for name, given in one.columns.items():
            place = table, "columns", name
            if name in OF_PROTOCOLS:
                yield place, "is a column of a protocol's own; choose another name"
            if found := [*disagreeing(name, given)]:
                yield from (((*place, *at), why) for at, why in found)
                continue
            kind = sources_of(given)[0].type
            if name != EVENT_TIME and known.setdefault(name, kind) != kind:
                why = f"must be of type {known[name]}, as it is in other tables"
                yield place, why


def columns_of_all(spark: Any) -> dict[str, Any]:
    """The columns of all tables, by the section *spark*; of a name that several have, one."""
    own: dict[str, Any] = {}
    for table in spark.tables.values():
        own.update(table.columns)
    return {**own, **spark.columns}


def table_of(tables: Mapping[str, TableByRule], event: Mapping[str, Any]) -> str:
    """The table of an *event*, a row of the spool: the first whose rule is true."""
    if event["flaw"] is not None:
        return QUARANTINE
    return next(taking(tables, event), EVENTS)


def taking(
    tables: Mapping[str, TableByRule], event: Mapping[str, Any]
) -> Iterator[str]:
    """The tables whose rule is true of an *event* without a flaw."""
    document = _parsed(event)
    for name, table in tables.items():
        if all(one.holds(event, document) for one in table.conditions):
            yield name


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _parsed(event: Mapping[str, Any]) -> object:
    kind = event["content_type"] or ""
    if kind.partition(";")[0] != "application/json" and not kind.endswith("+json"):
        return None
    try:
        text = event["payload"].decode()
        found = json.loads(text, parse_int=_Number, parse_float=_Number)
    except ValueError:
        return None
    return found[0] if isinstance(found, list) and found else found


def _texts(document: object, path: tuple[str, ...]) -> list[str]:
    """The texts of a value: of a list those of its elements; an object has none."""
    for way in _ways(path):
        value = document
        for key in way:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            each = value if isinstance(value, list) else [value]
            return [
                _text(one) for one in each if not isinstance(one, dict | list | None)
            ]
    return []


def _text(value: object) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    # Half a surrogate pair has no UTF-8.
    return re.sub("[\ud800-\udfff]", "?", str(value))


@cache
def _ways(path: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Each way that dots may join the keys of a path, those with the shortest first keys first."""
    return tuple(
        (".".join(path[:first]), *rest)
        for first in range(1, len(path) + 1)
        for rest in (_ways(path[first:]) if path[first:] else ((),))
    )


def _found(expression: str, text: str) -> bool:
    """Whether RE2 finds *expression* in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.array([text]), expression)[0].as_py())
