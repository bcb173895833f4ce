"""The kinds of values that only the gateway's own keys take.

`gateway.sdk.fields` has those that a protocol's options may take, too.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    Discriminator,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from gateway.config.bucket import SCHEME, BucketUrl, parse_bucket_url
from gateway.sdk.fields import (
    BELOW_DATA_DIR,
    ORIGIN,
    TEXT_SCHEMA,
    matching,
    plain_path,
    text,
)
from gateway.sink import NAMES

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?", re.ASCII)
_HUB = re.compile(r"https?://[^/\s?#@]+(?:/[^\s?#]*)?|unix:/[!-~]+", re.ASCII)
_JVM_MEMORY = re.compile(r"([1-9][0-9]{0,8})([kmgt]|[KMGT]iB)", re.ASCII)


def _spool_place(value: object) -> Path | BucketUrl:
    if isinstance(value, BucketUrl):
        return value
    if isinstance(value, str) and value.startswith(SCHEME):
        return parse_bucket_url(value)
    return plain_path(value)


def _web_server(value: object) -> str:
    if ORIGIN.fullmatch(text(value).rstrip("/")):
        return text(value).rstrip("/")
    raise ValueError(f"must be like https://s3.example.org:9000, not {value!r}")


def _hub(value: object) -> str:
    if _HUB.fullmatch(text(value)) and _port(text(value)):
        return text(value)
    raise ValueError(
        "must be like https://hub.example.org:7410, http://HOST:PORT/PATH or "
        f"unix:/run/hub.sock, not {value!r}"
    )


def _port(url: str) -> bool:
    try:
        return url.startswith("unix:") or urlsplit(url).port != 0
    except ValueError:
        return False


_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _sink(value: object) -> str:
    if value in NAMES or _FUNCTION.fullmatch(text(value)):
        return text(value)
    raise ValueError(f"must be {', '.join(NAMES)} or module:function, not {value!r}")


def default_node() -> str:
    """The host name, with everything that no node name may have made dashes."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower())
    return name[:100].strip(".-") or "gateway"


def scalar(value: object) -> bool | float | str:
    """Text, a number or a boolean as it is, or ValueError."""
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(  # noqa: TRY004 - pydantic's
            f"must be text, a number or a boolean, not {value!r}"
        )
    return value  # a `Filled` stays one: `dump` shows where it came from


def _spark_value(value: object) -> str:
    given = scalar(value)
    if isinstance(given, bool):
        return "true" if given else "false"
    return given if isinstance(given, str) else str(given)


#: Which of the two a value is meant to be, so that only what is wrong there is told.
OF_ONE, OF_SEVERAL = "<one>", "<several>"
_T = TypeVar("_T")


def _how_many(value: object) -> str:
    return OF_SEVERAL if isinstance(value, (list, tuple)) else OF_ONE


OneOrSeveral = Annotated[
    Annotated[_T, Tag(OF_ONE)] | Annotated[list[_T], Tag(OF_SEVERAL)],
    Discriminator(_how_many),
]

SCALAR_SCHEMA = WithJsonSchema({"type": ["string", "number", "boolean"]})


def _jvm_memory(value: object) -> str:
    """Java's size, `512m`, from that or from a size as other keys have it, `512MiB`."""
    if (found := _JVM_MEMORY.fullmatch(text(value))) is None:
        raise ValueError(f"must be like 512MiB, 512m or 2g, not {value!r}")
    return f"{found[1]}{found[2][0].lower()}"


SpoolPlace = Annotated[
    Path | BucketUrl,
    PlainValidator(_spool_place),
    PlainSerializer(str),
    TEXT_SCHEMA,
    BELOW_DATA_DIR,
]
HubUrl = Annotated[str, PlainValidator(_hub), TEXT_SCHEMA]
WebServer = Annotated[str, PlainValidator(_web_server), TEXT_SCHEMA]
JvmMemory = Annotated[str, PlainValidator(_jvm_memory), TEXT_SCHEMA]
SinkName = Annotated[
    str,
    PlainValidator(_sink),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^({'|'.join(NAMES)}|[\w.]+:[\w.]+)$|\$\{{"}
    ),
]
NodeName = Annotated[
    str,
    matching(
        _NODE,
        "be at most 100 lower case letters, digits, dots and dashes (it is part of file"
        " names)",
    ),
    TEXT_SCHEMA,
]
SparkValue = Annotated[str, PlainValidator(_spark_value), SCALAR_SCHEMA]
