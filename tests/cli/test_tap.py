"""`gateway tap`: what it subscribes to, and what it shows of that."""

import argparse
import json
import socket
from typing import Any

import pyarrow as pa
import pytest
from twisted.python.failure import Failure

from gateway import cli
from gateway.event import SCHEMA
from gateway.feeds import columns
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.client import Disconnected, StreamFailed
from gateway.protocols.rsio.commands import tap
from gateway.protocols.rsio.messages import OnComplete, OnError, OnSubscribe
from gateway.sdk.command import WrongUse


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    tap.add_arguments(parser)
    return parser.parse_args(["127.0.0.1:1", *words])


@pytest.mark.parametrize(
    ("words", "publisher"),
    [
        ([], "tap"),
        (["--protocol", "pomelo"], "tap?protocol=pomelo"),
        (["--channel", "a b/ü&c=1"], "tap?channel=a+b%2F%C3%BC%26c%3D1"),
        (["--from", "7"], "events?from=7"),
        (["--from", "earliest", "--to", "9"], "events?from=earliest&to=9"),
        (["--kind", "data", "--format", "arrow"], "tap?kind=data&format=arrow"),
        (["--publisher", "tap?kind=data"], "tap?kind=data"),
        (["--publisher", "tap", "--format", "arrow"], "tap?format=arrow"),
        (["--publisher", "x?a=1", "--format", "arrow"], "x?a=1&format=arrow"),
    ],
)
def test_what_it_subscribes_to(words, publisher):
    """The options make a publisher's name, escaped."""
    assert tap._publisher(parsed(*words)) == publisher


@pytest.mark.parametrize(
    "words",
    [
        ["--to", "9"],
        ["--from", "5", "--to", "4"],
        ["--from", "x"],
        ["--publisher", "tap", "--from", "1"],
        ["--publisher", "tap", "--kind", "data"],
        ["--count", "0"],
        ["--token-file", "/nowhere"],
        ["--ca", "/nowhere"],
        ["--token", "a", "--token-file", "b"],
    ],
)
def test_wrong_use(words, capsys):
    """Options that contradict each other: status 2, and a word about it."""
    assert cli.main(["tap", "127.0.0.1:1", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err


def test_nobody_listens(gateway_command):
    """What is missing is said, with the key that brings it."""
    done = gateway_command("tap", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr == (
        "gateway tap: connection refused: no gateway listens there for RS.io; it needs a "
        "listener with protocol: rsio and options: {publish: [tap, events]}\n"
    )


def test_a_token_in_a_file(tmp_path):
    """Its line break is not part of it; bytes that are no text are refused."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    assert tap._token(parsed("--token-file", str(path))) == "secret"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WrongUse, match=f"--token-file {path}: not UTF-8"):
        tap._token(parsed("--token-file", str(path)))


def test_lines():
    """Elements as they are, a line each; gaps are shown, and do not count."""
    lines = tap._Lines(terminal=False)
    elements = [b'{"lsn":1}', b'{"gap":{"from":2,"to":3}}', b'{"lsn":4}', b'{"lsn":5}']
    assert lines.shown(elements, None) == (b"\n".join(elements) + b"\n", 3)
    assert lines.shown(elements, 2) == (b"\n".join(elements[:3]) + b"\n", 2)
    assert lines.shown(elements, 3)[1] == 3
    assert lines.end() == b""


@pytest.mark.parametrize("element", [b"5", b"[]", b"xxx", b"\xff"])
def test_elements_that_are_no_events(element):
    """A publisher of one's own gives what it likes; nothing is known of where it goes on."""
    words = ["--publisher", "check/fail?n=1"]
    run = tap._Tapping(parsed(*words), "check/fail?n=1", None)
    run._opened = True
    assert run._form.shown([element], None) == (element + b"\n", 1)
    assert not run._may_go_on(StreamFailed("E500 as asked"))
    run._failed(Failure(StreamFailed("E500 as asked")))
    assert run._status == 1


def test_a_terminal_is_not_played_with():
    """What is not printable is spelled, and means the same."""
    data, _ = tap._Lines(terminal=True).shown(['{"a":"\x9b2Jü\u2028"}'.encode()], None)
    assert data == '{"a":"\\u009b2Jü\\u2028"}\n'.encode()
    assert json.loads(data) == {"a": "\x9b2Jü\u2028"}


def test_arrow_is_one_stream(capsys):
    """Many elements become one stream; a gap is told where it does not disturb."""
    form = tap._Arrow()
    output = b""
    shown = []
    for names in (["a", "b"], ["c"], ["a", "d", "e"]):
        data, events = form.shown([element(names), columns.gap(3, 9)], None)
        output += data
        shown.append(events)
    data, events = form.shown([element(["f", "g", "h"])] * 2, 4)
    assert form.last == (1, "x", None)
    output += data + form.end()
    assert [*shown, events] == [2, 1, 3, 4]
    with pa.ipc.open_stream(output) as reader:
        table = reader.read_all()
    assert "".join(table["session"].to_pylist()) == "abcadefghf"
    assert capsys.readouterr().err == '{"gap": {"from": 3, "to": 9}}\n' * 3


def element(sessions: list[str]) -> bytes:
    row: dict[str, Any] = dict.fromkeys(
        ["node", "protocol", "listener", "peer", "kind", "content_type"], "x"
    )
    row |= {"lsn": 1, "received_at": 0, "payload": b"", "principal": None}
    row |= {"channel": None, "seq": None, "attributes": None, "flaw": None}
    batch = pa.RecordBatch.from_pylist([row | {"session": s} for s in sessions], SCHEMA)
    [made], _ = columns.streams(batch)
    return made


def test_trouble_is_no_trick_on_a_terminal(serve, gateway_command):
    """Why it ended is in the words of the other end, which may be anybody."""

    def rude(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(b"\x02\x00\x00\x03\x07\x1b[2Jbye")  # hello and goodbye

    run = gateway_command("tap", serve(rude))
    assert run.returncode == 1
    assert run.stderr == "gateway tap: \\u001b[2Jbye\n"


def test_it_goes_on_at_the_next_lsn(serve, gateway_command):
    """A gateway that is started again, a connection that breaks: nothing is missing."""
    asked: list[bytes] = []

    def lines(*lsns: int) -> bytes:
        events = [b'{"node":"gw-1","lsn":%d}' % lsn for lsn in lsns]
        return wire.on_next(1, events)

    answers = [
        lines(7, 8) + wire.encode(OnError(1, "E503 stopping")),
        lines(9),
        lines(10) + wire.encode(OnComplete(1)),
    ]

    def talk(peer: socket.socket) -> None:
        peer.sendall(b"\x02\0\0")
        said = b""
        while b"events?" not in said:
            said += peer.recv(1000) or b"events?"
        answer = answers[len(asked)]
        asked.append(said)
        peer.sendall(wire.encode(OnSubscribe(1, 0)) + answer)
        if len(asked) != 2:  # the second one is cut off
            while peer.recv(1000):
                pass

    run = gateway_command("tap", serve(talk), "--from", "7")
    assert run.returncode == 0, run.stderr
    assert [json.loads(line)["lsn"] for line in run.stdout.splitlines()] == [
        7,
        8,
        9,
        10,
    ]
    wanted = [said.partition(b"events?")[2].partition(b"\x01")[0] for said in asked]
    # Another gateway may answer by now: its lsns are other events.
    assert wanted == [b"from=7", b"node=gw-1&from=9", b"node=gw-1&from=10"]
    assert run.stderr.count("going on") == 2
    assert "E503 stopping" in run.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--from", "7"], "E410 not there"),
        (["--from", "7"], "element of 9 octets"),
        (["--from", "latest"], "E503 stopping"),
        ([], "E503 stopping"),
    ],
)
def test_when_it_does_not_go_on(words, error):
    """The other end says why not; or nobody knows where to."""
    run = tap._Tapping(parsed(*words), "events", None)
    run._opened = True
    assert not run._may_go_on(StreamFailed(error))


def test_where_it_goes_on():
    """Behind the last one that was shown, until the last one that was asked for."""
    run = tap._Tapping(parsed("--from", "latest", "--to", "9"), "x", None)
    run._opened = True
    run._form.shown([b'{"lsn":8}'], None)
    assert run._may_go_on(Disconnected("lost"))
    assert run._publisher == "events?from=9&to=9"
    assert not run._done
    run._form.shown([b'{"lsn":9}'], None)
    assert run._may_go_on(Disconnected("lost"))
    assert run._done
    assert not run._may_go_on(Disconnected("E401 a token is required"))
