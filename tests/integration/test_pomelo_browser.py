"""A web page with the browsers' Pomelo client, in a browser, over wss."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemons import listener, tls
from deadlines import eventually

pytestmark = [pytest.mark.needs_npm, pytest.mark.needs_apt]

# The sources of the client, as they are published.
SOURCES = """
const fs = require("fs");
const path = require("path");
console.log(JSON.stringify([
  "pomelo-protocol/lib/protocol.js",
  "pomelo-protobuf/lib/client/protobuf.js",
  "pomelo-jsclient-websocket/lib/pomelo-client.js",
].map(file => fs.readFileSync(path.join(__dirname, "node_modules", file), "utf8"))));
"""

AROUND = Path(__file__).with_name("pomelo_around.js").read_text()

# Between the sources; `decodeStr` is called, and missing there.
EMPTY = "module = {exports: {}};"
PROTOBUF = "window.protobuf = module.exports; protobuf.decodeStr = protobuf.decode;"

PAGE = Path(__file__).with_name("pomelo_page.js").read_text()


def test_a_page_sends_and_shows_a_push(npm, start, browse, server_pair, tmp_path):
    """Over wss, with dictionary and protobuf: its request is answered when stored, and
    a push is on its screen.
    """
    protocol, protobuf, client = json.loads(
        npm(
            "pomelo-jsclient-websocket@0.1.1",
            "pomelo-protocol@0.1.6",
            "pomelo-protobuf@0.4.0",
        )(SOURCES)
    )
    game = listener(
        "game",
        "pomelo",
        websocket={"path": "/"},
        tls=tls(server_pair),
        options={
            "trust_uid": True,
            "session_events": False,
            "routes": ["area.player.move", "onScore"],
            "client_protos": {
                "area.player.move": {"required sInt32 x": 1, "required sInt32 y": 2}
            },
            "server_protos": {
                "onScore": {"required string name": 1, "required uInt32 points": 2}
            },
        },
    )
    daemon = start(listeners=[game])
    talk = PAGE.replace("PORT", str(daemon.address("game")[1]))
    scripts = [AROUND, protocol, EMPTY, protobuf, PROTOBUF, client, talk]
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><p id="score">nothing</p>'
        + "".join(f"<script>{script}</script>" for script in scripts)
    )
    browse(page.as_uri())

    def stored() -> dict[str, Any]:
        daemon.settled()
        return {row["channel"]: json.loads(row["payload"]) for row in daemon.rows()}

    eventually(lambda: "page.answered" in stored(), "the page's request")
    pushed = daemon.push("onScore", {"name": "alice", "points": 42}, uid="alice")
    assert pushed == {"sent": 1, "dropped": 0}
    eventually(lambda: "page.shows" in stored(), "the push on the page")

    assert stored() == {
        "area.player.move": {"x": 1, "y": -2},
        "page.answered": {"code": 200},
        "page.shows": {"text": "alice: 42"},
    }
    assert {row["attributes"]["profile"] for row in daemon.rows()} == {"js"}
    assert {row["attributes"]["tls"] for row in daemon.rows()} == {"TLSv1.3"}
