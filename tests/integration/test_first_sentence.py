"""Faults made for real, and what somebody knows who reads one line of `gateway status`."""

import json
import socket
import sys
from typing import Any

import pytest

from daemons import Daemon, listener, send
from deadlines import environment, eventually, run

pytestmark = pytest.mark.slow


def ask(daemon: Daemon, command: str, *more: str) -> tuple[int, str]:
    """`gateway COMMAND`: its exit status, and the first line that it says."""
    done = run(
        *(sys.executable, "-m", "gateway", command, "--config", str(daemon.config)),
        *more,
        env=environment(),
    )
    return done.returncode, (done.stdout or done.stderr).partition("\n")[0]


def says(daemon: Daemon, begin: str, *words: str) -> None:
    """The first sentence begins so, has these words, and a script sees that not all is
    well.
    """

    eventually(lambda: daemon.status()["sentence"].startswith(begin), begin)
    code, sentence = ask(daemon, "status")
    assert sentence.startswith(begin)
    assert [word for word in words if word not in sentence] == []
    assert code == 1


def well(daemon: Daemon) -> None:
    """It is itself again."""
    eventually(
        lambda: daemon.status()["sentence"].startswith("All well"), "all is well"
    )
    assert ask(daemon, "status")[0] == 0


def test_a_job_that_fails_at_each_start(start):
    """As systemd starts it again and again: the reason is told, whether it starts just
    now, has failed just now, or was killed.
    """
    daemon = start(
        listeners=[listener("beats", "lumberjack")],
        spark={"sink": "nowhere_at_all:write"},
    )
    send(daemon, b'{"n": 1}')
    says(daemon, "No Spark job has reported here yet", "start it with gateway spark")
    assert ask(daemon, "spark", "--once")[0] == 1
    says(daemon, "The Spark job failed", "nowhere_at_all", "start it")
    assert ask(daemon, "spark", "--once")[0] == 1
    again = "The Spark job fails again and again, {} times since its last batch: "
    says(daemon, again.format(2), "nowhere_at_all", "mend that")
    word = daemon.data / "lake" / ".gateway" / "health.json"
    word.write_text(json.dumps(json.loads(word.read_text()) | {"state": "starting"}))
    says(daemon, again.format(2), "nowhere_at_all")
    assert ask(daemon, "spark", "--once")[0] == 1
    says(daemon, again.format(4))


def test_a_reload_that_is_refused(start):
    """A port that somebody else has: what was in force is, and a later one clears it."""
    daemon = start(listeners=[listener("beats", "lumberjack")], spool={"after": "keep"})
    send(daemon, b'{"n": 1}')
    before = daemon.config.read_text()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        new = json.loads(before)
        new["listeners"].append(
            listener("more", "lumberjack", listen=f"tcp:127.0.0.1:{port}")
        )
        daemon.config.write_text(json.dumps(new))
        assert ask(daemon, "reload")[0] == 1
        says(
            daemon, "The last reload, ", "was refused", str(port), "in use",
            "gateway reload",
        )  # fmt: skip
    send(daemon, b'{"n": 2}')
    daemon.config.write_text(before)
    assert ask(daemon, "reload")[0] == 0
    well(daemon)


def test_what_is_taken_and_is_of_no_use(start):
    """Events that are not JSON are stored, and acknowledged, and told of."""
    daemon = start(listeners=[listener("beats", "lumberjack")], spool={"after": "keep"})
    send(daemon, *[b"{"] * 30, b"{}")
    says(daemon, "Most events are flawed, 30 of the last 31: ", "flaw")
    send(daemon, *[b"{}"] * 30)
    well(daemon)


def test_files_that_can_not_be_pushed(start):
    """Of a job that writes what nobody can read, until it writes what somebody can."""
    game: dict[str, Any] = {"outbox": {"directory": "outbox"}}
    daemon = start(
        listeners=[
            listener("beats", "lumberjack"),
            listener("game", "pomelo", options=game),
        ],
        spool={"after": "keep"},
    )
    send(daemon, b"{}")
    well(daemon)
    outbox = daemon.data / "outbox"
    (outbox / ".moves").write_bytes(b"x,y")
    (outbox / ".moves").rename(outbox / "moves.csv")
    says(daemon, "All events go their way, but ", "moves.csv, was set aside unread")
    (outbox / ".good").write_bytes(b'{"route": "r", "body": {}, "uid": "a"}\n')
    (outbox / ".good").rename(outbox / "good.json")
    well(daemon)


def test_a_spool_that_can_not_be_written(start):
    """Its directory is gone and a file is there: the reason stands in the sentence."""
    daemon = start(listeners=[listener("beats", "lumberjack")], spool={"after": "keep"})
    send(daemon, b"{}")
    daemon.settled(1)
    gone = daemon.spool.with_name("spool-gone")
    daemon.spool.rename(gone)
    daemon.spool.write_text("")
    send(daemon, b"{}")
    says(daemon, "Spool files are late", "writing them fails with ", "Errno 20")
    daemon.spool.unlink()
    gone.rename(daemon.spool)
    daemon.settled(2)
    well(daemon)
