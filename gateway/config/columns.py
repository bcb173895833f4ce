"""Configuration of the lake's columns that are taken out of an event's JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator

from gateway.config.fields import SCALAR_SCHEMA, OneOrSeveral, scalar
from gateway.sdk.fields import Name, Text
from gateway.sdk.section import Place, Section

#: Columns that every table has; the audit and the readers rely on them.
RESERVED = frozenset(
    (
        "node", "incarnation", "lsn", "received_at", "event_time_source", "listener", "session", "peer",
        "principal", "channel", "kind", "seq", "content_type", "attributes", "flaw",
        "payload", "payload_bytes", "body", "body_variant", "misfits", "place", "table",
        "protocol", "date",
    )
)  # fmt: skip

#: Of what Python knows as ISO 8601 as much as Spark knows.
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_COLUMN = re.compile(r"[a-z_][a-z0-9_]{0,99}", re.ASCII)

#: Of a path: one in quotes, which may have dots in it, or one without.
_KEY = re.compile(r'"((?:[^"\\]|\\["\\])+)"|([^".][^.]*)')

#: Of one that would lead to an element of a list.
_INDEX = re.compile(r"\[-?\d*\]$", re.ASCII)

#: A path of n keys is looked for in 2^(n-1) ways.
_MOST_KEYS = 10


def keys(path: str) -> tuple[str, ...]:
    """The keys that lead to a value: those of `labels."app.io/name"` are `labels` and
    `app.io/name`.

    In quotes a backslash stands before a quote and before a backslash.  Raises ValueError.
    """
    found: list[str] = []
    at = 0
    while at <= len(path):
        key = _KEY.match(path, at)
        if key is None or path[key.end() : key.end() + 1] not in ("", "."):
            raise ValueError(
                "must be keys joined by dots, in quotes where a key has dots in it"
                f' (labels."app.kubernetes.io/name"), not {path!r}'
            )
        quoted, plain = key.groups()
        if plain and _INDEX.search(plain):
            raise ValueError(
                f"does not lead into a list: {plain} in {path!r}. Take the list itself, as"
                " type: json or list<…>; a key that is called like that stands in quotes"
            )
        found.append(plain or re.sub(r"\\(.)", r"\1", quoted))
        at = key.end() + 1
    if len(found) > _MOST_KEYS:
        raise ValueError(
            f"has {len(found)} keys, and at most {_MOST_KEYS} are looked for in each way"
            f" that dots may join them; put keys that have dots into quotes: {path!r}"
        )
    return tuple(found)


def _column_name(value: object) -> str:
    if not isinstance(value, str) or not _COLUMN.fullmatch(value):
        raise ValueError(
            "must be at most 100 lower case letters, digits and _ and begin with no"
            f" digit, not {value!r}"
        )
    if value in RESERVED:
        raise ValueError(f"{value} is a column of the event itself; choose another")
    return value


ColumnName = Annotated[
    str,
    PlainValidator(_column_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_COLUMN.pattern}$"}),
]

_KINDS = ("string", "int", "long", "double", "boolean", "timestamp", "date", "json")
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)", re.ASCII)
_LIST = re.compile(r"list<(string|int|long|double|boolean)>", re.ASCII)


def _kind(value: object) -> str:
    if isinstance(value, str):
        if value in _KINDS or _LIST.fullmatch(value):
            return value
        if digits := _DECIMAL.fullmatch(value):
            precision, scale = map(int, digits.groups())
            if not 1 <= precision <= 38 or scale > precision:
                raise ValueError(
                    "must have 1 to 38 digits, and no more of them behind the point:"
                    f" decimal(10,2), not {value}"
                )
            return f"decimal({precision},{scale})"
    raise ValueError(
        f"must be {', '.join(_KINDS)}, decimal(10,2) or list<string> (int, long, double,"
        f" boolean), not {value!r}"
    )


Kind = Annotated[
    str,
    PlainValidator(_kind),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^({'|'.join(_KINDS)}|{_DECIMAL.pattern}|{_LIST.pattern})$",
        }
    ),
]


def names(chosen: Mapping[str, object]) -> set[str]:
    """All columns of a table, with those of `spark.columns`: *chosen*."""
    found = RESERVED - {"table", "body_variant", "place"} | {*USUAL, *OF_PROTOCOLS}
    for name, given in chosen.items():
        if given is not None or name == EVENT_TIME:
            found = found | {name}
        else:
            found = found - {name}
    return set(found)


Default = Annotated[bool | int | float | str, PlainValidator(scalar), SCALAR_SCHEMA]

EVENT_TIME = "event_time"

#: Columns that are there unless they are chosen otherwise, and their types.
USUAL: Mapping[str, Kind] = {
    EVENT_TIME: "timestamp",
    "message": "string",
    "host": "string",
    "log_file_path": "string",
    "log_offset": "long",
    "agent_id": "string",
    "event_dataset": "string",
}

#: What Beats, ECS and older shippers write.
PATHS: Mapping[str, tuple[str, ...]] = {
    EVENT_TIME: ("@timestamp",),
    "message": ("message", "event.original", "line", "msg"),
    "host": (
        *("host.name", "host.hostname", "agent.hostname", "beat.hostname", "host"),
        "agent.name",
    ),
    "log_file_path": ("log.file.path",),
    "log_offset": ("log.offset",),
    "agent_id": ("agent.id",),
    "event_dataset": ("event.dataset",),
}

#: Parts of a protocol's own address.
OF_PROTOCOLS = (
    *("scope", "stream", "segment", "event_offset"),
    *("route", "uid", "publisher"),
)

#: The least and the greatest, both included.
_WHOLE = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


class Column(Section):
    """Where a column's value is in the JSON, and what it becomes."""

    path: OneOrSeveral[Text] = Field(
        description="Keys joined by dots, or several such paths: the first found counts"
    )
    type: Kind = Field(
        default="string",
        description="Type; a value that does not fit becomes null and is counted",
    )
    default: Default | None = Field(
        default=None, description="The value where no path leads to one"
    )
    protocol: Name | None = Field(
        default=None, description="Only for events of this protocol"
    )
    listener: Name | None = Field(
        default=None, description="Only for events of this listener"
    )

    @field_validator("path")
    @classmethod
    def _some_path(cls, path: str | list[str]) -> str | list[str]:
        paths = [path] if isinstance(path, str) else path
        if not paths:
            raise ValueError("must name at least one path")
        for one in paths:
            keys(one)
        return path

    @property
    def is_for_all(self) -> bool:
        return self.protocol is None and self.listener is None

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Spark would refuse such a default in each batch, and in its own words."""
        if self.default is not None and (wanted := self._wanted(self.default)):
            yield (
                ("default",),
                f"must be {wanted} (type: {self.type}), not {self.default!r}",
            )

    def _wanted(self, default: object) -> str | None:
        """The rule that a default breaks, if any."""
        match self.type:
            case "int" | "long":
                first, last = _WHOLE[self.type]
                if type(default) is not int or not first <= default <= last:
                    return f"a whole number from {first} to {last}"
            case "double":
                if not _is_number(default, Decimal(sys.float_info.max)):
                    return f"a number up to {sys.float_info.max:.2}"
            case "string" | "json":
                if isinstance(default, float):
                    return "text in quotes, or its digits are not kept"
            case "boolean":
                if type(default) is not bool:
                    return "true or false"
            case "timestamp":
                if not _reads(default, _INSTANT, datetime.fromisoformat):
                    return "an instant like 2026-03-01T12:00:00Z"
            case "date":
                if not _reads(default, _DAY, date.fromisoformat):
                    return "a day like 2026-03-01"
        if digits := _DECIMAL.fullmatch(self.type):
            precision, scale = map(int, digits.groups())
            greatest = f"{'9' * (precision - scale) or '0'}.{'9' * scale}"
            if not _is_number(default, Decimal(greatest)):
                return f"a number up to {greatest.rstrip('.')}"
        if self.type.startswith("list"):
            return "left out"
        return None


def sources_of(given: Column | list[Column]) -> list[Column]:
    """The sources of a column, of which there may be one."""
    return given if isinstance(given, list) else [given]


def disagreeing(name: str, given: Column | list[Column]) -> Iterator[tuple[Place, str]]:
    """Places and reasons where the sources of a column do not agree."""
    listed = isinstance(given, list)
    sources = sources_of(given)
    if not sources:
        yield (), "must name at least one source, or be null"
        return
    if name == EVENT_TIME:  # always an instant
        return
    wanted, why = sources[0].type, "as in the first source: a column has one type"
    if name in USUAL and not any(one.is_for_all for one in sources):
        wanted, why = (
            USUAL[name],
            "as it is for all other events: a column has one type",
        )
    for number, source in enumerate(sources):
        place = (number,) if listed else ()
        if source.type != wanted:
            yield (*place, "type"), f"must be {wanted} {why}"
        if any(one.is_for_all for one in sources[:number]):
            yield (
                place,
                "is never looked at: one before it is for all events; put that last",
            )


def _is_number(default: object, greatest: Decimal) -> bool:
    if type(default) not in (int, float):
        return False
    number = Decimal(str(default))
    return number.is_finite() and number.copy_abs() <= greatest


def _reads(
    default: object, form: re.Pattern[str], read: Callable[[str], object]
) -> bool:
    """Whether it is text of that *form*, which Python can *read*."""
    if not (isinstance(default, str) and form.fullmatch(default)):
        return False
    try:
        read(default)
    except ValueError:
        return False
    return True
