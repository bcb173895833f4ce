"""Messages of RFC 5424 and RFC 3164 to events: one JSON object each.

    @timestamp  host  facility  severity  app  procid  msgid  structured_data  message

What a message does not say is left out.  What is no syslog message, or not UTF-8, is kept
as it came, with a flaw.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from gateway.event import Rows

__all__ = ["decode", "pack"]

FORMAT = 1

FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
    "authpriv", "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2",
    "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

_PRIORITY = r"<(?P<priority>1[0-8]\d|19[01]|\d\d?)>"
_PARAMETERS = r'(?: [^] ="]+="(?:\\.|[^"\\])*")*'
_RFC5424 = re.compile(
    _PRIORITY + r"1 (?P<timestamp>\S+) (?P<host>\S+) (?P<app>\S+) (?P<procid>\S+) "
    rf'(?P<msgid>\S+) (?P<structured_data>-|(?:\[[^] ="]+{_PARAMETERS}\])+)'
    r"(?: \ufeff?|\Z)(?P<message>.*)",
    re.DOTALL,
)
_RFC3164 = re.compile(
    _PRIORITY
    + r"(?:(?P<timestamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) "
    r"(?:(?P<host>\S*[^]:\s]) )?"
    r"(?:(?P<app>[^][:\s]+)(?:\[(?P<procid>[^]\s]+)\])?: ?)?)?"
    r"(?P<message>.*)",
    re.DOTALL,
)
_ELEMENT = re.compile(rf'\[([^] ="]+)({_PARAMETERS})\]', re.DOTALL)
_PARAMETER = re.compile(r' ([^] ="]+)="((?:\\.|[^"\\])*)"', re.DOTALL)
_STAMP = "%Y %b %d %H:%M:%S"
_unescaped = partial(re.compile(r'\\(["\\\]])').sub, r"\1")


def pack(came: float, zone: str, messages: list[bytes]) -> bytes:
    """A batch's body: when it came (seconds since the epoch); whose times have no zone."""
    return msgspec.msgpack.encode((FORMAT, came, zone, messages))


def decode(body: bytes) -> Rows:
    """The events of a batch.  Total on every body that a `Session` made."""
    form, came, zone, messages = msgspec.msgpack.decode(body)
    if form != FORMAT:
        raise ValueError(f"syslog batch of unknown format {form}")
    received = datetime.fromtimestamp(came, ZoneInfo(zone))
    rows = Rows(messages)
    for row, message in enumerate(messages):
        try:
            event = _event(message.decode(), received)
        except ValueError as why:
            bad_text = isinstance(why, UnicodeDecodeError)
            rows.flaws[row] = "invalid-utf8" if bad_text else "no-priority"
            rows.content_types[row] = "application/octet-stream"
        else:
            messages[row] = msgspec.json.encode(event)
            rows.channels[row] = event["facility"]
    return rows


def _event(text: str, received: datetime) -> dict[str, Any]:
    found = _RFC5424.fullmatch(text) or _RFC3164.fullmatch(text)
    if found is None:
        raise ValueError("no priority")
    said = found.groupdict()
    event = {key: said[key] for key in said if said[key] not in (None, "-")}
    facility, severity = divmod(int(event.pop("priority")), 8)
    if stamp := event.pop("timestamp", None):
        event["@timestamp"] = _dated(stamp, received)
    if data := event.get("structured_data"):
        event["structured_data"] = {
            name: {key: _unescaped(value) for key, value in _PARAMETER.findall(pairs)}
            for name, pairs in _ELEMENT.findall(data)
        }
    event |= {"facility": FACILITIES[facility], "severity": SEVERITIES[severity]}
    return event | {"message": said["message"]}


@lru_cache
def _dated(stamp: str, received: datetime) -> str:
    """The time with the zone of *received*, and the nearest year, where it has neither."""
    zone, found = received.tzinfo, []
    for year in (received.year - 1, received.year, received.year + 1):
        with suppress(ValueError):  # it is no such time, or has both
            at = f"{year} {stamp}"
            found.append(datetime.strptime(at, _STAMP).replace(tzinfo=zone))
    return min(found, key=lambda at: abs(at - received)).isoformat() if found else stamp
