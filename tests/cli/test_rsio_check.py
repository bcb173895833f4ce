"""`gateway rsio-check`: against our server, something else, and nobody."""

import json
import socket
import ssl
import sys

import pytest

from gateway import cli
from gateway.protocols.rsio.streams import Served
from making import Make
from rsio_check import TESTS

Run = Make[tuple[int, str, str]]
#: Those that need no clock: a listener's stands still here.
SOME = [
    word
    for name in ("spec105", "hello_is", "goodbye_is", "demand_is_met", "overrun_canc")
    for word in ("--only", name)
]


@pytest.fixture
def check(capsys) -> Run:
    """Run it: status, output, errors."""

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(["rsio-check", *words])
        return status, *capsys.readouterr()

    return run


def test_our_server(listen, check):
    """It passes: a line for each test, and as many tests are counted."""
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(address, *SOME)
    assert status == 0
    lines = out.splitlines()
    tests = [line.split() for line in lines if line.endswith("  ok")]
    assert lines[-1] == (
        f"{len(tests)} tests: {len(tests)} passed, 0 failed, 0 not judged"
    )
    assert ["demand_is_met_in_full", "publisher", "ok"] in tests


def test_as_json(listen, check):
    """Each test has its outcome; --as leaves the others out."""
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(address, *SOME, "--as", "subscriber", "--json")
    found = json.loads(out)
    assert status == 0
    assert {one["as"] for one in found} == {"subscriber", "connection"}
    assert {one["outcome"] for one in found} == {"passed"}
    assert all(one["promise"] for one in found)


def test_without_check_publishers(listen, check):
    """What can not be judged is not judged, with the reason; strictly, it has failed."""
    address = listen("rsio").address
    both = ["--only", "spec105", "--only", "overrun_cancels"]
    status, out, _ = check(address, *both)
    assert status == 0
    assert "the target does not publish check/…" in out
    assert check(address, *both, "--strict")[0] == 1
    status, out, _ = check(address, "--only", "spec105")
    assert status == 1
    assert "2 tests: 0 passed, 0 failed, 2 not judged" in out


def test_with_a_token(listen, check, tmp_path):
    """--token is shown by each connection; without one that is needed, nothing runs."""
    address = listen("rsio", check_publishers=True, tokens={"meters": "s3cret"}).address
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    words = [*SOME, "--only", "token_is", "--only", "second_token"]
    status, out, _ = check(address, *words, "--token", f"@{secret}", "--json")
    assert status == 0
    passed = {one["name"] for one in json.loads(out) if one["outcome"] == "passed"}
    assert passed >= {"wrong_token_is_refused", "missing_token_is_refused"}
    status, _, errors = check(address, *words)
    assert status == 1
    assert "does not let us in" in errors
    status, _, errors = check(address, *words, "--token", "wrong")
    assert status == 1
    assert "E401" in errors


def test_with_a_name(listen, check):
    """--name is what each connection says; tests that need two are no part of it."""
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(
        address, "--name", "meter-17", *SOME, "--only", "offsets_of_their", "--json"
    )
    assert status == 0
    assert "senders_have_offsets" not in out


def test_a_target_that_fails(serve, check):
    """It says which promise was not kept, and how."""

    def rude(peer: socket.socket) -> None:
        if peer.recv(100)[:1] == b"\x01":
            peer.sendall(b"\x02\x00\x00")  # hello
        if peer.recv(100)[:1] == b"\x10":
            peer.sendall(b"\x20\x01\x00\x23\x01\x00")  # and one subscription

    status, out, errors = check(
        serve(rude), "--only", "goodbye_is", "--as", "publisher", "--patience", "1"
    )
    assert status == 1
    assert "a subscription is not answered" in out + errors


def test_one_element_too_many(listen, check, monkeypatch):
    """What a broken rule has to do with fails, the rest passes; the status is 1."""
    wanted = Served.wanted
    monkeypatch.setattr(Served, "wanted", lambda self, n: wanted(self, n + 1))
    address = listen("rsio", check_publishers=True).address
    status, out, _ = check(address, *SOME, "--json")
    assert status == 1
    found = [(one["name"], one["as"], one["outcome"]) for one in json.loads(out)]
    failed = {(name, role) for name, role, outcome in found if outcome == "failed"}
    assert failed == {("demand_is_met_in_full", "publisher")}


@pytest.mark.parametrize(
    ("answer", "complaint"), [(b"HTTP/1.1 400\r\n\r\n", "no RS.io"), (b"", "no RS.io")]
)
def test_something_else(serve, check, answer, complaint):
    """A server of another protocol is told apart at once."""

    def other(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(answer)

    status, _, errors = check(serve(other))
    assert status == 1
    assert complaint in errors


def test_a_target_plays_no_trick_on_a_terminal(serve, check):
    """What it says is spelled where it is not printable."""

    def rude(peer: socket.socket) -> None:
        if peer.recv(100)[:1] == b"\x01":
            peer.sendall(b"\x02\x00\x00\x03\x05\x1b[2Jx")  # hello and goodbye

    status, out, errors = check(serve(rude))
    assert status == 1
    assert "\x1b[2J" not in out + errors
    assert "[2Jx" in out + errors


def test_nobody(check):
    """Nobody there is one complaint, not one for each test."""
    status, _, errors = check("127.0.0.1:1")
    assert status == 1
    assert "no connection: connection refused" in errors


def test_over_tls(listen, check, authority):
    """The target's certificate is verified."""
    pair = authority.issue("gw.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    address = listen("rsio", tls=context).address
    status, _, errors = check(address, "--tls", "--only", "hello_is")
    assert status == 1
    assert "certificate verify failed" in errors
    ours = ["--tls", "--ca", str(authority.ca)]
    assert check(address, *ours, "--only", "hello_is")[0] == 0


def test_the_list(check):
    """Each test with its role, what it needs, and its promise."""
    status, out, _ = check("--list")
    assert status == 0
    assert "wrong_token_is_refused (connection, with --token)" in out
    assert "websocket_takes_no_text (connection, with --websocket)" in out
    assert out.count("\n") == 2 * len(TESTS)
    few = check("--list", "--only", "spec3")[1]
    assert 0 < few.count("\n") < out.count("\n") / 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "HOST:PORT or unix:PATH is missing"),
        (["gw:1", "--only", "nope"], "no test 'nope'"),
        (
            ["gw:1", "--token", "@/nowhere/t"],
            "--token @/nowhere/t: no such file or dir",
        ),
        (["gw:1", "--token", f"@{sys.executable}"], "not UTF-8"),
        (["gw:1", "--tls", "--cert", "/nowhere/c"], "/nowhere/c: no such file or dir"),
        (["gw:1", "--token", "x", "--name", "y"], "not allowed with"),
        (["gw:1", "--patience", "0"], "not a number of seconds"),
        (["gw:1", "--cert", __file__], "need --tls"),
        (["gw:1", "--http2", "/", "--websocket", "/"], "not allowed with"),
        (["gw:1", "--tls", "--ca", __file__], "--ca, --cert or --key"),
    ],
)
def test_wrong_use(check, words, complaint):
    """Wrong use is told before anything is sent; exit status 2."""
    status, _, errors = check(*words)
    assert status == 2
    assert complaint in errors


def test_without_h2(check, monkeypatch):
    """--http2 says which package it needs."""
    monkeypatch.setattr("rsio_check.command.find_spec", lambda name: None)
    status, _, errors = check("gw:1", "--http2", "/rsio")
    assert status == 2
    assert "pip install 'rsio-check[http2]'" in errors


def test_an_address_of_ipv6(check, monkeypatch):
    """Its brackets are part of the host that a request names."""
    asked: list[str] = []

    def web(below: object, host: str, path: str) -> None:
        asked.append(host)
        raise ConnectionRefusedError("enough")

    monkeypatch.setattr(
        "rsio_check.command.over_tcp", lambda host, port, *, tls=None: None
    )
    monkeypatch.setattr("rsio_check.command.WebSocketTransport", web)
    assert check("[::1]:7400", "--websocket", "/rsio")[0] == 1
    assert asked == ["[::1]:7400"]
