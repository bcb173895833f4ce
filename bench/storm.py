"""The minute after a restart: all senders come again at once, over TLS.

    python bench/storm.py                     all cases
    python bench/storm.py --case mtls-fifth   some

2,200 senders connect at the same moment to a reader that has just been started, and each has
a window of 50 events to send; 2,000 are silent after that, 200 go on with one each half
second (`_storm.py` has how they wait, give up and come again: as Filebeat).  Cases:

tls, mtls                the reader has what the machine gives it
tls-fifth, mtls-fifth    it has a fifth of one core: SIGCONT for 20 ms, SIGSTOP for 80 ms

and each beside go-lumber's own server, which stores nothing, in the same run; without Go
that is left out.  Said is how long it takes until every sender was acknowledged, how many
connections it took, how many of them were cut by the reader and how many given up by their
senders, and what the reader used for it.  With the whole machine go-lumber's has all cores
where the gateway shakes hands in one thread, and both wait for the senders, who do so 2,200
times in one thread of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _daemon import Gateway, Usage, listener, usage
from _go import built
from _go_lumber import GoLumber
from _machine import machine
from _report import Broken, Claim, Lacking, Report, arguments, main, workplace

from gateway_testkit.certificates import Authority

_ON_SECONDS, _OFF_SECONDS = 0.02, 0.08
CASES = ("tls", "mtls", "tls-fifth", "mtls-fifth")


@contextmanager
def slowed(process: int, *, really: bool) -> Iterator[None]:
    """The process, on one core, goes on for a fifth of the time."""
    if not really:
        yield
        return
    one = {min(os.sched_getaffinity(0))}
    for task in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(task.name), one)
    over = threading.Event()

    def turns() -> None:
        while not over.wait(_ON_SECONDS):
            os.kill(process, signal.SIGSTOP)
            time.sleep(_OFF_SECONDS)
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(process, signal.SIGCONT)


def peak(process: int) -> int:
    """The most memory that it has had, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def storm(
    address: str, process: int, case: str, options: argparse.Namespace, pair: Any
) -> dict[str, Any]:
    """Have all of them come to the reader there; what they and it say of that."""
    command = [
        sys.executable, str(Path(__file__).with_name("_storm.py")), address,
        "--senders", str(options.senders), "--active", str(options.active),
        "--patience", str(options.patience),
    ]  # fmt: skip
    if case.startswith("mtls"):
        command += ["--certificate", str(pair.certificate), "--key", str(pair.key)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as senders:
        assert senders.stdin is not None
        assert senders.stdout is not None
        if senders.stdout.readline() != "ready\n":
            raise Broken("the senders did not start")
        before: Usage = usage(process)
        with slowed(process, really=case.endswith("fifth")):
            senders.stdin.write("\n")
            senders.stdin.flush()
            found: dict[str, Any] = json.loads(senders.stdout.readline() or "{}")
            after = usage(process)
    if not found:
        raise Broken("the senders ended")
    found["cpu_s"] = after.cpu - before.cpu
    found["peak"] = peak(process)
    return found


class Certificates:
    """Those of reader and senders."""

    def __init__(self, home: Path) -> None:
        authority = Authority(home)
        self.server, self.client = (
            authority.issue("localhost"),
            authority.issue("agent"),
        )
        self.ca = authority.ca


def ours(
    home: Path, case: str, options: argparse.Namespace, known: Certificates
) -> dict[str, Any]:
    """A gateway, with what a storm needs said: nothing."""
    made = listener("beats", "lumberjack")
    server = known.server
    made["tls"] = {
        "certificate": str(server.certificate),
        "private_key": str(server.key),
    }
    if case.startswith("mtls"):
        made["tls"] |= {"client_auth": "required", "client_ca": str(known.ca)}
        # All show one certificate here, and are one peer by that.
        made["limits"] = {"connections_per_peer": options.senders}
    place = home / f"gateway-{case}"
    place.mkdir()
    with Gateway(place, {"listeners": [made]}) as gateway:
        assert gateway.process is not None
        return storm(
            gateway.address(), gateway.process.pid, case, options, known.client
        )


def theirs(
    home: Path,
    case: str,
    options: argparse.Namespace,
    known: Certificates,
    program: Path,
) -> dict[str, Any]:
    """go-lumber's server."""
    words = ["127.0.0.1:0", known.server.certificate, known.server.key]
    if case.startswith("mtls"):
        words.append(known.ca)
    place = home / f"go-lumber-{case}"
    place.mkdir()
    with GoLumber(place, program, *words) as server:
        return storm(server.address, server.pid, case, options, known.client)


def describe(report: Report, name: str, found: dict[str, Any]) -> None:
    """All that was seen of a reader."""
    report.add(f"{name}: acknowledged", found["acknowledged"])
    report.add(f"{name}: the last one after", found["all_s"] or "never", "s")
    report.add(f"{name}: half of them after", found["half_s"] or "never", "s")
    report.add(f"{name}: connections", found["connections"])
    report.add(f"{name}: cut by the reader", found["cut"])
    report.add(f"{name}: given up by senders", found["gave_up"])
    report.add(f"{name}: CPU", found["cpu_s"], "s")
    report.add(f"{name}: memory, peak", found["peak"] / 2**20, "MiB")
    report.add(f"{name}: CPU of the senders", found["generator_cpu_s"], "s")
    report.raw[name] = found


def judge(
    report: Report,
    case: str,
    options: argparse.Namespace,
    our: dict[str, Any],
    their: dict[str, Any] | None,
) -> None:
    """What is promised of a case."""
    cut = our["cut"] + our["gave_up"] if our["all_s"] else None
    report.claims.append(Claim(f"{case}: connections cut", cut, "", 0))
    if their is None:
        return
    ratio = None
    if our["all_s"]:  # theirs took longer than anybody waited, if it is not known
        ratio = our["all_s"] / (their["all_s"] or options.patience)
    what = f"{case}: time until all are acknowledged ÷ go-lumber's"
    report.claims.append(Claim(what, ratio, "x", 0.7))


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--senders", type=int, default=2200)
    parser.add_argument("--active", type=int, default=200)
    parser.add_argument("--patience", type=float, default=180.0, help="seconds")
    parser.add_argument("--alone", action="store_true", help="without go-lumber")
    options = parser.parse_args()
    cases = options.case.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    program = None
    with workplace(options) as home:
        report = Report("a storm of senders", machine(home))
        try:
            program = None if options.alone else built("_go_lumber")
        except Lacking as why:
            report.notes.append(f"without go-lumber: {why}")
        known = Certificates(home)
        for case in cases:
            our = ours(home, case, options, known)
            describe(report, case, our)
            their = None
            if program is not None:
                their = theirs(home, case, options, known, program)
                describe(report, f"{case}: go-lumber", their)
            judge(report, case, options, our, their)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
