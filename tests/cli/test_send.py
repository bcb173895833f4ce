"""`gateway send` as a program of its own, against listeners in this one: what all protocols do,
and what each does beside.
"""

import json
import os
import socket
import ssl
import threading
from argparse import Namespace
from collections.abc import Mapping, Sequence

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from gateway import cli
from gateway.sdk.sending import Feeding, Totals
from gateway.sdk.source import Lines

SEGMENT = ("--segment", "a/b/0.#epoch.0")
WAYS = {
    "lumberjack": ("lumberjack", "--window", "64"),
    "lumberjack v1": ("lumberjack", "--window", "64", "--v1"),
    "lumberjack, not compressed": ("lumberjack", "--compression", "0"),
    "pomelo": ("pomelo",),
    "pomelo notifies": ("pomelo", "--notify"),
    "pravega, draft": ("pravega", *SEGMENT, "--dialect", "seed", "--window", "40"),
    "pravega v17": ("pravega", *SEGMENT, "--dialect", "v17", "--window", "40"),
    "rsio": ("rsio",),
    "rsio, packed": ("rsio", "--packed", "200"),
    "rsio, compressed": ("rsio", "--compress"),
    "rsio, named": ("rsio", "--name", "me"),
}


@pytest.mark.parametrize("way", WAYS)
def test_generated(listen, send, tmp_path, way):
    """All made-up events arrive; their ids are on record; the totals agree."""
    protocol, *words = WAYS[way]
    listener, acked = listen(protocol), tmp_path / "acked"
    run = send(
        protocol, listener.address, "--generate", 500, "--connections", 2,
        "--acked", acked, "--json", *words,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert totals["sent"] == totals["acknowledged"] == 500
    assert totals["complete"] is True
    assert len(set(listener.ids)) == 500
    assert sorted(listener.ids) == sorted(acked.read_text().split())


@pytest.mark.parametrize(
    ("protocol", "batches", "words"),
    [("lumberjack", 4, ["--window", "20"]), ("pomelo", 3, ["--depth", "5"])],
)
def test_at_least_once(listen, send, protocol, batches, words):
    """The listener hangs up: what was not acknowledged is sent again, all is there."""
    listener = listen(protocol, batches=batches)
    run = send(protocol, listener.address, "--generate", 300, "--json", *words)
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert totals["connections"] == 2
    assert totals["resent"] > 0
    assert len(set(listener.ids)) == 300


@pytest.mark.parametrize(
    ("protocol", "reads", "words", "options"),
    [
        *(
            ("pravega", reads, ["--dialect", dialect, "--window", "16"], {})
            for dialect in ("seed", "v17")
            for reads in (1, 2, 3, 5)
        ),
        *(("rsio", reads, [], {"window": 16}) for reads in (2, 3, 4, 6)),
    ],
)
def test_exactly_once(listen, send, protocol, reads, words, options):
    """Acknowledgements are lost with the connection; nothing is stored twice."""
    listener = listen(protocol, reads=reads, **options)
    run = send(protocol, listener.address, "--generate", 300, "--json", *words)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["connections"] == 2
    assert len(listener.ids) == len(set(listener.ids)) == 300


@pytest.mark.parametrize("source", ["--file", "pipe", "--stdin"])
def test_lines(listen, send, tmp_path, source):
    """JSON objects go as they are, other lines as messages, the last without newline."""
    listener = listen("lumberjack")
    text = '{"event":{"id":"mine"}}\n\nplain "text"\n[1]\nlast'
    acked, path = tmp_path / "acked", tmp_path / "lines"
    words = [source] if source == "--stdin" else ["--file", path]
    if source == "pipe":
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=(text,)).start()
    else:
        path.write_text(text)
    run = send("lumberjack", listener.address, *words, "--acked", acked, stdin=text)
    assert run.returncode == 0, run.stderr
    assert "4 of 4 events acknowledged" in run.stdout
    assert listener.payloads[0] == b'{"event":{"id":"mine"}}'
    messages = [json.loads(payload)["message"] for payload in listener.payloads[1:]]
    assert messages == ['plain "text"', "[1]", "last"]
    assert acked.read_text().split() == ["mine", "line-2", "line-3", "line-4"]


def test_nobody_there(send, free_port):
    """When nobody answers it says so at once, gives up in the end, and exits with 1."""
    address = f"127.0.0.1:{free_port()}"
    run = send("lumberjack", address, "--patience", "2", "--generate", 5)
    assert run.returncode == 1
    trying, gave_up = run.stderr.splitlines()
    assert trying.startswith("gateway send: connection refused, trying again (gives up")
    assert gave_up.endswith("for 2 s: connection refused")
    assert run.stdout.startswith("0 of 5 events acknowledged in ")
    assert run.stdout.endswith(" 0 connections; 5 NOT acknowledged\n")


@pytest.mark.parametrize(
    ("totals", "end"),
    [
        (Totals(5, 5, connections=1, complete=True, ended=True), " 1 connection"),
        (Totals(5, 3, connections=2, ended=True), "2 connections; 2 NOT acknowledged"),
        (Totals(5, 5), "0 connections; stopped before the end of the input"),
        (Totals(5, 4), "; 1 NOT acknowledged; stopped before the end of the input"),
        (Totals(5, 5, ended=True), "0 connections; it failed on the way"),
    ],
)
def test_its_last_words_agree(totals, end):
    """They say what was not acknowledged, and what was not sent: and nothing else."""
    assert str(totals).endswith(end)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["5044"], "not HOST:PORT"),
        (["gw:x"], "not HOST:PORT"),
        (["gw:5044", "--generate", "0"], "not a number above 0"),
        (["gw:5044", "--rate", "0"], "--rate: not a finite number above 0"),
        (["gw:5044", "--rate", "nan"], "--rate: not a finite number above 0"),
        (["gw:5044", "--rate", "inf"], "--rate: not a finite number above 0"),
        (["gw:5044", "--patience", "nan"], "--patience: not a finite number"),
        (["gw:5044", "--connections", "3000000"], "(ulimit -Hn)"),
        (["gw:5044", "--ca", __file__], "need --tls"),
        (["gw:5044", "--tls", "--key", __file__], "--key needs --cert"),
        (["gw:5044", "--tls", "--ca", __file__], f"{__file__}: no certificate"),
        (["gw:5044", "--tls", "--cert", __file__], f"{__file__}: "),
        (["gw:5044", "--file", "/no/such/file"], "no such file: /no/such/file"),
        (["gw:5044", "--file", "/"], "/ is a directory"),
        (["gw:5044", "--acked", "/no/such/file"], "/no/such/file: no such file"),
        (["gw:5044", "--acked", "/"], "--acked /: is a directory"),
        (["gw:5044", "--file", "a", "--stdin"], "not allowed with"),
        (["unix:relative"], "not HOST:PORT"),
        ([], "HOST:PORT, unix:PATH or --stdio is missing"),
        (["gw:5044", "--stdio"], "takes the place of HOST:PORT"),
        (["--stdio", "--stdin"], "--stdio and --stdin exclude each other"),
        (["--stdio", "--tls"], "--stdio and --tls exclude each other"),
        (["--stdio", "--connections", "2"], "--stdio is one connection"),
    ],
)
def test_wrong_use(capsys, arguments, complaint):
    """Wrong use is told before anything is sent; exit status 2."""
    assert cli.main(["send", "lumberjack", *arguments]) == 2
    assert complaint in capsys.readouterr().err


class Silent:
    """A client that is never answered."""

    connections, resent, trouble = 1, 0, ""

    def start(self) -> None:
        """It is connected."""

    def offer(self, _: Sequence[bytes]) -> Deferred[Mapping[int, str]]:
        return Deferred()

    def stop(self) -> Deferred[None]:
        return succeed(None)


class Many(Feeding):
    """A run that counts the clients that it has made, each in a hundredth of a second."""

    made = 0

    def client(self) -> Silent:
        self.made += 1
        self.reactor.rightNow += 0.01
        return Silent()


def test_connections_are_begun_a_few_at_a_time():
    """Between them signals are heard; who is to stop begins no more."""
    clock, events = Clock(), [("a", b"{}")] * 1000
    args = Namespace(reactor=clock, events=events, connections=1000, rate=None)
    run = Many(args, lambda _: iter(()), size=1, lots=1)
    run.begin()
    assert 0 < run.made < 10
    clock.callLater(0, setattr, run, "stopping", True)
    clock.advance(0)
    assert 0 < run.made < 20


def test_slow_pipes_are_not_waited_for():
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


def test_many_connections_read_one_file(listen, send, tmp_path):
    """Each with many events in flight: whoever waits for lines is woken by the reactor."""
    listener, lines = listen("pomelo"), tmp_path / "lines"
    lines.write_text("".join(f'{{"event":{{"id":"{n}"}}}}\n' for n in range(5000)))
    words = ["--connections", 3, "--depth", 100, "--file", lines]
    run = send("pomelo", listener.address, *words)
    assert run.returncode == 0, run.stderr
    assert len(set(listener.ids)) == 5000


def test_tls(listen, send, authority):
    """Over TLS, with a certificate of our own; a reader nobody vouches for gets none."""
    ours = authority.issue("web-1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("gateway.example"))
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    reader = listen("lumberjack", tls=context)
    run = send(
        "lumberjack", reader.address, "--generate", 50, "--tls",
        "--ca", authority.ca, "--cert", ours.certificate, "--key", ours.key,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(reader.payloads) == 50
    run = send("lumberjack", reader.address, "--tls")
    assert run.returncode == 1
    assert "certificate verify failed" in run.stderr
    assert len(reader.payloads) == 50


@pytest.mark.parametrize("extra", [[], ["--notify"]])
def test_requests(listen, send, extra):
    """Every event is one; with --notify only one in a while, to hear that all is well."""
    server = listen("pomelo")
    run = send("pomelo", server.address, "--generate", 500, *extra)
    assert run.returncode == 0, run.stderr
    requests = sum(
        rows.kinds.get(number, rows.kind) == "request"
        for rows in server.rows
        for number in range(rows.count)
    )
    assert 0 < requests < 50 if extra else requests == 500


def test_standard_input_and_a_token(listen, send):
    """Lines that are objects are sent as they are."""
    server = listen("pomelo", token="t0k")
    words = ["--stdin", "--token", "t0k"]
    run = send("pomelo", server.address, *words, stdin='{"a":1}\nplain\n')
    assert run.returncode == 0, run.stderr
    assert server.payloads[0] == b'{"a":1}'
    assert json.loads(server.payloads[1])["message"] == "plain"


def test_who_is_not_admitted(listen, send_until):
    """The server's reason is told, while it is tried again."""
    server = listen("pomelo", token="t0k")
    reason = "handshake refused: wrong token, trying again"
    send_until(reason, "pomelo", server.address, "--token", "no")


@pytest.mark.parametrize("dialect", ["seed", "v17"])
def test_segment_and_size(listen, send, dialect):
    """All events are in the segment that was asked for, of the size asked for."""
    store = listen("pravega")
    run = send(
        "pravega", store.address, "--dialect", dialect, "--generate", 500,
        "--segment", "a/b/0.#epoch.0", "--size", 300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert {rows.channel for rows in store.rows if rows.count} == {"a/b/0.#epoch.0"}
    assert [len(payload) for payload in store.payloads] == [300] * 500


def test_not_over_websocket(capsys):
    """Pravega has none, so there is no such option."""
    assert cli.main(["send", "pravega", "gw:1", "--websocket", "/"]) == 2
    assert "--websocket" in capsys.readouterr().err


def test_packed(listen, send):
    """Each element fills its place."""
    gate = listen("rsio")
    run = send("rsio", gate.address, "--generate", 500, "--packed", 200)
    assert run.returncode == 0, run.stderr
    assert [len(payload) for payload in gate.payloads] == [200] * 500


def test_elements_come_at_least_once(listen, send):
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
