"""The kinds of values that keys take, beyond what pydantic has.

Relative paths are below the folder of the configuration file, which validation
carries as its context: `{"folder": Path}`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)

from gateway.config.bucket import SCHEME, BucketUrl, parse_bucket_url
from gateway.config.endpoint import Endpoint, parse_endpoint
from gateway.config.reader import Filled
from gateway.config.units import Number, Size, Time

__all__ = [
    "BELOW_DATA_DIR",
    "OF_ONE",
    "OF_SEVERAL",
    "SHARED_BY_LISTENERS",
    "ByteCount",
    "Count",
    "Definition",
    "FilePath",
    "FolderName",
    "FolderPath",
    "JvmMemory",
    "Listen",
    "Name",
    "Network",
    "NodeName",
    "OneOrSeveral",
    "Seconds",
    "Secret",
    "SinkName",
    "SparkValue",
    "SpoolPlace",
    "Switch",
    "Text",
    "UrlPath",
    "WebOrigin",
    "WebServer",
    "default_node",
]

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_JVM_MEMORY = re.compile(r"[1-9][0-9]{0,8}[kmgt]", re.ASCII)
_ORIGIN = re.compile(r"https?://[^/\s?#@]+", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
_URL_PATH = re.compile(r"/[!-~]*", re.ASCII)


def _text(value: object) -> str:
    """Text without NUL, or ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")  # noqa: TRY004 - pydantic's
    if not value or "\0" in value:
        raise ValueError(f"must be text of at least one character, not {value!r}")
    return str(value)


def _secret(value: object) -> SecretStr:
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text of at least one character, or null")
    return SecretStr(str(value))


def _folder(info: ValidationInfo) -> Path:
    return info.context["folder"] if info.context else Path()


def _plain_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if _URL.match(_text(value)):
        raise ValueError(f"must be a path of this machine, not a URL: {value!r}")
    return Path(_text(value))


def _spool_place(value: object) -> Path | BucketUrl:
    if isinstance(value, BucketUrl):
        return value
    if isinstance(value, str) and value.startswith(SCHEME):
        return parse_bucket_url(value)
    return _plain_path(value)


def _path(value: object, info: ValidationInfo) -> Path:
    return _folder(info) / _plain_path(value)


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
        return str(ipaddress.ip_network(_text(value)))
    except ValueError:
        raise ValueError(
            f"must be a network such as 10.0.0.0/8 or fd00::/8, not {value!r}"
        ) from None


def _origin(value: object) -> str:
    if _ORIGIN.fullmatch(_text(value)):
        return _text(value)
    raise ValueError(f"must be like https://app.example.org, not {value!r}")


def _web_server(value: object) -> str:
    if _ORIGIN.fullmatch(_text(value).rstrip("/")):
        return _text(value).rstrip("/")
    raise ValueError(f"must be like https://s3.example.org:9000, not {value!r}")


def _url_path(value: object) -> str:
    if _URL_PATH.fullmatch(_text(value)) and "?" not in _text(value):
        return _text(value)
    raise ValueError(f"must start with / and have no query, not {value!r}")


def _node(value: object) -> str:
    if _NODE.fullmatch(_text(value)):
        return _text(value)
    raise ValueError(
        "must be at most 100 lower case letters, digits, dots and dashes "
        f"(it is part of file names), not {value!r}"
    )


def _name(value: object) -> str:
    if _NAME.fullmatch(_text(value)):
        return _text(value)
    raise ValueError(
        f"must be at most 100 letters, digits, dots, dashes and _, not {value!r}"
    )


def _jvm_memory(value: object) -> str:
    if _JVM_MEMORY.fullmatch(_text(value)):
        return _text(value)
    raise ValueError(f"must be like 512m or 2g, not {value!r}")


#: The kinds of tables that the Spark job makes by itself.
SINKS = ("parquet", "delta", "iceberg")

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _sink(value: object) -> str:
    if value in SINKS or _FUNCTION.fullmatch(_text(value)):
        return _text(value)
    raise ValueError(f"must be {', '.join(SINKS)} or module:function, not {value!r}")


def default_node() -> str:
    """The host name, with everything that no node name may have made dashes."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower())
    return name[:100].strip(".-") or "gateway"


def _spark_value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 - pydantic's
            f"must be text, a number or a boolean, not {value!r}"
        )
    return value  # a `Filled` stays one: `dump` shows where it came from


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

#: Which of the two a value is meant to be, so that only what is wrong there is told.
OF_ONE, OF_SEVERAL = "<one>", "<several>"
_T = TypeVar("_T")


def _how_many(value: object) -> str:
    return OF_SEVERAL if isinstance(value, (list, tuple)) else OF_ONE


OneOrSeveral = Annotated[
    Annotated[_T, Tag(OF_ONE)] | Annotated[list[_T], Tag(OF_SEVERAL)],
    Discriminator(_how_many),
]

_TEXT = WithJsonSchema({"type": "string", "minLength": 1})
_SCALAR = WithJsonSchema({"type": ["string", "number", "boolean"]})

Text = Annotated[str, PlainValidator(_text), _TEXT]
Secret = Annotated[
    SecretStr, PlainValidator(_secret), PlainSerializer(str, when_used="json"), _TEXT
]
Switch = Annotated[bool, BeforeValidator(_switch)]
ByteCount = Annotated[int, Size()]
Seconds = Annotated[float, Time()]
Count = Annotated[int, Number()]
FilePath = Annotated[Path, PlainValidator(_file), PlainSerializer(str), _TEXT]
Definition = Annotated[
    list[Any] | dict[str, Any] | Path | None,
    PlainValidator(_definition),
    PlainSerializer(
        lambda value: str(value) if isinstance(value, Path) else value,
        when_used="json",
    ),
    WithJsonSchema({"type": ["array", "object", "string", "null"]}),
]
FolderPath = Annotated[Path, PlainValidator(_path), PlainSerializer(str), _TEXT]
FolderName = Annotated[
    Path, PlainValidator(_plain_path), PlainSerializer(str), _TEXT, BELOW_DATA_DIR
]
SpoolPlace = Annotated[
    Path | BucketUrl,
    PlainValidator(_spool_place),
    PlainSerializer(str),
    _TEXT,
    BELOW_DATA_DIR,
]
Listen = Annotated[
    Endpoint,
    PlainValidator(_endpoint),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(tcp:|unix:.|systemd:.)|\$\{(env|file):"}
    ),
]
Network = Annotated[str, PlainValidator(_network), _TEXT]
WebOrigin = Annotated[str, PlainValidator(_origin), _TEXT]
WebServer = Annotated[str, PlainValidator(_web_server), _TEXT]
UrlPath = Annotated[str, PlainValidator(_url_path), _TEXT]
Name = Annotated[str, PlainValidator(_name), _TEXT]
JvmMemory = Annotated[str, PlainValidator(_jvm_memory), _TEXT]
SinkName = Annotated[
    str,
    PlainValidator(_sink),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^({'|'.join(SINKS)}|[\w.]+:[\w.]+)$|\$\{{"}
    ),
]
NodeName = Annotated[str, PlainValidator(_node), _TEXT]
SparkValue = Annotated[str, PlainValidator(_spark_value), _SCALAR]
