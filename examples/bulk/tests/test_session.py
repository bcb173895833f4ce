"""Documents, ids, and what clients ask before they send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.plugins import FakeDaemon
from gateway_bulk import protocol


def ask(
    daemon: FakeDaemon,
    body: bytes,
    path: str = "/_bulk",
    *fields: str,
    method: str = "POST",
) -> tuple[int, Any, bytes]:
    """Code, body and header of the answer."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: a",
        f"Content-Length: {len(body)}",
        *fields,
    ]
    connection = daemon.connect()
    connection.deliver("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    daemon.store()
    head, _, rest = connection.sent.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest) if rest else None, head


@pytest.fixture
def daemon(tmp_path: Path) -> FakeDaemon:
    return FakeDaemon(protocol, tmp_path)


def test_create_and_index(daemon: FakeDaemon) -> None:
    """An item for each; the index of the path where an action names none."""
    code, said, _ = ask(
        daemon,
        b'{"create":{"_index":"a","_id":"7"}}\n{ "message":"one"}\n'
        b'{"index":{}}\r\n{"message":"two"}\r\n{"index":{"_id":8}}\n{}\n',
        "/b/_bulk",
    )
    assert (code, said["errors"]) == (200, False)
    assert [(kind, one["_index"], one["status"]) for each in said["items"] for kind, one in each.items()] == [
        ("create", "a", 201), ("index", "b", 201), ("index", "b", 201)
    ]  # fmt: skip
    rows = daemon.rows()
    assert [(row.channel, json.loads(row.payload)) for row in rows] == [
        ("a", {"_id": "7", "message": "one"}),
        ("b", {"message": "two"}),
        ("b", {"_id": "8"}),
    ]


def test_what_is_not_taken_has_its_item(daemon: FakeDaemon) -> None:
    """In its place among the others, which are stored."""
    code, said, _ = ask(
        daemon,
        b'{"update":{"_id":"1"}}\n{"doc":{}}\n{"delete":{"_id":"2"}}\n{"create":{}}\n{"a":1}\n',
    )
    statuses = [one["status"] for each in said["items"] for one in each.values()]
    assert (code, said["errors"], statuses) == (200, True, [400, 400, 201])
    assert "not changed" in said["items"][1]["delete"]["error"]["reason"]
    assert len(daemon.rows()) == 1


def test_what_is_no_document_is_kept(daemon: FakeDaemon) -> None:
    """With a flaw: its sender would send it for ever."""
    ask(daemon, b'{"create":{"_id":"7"}}\nno JSON\n{"create":{}}\n[1]\n')
    assert [(row.payload, row.flaw) for row in daemon.rows()] == [
        (b"no JSON", "invalid-json"),
        (b"[1]", "not-an-object"),
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body is required"),
        (b'{"create":{}}\n{}', "terminated by a newline"),
        (b'{"create":{}}', "terminated by a newline"),
        (b"{}\n{}\n", "Malformed action"),
        (b"[" * 9999 + b"\n", "Malformed action"),
        (b'{"create":{}}\n{}\n' * ((1 << 16) + 1), "more than 65536 actions"),
    ],
    ids=["empty", "no end", "no document", "no action", "deep", "many"],
)
def test_what_is_no_request(body: bytes, reason: str, daemon: FakeDaemon) -> None:
    """Nothing of it is stored."""
    code, said, _ = ask(daemon, body)
    assert code == (413 if "actions" in reason else 400)
    assert reason in said["error"]["reason"]
    assert daemon.rows() == []


def test_an_answer_that_is_too_long(daemon: FakeDaemon) -> None:
    """Each item names the index, which a request says once."""
    body, path = b'{"create":{}}\n{}\n' * (1 << 16), "/" + "i" * 300 + "/_bulk"
    assert ask(daemon, body, path)[0] == 413
    assert ask(daemon, body[: len(body) // 4], path)[0] == 200


def test_what_clients_look_for(daemon: FakeDaemon) -> None:
    """A version, the product, a license, templates; and nothing else is here."""
    code, said, head = ask(daemon, b"", "/", method="GET")
    assert (code, said["version"]["number"][0]) == (200, "8")
    assert b"X-Elastic-Product: Elasticsearch" in head
    assert ask(daemon, b"", "/", method="HEAD")[:2] == (200, None)
    assert (
        ask(daemon, b"", "/_license", method="GET")[1]["license"]["status"] == "active"
    )
    assert ask(daemon, b"{}", "/_index_template/logs", method="PUT")[0] == 200
    assert ask(daemon, b"{}", "/shop", method="PUT")[0] == 200
    assert ask(daemon, b"{}", "/_search")[0] == 404
    kind = "Accept: application/vnd.elasticsearch+json; compatible-with=8"
    assert (
        b"Content-Type: application/vnd.elasticsearch+json"
        in ask(daemon, b"", "/", kind, method="GET")[2]
    )
