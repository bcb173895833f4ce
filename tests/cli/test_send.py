"""`gateway send` as a program of its own, against listeners in this one."""

import json
import os
import threading

import pytest

from gateway import cli
from gateway.sdk.sending import Totals
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
        (
            Totals(5, 4),
            "; 1 NOT acknowledged; stopped before the end of the input",
        ),
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
        (["gw:5044", "--rate", "0"], "--rate must be above 0"),
        (["gw:5044", "--rate", "nan"], "--rate must be above 0"),
        (["gw:5044", "--ca", __file__], "need --tls"),
        (["gw:5044", "--tls", "--key", __file__], "--key needs --cert"),
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
