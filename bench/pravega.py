"""Pravega through one gateway process: appends, latency, reads, much state.

    python bench/pravega.py                      all cases
    python bench/pravega.py --case top,tail      some

top      events of 100 B in blocks of 128 KiB, 10 writers, 4 blocks in flight on each
sustained  the same for --lasting seconds, and never more than --backlog of journal and
         spool that wait: a rate that lasts, where that of top is one of a burst
mixed    like top, events of 50 to 150 B
single   like top over one connection, 16 blocks in flight
kib      like top, events of 1 KiB
large    like top, events of 10 KiB in blocks of 256 KiB
small    like top in blocks of 4 KiB, 64 in flight on each
latency  like top, at half of the rate that sustained reached (or --rate)
quiet    like top, at half of the rate that is promised
tail     one event now and then, and a reader that waits for it on another connection
memory   ten segments read from their beginning, while the gateway has them in memory
spool    the same from Parquet, of 100 B events that ten writers wrote in turn; then
         one of these segments alone, for which ten times as much must be unpacked.
         The files are in the page cache, and the slower of the two is judged
state    100 000 segments and 1 000 000 writers (times --scale), kill -9, start
streams  10 000 streams of ten segments (times --scale), made by the controller, an event
         in every tenth segment, kill -9, start
client   events of 100 B through the client library of --client-python

fsync is on and Parquet is written meanwhile; published files are moved away as Spark
would.  The load is made by `_appends.py` and `_reads.py`, processes of their own on the
same machine; blocks are built beforehand.  How CPU and rate are counted is said at the
top of `lumberjack.py`: CPU is judged for the whole run, from the first byte until the
last row is in Parquet.

Floors: what it takes one core to copy a block, and what one sync of a commit group takes
at the rate of latency.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from _appends import (
    APPEND_SETUP,
    CREATED,
    DATA_APPENDED,
    append,
    block,
    connected,
    create_segment,
    event,
    expect,
    setup_append,
)
from _daemon import ROOT, Consumer, Gateway, Usage, listener, load
from _load import _spread
from _machine import best, machine
from _reads import read_segment
from _report import Broken, Claim, Report, arguments, main, workplace
from _run import Run, add_lasting, beside_sync, chosen, through
from _streams import make_streams, missing_streams

CASES = (
    "top", "sustained", "mixed", "single", "kib", "large", "small", "latency", "quiet", "tail", "memory",
    "spool", "state", "streams", "client",
)  # fmt: skip
_MIB = 2**20
_MB = 10**6
_SHAPES: dict[str, dict[str, int]] = {
    "top": {},
    "sustained": {},
    "mixed": {"mixed": True},
    "single": {"connections": 1, "in_flight": 16},
    "kib": {"event": 1024},
    "large": {"event": 10 * 1024, "block": 1 << 18},
    "small": {"block": 1 << 12, "in_flight": 64},
    "latency": {"in_flight": 64},
    "quiet": {"in_flight": 64},
}
_SEGMENT_READ = 10
_PROMISED = 300_000


def started(home: Path, spool: dict[str, str] | None = None, **options: Any) -> Gateway:
    made = listener("streams", "pravega", options=options)
    spool = {"retention": "10s", **(spool or {})}
    return Gateway(home, {"listeners": [made], "spool": spool})


def appends(home: Path, options: argparse.Namespace, case: str, rate: float) -> Run:
    lasting = case == "sustained"
    with started(home, {"max_bytes": options.backlog} if lasting else None) as gateway:
        return through(
            gateway,
            "streams",
            script="_appends.py",
            rate=rate,
            warm_up=options.filling if lasting else options.warm_up,
            seconds=options.lasting if lasting else options.seconds,
            **_SHAPES[case],
        )


def tell_appends(report: Report, case: str, run: Run, copy_us: float) -> None:
    add = report.add
    add(f"{case}: events/s", run.rate)
    add(f"{case}: MB/s", run.bytes_rate / _MB)
    add(f"{case}: gateway CPU", run.cpu_us, "µs/event")
    add(f"{case}: gateway CPU, whole run", run.whole_us, "µs/event")
    add(f"{case}: whole run ÷ copying once", run.whole_us / copy_us, "x")
    add(f"{case}: gateway", run.cores, "cores")
    add(f"{case}: gateway's busiest thread", run.busiest, "cores")
    add(f"{case}: generator", run.load["generator_cpu_cores"], "cores")
    add(f"{case}: gateway memory, peak", run.rss_peak / _MIB, "MiB")
    add(f"{case}: events/s that last", run.lasting)
    add(f"{case}: CPU of an event", run.judged_us, "µs")
    add(f"{case}: so it lasts", run.lasts, "s")
    report.spread(f"{case}: block to DataAppended", run.load["ack_ms"], "ms")
    report.raw[case] = run.load


def judge_appends(report: Report, runs: dict[str, Run]) -> None:
    claims = report.claims

    def at_least(what: str, figure: float, unit: str, limit: float) -> None:
        claims.append(Claim(what, figure, unit, limit, at_least=True))

    if top := runs.get("top"):
        at_least("durable events of 100 B", top.rate, "events/s", _PROMISED)
        claims.append(Claim("CPU of one, Parquet included", top.judged_us, "µs", 3))
    if mixed := runs.get("mixed"):
        at_least("durable events of 50 to 150 B", mixed.rate, "events/s", _PROMISED)
        claims.append(Claim("CPU of one of those", mixed.judged_us, "µs", 3))
    if kib := runs.get("kib"):
        at_least("events of 1 KiB", kib.bytes_rate / _MB, "MB/s", 120)
    if large := runs.get("large"):
        at_least("events of 10 KiB", large.bytes_rate / _MB, "MB/s", 250)
    if top and (single := runs.get("single")):
        at_least("one connection ÷ ten", single.rate / top.rate, "x", 0.6)
    for case in ("latency", "quiet"):
        if case not in runs:
            continue
        spread = runs[case].load["ack_ms"] or {}
        what = f"append to DataAppended, {case}"
        claims.append(Claim(f"{what}, median", spread.get("p50"), "ms", 5))
        claims.append(Claim(f"{what}, p99", spread.get("p99"), "ms", 25))


# -- reads ---------------------------------------------------------------------------


def tail(home: Path, options: argparse.Namespace, report: Report) -> None:
    """How much later than its writer's ack an event is with a waiting reader."""
    with started(home) as gateway:
        late, acks = _tail(gateway.address("streams"), options.events)
    report.spread("tail: append to ack", _spread(acks), "ms")
    spread = _spread(late)
    assert spread is not None
    report.spread("tail: ack to the reader", spread, "ms")
    what = "ack to a waiting reader, p99 (0: the reader had it first)"
    report.claims.append(Claim(what, spread["p99"], "ms", 5))


def _tail(address: str, events: int) -> tuple[list[float], list[float]]:
    import threading

    name, writer = "bench/tail/0.#epoch.0", bytes(16)
    sock, told = connected(address)
    sock.sendall(create_segment(1, name) + setup_append(2, writer, name))
    expect(told, CREATED)
    expect(told, APPEND_SETUP)
    data = event(bytes(100))
    seen: list[float] = []

    def follow() -> None:
        other, answers = connected(address)
        for number in range(events):
            other.sendall(read_segment(name, number * len(data), 1 << 20, number))
            expect(answers, _SEGMENT_READ)
            seen.append(time.monotonic())

    reader = threading.Thread(target=follow)
    reader.start()
    late, acks = [], []
    for number in range(events):
        time.sleep(0.005)  # so that the reader waits
        begin = time.monotonic()
        sock.sendall(append(writer, data, 1, number + 1))
        expect(told, DATA_APPENDED)
        acked = time.monotonic()
        while len(seen) <= number:
            time.sleep(0.0001)
        acks.append(acked - begin)
        late.append(max(0.0, seen[number] - acked))
    reader.join()
    return late, acks


def reads(home: Path, options: argparse.Namespace, case: str, report: Report) -> None:
    """Ten segments at once; from the spool, one alone as well."""
    kept, much = (1 << 29, 300) if case == "memory" else (1 << 20, 1000)
    read_bytes = options.read_bytes or much * _MB
    with started(home, recent_bytes=kept) as gateway:
        address = gateway.address("streams")
        size = write_some(address, read_bytes // 10, home)
        gateway.wait_published()
        names = [f"bench/read/{at}.#epoch.0" for at in range(10)]
        rates = [_read(gateway, names, size, report, f"{case}: ten at once")]
        rates.append(_read(gateway, names[:1], size, report, f"{case}: one alone"))
    limit = 200 if case == "memory" else 60
    what = f"catch-up reads from {'memory' if case == 'memory' else 'the spool'}"
    report.claims.append(Claim(what, min(rates), "MB/s", limit, at_least=True))


def write_some(address: str, size: int, home: Path) -> int:
    """Ten writers append in turn; returns how many bytes each segment has."""
    data = block(1, 1200, 100)
    sock, told = connected(address)
    writers = [bytes(15) + bytes([at]) for at in range(10)]
    for at, writer in enumerate(writers):
        name = f"bench/read/{at}.#epoch.0"
        sock.sendall(create_segment(1, name) + setup_append(2, writer, name))
        expect(told, CREATED)
        expect(told, APPEND_SETUP)
    blocks = -(-size // len(data))
    for number in range(1, blocks + 1):
        for writer in writers:
            sock.sendall(append(writer, data, 1200, 1200 * number))
        acked = 0
        while acked < len(writers):
            acked += next(told)[0] == DATA_APPENDED
    sock.close()
    return blocks * len(data)


def _read(
    gateway: Gateway, names: list[str], size: int, report: Report, what: str
) -> float:
    before = gateway.usage()
    with load(
        gateway.address("streams"), script="_reads.py", segments=names, bytes=size
    ) as running:
        found = running.until("measured")
    after = gateway.usage()
    rate: float = found["bytes"] / found["seconds"] / _MB
    if not found["bytes"]:
        raise Broken(f"{what}: nothing was read")
    report.add(what, rate, "MB/s")
    cpu = (after.cpu - before.cpu) / found["bytes"] * 1e9
    report.add(f"{what}: gateway CPU", cpu, "ms/MB")
    report.spread(f"{what}: request to answer", found["ms"], "ms")
    return rate


# -- state ---------------------------------------------------------------------------


def state(home: Path, options: argparse.Namespace, report: Report) -> None:
    """Segments and writers; what they weigh, and what a start with them takes."""
    segments = int(100_000 * options.scale)
    writers = int(1_000_000 * options.scale)

    def fill(gateway: Gateway) -> None:
        _populate(gateway.address("streams"), segments, writers)

    gateway = started(home, segments=segments + 10)
    with gateway:
        kept = _kept(gateway, fill)
        wrong = _forgotten(gateway.address("streams"), segments, writers)
    cpu = (kept.full.cpu - kept.empty.cpu) / (segments + 2 * writers) * 1e6
    report.add("state: gateway CPU", cpu, "µs/request")
    kept.report(report, "state", segments + writers, "a segment or writer")
    what = "100 000 segments, 1 000 000 writers" + _scale(options)
    report.claims += [
        *kept.claims(what, mib=1024),
        Claim(f"{what}: writers not known after it", wrong, "of 100", 0),
    ]


def _scale(options: argparse.Namespace) -> str:
    return "" if options.scale == 1 else f" (scale {options.scale})"


@dataclass(frozen=True)
class _Kept:
    """A gateway without state and with it, and after kill -9 and a start."""

    took: float
    """Seconds to make it."""
    empty: Usage
    full: Usage
    ready: float
    """Seconds of the start."""
    again: Usage

    def claims(self, what: str, *, mib: float) -> list[Claim]:
        most = max(self.full.rss, self.again.rss) / _MIB
        return [
            Claim(f"{what}: memory", most, "MiB", mib),
            Claim(f"{what}: ready after kill -9", self.ready, "s", 20),
        ]

    def report(self, report: Report, case: str, count: int, one: str) -> None:
        report.add(f"{case}: made in", self.took, "s")
        report.add(f"{case}: memory before", self.empty.rss / _MIB, "MiB")
        report.add(f"{case}: memory with it", self.full.rss / _MIB, "MiB")
        each = (self.full.leader_rss - self.empty.leader_rss) / count
        report.add(f"{case}: memory of {one}", each, "B")
        report.add(f"{case}: memory after the restart", self.again.rss / _MIB, "MiB")


def _kept(gateway: Gateway, fill: Callable[[Gateway], None]) -> _Kept:
    """Have *fill* make state in a gateway that runs, which is killed and started again."""
    with Consumer(gateway):
        empty = gateway.usage()
        begin = time.monotonic()
        fill(gateway)
        took = time.monotonic() - begin
        gateway.wait_published()
    full = gateway.usage()
    gateway.kill()
    ready = gateway.start(timeout=300)
    return _Kept(took, empty, full, ready, gateway.usage())


def _name(at: int) -> str:
    return f"bench/state{at // 1000}/{at % 1000}.#epoch.0"


def _populate(address: str, segments: int, writers: int) -> None:
    sock, told = connected(address)
    for numbers in _batches(segments):
        sock.sendall(b"".join(create_segment(at, _name(at)) for at in numbers))
        for _ in numbers:
            expect(told, CREATED)
    sock.close()
    data = event(b"x" * 100)
    for first in range(0, writers, 10_000):
        sock, told = connected(address)
        for numbers in _batches(min(10_000, writers - first)):
            out = []
            for at in (first + number for number in numbers):
                out.append(setup_append(at, _id(at), _name(at % segments)))
                out.append(append(_id(at), data, 1, 1 + at))
            sock.sendall(b"".join(out))
            _appended(told, len(numbers))
        sock.close()


def _appended(told: Iterator[tuple[int, bytes]], count: int) -> None:
    """Wait until so many writers are set up, and have an append acknowledged."""
    heard = 0
    while heard < 2 * count:
        heard += next(told)[0] in (APPEND_SETUP, DATA_APPENDED)


def _batches(count: int, size: int = 500) -> Iterator[range]:
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def _id(at: int) -> bytes:
    return UUID(int=at * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835 % 2**128).bytes


def _forgotten(address: str, segments: int, writers: int) -> int:
    """Of 100 writers, whose last number is not what it was."""
    sock, told = connected(address)
    wrong = 0
    for at in range(0, writers, max(1, writers // 100)):
        sock.sendall(setup_append(at, _id(at), _name(at % segments)))
        kind, payload = next(told)
        known = int.from_bytes(payload[-8:], signed=True)
        wrong += kind != APPEND_SETUP or known != 1 + at
    sock.close()
    return wrong


def streams(home: Path, options: argparse.Namespace, report: Report) -> None:
    """Streams of the controller: what they weigh, and what a start with them takes."""
    count, each = int(10_000 * options.scale), 10
    gateway = started(home, segments=count * each + 100, controller="tcp:127.0.0.1:0")
    controller = "streams.controller"

    def fill(gateway: Gateway) -> None:
        make_streams(gateway.address(controller), count, each)
        _touch(gateway.address("streams"), count)

    with gateway:
        kept = _kept(gateway, fill)
        wrong = missing_streams(gateway.address(controller), count, each)
    kept.report(report, "streams", count, "a stream")
    what = "10 000 streams, 100 000 segments" + _scale(options)
    report.claims += [
        *kept.claims(what, mib=512),
        Claim(f"{what}: streams that are not there after it", wrong, "of 100", 0),
    ]


def _touch(address: str, count: int) -> None:
    """An event in the first segment of each stream."""
    sock, told = connected(address)
    data = event(b"x" * 100)
    for numbers in _batches(count):
        out = []
        for at in numbers:
            name = f"bench/stream{at}/0.#epoch.0"
            out.append(setup_append(at, _id(at), name))
            out.append(append(_id(at), data, 1, 1))
        sock.sendall(b"".join(out))
        _appended(told, len(numbers))
    sock.close()


# -- the client library ----------------------------------------------------------------


def client(home: Path, options: argparse.Namespace, report: Report) -> None:
    """Skipped, and told why, without the library or a controller."""
    python = options.client_python
    probe = subprocess.run(
        [python, "-c", "import pravega_client"], capture_output=True, check=False
    )
    if probe.returncode:
        report.notes.append(f"client: skipped, {python} has no pravega_client")
        return
    with started(home, controller="tcp:127.0.0.1:0") as gateway:
        before = gateway.usage()
        script = str(Path(__file__).with_name("_client.py"))
        try:
            port = gateway.address("streams.controller").rpartition(":")[2]
        except Broken:
            report.notes.append("client: skipped, the gateway has no controller")
            return
        ran = subprocess.run(
            [python, script, port, str(options.seconds)],
            capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
        )  # fmt: skip
        if ran.returncode:
            raise Broken(f"client: {ran.stderr[-2000:]}")
        gateway.wait_published()
        whole = gateway.usage()
        events = gateway.lsns()[0]
    rate = float(ran.stdout.split()[-1])
    report.add("client: events/s, flushed", rate)
    report.add(
        "client: gateway CPU", (whole.cpu - before.cpu) / events * 1e6, "µs/event"
    )


# -- all of it -------------------------------------------------------------------------


def floors(report: Report) -> dict[int, float]:
    """µs to copy an event of so many bytes once."""
    found = {}
    for size in (100, 1024, 10 * 1024):
        count = max(1, (1 << 17) // (size + 8))
        data = block(0, count, size)
        room = memoryview(bytearray(len(data)))

        def copy(body: bytes, room: memoryview = room) -> None:
            room[: len(body)] = body

        found[size] = best(copy, [data] * 64) / 64 / count * 1e6
        report.add(f"floor: copying an event of {size} B", found[size], "µs")
    return found


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=10.0, help="of appends")
    parser.add_argument("--warm-up", type=float, default=2.0)
    add_lasting(parser)
    parser.add_argument("--rate", type=float, help="events/s of the latency case")
    parser.add_argument("--events", type=int, default=500, help="of the tail case")
    parser.add_argument("--read-bytes", type=int, help="300 MB; from the spool 1 GB")
    parser.add_argument("--scale", type=float, default=1.0, help="of the state case")
    parser.add_argument("--client-python", default=sys.executable, help="≤ 3.11")
    options = parser.parse_args()
    cases = chosen(parser, options, CASES, "sustained")
    runs: dict[str, Run] = {}
    with workplace(options) as home:
        report = Report("Pravega", machine(home))
        copies = floors(report)
        for case in cases:
            print(f"{case} …", file=sys.stderr, flush=True)
            if case in _SHAPES:
                rate = 0.0
                if case == "latency":
                    rate = options.rate or runs["sustained"].lasting / 2
                elif case == "quiet":
                    rate = _PROMISED / 2
                run = runs[case] = appends(home / case, options, case, rate)
                copy = copies[_SHAPES[case].get("event", 100)]
                tell_appends(report, case, run, copy)
                if case == "latency":
                    beside_sync(report, case, run, home)
            elif case in ("memory", "spool"):
                reads(home / case, options, case, report)
            else:
                others = {
                    "tail": tail, "state": state, "streams": streams, "client": client
                }  # fmt: skip
                others[case](home / case, options, report)
        judge_appends(report, runs)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
