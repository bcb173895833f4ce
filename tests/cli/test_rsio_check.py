"""`gateway rsio-check`: against our server, something else, and nobody."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from gateway import cli
from gateway.protocols.rsio.streams import Served
from gateway.testing.certificates import Authority

Run = Callable[..., tuple[int, str, str]]
SOME = [word for number in (1, 6, 39, 51) for word in ("--only", str(number))]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run it: status, output, errors."""

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(["rsio-check", *words])
        return status, *capsys.readouterr()

    return run


def test_our_server(listen: Callable[..., Any], check: Run) -> None:
    """It passes, and the table says so, role by role."""
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(address, *SOME)
    assert status == 0
    assert "0 failed, 0 not judged" in out
    assert "required_spec101_neverMoreThanRequested" in out


def test_as_json(listen: Callable[..., Any], check: Run) -> None:
    """Each look at the target has its outcome; --as leaves the others out."""
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(address, *SOME, "--as", "subscriber", "--json")
    found = json.loads(out)
    assert status == 0
    assert {one["as"] for one in found} == {"subscriber", "connection"}
    assert {one["outcome"] for one in found} == {"passed"}
    assert all(one["promise"] for one in found)


def test_without_check_publishers(listen: Callable[..., Any], check: Run) -> None:
    """What can not be judged is not judged, with the reason; alone it is no pass."""
    address = listen("rsio").address
    status, out, _ = check(address, "--only", "1")
    assert status == 0
    assert "the target does not serve check/…" in out
    status, out, _ = check(address, "--only", "2")
    assert status == 1
    assert "0 passed, 0 failed, 1 not judged" in out


def test_a_target_that_fails(serve: Callable[..., str], check: Run) -> None:
    """It says which promise was not kept, and how."""

    def rude(peer: socket.socket) -> None:
        if peer.recv(100)[:1] == b"\x01":
            peer.sendall(b"\x02\x00\x00")  # hello; then not another word

    status, out, _ = check(serve(rude), "--only", "goodbye", "--as", "publisher")
    assert status == 1
    assert "51 goodbye: Goodbye is answered with goodbye" in out
    assert "expected goodbye" in out


def test_one_element_too_many(
    listen: Callable[..., Any], check: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broken rule has to do with fails, the rest passes; the status is 1."""
    wanted = Served.wanted
    monkeypatch.setattr(Served, "wanted", lambda self, n: wanted(self, n + 1))
    numbers = [word for n in ("1", "27", "39", "51") for word in ("--only", n)]
    status, out, _ = check(
        listen("rsio", check_publishers=True).address, *numbers, "--json"
    )
    assert status == 1
    found = [(one["number"], one["as"], one["outcome"]) for one in json.loads(out)]
    assert {one[0] for one in found if one[2] == "failed"} == {1, 27}
    assert {one[1] for one in found if one[2] == "failed"} == {"publisher"}
    assert {one[0] for one in found if one[2] == "passed"} >= {39, 51}


@pytest.mark.parametrize(
    ("answer", "complaint"), [(b"HTTP/1.1 400\r\n\r\n", "no RS.io"), (b"", "no RS.io")]
)
def test_something_else(
    serve: Callable[..., str], check: Run, answer: bytes, complaint: str
) -> None:
    """A server of another protocol is told apart at once."""

    def other(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(answer)

    status, _, errors = check(serve(other))
    assert status == 1
    assert complaint in errors


def test_a_target_plays_no_trick_on_a_terminal(
    serve: Callable[..., str], check: Run
) -> None:
    """What it says is spelled where it is not printable."""

    def rude(peer: socket.socket) -> None:
        if peer.recv(100)[:1] == b"\x01":
            peer.sendall(b"\x02\x00\x00\x03\x05\x1b[2Jx")  # hello and goodbye

    status, out, errors = check(serve(rude))
    assert status == 1
    assert "\x1b[2J" not in out + errors
    assert "[2Jx" in out + errors


def test_nobody(check: Run) -> None:
    """Nobody there is one complaint, not 82."""
    status, _, errors = check("127.0.0.1:1")
    assert status == 1
    assert "no connection" in errors


def test_over_tls(listen: Callable[..., Any], check: Run, authority: Authority) -> None:
    """The target's certificate is verified."""
    pair = authority.issue("gw.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    address = listen("rsio", tls=context).address
    status, _, errors = check(address, "--tls", "--only", "39")
    assert status == 1
    assert "certificate verify failed" in errors
    ours = ["--tls", "--ca", str(authority.ca)]
    assert check(address, *ours, "--only", "39")[0] == 0


def test_the_list(check: Run) -> None:
    """All 57; those that can not be seen from outside say why."""
    status, out, _ = check("--list")
    assert status == 0
    assert "57  fuzz" in out
    assert "not from outside (what is held in memory shows on no wire" in out
    assert out.count("\n") == 2 * 57


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "HOST:PORT or unix:PATH is missing"),
        (["gw:1", "--only", "nope"], "no test 'nope'"),
        (["gw:1", "--only", "58"], "no test '58'"),
        (["gw:1", "--cert", __file__], "need --tls"),
        (["gw:1", "--tls", "--ca", __file__], "--ca, --cert or --key"),
    ],
)
def test_wrong_use(check: Run, words: list[str], complaint: str) -> None:
    """Wrong use is told before anything is sent; exit status 2."""
    status, _, errors = check(*words)
    assert status == 2
    assert complaint in errors
