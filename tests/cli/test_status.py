"""`gateway status`: its first line, its numbers, its exit status, and whom it asks."""

import datetime as dt
import json
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.status import (
    ArchiveStatus,
    IncarnationStatus,
    JournalStatus,
    ListenerStatus,
    SpoolStatus,
    Status,
    as_json,
)
from gateway.cli import _admin, status
from gateway.daemon.statistics import of_consumers
from gateway.sdk.protocol import Statistics
from gateway.store.readers.consumers import Behind
from gateway_testkit.certificates import Authority, Pair
from gateway_testkit.daemon import free_port
from making import Make

Shown = pytest.CaptureFixture[str]
WELL = Facts(uncommitted=1.84, newest=1.2, durable_lsn=9, job=Job(up=True))
SILENT = Facts(
    uncommitted=250.0,
    newest=240.0,
    durable_lsn=9,
    waiting_bytes=5 << 20,
    job=Job(up=False, state="running", silent_seconds=240.0),
)


def state(facts: Facts | None, more: Sequence[Statistics] = ()) -> bytes:
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
            incarnation=IncarnationStatus("5f0c", 4711),
            freshness=None if facts is None else judge(facts),
            more=more,
        )
    )  # fmt: skip


def test_each_consumer_has_a_line():
    """How much it has not read, and since when that waits."""
    behind = {"mine": Behind(3, 1 << 20, 7200.0, has_come=True), "quick": Behind()}
    found = json.loads(state(WELL, [*of_consumers(behind)]))
    assert found["consumers"]["missed_files"] == {"mine": 0, "quick": 0}
    assert [one for one in status.lines(found) if one.startswith("consumer")] == [
        "consumer mine: 3 files, 1.0 MiB not read, the oldest there for 2 h",
        "consumer quick: 0 files, 0 B not read",
    ]


def answering(body: bytes, asked: list[bytes], code: str = "200 OK") -> Any:
    """A gateway's admin port that says this to every request."""

    def talk(peer: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            if not (data := peer.recv(1 << 16)):
                return  # who refuses our certificate asks for nothing
            request += data
        asked.append(request)
        head = f"HTTP/1.1 {code}\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)

    return talk


def test_all_well(serve, capsys):
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
    assert "oldest   1.8 s old and in no table, held by spark" in text
    assert "spool    2 files, 5.0 MiB for Spark (senders wait at 20 GiB)" in text
    assert rest[-1].split() == [
        "beats", "lumberjack", "127.0.0.1:5044", "3", "12,345", "678", "B", "3",
    ]  # fmt: skip
    assert b"GET /api/status " in asked[0]


def test_not_well(serve, capsys):
    """Status 1; the sentence says what to do; for programs it is all one object."""
    address = serve(answering(state(SILENT), []))
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out.startswith("Spark has been silent for 4 min")
    assert cli.main(["status", "--address", address, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["well"] is False
    assert found["sentence"] == judge(SILENT).sentence
    assert found["journal"]["durable_lsn"] == 12345


def test_while_it_starts(serve, capsys):
    """There is no judgement yet, and that is not well."""
    assert cli.main(["status", "--address", serve(answering(state(None), []))]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "The gateway is not ready: starting."


def test_nobody_there(free_port, capsys):
    """Is not well either; `--json` is JSON still."""
    address = f"127.0.0.1:{free_port()}"
    says = f"No gateway answers at {address}: connection refused."
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out == f"{says}\n"
    assert cli.main(["status", "--address", address, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"well": False, "sentence": says}


@pytest.mark.parametrize("body", [b"[1, 2]", b"null", b'"up"', b"{}", b"<html>"])
def test_no_gateway(serve, capsys, body):
    """Something else answers at that port: that is said."""
    address = serve(answering(body, []))
    assert cli.main(["status", "--address", address]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"No gateway answers at {address}: ")
    assert shown.err == ""


def test_another_port_of_a_gateway(serve, capsys):
    """It says what it speaks; that is quoted, in one sentence."""
    says = b"an HTTP request on a port that speaks something else.\n"
    address = serve(answering(says, [], "400 Bad Request"))
    assert cli.main(["status", "--address", address]) == 1
    assert capsys.readouterr().out == (
        f"No gateway answers at {address}: 400 an HTTP request on a port that speaks "
        "something else.\n"
    )


def test_the_token(serve, tmp_path, capsys):
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


def test_a_token_that_can_not_be_read(tmp_path, capsys):
    """Its file is named, and what is wrong with it, without numbers of the system."""
    token = tmp_path / "token"
    said = ["status", "--address", "gw:1", "--token-file", str(token)]
    assert cli.main(said) == 2
    why = "no such file or directory"
    assert capsys.readouterr().err == f"gateway: --token-file {token}: {why}\n"
    token.write_bytes(b"\xff\xfe")
    assert cli.main(said) == 2
    assert capsys.readouterr().err == f"gateway: --token-file {token}: not UTF-8\n"


def test_over_a_unix_socket(tmp_path, capsys):
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


@pytest.fixture
def secret(serve, authority) -> Make[str]:
    """The address of an admin port that speaks TLS with that certificate."""

    def make(pair: Pair, *, asks: bool = False) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.ca)
        return serve(answering(state(WELL), []), context)

    return make


def test_over_tls(secret, authority, tmp_path, capsys):
    """Who signed its certificate is said by --ca; what somebody else signed is nobody's."""
    address = f"https://{secret(authority.issue('gw'))}"
    said = ["status", "--address", address]
    assert cli.main([*said, "--ca", str(authority.ca)]) == 0
    for more in ([], ["--ca", str(Authority(tmp_path / "other").ca)]):
        assert cli.main([*said, *more]) == 1
        told = capsys.readouterr().out
        assert f"No gateway answers at {address}: " in told
        assert "certificate verify failed" in told


def test_over_tls_with_a_certificate_of_our_own(secret, authority):
    """Where `admin.tls.client_auth` asks for one."""
    address = f"https://{secret(authority.issue('gw'), asks=True)}"
    said = ["status", "--address", address, "--ca", str(authority.ca)]
    assert cli.main(said) == 1
    mine = authority.issue("me")
    own = ["--cert", str(mine.certificate), "--key", str(mine.key)]
    assert cli.main([*said, *own]) == 0


def test_the_configured_certificate_is_enough(
    secret, authority, tmp_path, capsys, monkeypatch
):
    """Whoever signed it, and though it has expired; another one is not."""
    pair = authority.issue("gw", valid=dt.timedelta(minutes=-5))
    port = secret(pair).rpartition(":")[2]
    file = tmp_path / "gateway.yaml"
    listener = "{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}"

    def shows(pair: Pair) -> int:
        tls = f"{{certificate: {pair.certificate}, private_key: {pair.key}}}"
        admin = f"{{listen: 'tcp:127.0.0.1:{port}', tls: {tls}}}"
        file.write_text(f"listeners: [{listener}]\nadmin: {admin}\n")
        return cli.main(["status", "--config", str(file)])

    assert shows(pair) == 0
    monkeypatch.setattr(_admin, "_RENEWED_SECONDS", 0.5)
    assert shows(authority.issue("other")) == 1
    assert "another certificate than admin.tls.certificate" in capsys.readouterr().out


@pytest.mark.parametrize(
    "files", [["--ca", "/nowhere"], ["--key", "/k"], ["--cert", "/c", "--key", "/k"]]
)
def test_wrong_files(files, capsys):
    """What can not be read is wrong use, and named."""
    assert cli.main(["status", "--address", "https://gw:1", *files]) == 2
    assert files[0 if files[0] == "--key" else 1] in capsys.readouterr().err


@pytest.mark.parametrize("address", ["8080", "unix:relative", "gw:0", "gw:http"])
def test_wrong_use(address, capsys):
    assert cli.main(["status", "--address", address]) == 2
    assert "not HOST:PORT, https://HOST:PORT, nor unix:PATH" in capsys.readouterr().err


def test_nothing_waits_but_senders():
    """Where the disk is full, that all is in the table is not all there is to say."""
    fresh = {"age_seconds": 0, "goal": "table", "waiting_bytes": 0}
    told = {ready: status._oldest(fresh, ready=ready) for ready in (True, False)}
    assert told[True] == "none: all that was acknowledged is in the table"
    assert told[False] == f"{told[True]}; senders wait with theirs"


def test_what_files_wait_for():
    """Where no job is here, they do not wait for one."""
    spool = {"files": 2, "bytes": 5 << 20, "bucket": "s3://b/p"}
    assert status._whom(spool, {"goal": "spool"}) == " for the bucket"
    assert status._whom(spool | {"bucket": None}, {"goal": "spool"}) == ""
    assert status._whom({}, {"goal": "hub"}) == " for the hub"
    assert status._whom({}, {}) == " for Spark"


def test_what_waits_for_a_hub():
    """Where files are forwarded there is no table to speak of."""
    fresh = {"age_seconds": 0, "goal": "hub", "waiting_bytes": 5 << 20}
    told = status._oldest(fresh, ready=True)
    assert told == "none: all that was acknowledged is at the hub"
    fresh |= {"age_seconds": 7200, "held_by": "hub"}
    told = status._oldest(fresh, ready=True)
    assert told == "2 h old and not at the hub, held by hub; 5.0 MiB wait"


def peers(tmp_path: Path, *addresses: str, **more: str) -> Path:
    """A configuration of the gateway at the first of them, with all of them as peers."""
    path = tmp_path / "gateway.yaml"
    path.write_text(
        json.dumps(
            {
                "node": "gw-1",
                "data_dir": str(tmp_path / "data"),
                "listeners": [
                    {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:1"}
                ],
                "admin": {
                    "listen": f"tcp:{addresses[0]}",
                    "token": "t0k",
                    "peers": addresses,
                    **more,
                },
            }
        )
    )
    return path


def test_all_of_them_at_a_glance(serve, tmp_path, capsys):
    """A row for each, itself once; those with something wrong in a sentence, too."""
    asked: list[bytes] = []
    own = serve(answering(state(WELL), asked))
    job = {"state": "running", "at": 1e12, "version": "1"}
    other = serve(answering(json.dumps(job).encode(), asked))
    rubbish = serve(answering(b"<html>", asked))
    gone = f"127.0.0.1:{free_port()}"
    file = peers(tmp_path, own, other, rubbish, gone)
    assert cli.main(["status", "--all", "--config", str(file)]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["name", "state"]
    assert [line.split()[:2] for line in lines[:2]] == [
        ["gw-1", "ok"],
        ["Spark", "job"],
    ]
    assert "It does not answer (200, no answer" in lines[4]
    assert "It does not answer (connection refused)" in lines[5]
    assert len(lines) == 6
    assert all(b"Authorization: Bearer t0k" in request for request in asked)
    assert cli.main(["status", "--all", "--json", "--config", str(file)]) == 1
    rows = json.loads(capsys.readouterr().out)["gateways"]
    assert [row["level"] for row in rows] == ["good", "good", "bad", "bad"]


def test_peers_that_want_a_certificate(serve, secret, authority, tmp_path, capsys):
    """They are shown that of `admin.peers_certificate`; without it they do not answer."""
    own = serve(answering(state(WELL), []))
    other = f"https://{secret(authority.issue('gw'), asks=True)}"
    ours = authority.issue("gw-1")
    shown = {
        "peers_certificate": str(ours.certificate),
        "peers_private_key": str(ours.key),
    }
    for keys, levels in (({}, ["good", "bad"]), (shown, ["good"])):
        file = peers(tmp_path, own, other, peers_ca=str(authority.ca), **keys)
        cli.main(["status", "--all", "--json", "--config", str(file)])
        rows = json.loads(capsys.readouterr().out)["gateways"]
        assert [row["level"] for row in rows] == levels  # who answers is itself, again


def test_one_that_hangs_keeps_nobody(serve, tmp_path, capsys, monkeypatch):
    """It has its row when time is over."""
    monkeypatch.setattr(status, "_ALL_SECONDS", 0.5)
    over = threading.Event()
    own = serve(answering(state(WELL), []))
    hangs = serve(lambda peer: over.wait() and None)
    file = peers(tmp_path, own, hangs)
    assert cli.main(["status", "--all", "--config", str(file)]) == 1
    over.set()
    assert f"{hangs}: It does not answer (no answer in 0 s)." in capsys.readouterr().out


def test_all_of_one(serve, tmp_path, capsys):
    """Without peers there is nothing to ask for."""
    own = serve(answering(state(WELL), []))
    assert cli.main(["status", "--all", "--address", own]) == 2
    assert "--all needs a configuration with admin.peers" in capsys.readouterr().err
