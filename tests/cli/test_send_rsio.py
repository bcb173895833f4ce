"""What `gateway send rsio` does beside what all protocols do."""

import json
import socket

import pytest


def test_packed(listen, send):
    """Each element fills its place."""
    gate = listen("rsio")
    run = send("rsio", gate.address, "--generate", 500, "--packed", 200)
    assert run.returncode == 0, run.stderr
    assert [len(payload) for payload in gate.payloads] == [200] * 500


def test_at_least_once(listen, send):
    """… without the extension, nothing is missing."""
    gate = listen("rsio", window=16, reads=4, offsets=False)
    run = send("rsio", gate.address, "--generate", "300", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["resent"] == len(gate.ids) - 300 > 0
    assert len(set(gate.ids)) == 300


def test_another_run_with_the_same_token(listen, send):
    """What one run has sent is stored beside what another has."""
    gate = listen("rsio", tokens={"meter": "s3cret"})
    for line in ("one", "two"):
        run = send("rsio", gate.address, "--stdin", "--token", "s3cret", stdin=line)
        assert run.returncode == 0, run.stderr
    assert [json.loads(one)["message"] for one in gate.payloads] == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--token", "wrong"], "E401"),
        (["--publisher", "nobody"], "nobody subscribes to 'nobody'"),
    ],
)
def test_trouble(listen, send_until, arguments, complaint):
    """It says why nothing is acknowledged."""
    gate = listen("rsio", tokens={"meter": "s3cret"})
    send_until(complaint, "rsio", gate.address, "--token", "s3cret", *arguments)


def test_too_long_for_its_place(listen, send):
    """An event that does not fit ends the run."""
    run = send("rsio", listen("rsio").address, "--packed", "20")
    assert run.returncode == 1
    assert "does not fit --packed 20" in run.stderr


def test_one_token_for_all(listen, send):
    """Each connection has a name of its own among those with the token."""
    gate = listen("rsio", tokens={"meter": "s3cret"}, reads=4)
    run = send(
        "rsio", gate.address, "--generate", "300", "--token", "s3cret",
        "--connections", "3",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(gate.ids) == len(set(gate.ids)) == 300


def test_another_has_the_name(serve, send):
    """It stops, and says so once."""

    def fence(peer: socket.socket) -> None:
        peer.sendall(b"\x02\0\x03\x02\x04\x07")  # hello, with 2, 4 and 7
        said = b""
        while b"\x48\x06events" not in said:
            said += peer.recv(1000) or b"\x48\x06events"
        peer.sendall(b"\x03\x11E412 another one!")

    run = send("rsio", serve(fence), "--generate", "5000", "--name", "n")
    assert run.returncode == 1
    assert run.stderr.count("gateway send: E412 another one!") == 1


def test_trouble_is_no_trick_on_a_terminal(serve, send_until):
    """What the other end says is spelled where it is not printable."""

    def rude(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(b"\x02\x00\x00\x03\x07\x1b[2Jbye")  # hello and goodbye

    said = send_until("\\u001b[2Jbye", "rsio", serve(rude))
    assert "\x1b[2J" not in said
