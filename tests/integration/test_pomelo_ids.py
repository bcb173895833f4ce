"""Published Pomelo clients that put the high group of an id first."""

import json
from pathlib import Path

import pytest

from daemons import listener

pytestmark = pytest.mark.needs_npm

_REQUESTS = 520

PROGRAM = Path(__file__).with_name("pomelo_ids.js").read_text()


def test_every_request_is_answered(npm, start):
    """Each of 520, 128 and 256 too, by its own answer; no two have the same `seq`."""
    run = npm("pomelo-client-websocket@1.0.13", "ws@8.18.0")
    options = {"session_events": False}
    game = listener("game", "pomelo", websocket={"path": "/"}, options=options)
    daemon = start(listeners=[game])
    heard = [
        json.loads(line)
        for line in run(PROGRAM, daemon.address("game")[1], _REQUESTS).splitlines()
    ]
    assert sorted(heard) == [[n, {"code": 200}] for n in range(1, _REQUESTS + 1)]
    daemon.settled()
    rows = daemon.rows()
    assert [json.loads(row["payload"])["n"] for row in rows] == [
        *range(1, _REQUESTS + 1)
    ]
    assert len({row["seq"] for row in rows}) == _REQUESTS
    high = {row["seq"] for row in rows if json.loads(row["payload"])["n"] % 128 == 0}
    assert high == {128, 256, 384, 512}
