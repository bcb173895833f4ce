"""Configuration of the lake's columns that are taken out of an event's JSON."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator

from gateway.config.fields import Name, Text
from gateway.config.section import Section

__all__ = ["RESERVED", "Column", "ColumnName"]

#: Columns that every table has; the audit and the readers rely on them.
RESERVED = frozenset(
    [
        "node",
        "lsn",
        "received_at",
        "event_time_source",
        "listener",
        "session",
        "peer",
        "principal",
        "channel",
        "kind",
        "seq",
        "content_type",
        "attributes",
        "flaw",
        "payload",
        "payload_bytes",
        "body",
        "body_variant",
        "misfits",
        "place",
        "table",
        "protocol",
        "date",
    ]
)

_COLUMN = re.compile(r"[a-z_][a-z0-9_]{0,99}", re.ASCII)


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

Kind = Literal["string", "int", "long", "double", "boolean", "timestamp", "json"]


class Column(Section):
    """Where a column's value is in the JSON, and what it becomes."""

    path: Text | list[Text] = Field(
        description="Keys joined by dots, or several such paths: the first found counts"
    )
    type: Kind = Field(
        default="string",
        description="Type; a value that does not fit becomes null and is counted",
    )
    default: bool | int | float | str | None = Field(
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
            if not all(one.split(".")):
                raise ValueError(f"must be keys joined by dots, not {one!r}")
        return path
