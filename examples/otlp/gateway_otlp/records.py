"""Log records to events, JSON objects each, and the bodies of stored batches.

    @timestamp  host  message  severity  service  trace_id  span_id  event_name
    attributes  resource  scope  body

An event has its resource and scope in it, as a request may have several of both: a reader
of the table needs no other row.  Keys without a value are left out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from isal import isal_zlib

from gateway.event import Rows

__all__ = [
    "FORMS",
    "JSON",
    "PROTOBUF",
    "Raw",
    "decode",
    "pack",
    "raw_json",
    "raw_protobuf",
]

JSON, PROTOBUF = "application/json", "application/x-protobuf"
FORMS = (JSON, PROTOBUF)
FORMAT = 1
_WBITS = {"gzip": 31, "deflate": 15}
MOST = 1 << 16
"""Log records of a request, so that a turn of the event loop is short."""
_MOST_COMMAS = 1 << 18
"""Commas of a JSON request, which is parsed in one piece: the slowest has most of them."""
_OVERHEAD = 64
"""Bytes that an event has beside what it says: names of keys."""
_DEPTH = 100
"""Depth of values in one another, as in protobuf's parsers."""


class Raw(NamedTuple):
    """A log record, not parsed, with what it is of."""

    resource: bytes
    scope: bytes
    record: bytes

    @property
    def size(self) -> int:
        """The bytes of its event, about."""
        return len(self.resource) + len(self.scope) + len(self.record) + _OVERHEAD


def pack(form: str, coding: str, sent: bytes) -> bytes:
    """A batch's body: a request's, as it came."""
    return msgspec.msgpack.encode((FORMAT, FORMS.index(form), coding, sent))


def decode(body: bytes) -> Rows:
    """The events of a batch.  Total on every body that a `Session` made."""
    form, kind, coding, data = msgspec.msgpack.decode(body)
    if form != FORMAT:
        raise ValueError(f"otlp batch of unknown format {form}")
    if coding and data:
        data = isal_zlib.decompress(data, wbits=_WBITS[coding])
    raw, parse = _OF[FORMS[kind]]
    rows = Rows([])
    known: dict[Any, _Shared] = {}
    encode = msgspec.json.Encoder().encode
    for row, one in enumerate(filter(None, raw(data))):
        record = one.record
        try:
            event = parse(*one, known)
            payload = encode(event)
            channel = event.service
        except (ValueError, TypeError, RecursionError, OverflowError):
            payload, channel = record, None
            rows.flaws[row] = "no-log-record"
            rows.content_types[row] = "application/octet-stream"
        if isinstance(channel, str):
            rows.channels[row] = channel
        rows.payloads.append(payload)
    return rows


# JSON


class _Scopes(msgspec.Struct, rename="camel", gc=False):
    scope: msgspec.Raw = msgspec.Raw(b"{}")
    log_records: list[msgspec.Raw] | None = None


class _Resources(msgspec.Struct, rename="camel", gc=False):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_logs: list[_Scopes] | None = None


class _Request(msgspec.Struct, rename="camel", gc=False):
    resource_logs: list[_Resources] | None = None


_request = msgspec.json.Decoder(_Request).decode


def raw_json(data: bytes) -> Iterator[Raw | None]:
    """The log records of a request; None for what holds them.  Raises ValueError."""
    if data.count(b",") > _MOST_COMMAS:
        raise ValueError(f"JSON with more than {_MOST_COMMAS} commas")
    try:
        request = _request(data)
    except RecursionError:
        raise ValueError("JSON that is too deep") from None
    for of_one in request.resource_logs or ():
        resource = bytes(of_one.resource)
        yield None
        for scopes in of_one.scope_logs or ():
            yield None
            scope = bytes(scopes.scope)
            for record in scopes.log_records or ():
                yield Raw(resource, scope, bytes(record))


class _Pair(msgspec.Struct, gc=False):
    key: str
    value: dict[str, Any] | None = None


class _Thing(msgspec.Struct, gc=False):
    """A resource, or a scope."""

    attributes: list[_Pair] | None = None
    name: str = ""
    version: str = ""


class _Record(msgspec.Struct, rename="camel", gc=False):
    time_unix_nano: str | int = 0
    observed_time_unix_nano: str | int = 0
    severity_number: int | str = 0
    severity_text: str = ""
    body: dict[str, Any] | None = None
    attributes: list[_Pair] | None = None
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""


_record = msgspec.json.Decoder(_Record).decode
_thing = msgspec.json.Decoder(_Thing | None).decode


def _from_json(
    resource: bytes, scope: bytes, record: bytes, known: dict[Any, _Shared]
) -> _Event:
    for each in (resource, scope):
        if each not in known:
            thing = _thing(each) or _Thing()
            pairs = {p.key: _json_value(p.value) for p in thing.attributes or ()}
            known[each] = _shared(pairs, thing.name, thing.version)
    one = _record(record)
    record.decode()  # strings are not looked at before
    return _event(
        known[resource],
        known[scope],
        int(one.time_unix_nano) or int(one.observed_time_unix_nano),
        one.severity_text or _severity(one.severity_number),
        None if one.body is None else _json_value(one.body),
        {pair.key: _json_value(pair.value) for pair in one.attributes or ()},
        one.trace_id,
        one.span_id,
        one.event_name,
    )


def _json_value(value: Any, depth: int = 0) -> Any:
    if not value:
        return None
    if depth > _DEPTH:
        raise ValueError("values that are too deep")
    [(kind, inner), *_] = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "doubleValue":
            return _number(float(inner))
        case "arrayValue":
            return [_json_value(each, depth + 1) for each in inner.get("values") or ()]
        case "kvlistValue":
            pairs = inner.get("values") or ()
            return {p["key"]: _json_value(p.get("value"), depth + 1) for p in pairs}
        case "stringValue" | "boolValue" | "bytesValue":
            return inner
    return None


# Protobuf


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field between two places; 0 for what has no length."""
    while at < end:
        tag, at = _varint(data, at, end)
        kind, number, size = tag & 7, tag >> 3, 0
        if kind == 2:
            size, at = _varint(data, at, end)
        elif kind == 0:
            _, at = _varint(data, at, end)
            number = 0
        elif kind in (1, 5):
            number, size = 0, 8 if kind == 1 else 4
        else:
            raise ValueError("no protobuf")
        if at + size > end:
            raise ValueError("protobuf that ends in a field")
        yield number, at, at + size
        at += size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("protobuf with a number that does not end")


def raw_protobuf(data: bytes) -> Iterator[Raw | None]:
    """The log records of a request; None for other fields.  Raises ValueError."""
    for number, at, end in _fields(data, 0, len(data)):
        yield None
        if number == 1:
            resource, of_scopes = yield from _split(data, at, end)
            for start, stop in of_scopes:
                scope, records = yield from _split(data, start, stop)
                for first, last in records:
                    yield Raw(resource, scope, data[first:last])


def _split(
    data: bytes, at: int, end: int
) -> Generator[None, None, tuple[bytes, list[tuple[int, int]]]]:
    """Field 1, which is a resource, or a scope, and where the fields 2 are that it has."""
    one, many = b"", []
    for number, start, stop in _fields(data, at, end):
        yield None
        if number == 1:
            one = data[start:stop]
        elif number == 2:
            many.append((start, stop))
            if len(many) > MOST:
                raise ValueError(f"more than {MOST} log records")
    return one, many


def _from_protobuf(
    resource: bytes, scope: bytes, record: bytes, known: dict[Any, _Shared]
) -> _Event:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    try:
        if ("r", resource) not in known:
            of = Resource.FromString(resource)
            known["r", resource] = _shared(_pairs(of.attributes))
        if ("s", scope) not in known:
            by = InstrumentationScope.FromString(scope)
            known["s", scope] = _shared(_pairs(by.attributes), by.name, by.version)
        one = LogRecord.FromString(record)
    except DecodeError as why:
        raise ValueError(str(why)) from None
    return _event(
        known["r", resource],
        known["s", scope],
        one.time_unix_nano or one.observed_time_unix_nano,
        one.severity_text or _severity(one.severity_number),
        _value(one.body) if one.HasField("body") else None,
        _pairs(one.attributes),
        one.trace_id.hex(),
        one.span_id.hex(),
        getattr(one, "event_name", ""),  # newer than 1.27 of the package
    )


def _pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    match kind:
        case "array_value":
            return [_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return _pairs(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            return _number(value.double_value)
        case "string_value" | "bool_value" | "int_value":
            return getattr(value, kind)
    return None


# Events


class _Event(msgspec.Struct, omit_defaults=True, gc=False):
    timestamp: str = msgspec.field(default="", name="@timestamp")
    host: Any = None
    service: Any = None
    severity: str = ""
    message: str = ""
    body: Any = None
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""
    attributes: dict[str, Any] = {}
    scope: msgspec.Raw | None = None
    resource: msgspec.Raw | None = None


class _Shared(NamedTuple):
    """The values of a resource, or of a scope, that many events share."""

    host: Any
    service: Any
    text: msgspec.Raw | None


def _shared(pairs: dict[str, Any], name: str = "", version: str = "") -> _Shared:
    """A resource's attributes; a scope's beside its name."""
    said: dict[str, Any] = pairs
    if name or version:
        said = {"name": name, "version": version, "attributes": pairs}
        said = {key: value for key, value in said.items() if value}
    text = msgspec.Raw(msgspec.json.encode(said)) if said else None
    return _Shared(pairs.get("host.name"), pairs.get("service.name"), text)


def _event(
    resource: _Shared,
    scope: _Shared,
    nanoseconds: int,
    severity: str,
    body: Any,
    attributes: dict[str, Any],
    trace_id: str,
    span_id: str,
    event_name: str,
) -> _Event:
    is_text = isinstance(body, str)
    return _Event(
        _time(nanoseconds) if nanoseconds else "",
        resource.host,
        resource.service,
        severity,
        body if is_text else "",
        None if is_text else body,
        trace_id,
        span_id,
        event_name,
        attributes,
        scope.text,
        resource.text,
    )


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{_second(seconds)}.{rest:09}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


_SEVERITIES = ("trace", "debug", "info", "warn", "error", "fatal")


def _severity(number: int | str) -> str:
    """A range of four numbers has a name; JSON may have the name of the enumeration."""
    if isinstance(number, str):
        number = number.removeprefix("SEVERITY_NUMBER_").lower()
        return "" if number == "unspecified" else number
    return _SEVERITIES[(number - 1) // 4] if 1 <= number <= 24 else ""


def _number(number: float) -> float | str:
    """JSON has no other numbers."""
    return number if math.isfinite(number) else str(number)


_Parse = Callable[[bytes, bytes, bytes, dict[Any, _Shared]], _Event]
_OF: dict[str, tuple[Callable[[bytes], Iterator[Raw | None]], _Parse]] = {
    JSON: (raw_json, _from_json),
    PROTOBUF: (raw_protobuf, _from_protobuf),
}
