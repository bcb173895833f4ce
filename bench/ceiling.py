"""What the load generator itself can do, against a reader that only skips and acks.

The other figures mean something only where they stay far below these.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _daemon import load, usage
from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway_testkit.certificates import Authority

_CASES = {
    "top": {"events": 2048, "connections": 4},
    "small": {"events": 50, "connections": 100},
    "tls": {"events": 2048, "connections": 4, "tls": True},
}
#: Events/s that the gateway is asked for in each case.
_ASKED = {"top": 250_000, "small": 60_000, "tls": 160_000}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("the load generator's own ceiling", machine(home))
        pair = Authority(home).issue("localhost")
        both = home / "both.pem"
        both.write_text("".join(each.read_text() for each in pair))
        for name, case in _CASES.items():
            _case(report, name, case, both, options.seconds)
    report.notes.append("reader: skips payloads, inflates and stores nothing")
    return report.finish(as_json=options.json)


def _case(
    report: Report, name: str, case: dict[str, int], both: Path, seconds: float
) -> None:
    command = [sys.executable, str(Path(__file__).with_name("_reader.py"))]
    if case.get("tls"):
        command += ["--certificate", str(both)]
    reader = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert reader.stdout is not None
    address = f"127.0.0.1:{int(reader.stdout.readline())}"
    windows = 256 if case["events"] > 1000 else 4096
    with load(address, warm_up=1, seconds=seconds, windows=windows, **case) as running:
        running.until("measuring")
        before = usage(reader.pid)
        measured = running.until("measured")
        cpu, _ = usage(reader.pid).since(before)
        running.until("drained")
    reader.communicate("")
    rate = measured["events_per_second"]
    report.add(f"{name}: events/s", rate)
    report.add(f"{name}: generator CPU", measured["generator_us_per_event"], "µs/event")
    report.add(f"{name}: generator", measured["generator_cpu_cores"], "cores")
    report.add(f"{name}: reader", cpu, "cores")
    report.raw[name] = measured
    asked = _ASKED[name]
    what = f"{name}: the generator's ceiling ÷ what is asked of the gateway"
    report.claims.append(Claim(what, rate / asked, "x", 10, at_least=True))


if __name__ == "__main__":
    main(bench)
