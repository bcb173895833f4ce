"""What becomes of messages: the RFCs' own examples, what programs send, and the rest."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_syslog.messages import decode, pack

CAME = datetime.fromisoformat("2026-01-01T00:30:00+01:00").timestamp()


def event(
    message: bytes, came: float = CAME, zone: str = "Europe/Oslo"
) -> dict[str, Any]:
    """The one event of a message that is fine."""
    rows = decode(pack(came, zone, [message]))
    assert rows.flaws == {}
    found: dict[str, Any] = json.loads(rows.payloads[0])
    assert rows.channels == {0: found["facility"]}
    return found


def test_rfc_5424() -> None:
    """§6.5, example 3: every part of it has a key."""
    assert event(
        b"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog 8710 ID47 "
        b'[exampleSDID@32473 iut="3" eventSource="Application"][x@1] '
        b"\xef\xbb\xbfAn application event log entry..."
    ) == {
        "@timestamp": "2003-10-11T22:14:15.003Z",
        "host": "mymachine.example.com",
        "facility": "local4",
        "severity": "notice",
        "app": "evntslog",
        "procid": "8710",
        "msgid": "ID47",
        "structured_data": {
            "exampleSDID@32473": {"iut": "3", "eventSource": "Application"},
            "x@1": {},
        },
        "message": "An application event log entry...",
    }


def test_rfc_5424_without_anything() -> None:
    """What is not said is left out, but for the message."""
    assert event(b"<0>1 - - - - - -") == {
        "facility": "kern",
        "severity": "emerg",
        "message": "",
    }
    assert event(b"<0>1 - - - - - - -")["message"] == "-"


def test_values_of_structured_data() -> None:
    """Escaped characters are themselves; a backslash before any other is one."""
    data = event(rb'<1>1 - - - - - [a b="\"q\" \\ \] ] \n" c=""] x')["structured_data"]
    assert data == {"a": {"b": r'"q" \ ] ] \n', "c": ""}}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Oct 11 22:14:15 mymachine su: 'su root' failed",
            {"host": "mymachine", "app": "su", "message": "'su root' failed"},
        ),
        (
            "Oct 11 22:14:15 mymachine postfix/smtpd[77]: connect",
            {"host": "mymachine", "app": "postfix/smtpd", "procid": "77",
             "message": "connect"},
        ),
        (
            "Oct 11 22:14:15 sshd[1]: no host",
            {"app": "sshd", "procid": "1", "message": "no host"},
        ),
        ("Oct 11 22:14:15 2001:db8::1 x: y", {"host": "2001:db8::1", "app": "x",
                                              "message": "y"}),
        ("Oct 11 22:14:15 mymachine no tag", {"host": "mymachine", "message": "no tag"}),
    ],
)  # fmt: skip
def test_rfc_3164(message: str, said: dict[str, str]) -> None:
    """Time, host and tag, as far as they are there."""
    assert event(b"<34>" + message.encode()) == {
        "facility": "auth",
        "severity": "crit",
        "@timestamp": "2025-10-11T22:14:15+02:00",
        **said,
    }


@pytest.mark.parametrize(
    ("stamp", "came", "dated"),
    [
        ("Dec 31 23:59:59", "2026-01-01T00:00:05", "2025-12-31T23:59:59-05:00"),
        ("Jan  1 00:00:05", "2025-12-31T23:59:59", "2026-01-01T00:00:05-05:00"),
        ("Jul  1 00:00:05", "2026-11-22T08:00:00", "2026-07-01T00:00:05-04:00"),
        ("Feb 29 12:00:00", "2024-03-01T00:00:00", "2024-02-29T12:00:00-05:00"),
        ("Feb 29 12:00:00", "2026-03-01T00:00:00", "Feb 29 12:00:00"),
        ("Feb 31 12:00:00", "2026-03-01T00:00:00", "Feb 31 12:00:00"),
        ("2025-10-11T22:14:15.5+09:00", "2026-01-01T00:00:00",
         "2025-10-11T22:14:15.5+09:00"),
    ],
)  # fmt: skip
def test_times(stamp: str, came: str, dated: str) -> None:
    """The nearest year and the listener's time zone, where the time has none; what is no
    time stays as it is."""
    seconds = datetime.fromisoformat(f"{came}-05:00").timestamp()
    found = event(f"<34>{stamp} h a: b".encode(), seconds, "America/New_York")
    assert found["@timestamp"] == dated
    assert found["message"] == "b"


def test_nothing_but_a_priority() -> None:
    """As Python's SysLogHandler sends it: all of it is the message."""
    assert event(b"<11>Error: disk full\nTraceback") == {
        "facility": "user",
        "severity": "err",
        "message": "Error: disk full\nTraceback",
    }


def test_rfc_5424_that_is_not_quite() -> None:
    """It is taken for a message of the older kind, and nothing is lost."""
    assert event(b"<13>1 apple a day")["message"] == "1 apple a day"


@pytest.mark.parametrize(
    ("message", "flaw"),
    [
        (b"no priority", "no-priority"),
        (b"<192>too high", "no-priority"),
        (b"<1", "no-priority"),
        (b"<13>caf\xe9", "invalid-utf8"),
    ],
)
def test_flaws(message: bytes, flaw: str) -> None:
    """What is no message is kept as it came, and said to be flawed."""
    rows = decode(pack(CAME, "UTC", [message]))
    assert rows.payloads == [message]
    assert rows.flaws == {0: flaw}
    assert rows.content_types == {0: "application/octet-stream"}
    assert rows.channels == {}


@given(st.lists(st.binary() | st.text().map(lambda text: b"<9>1 " + text.encode())))
def test_any_message_is_an_event(messages: list[bytes]) -> None:
    """Decoding never fails, and what is not flawed is JSON."""
    rows = decode(pack(CAME, "UTC", messages))
    assert rows.count == len(messages)
    for row, payload in enumerate(rows.payloads):
        if row not in rows.flaws:
            json.loads(payload)


def test_another_format() -> None:
    """A batch of a later version is said to be one."""
    with pytest.raises(ValueError, match="unknown format 2"):
        decode(b"\x94\x02\x00\xa3UTC\x90")
