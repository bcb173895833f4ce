"""RS.io implementations of other languages, put to the tests of the kit (`rsio_check`)."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

from daemons import Daemon, listener
from deadlines import ROOT, next_line
from rsio_check import Outcome, Target, chosen, over_tcp, run, survey

__all__ = ["STREAMS", "failures", "page_runs", "sent_in_order"]

STREAMS = listener("streams", "rsio", options={"publish": ["events"], "window": 16})


def failures(
    served: subprocess.Popen[str], hello_seconds: float
) -> list[tuple[str, str, str]]:
    """The tests that a server does not pass, or that were left out: names, outcomes, reasons.

    It says its port first, and waits for so long for the hello of a peer.
    """
    port = int(next_line(served))
    target = Target(lambda: over_tcp("127.0.0.1", port), patience=60)
    target.hello_seconds = hello_seconds
    survey(target)
    return [
        (one.test.name, one.outcome.value, one.why)
        for one in run(target, chosen(target))
        if one.outcome is not Outcome.PASSED
    ]


def page_runs(
    daemon: Daemon, language: str, execute: Callable[[int, str], Any]
) -> None:
    """The two programs of docs/rsio.md in a *language*, but for the gateway's address: what
    the one sends the other reads.
    """
    port = daemon.address("streams")[1]
    page = (ROOT / "docs" / "rsio.md").read_text()
    said = []
    for number, text in enumerate(
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    ):
        done = execute(number, text.replace("gw.example:7400", f"127.0.0.1:{port}"))
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    sends, reads = said
    assert sends == ""
    assert json.loads(reads)["payload"] == {"kWh": 17.5}


def sent_in_order(daemon: Daemon, senders: int, count: int) -> None:
    """So many senders' numbers are there, all of each, packed or as JSON, in order."""
    daemon.settled()
    found: dict[str, list[int]] = {}
    for row in daemon.rows():
        payload = row["payload"]
        packed = len(payload) == 8 and payload[:1] == b"\0"
        number = int.from_bytes(payload) if packed else json.loads(payload)["n"]
        found.setdefault(row["session"], []).append(number)
    assert Counter(map(tuple, found.values())) == {tuple(range(count)): senders}
