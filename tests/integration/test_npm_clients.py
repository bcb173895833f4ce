"""Published Node.js clients against the real daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

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


def test_lumberjack_protocol_gets_an_ack_that_it_believes(
    npm: Callable[..., Any], start: Callable[..., Any], authority: Any
) -> None:
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


def test_lumberjack_client_is_read_though_it_does_not_read(
    npm: Callable[..., Any], start: Callable[..., Any]
) -> None:
    """It never looks at acknowledgements, and ends when it has sent all: that is there."""
    run = npm("lumberjack-client@1.0.3")
    daemon = start()
    run(CLIENT_PROGRAM, daemon.address()[1], 400)
    daemon.settled()
    events = [json.loads(row["payload"]) for row in daemon.rows()]
    assert events == [{"message": f"line {n}"} for n in range(400)]
