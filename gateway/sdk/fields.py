"""The kinds of values that keys take, beyond what pydantic has.

Relative paths are below the folder of the configuration file, which validation
carries as its context: `{"folder": Path}`.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
)

from gateway.sdk.endpoint import Endpoint, parse_endpoint
from gateway.sdk.units import Number, Size, Time

__all__ = [
    "BELOW_DATA_DIR",
    "SHARED_BY_LISTENERS",
    "AdminPeer",
    "AdminPort",
    "ByteCount",
    "Count",
    "Definition",
    "FilePath",
    "Filled",
    "FolderName",
    "FolderPath",
    "Listen",
    "Name",
    "Network",
    "Seconds",
    "Secret",
    "Switch",
    "Text",
    "UrlPath",
    "WebOrigin",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_PORT = r":(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
WEB = rf"https?://(?:[^/\s?#@:\[\]]+|\[[0-9A-Za-z:.%]+\])(?:{_PORT})?"
"""A server's scheme, host and port, as a pattern."""
ORIGIN = re.compile(WEB, re.ASCII)
_WEB_ORIGIN = re.compile(rf"(?!.*\*){WEB}", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
_HOST_AND_PORT = re.compile(rf"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]){_PORT}")
_ADMIN_PORT = re.compile(rf"{WEB}/?|unix:/[!-9;-~]+")
_URL_PATH = re.compile(r"/[!->@-~]*", re.ASCII)  # no query


class Filled(str):
    """Text that came from outside the file; messages show what the file says."""

    __slots__ = ("source",)

    def __new__(cls, value: str, source: str) -> Self:
        """*source* is the text with its placeholders."""
        filled = super().__new__(cls, value)
        filled.source = source
        return filled

    source: str

    def __repr__(self) -> str:
        return self.source


def text(value: object) -> str:
    """Text without NUL, or ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")  # noqa: TRY004 - pydantic's
    if not value or "\0" in value:
        raise ValueError(f"must be text of at least one character, not {value!r}")
    return str(value)


def matching(pattern: re.Pattern[str], must: str) -> PlainValidator:
    """A validator of text that fits *pattern*; else ValueError says what it *must* be."""

    def checked(value: object) -> str:
        if pattern.fullmatch(text(value)):
            return text(value)
        raise ValueError(f"must {must}, not {value!r}")

    return PlainValidator(checked)


def _secret(value: object) -> SecretStr:
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text of at least one character, or null")
    return SecretStr(str(value))


def _folder(info: ValidationInfo) -> Path:
    return info.context["folder"] if info.context else Path()


def plain_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if _URL.match(text(value)):
        raise ValueError(f"must be a path of this machine, not a URL: {value!r}")
    return Path(text(value))


def _path(value: object, info: ValidationInfo) -> Path:
    return _folder(info) / plain_path(value)


def _file(value: object, info: ValidationInfo) -> Path:
    path = _path(value, info)
    shown = repr(value) if isinstance(value, Filled) else path
    try:
        if not path.exists():
            raise ValueError(f"no such file: {shown}")
        if not path.is_file():
            raise ValueError(f"not a file: {shown}")
        path.open("rb").close()
    except OSError as why:
        raise ValueError(f"{(why.strerror or str(why)).lower()}: {shown}") from None
    return path


def _endpoint(value: object, info: ValidationInfo) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    return parse_endpoint(value, _folder(info))


def _switch(value: object) -> bool:
    match value:
        case bool():
            return value
        case "true" | "false":
            return value == "true"
    raise ValueError(f"must be true or false, not {value!r}")


def _network(value: object) -> str:
    try:
        return str(ipaddress.ip_network(text(value)))
    except ValueError:
        raise ValueError(
            f"must be a network such as 10.0.0.0/8 or fd00::/8, not {value!r}"
        ) from None


def _definition(value: object, info: ValidationInfo) -> object:
    if value is None or isinstance(value, (list, dict)):
        return value
    if not isinstance(value, (str, Path)):
        raise ValueError(  # noqa: TRY004 - pydantic's
            f"must be a list, a mapping or the path of a JSON file, not {value!r}"
        )
    return _file(value, info)


#: Marks the fields that name a directory below `data_dir`: no two may overlap, …
BELOW_DATA_DIR = object()
#: … but listeners of one protocol may name the same one in a field with this mark as well.
SHARED_BY_LISTENERS = object()

TEXT_SCHEMA = WithJsonSchema({"type": "string", "minLength": 1})


def _admin_port(value: object) -> str:
    if isinstance(value, str) and _ADMIN_PORT.fullmatch(value):
        return value.removesuffix("/")
    raise ValueError(
        "must be like https://gw-2.example.org:8080, or unix:/run/gateway/admin.sock, "
        f"not {value!r}"
    )


AdminPort = Annotated[
    str,
    PlainValidator(_admin_port),
    WithJsonSchema({"type": "string", "pattern": r"^(https?://|unix:/|\$\{)"}),
]


def _admin_peer(value: object) -> str:
    """HOST:PORT is http://HOST:PORT, too."""
    if isinstance(value, str) and _HOST_AND_PORT.fullmatch(value):
        return f"http://{value}"
    return _admin_port(value)


AdminPeer = Annotated[
    str, PlainValidator(_admin_peer), WithJsonSchema({"type": "string"})
]

Text = Annotated[str, PlainValidator(text), TEXT_SCHEMA]
Secret = Annotated[
    SecretStr,
    PlainValidator(_secret),
    PlainSerializer(str, when_used="json"),
    TEXT_SCHEMA,
]
Switch = Annotated[bool, BeforeValidator(_switch)]
ByteCount = Annotated[int, Size()]
Seconds = Annotated[float, Time()]
Count = Annotated[int, Number()]
FilePath = Annotated[Path, PlainValidator(_file), PlainSerializer(str), TEXT_SCHEMA]
Definition = Annotated[
    list[Any] | dict[str, Any] | Path | None,
    PlainValidator(_definition),
    PlainSerializer(
        lambda value: str(value) if isinstance(value, Path) else value,
        when_used="json",
    ),
    WithJsonSchema({"type": ["array", "object", "string", "null"]}),
]
FolderPath = Annotated[Path, PlainValidator(_path), PlainSerializer(str), TEXT_SCHEMA]
FolderName = Annotated[
    Path, PlainValidator(plain_path), PlainSerializer(str), TEXT_SCHEMA, BELOW_DATA_DIR
]
Listen = Annotated[
    Endpoint,
    PlainValidator(_endpoint),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(tcp:|unix:.|systemd:.)|\$\{(env|file):"}
    ),
]
Network = Annotated[str, PlainValidator(_network), TEXT_SCHEMA]
WebOrigin = Annotated[
    str,
    matching(_WEB_ORIGIN, "be like https://app.example.org (no *)"),
    TEXT_SCHEMA,
]
UrlPath = Annotated[
    str, matching(_URL_PATH, "start with / and have no query"), TEXT_SCHEMA
]
Name = Annotated[
    str,
    matching(_NAME, "be at most 100 letters, digits, dots, dashes and _"),
    TEXT_SCHEMA,
]
