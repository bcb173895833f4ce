"""Published Node.js clients against the real daemon."""

import json
import re
from pathlib import Path

import pytest

from daemons import listener, tls

pytestmark = pytest.mark.needs_npm

PROTOCOL_PROGRAM = Path(__file__).with_name("lumberjack_protocol.js").read_text()

CLIENT_PROGRAM = Path(__file__).with_name("lumberjack_client.js").read_text()


@pytest.mark.smoke
def test_lumberjack_protocol_gets_an_ack_that_it_believes(npm, start, authority):
    """v1 over TLS, one window frame and then frames outside any window: all is stored
    in order, and what it hears stays v1 and ends with its last sequence number.
    """
    run = npm("lumberjack-protocol@1.0.7")
    pair = authority.issue("localhost")
    daemon = start(listeners=[listener("beats", "lumberjack", tls=tls(pair))])
    heard = run(PROTOCOL_PROGRAM, daemon.address()[1], authority.ca, 500)
    acknowledged = [int(line) for line in heard.splitlines()]
    assert acknowledged == sorted(acknowledged)
    assert acknowledged[-1] == 500
    daemon.settled()
    rows = daemon.rows()
    events = [json.loads(row["payload"]) for row in rows]
    assert [event["line"] for event in events] == [f"line {n}" for n in range(500)]
    assert [event["offset"] for event in events] == [str(n) for n in range(1, 501)]
    assert [row["seq"] for row in rows] == list(range(1, 501))
    assert {row["attributes"]["version"] for row in rows} == {"1"}
    assert {row["attributes"]["tls"] for row in rows} == {"TLSv1.3"}


# As the page has it, but for the address; then an event now and then, and each `A`.
PAGE = Path(__file__).parents[2] / "docs" / "clients" / "npm-lumberjack.md"
SLOWLY = Path(__file__).with_name("lumberjack_slowly.js").read_text()


def test_the_settings_of_the_page_for_lumberjack_protocol(npm, start, authority):
    """It announces 1000 events once, and sends a few now and then: each time it hears of
    the last one, on one connection, and they are there once.
    """
    run = npm("lumberjack-protocol@1.0.7")
    pair = authority.issue("localhost")
    daemon = start(listeners=[listener("beats", "lumberjack", tls=tls(pair))])
    [program, _] = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for shown, here in {
        '"gw.example"': '"localhost"',
        "5044": str(daemon.address()[1]),
        '"ca.pem"': json.dumps(str(authority.ca)),
    }.items():
        assert shown in program
        program = program.replace(shown, here)
    assert "windowSize: 1000" in program
    heard = [int(line) for line in run(program + SLOWLY).split()]
    assert heard == sorted(heard)
    assert heard[-1] == 20
    assert len(heard) < 20
    daemon.settled()
    rows = daemon.rows()
    assert [row["seq"] for row in rows] == list(range(1, 21))
    assert len({row["session"] for row in rows}) == 1
    assert json.loads(rows[0]["payload"]) == {"line": "hello", "host": "web-1"}
    assert daemon.status()["lumberjack"]["parts"] == len(heard)


def test_the_settings_of_the_page_for_lumberjack_client(npm, start):
    """What it logs arrives, as the page has it."""
    run = npm("lumberjack-client@1.0.3")
    daemon = start()
    [_, program] = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = program.replace('"gw.example"', '"127.0.0.1"')
    program = program.replace("5044", str(daemon.address()[1]))
    run(program + "client.socket.once('data', () => process.exit(0));")
    daemon.settled()
    assert [json.loads(row["payload"]) for row in daemon.rows()] == [
        {"message": "hello"}
    ]


@pytest.mark.smoke
def test_lumberjack_client_is_read_though_it_does_not_read(npm, start):
    """It never looks at acknowledgements, and ends when it has sent all: that is there."""
    run = npm("lumberjack-client@1.0.3")
    daemon = start()
    run(CLIENT_PROGRAM, daemon.address()[1], 400)
    daemon.settled()
    events = [json.loads(row["payload"]) for row in daemon.rows()]
    assert events == [{"message": f"line {n}"} for n in range(400)]
