"""`gateway send lumberjack`: a program of its own, against a reader in this one."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import ssl
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway import cli
from gateway.cli.source import Lines
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.session import Limits, Session


class Reader:
    """Acknowledges all, at once; hangs up once after *mishap* windows."""

    address = ""

    def __init__(self, mishap: int | None) -> None:
        self.payloads: list[bytes] = []
        self._mishap = mishap

    def talk(self, peer: socket.socket) -> None:
        session = Session(Limits())
        while data := peer.recv(1 << 16):
            for ready in session.received(data):
                self.payloads += decode(ready.body).payloads
                if self._mishap is not None:
                    self._mishap -= 1
                    if not self._mishap:
                        return
                peer.sendall(ready.ack)


@pytest.fixture
def make_reader(serve: Callable[..., str]) -> Callable[..., Reader]:
    """Starts readers."""

    def make(mishap: int | None = None, tls: ssl.SSLContext | None = None) -> Reader:
        reader = Reader(mishap)
        reader.address = serve(reader.talk, tls)
        return reader

    return make


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="send")
def _send(send: Run) -> Run:
    """Run `gateway send lumberjack …`."""
    return lambda *words, **more: send("lumberjack", *words, **more)


@pytest.mark.parametrize("extra", [[], ["--v1"], ["--compression", "0"]])
def test_generated(
    make_reader: Callable[..., Reader], send: Run, tmp_path: Path, extra: list[str]
) -> None:
    """All made-up events arrive; their ids are on record; the totals agree."""
    reader = make_reader()
    acked = tmp_path / "acked"
    run = send(reader.address, "--generate", "500", "--connections", "2",
                "--window", "64", "--acked", str(acked), "--json", *extra)  # fmt: skip
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert (totals["sent"], totals["acknowledged"], totals["complete"]) == (
        500, 500, True,
    )  # fmt: skip
    events = [json.loads(payload) for payload in reader.payloads]
    ids = {e["event.id"] if "--v1" in extra else e["event"]["id"] for e in events}
    assert len(ids) == 500
    assert sorted(ids) == sorted(acked.read_text().split())


def test_a_reader_that_hangs_up(make_reader: Callable[..., Reader], send: Run) -> None:
    """What was not acknowledged is sent again; nothing is missing."""
    reader = make_reader(mishap=4)
    run = send(reader.address, "--generate", "300", "--window", "20", "--json")
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert totals["connections"] == 2
    assert totals["resent"] > 0
    assert len({json.loads(p)["event"]["id"] for p in reader.payloads}) == 300


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that signed itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_tls(make_reader: Callable[..., Reader], send: Run, pem: Path) -> None:
    """Over TLS, with a certificate of our own; a reader nobody vouches for gets none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.load_verify_locations(pem)
    context.verify_mode = ssl.CERT_REQUIRED
    reader = make_reader(tls=context)
    trusted = [reader.address, "--generate", "50", "--tls", "--ca", str(pem)]
    run = send(*trusted, "--cert", str(pem), "--key", str(pem))
    assert run.returncode == 0, run.stderr
    assert len(reader.payloads) == 50
    run = send(reader.address, "--tls", "--patience", "1")
    assert run.returncode == 1
    assert "certificate verify failed" in run.stderr
    assert len(reader.payloads) == 50


@pytest.mark.parametrize("source", ["--file", "--stdin"])
def test_lines(
    make_reader: Callable[..., Reader], send: Run, tmp_path: Path, source: str
) -> None:
    """JSON objects go as they are, other lines as messages, the last without newline."""
    reader = make_reader()
    text = '{"event":{"id":"mine"}}\n\nplain "text"\n[1]\nlast'
    acked, path = tmp_path / "acked", tmp_path / "lines"
    path.write_text(text)
    arguments = [source, str(path)] if source == "--file" else [source]
    run = send(reader.address, *arguments, "--acked", str(acked), stdin=text)
    assert run.returncode == 0, run.stderr
    assert "4 of 4 events acknowledged" in run.stdout
    assert reader.payloads[0] == b'{"event":{"id":"mine"}}'
    messages = [json.loads(payload)["message"] for payload in reader.payloads[1:]]
    assert messages == ['plain "text"', "[1]", "last"]
    assert acked.read_text().split() == ["mine", "line-2", "line-3", "line-4"]


def test_nobody_there(send: Run) -> None:
    """When nobody answers it gives up, says why, and exits with 1."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    run = send(f"127.0.0.1:{port}", "--patience", "0.5")
    assert run.returncode == 1
    assert "refused" in run.stderr
    assert "NOT all of it" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["5044"], "not HOST:PORT"),
        (["gw:x"], "not HOST:PORT"),
        (["gw:5044", "--generate", "0"], "not a number above 0"),
        (["gw:5044", "--rate", "0"], "--rate must be above 0"),
        (["gw:5044", "--rate", "nan"], "--rate must be above 0"),
        (["gw:5044", "--ca", __file__], "need --tls"),
        (["gw:5044", "--tls", "--key", __file__], "--key needs --cert"),
        (["gw:5044", "--file", "/no/such/file"], "no such file: /no/such/file"),
        (["gw:5044", "--file", "a", "--stdin"], "not allowed with"),
        (["unix:relative"], "not HOST:PORT"),
    ],
)
def test_wrong_use(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    """Wrong use is told before anything is sent; exit status 2."""
    assert cli.main(["send", "lumberjack", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_slow_pipes_are_not_waited_for() -> None:
    """A line is sent when it is there, not when the window is full."""
    source, sink = os.pipe()
    lines = Lines(source)
    os.write(sink, b"one\ntwo\nthr")
    assert [json.loads(e)["message"] for _, e in lines.read(10) or []] == ["one", "two"]
    os.write(sink, b"ee\n")
    assert [identity for identity, _ in lines.read(10) or []] == ["line-3"]
    lines.stopped = True
    assert lines.read(10) is None
    os.close(sink)
    os.close(source)
