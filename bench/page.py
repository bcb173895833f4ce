"""What the live page costs the gateway while it is loaded as much as it can be.

Sixteen viewers, as many as the gateway lets look, do what the page does: it and its files
and the last hour once, the feed all the time, and every three seconds who is connected.
Half of them have the list of connections open.

top     windows of 2048 events over 4 connections
many    windows of 50 events over 1,000 connections

The cost is the CPU of the event loop in requests to the admin port, writes to it, states
for the feed, and samples of the last hour (see _viewed.py), over the measured seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from pathlib import Path
from typing import Any

from _daemon import Consumer, Gateway, listener, load
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _run import chosen

CASES: dict[str, dict[str, Any]] = {
    "top": {"events": 2048, "connections": 4},
    "many": {"events": 50, "connections": 1000, "windows": 4096},
}
_VIEWERS = 16
_ASK_SECONDS = 3.0
_FILES = (
    "/", "/live/main.js", "/live/style.css", "/live/peers.js", "/live/plots.js",
    "/live/tables.js", "/live/tap.js", "/live/way.js", "/live/words.js", "/api/history",
)  # fmt: skip


class Viewer:
    """A page that somebody has open, in two threads."""

    def __init__(self, port: int, *, open_list: bool) -> None:
        self._port = port
        self._limit = 200 if open_list else 1
        self._end = threading.Event()
        self.states = 0
        """That the feed told."""
        self.lists = 0
        """Of connections."""
        self.trouble: str | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(each,), daemon=True)
            for each in (self._listen, self._ask)
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._end.set()
        for each in self._threads:
            each.join()

    def _run(self, what: Any) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            with contextlib.closing(connection):
                what(connection)
        except (OSError, http.client.HTTPException, Broken) as why:
            self.trouble = f"{type(why).__name__}: {why}"

    def _listen(self, connection: http.client.HTTPConnection) -> None:
        for path in _FILES:
            self._get(connection, path)
        connection.request("GET", "/api/feed")
        answer = connection.getresponse()
        while not self._end.is_set() and (line := answer.readline()):
            self.states += line == b"event: status\n"

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        path = f"/api/connections?sort=bytes&order=down&limit={self._limit}&find="
        while not self._end.wait(_ASK_SECONDS):
            self._get(connection, path)
            self.lists += 1

    def _get(self, connection: http.client.HTTPConnection, path: str) -> None:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise Broken(f"{path}: {answer.status} {body[:200]!r}")


def measure(report: Report, case: str, home: Path, seconds: float) -> None:
    """One case, in a gateway of its own."""
    spent = home / case / "spent"
    most = CASES[case]["connections"] + 10
    limits = {"connections": most, "connections_per_peer": most}
    made = listener("beats", "lumberjack", limits=limits)
    settings = {"listeners": [made], "spool": {"retention": "10s"}}
    with (
        Gateway(home / case, settings, viewed=spent) as gateway,
        Consumer(gateway),
        load(gateway.address(), seconds=seconds, **CASES[case]) as running,
    ):
        viewers = [
            Viewer(gateway.admin_port, open_list=number % 2 == 0)
            for number in range(_VIEWERS)
        ]
        running.until("measuring")
        before, begun = float(spent.read_text()), time.monotonic()
        measured = running.until("measured")
        cost = float(spent.read_text()) - before
        took = time.monotonic() - begun
        for each in viewers:
            each.stop()
        running.until("drained")
    for each in viewers:
        if each.trouble or not (each.states and each.lists):
            raise Broken(f"a viewer saw {each.states} states, and then {each.trouble}")
    share = cost / took * 100
    report.add(f"{case}: events/s", measured["events_per_second"])
    report.add(f"{case}: states that viewers saw", sum(one.states for one in viewers))
    report.add(f"{case}: lists that they asked for", sum(one.lists for one in viewers))
    report.add(f"{case}: page and feed", share, "% of a core")
    what = f"page and feed, {_VIEWERS} viewers, full load: {case}"
    report.claims.append(Claim(what, share, "% of a core", 2))


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    cases = chosen(parser, options, tuple(CASES))
    with workplace(options) as home:
        report = Report("the live page under load", machine(home))
        for case in cases:
            measure(report, case, home, options.seconds)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
