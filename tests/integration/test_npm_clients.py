"""Published Node.js clients against the real daemon."""

import json
import re
from pathlib import Path

import pytest

from daemons import listener, tls

pytestmark = pytest.mark.needs_npm

# One `W 20` per connection, then bare v1 `D` frames for ever.  It takes any 'A' for an
# acknowledgement, and dies of one that is not v1.
PROTOCOL_PROGRAM = """
const lumberjack = require("lumberjack-protocol");
const fs = require("fs");
const [port, ca, frames] = process.argv.slice(2);
const options = {host: "localhost", port: +port, ca: [fs.readFileSync(ca)]};
const client = lumberjack.client(options, {windowSize: 20, reconnect: 200});
let connections = 0, lost = null;
client.on("dropped", count => { console.error("dropped", count); process.exit(3); });
client.on("disconnect", why => { lost = why || lost; });
client.on("connect", () => {
  if (++connections > 1) { console.error("disconnected", lost); process.exit(4); }
  const socket = client._socket;
  let sent = 0;
  const more = () =>
    client.writeDataFrame({line: `line ${sent++}`, offset: String(sent)});
  socket.on("ack", seq => {
    console.log(seq);
    if (seq === +frames) process.exit(0);
    while (sent < +frames && sent < seq + 20) more();
  });
  for (let n = 0; n < 20; n++) more();
});
setTimeout(() => { console.error("no acknowledgement", lost); process.exit(5); }, 600000);
"""

# A window per event once connected, all before that in one; reads no acknowledgement.
# It half-closes and stays until we close: who hangs up at once resets the connection.
CLIENT_PROGRAM = """
const Client = require("lumberjack-client");
const [port, events] = process.argv.slice(2);
const client = new Client({host: "127.0.0.1", port: +port}, false);
for (let n = 0; n < +events / 2; n++) client.log({message: `line ${n}`});
client.socket.on("connect", () => setImmediate(() => {
  for (let n = +events / 2; n < +events; n++) client.log({message: `line ${n}`});
  client.socket.removeAllListeners("close");
  client.socket.on("close", () => process.exit(0)).resume().end();
}));
setTimeout(() => process.exit(5), 600000);
"""


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
SLOWLY = """
let connections = 0, sent = 1;
client.on("connect", () => {
  if (++connections > 1) { console.error("disconnected"); process.exit(4); }
  client._socket.on("ack", seq => {
    console.log(seq);
    if (seq === 20) process.exit(0);
    if (seq === sent) more();
  });
});
function more() {
  for (let n = 0; n < 5 && sent < 20; n++)
    client.writeDataFrame({line: `line ${++sent}`});
}
setTimeout(() => { console.error("no acknowledgement"); process.exit(5); }, 600000);
"""


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
