r"""Events as lines of JSON, for `gateway spool cat`.

A payload that is JSON stays as it was written, number by number, without its line
breaks: `payload`.  Other text is `payload_text`, anything else `payload_base64`.
Whatever is not printable is spelled `\u001b`, which in JSON means the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gateway.sdk.command import printable
from gateway.sdk.payload import too_deep


def line(event: Mapping[str, Any]) -> str:
    """One event, a row of `gateway.event.SCHEMA` as Python values."""
    fields = {
        name: _plain(value)
        for name, value in event.items()
        if value is not None and name != "payload"
    }
    payload: bytes = event["payload"]
    text = as_json(payload)
    if text is not None:
        inside = f'"payload": {text}'
    else:
        inside = json.dumps(_other(payload), ensure_ascii=False)[1:-1]
    head = json.dumps(fields, ensure_ascii=False)[:-1]
    return printable(f"{head}, {inside}}}")


def as_json(payload: bytes) -> str | None:
    """The payload on one line if it is JSON, and not too deep."""
    if too_deep(payload):
        return None
    try:
        return msgspec.json.format(payload, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _other(payload: bytes) -> dict[str, str]:
    try:
        return {"payload_text": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):  # a map
        return dict(value)
    return value
