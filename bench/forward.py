"""What it costs to forward: through two gateways, at an edge, and at a hub of a thousand.

line   Beats windows as fast as they are acknowledged, at an edge that forwards to a hub:
       events that have come all the way in the interval ÷ its seconds, CPU an event at
       edge and hub from the first byte to the last row in the hub's spool, and bytes that
       went between the two ÷ bytes that the sender sent
edge   an edge on one core, in a Python that can not import pyspark: memory with nothing to
       do, and at --rate events/s
fleet  --edges simulated edges of one process at a hub, each with a file of ten events
       now and then: memory and CPU of the hub by edge and file; and how long a file of
       theirs takes beside one that has a backlog of large files, and without it

CPU is that of all processes of a gateway; nothing here is charged with a Spark job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _daemon import Consumer, Gateway, Memory, listener, load, most_files
from _machine import floors, machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _run import chosen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

from forwarded import announced
from gateway.event import Rows
from gateway.sdk.arrivals import DIGEST, EVENTS, WHY, Announced, digest_field
from gateway.store.names import file_name
from spools import spool_file

_MIB = 2**20
_INCARNATION = "a" * 10
_SMALL, _LARGE = 10, 20_000
"""Events in a file."""
_PATIENCE = 300.0
"""Seconds in which a hub takes a file: one that has no room would have us wait for ever."""


def hub(home: Path) -> Gateway:
    """Without tokens: edges are told apart by their address."""
    limits = {"connections_per_peer": 20_000}
    made = listener("beats", "forward", limits=limits)
    return Gateway(home, {"node": "hub", "listeners": [made]})


def edge(home: Path, to: str) -> Gateway:
    return Gateway(
        home,
        {
            "node": "edge",
            "spool": {"after": "forward"},
            "forward": {"to": f"http://{to}"},
        },
    )


def line(report: Report, home: Path, options: argparse.Namespace) -> None:
    with (
        hub(home / "hub") as there,
        edge(home / "edge", there.address()) as here,
        Consumer(there),
    ):
        memory = [Memory(here), Memory(there)]
        for each in memory:
            each.start()
        begin = here.usage().cpu, there.usage().cpu
        with load(here.address(), warm_up=5, seconds=options.seconds) as running:
            running.until("measuring")
            since, arrived = time.monotonic(), _arrived(there)
            measured = running.until("measured")
            seconds, arrived = time.monotonic() - since, _arrived(there) - arrived
            total = running.until("drained")
        events = total["acked_events"]
        _wait(there, events)
        cpu = here.usage().cpu - begin[0], there.usage().cpu - begin[1]
        [sent], [carried] = _bytes(here), _bytes(there)
        peaks = [each.stop() for each in memory]
    report.add("line: events/s acknowledged", measured["events_per_second"])
    report.add("line: events/s that came all the way", arrived / seconds)
    for name, used, peak in zip(("edge", "hub"), cpu, peaks, strict=True):
        us = used / events * 1e6
        report.add(f"line: CPU an event, {name}", us, "µs")
        report.ratios(f"line, {name}", us)
        report.add(f"line: peak memory, {name}", peak / _MIB, "MiB")
    report.add("line: events/s on two cores' CPU", 2 / (sum(cpu) / events))
    report.claims += [
        Claim("events/s through two gateways", arrived / seconds, "/s", 300_000, True),
        Claim("events/s on two cores' CPU", 2 * events / sum(cpu), "/s", 300_000, True),
        Claim("bytes on the line ÷ bytes sent", carried / sent, "x", 1.1),
    ]


def _arrived(there: Gateway) -> int:
    found: int = there.status()["arrivals"]["events"]
    return found


def _bytes(gateway: Gateway) -> list[int]:
    return [int(one["bytes"]) for one in gateway.status()["listeners"]]


def _wait(there: Gateway, events: int, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while (arrived := _arrived(there)) < events:
        if time.monotonic() > end:
            raise Broken(f"{arrived} of {events} events have come to the hub")
        time.sleep(0.05)


def footprint(report: Report, home: Path, options: argparse.Namespace) -> None:
    core = min(os.sched_getaffinity(0))
    all_cores = os.sched_getaffinity(0)
    with _no_spark(home), hub(home / "hub") as there, Consumer(there):
        os.sched_setaffinity(0, {core})
        try:
            here = edge(home / "edge", there.address())
            here.start()
        finally:
            os.sched_setaffinity(0, all_cores)
        try:
            begin = here.usage()
            time.sleep(options.idle)
            idle = here.usage()
            report.add(
                "edge: memory of the daemon, idle", idle.leader_rss / _MIB, "MiB"
            )
            report.add("edge: memory of all its processes", idle.rss / _MIB, "MiB")
            report.add("edge: of it not shared", _proportional(here) / _MIB, "MiB")
            report.add("edge: CPU, idle", idle.since(begin)[0] * 100, "% of a core")
            memory = Memory(here)
            memory.start()
            with load(
                here.address(), rate=options.rate, events=100, seconds=options.seconds
            ) as running:
                running.until("measuring")
                before = here.usage()
                measured = running.until("measured")
                busy = here.usage().since(before)[0]
                total = running.until("drained")["acked_events"]
            _wait(there, total)
            peak = memory.stop()
        finally:
            here.stop()
    name = f"edge: {options.rate:.0f} events/s"
    report.add(f"{name}, as sent", measured["events_per_second"])
    report.add(f"{name}, CPU", busy * 100, "% of a core")
    report.add(f"{name}, peak memory", peak / _MIB, "MiB")


def _proportional(gateway: Gateway) -> int:
    """Bytes of its processes, where what several share counts once."""
    assert gateway.process is not None
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(process.name)
            if os.getsid(pid) == gateway.process.pid:
                text = (process / "smaps_rollup").read_text()
                found += int(text.partition("\nPss:")[2].split()[0]) * 1024
    return found


@contextlib.contextmanager
def _no_spark(home: Path) -> Iterator[None]:
    """Gateways that start meanwhile can not import it."""
    for name in ("pyspark", "py4j"):
        package = home / "absent" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('not in this run')\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(home / "absent"), before])
    )
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


@dataclass
class Edge:
    """A simulated one: it says what an edge says, and has nothing on a disk."""

    node: str
    events: int
    """In each file."""
    waits: list[float] = field(default_factory=list)
    """From the first octet of a file until it was told to be there."""

    def __post_init__(self) -> None:
        self._next_lsn = 1
        self._files: deque[tuple[Announced, bytes]] = deque()

    def make(self, files: int) -> None:
        """So many more to send."""
        for _ in range(files):
            first, last = self._next_lsn, self._next_lsn + self.events - 1
            self._next_lsn = last + 1
            rows = [_text(lsn) for lsn in range(first, last + 1)]
            made = spool_file(self.node, first, [Rows(rows)], incarnation=_INCARNATION)
            name = file_name(self.node, _INCARNATION, first, last)
            self._files.append((announced(made, name), made))

    async def connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        async with self._patience():
            self._reader, self._writer = await asyncio.open_connection(host, int(port))
            await self._ask(f"GET /nodes/{self.node}", 200)

    async def send(self) -> None:
        """The next file; returns when it is there."""
        file, made = self._files.popleft()
        since = time.monotonic()
        digest = digest_field(bytes.fromhex(file.sha256))
        more = f"{DIGEST}: {digest}", f"{EVENTS}: {file.events}", "If-None-Match: *"
        async with self._patience():
            await self._ask(f"PUT /spool/{file.name}", 201, *more, body=made)
        self.waits.append(time.monotonic() - since)

    async def _ask(self, what: str, code: int, *fields: str, body: bytes = b"") -> None:
        lines = [f"{what} HTTP/1.1", "Host: hub", f"Content-Length: {len(body)}"]
        self._writer.write("\r\n".join([*lines, *fields, "", ""]).encode() + body)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        said = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:-1])
        await self._reader.readexactly(int(said.get("content-length", 0)))
        if int(head.split()[1]) != code:
            raise Broken(f"{self.node}: {head.split()[1]}, {said.get(WHY)}")

    @contextlib.asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_PATIENCE):
                yield
        except TimeoutError:
            raise Broken(
                f"the hub took nothing of {self.node} for {_PATIENCE:g} s"
            ) from None

    @property
    def has_more(self) -> bool:
        return bool(self._files)

    def close(self) -> None:
        self._writer.close()


def _text(lsn: int) -> bytes:
    return random.Random(lsn).randbytes(16).hex().encode()


def fleet(report: Report, home: Path, options: argparse.Namespace) -> None:
    most_files()
    with hub(home / "hub") as there, Consumer(there):
        asyncio.run(_fleet(report, there, options))


async def _fleet(report: Report, there: Gateway, options: argparse.Namespace) -> None:
    address, before = there.address(), there.usage()
    edges = [Edge(f"edge-{number}", _SMALL) for number in range(options.edges)]
    for each in edges:
        await each.connect(address)
    connected = there.usage()
    report.add("fleet: edges", len(edges))
    held = (connected.rss - before.rss) / len(edges) / 1024
    report.add("fleet: memory of an edge", held, "KiB")
    cpu = (connected.cpu - before.cpu) / len(edges) * 1e3
    report.add("fleet: CPU of a connection", cpu, "ms")
    await asyncio.sleep(options.idle)
    idle = there.usage()
    report.add("fleet: CPU with nothing to do", idle.since(connected)[0] * 100, "%")
    large = Edge("large", _LARGE)
    large.make(options.large)
    for each in edges:
        each.make(3 * options.files)
    begin = there.usage()
    await _round(edges, options.files, 0.0)
    after = there.usage()
    files = len(edges) * options.files
    report.add("fleet: CPU of a file", (after.cpu - begin.cpu) / files * 1e3, "ms")
    report.add("fleet: memory, all at once", after.rss / _MIB, "MiB")
    alone = await _round(edges, options.files, options.pause)
    await large.connect(address)
    backlog = asyncio.create_task(_all(large))
    beside = await _round(edges, options.files, options.pause)
    if backlog.done():
        report.notes.append("fleet: the backlog was over before the others: --large")
    backlog.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await backlog
    report.add("fleet: large files meanwhile", len(large.waits))
    for name, waits in (("alone", alone), ("beside a backlog", beside)):
        report.add(f"fleet: a file, {name}, p50", statistics.median(waits) * 1e3, "ms")
        report.add(f"fleet: a file, {name}, longest", max(waits) * 1e3, "ms")
    for each in (*edges, large):
        each.close()
    most = max(before.rss, 1) + len(edges) * 256 * 1024
    ratio = statistics.median(beside) / statistics.median(alone)
    report.claims += [
        Claim("memory of the hub, all at once", after.rss / _MIB, "MiB", most / _MIB),
        Claim("a file, p50, beside a backlog ÷ alone", ratio, "x", 10),
    ]


async def _round(edges: Sequence[Edge], files: int, pause: float) -> list[float]:
    """Each sends so many, one after the other, with pauses of *pause* s on average."""
    for each in edges:
        each.waits.clear()

    async def send(one: Edge) -> None:
        for _ in range(files):
            await asyncio.sleep(random.uniform(0, 2 * pause))
            await one.send()

    await asyncio.gather(*[send(one) for one in edges])
    return [wait for one in edges for wait in one.waits]


async def _all(one: Edge) -> None:
    while one.has_more:
        await one.send()


_CASES: dict[str, Any] = {"line": line, "edge": footprint, "fleet": fleet}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(_CASES))
    parser.add_argument("--seconds", type=float, default=20.0, help="of load")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds")
    parser.add_argument("--rate", type=float, default=1000.0, help="events/s, of edge")
    parser.add_argument("--edges", type=int, default=1000)
    parser.add_argument("--files", type=int, default=3, help="of each of these")
    parser.add_argument("--pause", type=float, default=10.0, help="between two of them")
    parser.add_argument("--large", type=int, default=100, help="files of the backlog")
    options = parser.parse_args()
    wanted = chosen(parser, options, _CASES)
    with workplace(options) as home:
        report = Report(
            "forward", machine(home), floors() if "line" in wanted else None
        )
        for case in wanted:
            (home / case).mkdir()
            _CASES[case](report, home / case, options)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
