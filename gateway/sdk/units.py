"""Sizes, times and numbers as people write them in a configuration file.

Every one of them may be text, because `${env:NAME}` always yields text:
`roll_events: ${env:ROLL}` is as good as `roll_events: 1000`.

    size    64MiB  100MB  1.5GiB  512B  65536       -> bytes (int)
    time    200us  200ms  5s  15m  1.5h  24h  30d   -> seconds (float)
    number  4096                                    -> int

A bare number is a size in bytes, but no time: its unit would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

__all__ = [
    "PLACEHOLDER_PATTERN",
    "Number",
    "Quantity",
    "Size",
    "Time",
    "format_size",
    "format_time",
    "parse_number",
    "parse_size",
    "parse_time",
]

#: What a text must contain to be accepted by the JSON Schema in place of a value.
PLACEHOLDER_PATTERN = r"\$\{(env|file):"

_SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_TIME_UNITS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,6})?"
_SIZE = re.compile(rf"({_NUMBER}) ?({'|'.join(_SIZE_UNITS)})?", re.ASCII)
_TIME = re.compile(rf"({_NUMBER}) ?({'|'.join(_TIME_UNITS)})", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def parse_size(value: object) -> int:
    """Bytes.  ValueError says what a size looks like."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match:
        size = Decimal(match[1]) * _SIZE_UNITS[match[2] or "B"]
        if size == int(size):
            return int(size)
    raise ValueError(
        f"must be a size such as 64MiB, 100MB or 65536 (bytes), not {_shown(value)}"
    )


def parse_time(value: object) -> float:
    """Seconds.  ValueError says what a time looks like."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(Decimal(match[1]) * _TIME_UNITS[match[2]] / 10**6)
    raise ValueError(
        "must be a time with its unit, such as 200ms, 5s, 15m, 1h or 30d, "
        f"not {_shown(value)}"
    )


def parse_number(value: object) -> int:
    """A whole number.  ValueError if it is anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise ValueError(f"must be a whole number, not {_shown(value)}")


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back as the same size."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return str(size)


def format_time(seconds: float) -> str:
    """The text that `parse_time` reads back as the same time, to the microsecond."""
    micros = round(seconds * 10**6)
    for unit in ("d", "h", "m", "s", "ms"):
        if micros and micros % _TIME_UNITS[unit] == 0:
            return f"{micros // _TIME_UNITS[unit]}{unit}"
    return f"{micros}us" if micros else "0s"


def _text_schema(pattern: str) -> JsonSchemaValue:
    return {"type": "string", "pattern": f"^{pattern}$|{PLACEHOLDER_PATTERN}"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a number between two bounds; one with a unit people write as text."""

    unit: str
    read: Callable[[object], Any]
    write: Callable[[Any], str | int]
    schema: JsonSchemaValue = field(hash=False)
    low: str | int
    high: str | int

    def parse(self, value: object) -> Any:
        """The value in its unit within the bounds, or ValueError."""
        number = self.read(value)
        if self.read(self.low) <= number <= self.read(self.high):
            return number
        raise ValueError(
            f"must be between {self.low} and {self.high}, not {self.write(number)}"
        )

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        text = core_schema.plain_serializer_function_ser_schema(
            self.write, when_used="json"
        )
        return core_schema.no_info_plain_validator_function(
            self.parse, serialization=text
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        unit = {"unit": self.unit} if self.unit else {}
        return {**unit, **self.schema}


def Size(low: str = "1B", high: str = "1024TiB") -> Quantity:
    """Marks an int of bytes, between these bounds."""
    texts = _text_schema(_SIZE.pattern)
    schema = {"anyOf": [{"type": "integer", "minimum": 0}, texts]}
    return Quantity("size", parse_size, format_size, schema, low, high)


def Time(low: str = "1ms", high: str = "3650d") -> Quantity:
    """Marks a float of seconds, between these bounds."""
    schema = _text_schema(_TIME.pattern)
    return Quantity("time", parse_time, format_time, schema, low, high)


def Number(low: int = 1, high: int = 2**31) -> Quantity:
    """Marks a whole number, between these bounds."""
    number = {"type": "integer", "minimum": low, "maximum": high}
    schema = {"anyOf": [number, _text_schema("-?[0-9]+")]}
    return Quantity("", parse_number, int, schema, low, high)
