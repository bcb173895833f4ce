"""`gateway status`: its first line, its numbers, its exit status, and whom it asks."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.status import (
    ArchiveStatus,
    EndedStatus,
    IncarnationStatus,
    JournalStatus,
    ListenerStatus,
    SpoolStatus,
    Status,
    as_json,
)

Shown = pytest.CaptureFixture[str]
WELL = Facts(uncommitted=1.84, newest=1.2, durable_lsn=9, job=Job(up=True))
SILENT = Facts(
    uncommitted=250.0,
    newest=240.0,
    durable_lsn=9,
    waiting_bytes=5 << 20,
    job=Job(up=False, state="running", silent_seconds=240.0),
)


def state(facts: Facts | None) -> bytes:
    """What `/api/status` answers then; None: while it starts."""
    return as_json(
        Status(
            node="gw-1",
            version="1",
            uptime_seconds=7300.0,
            not_ready_reason=None if facts else "starting",
            listeners=[
                ListenerStatus(
                    "beats", "lumberjack", "127.0.0.1:5044", 3, 12345, 678,
                    {"tls": 2, "idle": 1},
                )
            ],
            journal=JournalStatus(12345, 100),
            spool=SpoolStatus(12000, 2, 5 << 20, 20 << 30),
            archive=ArchiveStatus(1, 1 << 20),
            incarnation=IncarnationStatus(
                "5f0c", 4711, [EndedStatus("e0e0", 1, 4710, 0.0, "journal", 9.0)]
            ),
            freshness=None if facts is None else judge(facts),
        )
    )  # fmt: skip


def answering(body: bytes, asked: list[bytes], code: str = "200 OK") -> Any:
    """A gateway's admin port that says this to every request."""

    def talk(peer: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += peer.recv(1 << 16)
        asked.append(request)
        head = f"HTTP/1.1 {code}\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)

    return talk


def test_all_well(serve: Callable[..., str], capsys: Shown) -> None:
    """The sentence first, then the few numbers; status 0."""
    asked: list[bytes] = []
    address = serve(answering(state(WELL), asked))
    assert cli.main(["status", "--address", address]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == judge(WELL).sentence
    assert first.startswith("All well: ")
    text = "\n".join(rest)
    assert "node     gw-1, up 2 h, version 1" in text
    assert "lsns     of incarnation 5f0c, from 4,711 on" in text
    assert "past     incarnation e0e0 ended with its disk: it had ack" in text
    assert "up to lsn 4710 when last heard of, 1970-01-01 00:00:00+00:00" in text
    assert "oldest   1.8 s old and in no table, held by spark" in text
    assert "spool    2 files, 5.0 MiB for Spark (senders wait at 20 GiB)" in text
    assert rest[-1].split() == [
        "beats", "lumberjack", "127.0.0.1:5044", "3", "12,345", "678", "B", "3",
    ]  # fmt: skip
    assert b"GET /api/status " in asked[0]


def test_not_well(serve: Callable[..., str], capsys: Shown) -> None:
    """Status 1; the sentence says what to do; for programs it is all one object."""
    address = serve(answering(state(SILENT), []))
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out.startswith("Spark has been silent for 4 min")
    assert cli.main(["status", "--address", address, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["well"] is False
    assert found["sentence"] == judge(SILENT).sentence
    assert found["journal"]["durable_lsn"] == 12345


def test_while_it_starts(serve: Callable[..., str], capsys: Shown) -> None:
    """There is no judgement yet, and that is not well."""
    assert cli.main(["status", "--address", serve(answering(state(None), []))]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "The gateway is not ready: starting."


def test_nobody_there(free_port: Callable[[], int], capsys: Shown) -> None:
    """Is not well either; `--json` is JSON still."""
    address = f"127.0.0.1:{free_port()}"
    says = f"No gateway answers at {address}: connection refused."
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out == f"{says}\n"
    assert cli.main(["status", "--address", address, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"well": False, "sentence": says}


@pytest.mark.parametrize("body", [b"[1, 2]", b"null", b'"up"', b"{}", b"<html>"])
def test_no_gateway(serve: Callable[..., str], capsys: Shown, body: bytes) -> None:
    """Something else answers at that port: that is said."""
    address = serve(answering(body, []))
    assert cli.main(["status", "--address", address]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"No gateway answers at {address}: ")
    assert shown.err == ""


def test_another_port_of_a_gateway(serve: Callable[..., str], capsys: Shown) -> None:
    """It says what it speaks; that is quoted, in one sentence."""
    says = b"an HTTP request on a port that speaks something else.\n"
    address = serve(answering(says, [], "400 Bad Request"))
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out == (
        f"No gateway answers at {address}: 400 an HTTP request on a port that speaks "
        "something else.\n"
    )


def test_the_token(serve: Callable[..., str], tmp_path: Path, capsys: Shown) -> None:
    """Is that of the configuration, or of a file; without one the refusal says so."""
    asked: list[bytes] = []
    address = serve(answering(state(WELL), asked))
    file, token = tmp_path / "gateway.yaml", tmp_path / "token"
    token.write_text("from-file\n")
    listener = "{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}"
    admin = f"{{listen: 'tcp:{address}', token: from-configuration}}"
    file.write_text(f"listeners: [{listener}]\nadmin: {admin}\n")
    assert cli.main(["status", "--config", str(file)]) == 0
    assert b"Bearer from-configuration\r\n" in asked[-1]
    assert cli.main(["status", "--address", address, "--token-file", str(token)]) == 0
    assert b"Bearer from-file\r\n" in asked[-1]
    refusing = serve(answering(b"token needed\n", [], "401 Unauthorized"))
    assert cli.main(["status", "--address", refusing]) == 1
    assert "401 token needed; say --token-file" in capsys.readouterr().out


def test_over_a_unix_socket(tmp_path: Path, capsys: Shown) -> None:
    """As `admin.listen: unix:PATH` has it."""
    path = tmp_path / "admin"
    import threading

    with socket.socket(socket.AF_UNIX) as port:
        port.bind(str(path))
        port.listen()

        def once() -> None:
            peer, _ = port.accept()
            with peer:
                answering(state(WELL), [])(peer)

        thread = threading.Thread(target=once)
        thread.start()
        assert cli.main(["status", "--address", f"unix:{path}"]) == 0
        thread.join()


@pytest.mark.parametrize("address", ["8080", "unix:relative", "gw:0", "gw:http"])
def test_wrong_use(address: str, capsys: Shown) -> None:
    """An address that is none."""
    assert cli.main(["status", "--address", address]) == 2
    assert "not HOST:PORT, nor unix:PATH" in capsys.readouterr().err
