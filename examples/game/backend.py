"""Splash's service: answers the players, tells their room what happens, serves the page.

A request is on disk before it comes here.  So nothing is kept but in memory: when this
begins, it plays again what the table has.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections import defaultdict
from functools import partial
from http.client import HTTPConnection, HTTPException
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow.dataset import dataset, field

from gateway.config import load
from rules import ROOMS, Room, play

HERE = Path(__file__).parent
CONFIG = load(sys.argv[1] if len(sys.argv) > 1 else HERE / "gateway.yaml")
ADMIN = str(CONFIG.admin.listen).removeprefix("tcp:")
GAME = {name: Room() for name in ROOMS}
LOCK = threading.Lock()
WRONG = (KeyError, TypeError, ValueError)


def remember() -> None:
    """Play again what the table has."""
    table = CONFIG.data_dir / "lake" / "events" / "protocol=pomelo"
    columns = ["lsn", "route", "uid", "body"]
    if any(table.rglob("*.parquet")):
        rows = dataset(table).to_table(columns, filter=field("kind") == "request")
        for row in rows.sort_by("lsn").to_pylist():
            with contextlib.suppress(*WRONG):
                play(GAME, row["route"], row["uid"], json.loads(row["body"]))


def tell(room: str, news: list[dict[str, Any]]) -> None:
    """Push news to the room's group; while the gateway is away the group is empty."""
    push = json.dumps({"route": "onNews", "group": room, "body": news})
    gateway = HTTPConnection(ADMIN, timeout=5)
    with contextlib.suppress(OSError, HTTPException), contextlib.closing(gateway):
        headers = {"Content-Type": "application/json"}
        if CONFIG.admin.token is not None:
            headers["Authorization"] = f"Bearer {CONFIG.admin.token}"
        gateway.request("POST", "/api/push", push, headers)
        answer = gateway.getresponse()
        if answer.status != 200:
            sys.stderr.write(f"not pushed: {answer.read().decode()}\n")


class Splash(SimpleHTTPRequestHandler):
    """POST is the gateway's, GET the page's."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a batch of requests, then tell the rooms."""
        size = int(self.headers["Content-Length"])
        answers: list[dict[str, Any]] = []
        groups: list[dict[str, str]] = []
        heard: dict[str, list[dict[str, Any]]] = defaultdict(list)
        with LOCK:
            for one in json.loads(self.rfile.read(size))["requests"]:
                try:
                    news = play(GAME, one["route"], one["uid"], one["body"])
                except WRONG:
                    answers.append({"code": 400, "msg": "that can not be done"})
                    continue
                answers.append({"code": 200})
                here = one["body"]["room"]
                heard[here].append({**news, "lsn": one["lsn"]})
                if one["route"] == "room.enter":
                    answers[-1] |= GAME[here].seen()
                    for room in ROOMS:
                        change = "join" if room == here else "leave"
                        groups.append({change: room, "session": one["session"]})
        said = json.dumps({"answers": answers, "groups": groups}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        for room, all_news in heard.items():
            tell(room, all_news)

    def log_message(self, *_: object) -> None:
        """Say nothing: each splash would be a line."""


if __name__ == "__main__":
    remember()
    options: Any = CONFIG.listeners[0].options
    host, _, port = urlsplit(options.backends[0].url).netloc.partition(":")
    page = partial(Splash, directory=str(HERE / "web"))
    ThreadingHTTPServer((host, int(port)), page).serve_forever()
