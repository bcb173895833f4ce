"""Files are written in processes of their own, which may die, hang or be left alone."""

import contextlib
import errno
import os
import pickle
import signal
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from deadlines import eventually
from gateway.protocols.lumberjack.events import decode, pack
from gateway.store import digests
from gateway.store.digests import NOTHING
from gateway.store.journal import Segment
from gateway.store.names import hidden_name, parse_hidden_name
from gateway.store.node.incarnation import Record
from gateway.store.spool import process
from gateway.store.spool.processes import Lost, Processes, usual_number
from gateway.store.spool.writing import Here, Progress, Task
from gateway.store.system.disk import RealDisk
from gateway.store.system.shared import SharedDict
from making import Make

PROTOCOL = "lumberjack"


def body(*events: bytes) -> bytes:
    """What the journal has of a window."""
    frames = (
        struct.pack(">2sII", b"2J", seq, len(event)) + event
        for seq, event in enumerate(events, 1)
    )
    return pack(2, len(events), 1 << 20) + b"".join(frames)


@pytest.fixture
def make() -> Iterator[Make[Processes]]:
    with contextlib.ExitStack() as stack:

        def made(most: int = 1, **more: Any) -> Processes:
            found = Processes(most, {PROTOCOL: []}, RealDisk(), **more)
            stack.callback(found.close)
            return found

        yield made


@pytest.fixture
def sealed(place) -> Make[Segment]:
    """A segment with one window of these events."""

    def made(*events: bytes) -> Segment:
        batch = place.batch(body(*events), PROTOCOL)
        batch.count = len(events)
        place.log.commit([batch])
        found = place.log.seal()
        assert found is not None
        return found

    return made


def task(place: Any, one: Segment, name: str | None = None) -> Task:
    path = place.spool / (name or f".events-{one.first_lsn}")
    return Task(one.path, one.first_lsn, one.last_lsn, path, "gw", "zstd", "", Record())


def pids(processes: Processes) -> list[int]:
    return [each.pid for each in processes._all]


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.lowest
def test_the_file_is_the_one_that_the_daemon_would_write(place, make, sealed):
    """Byte by byte, and so are its digests; nothing else lies beside it."""
    one = sealed(b'{"a":1}', b"[1]")
    here = Here(RealDisk(), {PROTOCOL: decode}).finish(task(place, one, ".a"), NOTHING)
    there = make().finish(task(place, one, ".b"), NOTHING)
    assert (place.spool / ".a").read_bytes() == (place.spool / ".b").read_bytes()
    assert here == there
    assert there.flaws.total() == 1
    assert place.public() == [".a", ".b"]


def test_files_that_are_written_at_once_make_one_chain(place, make, sealed):
    """The publisher begins with several; each file has the link of the one before."""
    segments = [sealed(b'{"a":%d}' % n) for n in range(4)]
    publisher = place.publisher()
    publisher.writer = make(2)
    for at, one in enumerate(segments):
        publisher.publish(one, segments[at + 1 :])
    names = place.public()
    links = [
        digests.link_said(digests.metadata_of(place.spool / name)) for name in names
    ]
    said = [
        digests.said(digests.metadata_of(place.spool / name), digests.PREVIOUS_KEY)
        for name in names
    ]
    assert len(names) == 4
    assert said == [NOTHING, *links[:-1]]
    assert len(pids(publisher.writer)) == 2


def test_one_that_is_killed_costs_nothing_but_time(place, make, sealed):
    """Whatever it was doing; its successor writes the file, and what it left goes."""
    one, two = sealed(b"{}"), sealed(b"{}")
    publisher = place.publisher()
    publisher.writer = processes = make()
    publisher._begin(one)
    [pid] = pids(processes)
    os.kill(pid, signal.SIGKILL)
    [begun] = processes._begun.values()
    begun.paths[next(iter(begun.paths))].touch()  # it had come so far
    with pytest.raises(Lost, match=rf"process {pid} was killed .*want of memory"):
        publisher.publish(one)
    assert place.public() == []
    for each in (one, two):
        assert publisher.publish(each)
    assert [parse_hidden_name(name) for name in place.public()] == [None, None]


def test_one_that_hangs_is_replaced(place, make, sealed):
    """A segment whose file system does not answer, as a FIFO that nobody writes."""
    one, two = sealed(b"{}"), sealed(b"{}")
    one.path.unlink()
    os.mkfifo(one.path)
    processes = make(hung_seconds=0.2)
    with pytest.raises(Lost, match="got nowhere"):
        processes.finish(task(place, one), NOTHING)
    assert not pids(processes)
    processes._hung_seconds = 60.0
    assert processes.finish(task(place, two), NOTHING).link


_SLOW_SITE = """
import time

for _ in range(60):
    time.sleep(0.05)
    open(__file__).read()
"""


def test_one_that_starts_slowly_does_not_hang(
    place, make, sealed,
    tmp_path, monkeypatch,
):  # fmt: skip
    """It reads modules for longer than one may get nowhere."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_SLOW_SITE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    processes = make(hung_seconds=1.5)
    assert processes.finish(task(place, sealed(b"{}")), NOTHING).link
    assert len(pids(processes)) == 1


def test_what_is_synced_may_take_as_long_as_a_slow_disk_does(place, make, sealed):
    """So many bytes a second; one that is stopped meanwhile hangs, a little later."""
    processes = make(hung_seconds=0.1)
    processes.start()
    [process] = processes._all
    of = place.spool / ".x"
    process._connection, child = Pipe()
    looks: list[float] = []

    def looked() -> float:
        looks.append(3.0 * len(looks))
        return looks[-1]

    process.silence.look = looked  # type: ignore[method-assign]
    with child:
        child.send((of, Progress(40 << 20)))
        process._next(lambda: 0.1)
        with pytest.raises(Lost, match="got nowhere for 12 s"):
            process._next(lambda: 0.1)
        child.send((of, Progress()))
        process._next(lambda: 0.1)
        with pytest.raises(Lost, match="got nowhere for 15 s"):
            process._next(lambda: 0.1)


def test_one_that_is_stopped_is_named_while_it_is_waited_for(
    place, make, sealed,
    monkeypatch,
):  # fmt: skip
    """And no longer."""
    monkeypatch.setattr("gateway.store.spool.processes._SILENT_SECONDS", 0.0)
    one = task(place, sealed(b"{}"))
    processes = make()
    processes.begin(one)
    [pid] = pids(processes)
    os.kill(pid, signal.SIGSTOP)
    assert processes.silence() is None  # nobody waits for it
    with ThreadPoolExecutor(1) as executor:
        written = executor.submit(processes.finish, one, NOTHING)
        try:
            eventually(lambda: processes.silence() is not None, "it is waited for")
            said = processes.silence()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert written.result().link
    assert said is not None
    assert said.startswith(
        f"publisher process {pid} got nowhere for 0 s; it is stopped"
    )
    assert said.endswith("is replaced after 300 s")
    assert processes.silence() is None


def test_one_that_is_stopped_does_not_hold_up_a_stop_for_long(
    place, make, sealed,
    monkeypatch,
):  # fmt: skip
    """It is waited for while it starts and works, and then is ended."""
    monkeypatch.setattr("gateway.store.spool.processes._STOPPING_SECONDS", 0.5)
    one, two = task(place, sealed(b"{}")), task(place, sealed(b"{}"))
    processes = make()
    assert processes.finish(one, NOTHING).link
    [process] = processes._all
    os.kill(process.pid, signal.SIGSTOP)
    processes.hurry()
    with pytest.raises(Lost, match=rf"process {process.pid} got nowhere for \d+ s"):
        processes.finish(two, NOTHING)
    eventually(lambda: not is_there(process.pid), "it has ended")


def test_what_is_wanted_now_goes_before_what_was_begun(place, make, sealed):
    """Whoever has one process, and has it write what comes later."""
    one, two = task(place, sealed(b"{}")), task(place, sealed(b"{}"))
    processes = make()
    processes.begin(two)
    assert processes.finish(one, NOTHING).link
    assert processes.finish(two, NOTHING).link
    assert len(pids(processes)) == 1


def test_one_has_the_next_file_in_hand_too(place, make, sealed):
    """It is decoded while the end of the one before is encoded and synced; no third is."""
    tasks = [task(place, sealed(b"{}")) for _ in range(3)]
    processes = make()
    for each in tasks:
        processes.begin(each)
    assert [*processes._begun] == tasks[:2]
    for each in tasks:
        assert processes.finish(each, NOTHING).link
    assert len(pids(processes)) == 1


def test_one_that_is_killed_leaves_nothing_of_the_next_file(place, make, sealed):
    """It is begun anew."""
    one, two = task(place, sealed(b"{}")), task(place, sealed(b"{}"))
    processes = make()
    processes.begin(one)
    processes.begin(two)
    [pid] = pids(processes)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_there(pid), "it has ended")
    for path in processes._all[0].paths.values():
        path.touch()
    with pytest.raises(Lost):
        processes.finish(one, NOTHING)
    assert not place.public()
    for each in (one, two):
        assert processes.finish(each, NOTHING).link
    assert place.public() == sorted(each.path.name for each in (one, two))


def test_a_next_file_that_fails_stops_no_other(place, make, sealed):
    """Whether it was begun before or behind it; how it failed is told with it: a full disk
    is told from a missing file.
    """
    processes = make()
    one, two, three = (task(place, sealed(b"{}")) for _ in range(3))
    wrong = replace(two, path=place.spool / "none" / ".x")
    processes.start()
    there = pids(processes)
    for first, second in ((one, wrong), (wrong, three)):
        processes.begin(first)
        processes.begin(second)
        right = one if first is one else three
        assert processes.finish(right, NOTHING).link
        with pytest.raises(FileNotFoundError, match=r"none/\.x"):
            processes.finish(wrong, NOTHING)
    assert pids(processes) == there


@pytest.mark.parametrize("waits", [False, True], ids=["told", "waits for its file"])
def test_what_the_disk_does_not_give_back_stops_nothing(place, make, waits):
    """It is a hole, and what lies around it is published; what memory has is in the file."""
    batches = [place.batch(body(event), PROTOCOL) for event in (b"1", b"22", b"3")]
    for one in batches:
        one.count = 1
    place.log.commit(batches)
    segment = place.log.seal()
    data = segment.path.read_bytes()
    segment.path.write_bytes(data.replace(b"22", b"2?"))
    publisher = place.publisher()
    publisher.writer = make()
    if waits:
        publisher.copies = SharedDict(dict(enumerate(batches, 1)))
    done = publisher.publish(segment)
    lsns = [(one.first_lsn, one.last_lsn) for one in done]
    assert lsns == ([(1, 3)] if waits else [(1, 1), (3, 3)])
    assert publisher.lost_events == (0 if waits else 1)


def test_it_ends_with_the_daemon_and_with_nothing_else(make):
    """A service is signalled as a whole; what is in hand is still to be published."""
    processes = make()
    processes.start()
    [process] = processes._all
    eventually(lambda: "S" in ignored(process.pid), "signals are ignored")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(process.pid, number)
    process._connection.send_bytes(b"")
    assert is_there(process.pid)
    process._connection.close()  # as the end of the daemon does
    eventually(lambda: not is_there(process.pid), "it has ended")


def ignored(pid: int) -> str:
    """ "S" when it ignores SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return "S" if mask & 1 << (signal.SIGTERM - 1) else ""


def test_a_protocol_that_is_gone_flaws_no_rows(place, make, sealed):
    """Packages are exchanged below a daemon that runs: its events wait, unflawed."""
    one = sealed(b"{}")
    processes = Processes(1, {PROTOCOL: [], "gone": []}, RealDisk())
    missing = pytest.raises(RuntimeError, match="protocol 'gone' is not installed")
    with contextlib.closing(processes), missing:
        processes.finish(task(place, one), NOTHING)
    assert not place.public()


def test_a_file_whose_entry_failed_is_not_written_again(place, make, sealed):
    """The catalog's disk is full for a while; its process is free meanwhile."""
    one = sealed(b"{}")
    publisher = place.publisher()
    publisher.writer = processes = make()
    add, publisher._files.add = publisher._files.add, full
    with pytest.raises(OSError, match="no room"):
        publisher.publish(one)
    publisher._files.add = add
    assert publisher.publish(one)
    assert not processes._begun


def test_what_was_begun_is_let_go_of(place, make, sealed):
    """With its room; whatever is finished then is written anew."""
    tasks = [task(place, sealed(b'{"a":1}')) for _ in range(4)]
    processes = make(2)
    for one in tasks:
        processes.begin(one)
    eventually(lambda: len(place.public()) == len(tasks), "files were begun")
    processes.drop()
    assert not processes._begun
    assert not place.public()
    link = NOTHING
    for one in tasks:
        link = processes.finish(one, link).link
    assert len(place.public()) == len(tasks)


def full(_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_options_that_can_not_be_read_flaw_no_rows(place, sealed, make):
    """A plug-in's class that is not there in another process: it is said, and waits."""
    one, processes = sealed(b"{}"), make()
    processes._protocols = b"cgateway.nowhere\nNothing\n."
    with pytest.raises(RuntimeError, match=r"No module named .gateway\.nowhere"):
        processes.finish(task(place, one), NOTHING)
    assert not place.public()


def test_what_a_killed_daemon_began_is_removed(place):
    """By the next start, whatever process wrote it; not what is another node's."""
    name = "events-gw_aaaaaaaaaa-00000000000000000001-00000000000000000002.parquet"
    (place.spool / hidden_name(name, (4711, 3))).touch()
    other = hidden_name(name.replace("gw", "gw-2"), (4711, 3))
    (place.spool / other).touch()
    place.publisher().recover([])
    assert place.public() == [other]


def test_the_event_loop_has_a_core_for_itself():
    assert 1 <= usual_number() <= max(1, len(os.sched_getaffinity(0)) - 1)


@pytest.mark.lowest
def test_one_that_has_nothing_to_do_gives_its_memory_back(monkeypatch):
    """Once: it is not woken again before it is told something."""
    gave, waits = [], []

    class Connection:
        def recv_bytes(self) -> bytes:
            return pickle.dumps({})

        def poll(self, seconds: float | None) -> bool:
            waits.append(seconds)
            return len(waits) > 1

        def recv(self) -> Any:
            raise EOFError

    monkeypatch.setattr(process, "give_back", lambda: gave.append(1))
    with pytest.raises(EOFError):
        process.work(Connection())
    assert gave == [1]
    assert waits == [process._IDLE_SECONDS, None]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority")
def test_a_file_lets_the_event_loop_go_first_unless_the_next_one_waits(monkeypatch):
    """Its threads have a lower priority than those of files that come too fast."""
    told: SimpleQueue[Any] = SimpleQueue()

    def write(task: Task, *given: Any) -> Any:
        *_, encoders = given
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        told.put((nice, encoders.submit(os.getpriority, os.PRIO_PROCESS, 0).result()))
        given[2]()  # the link
        return task.path.name

    class Connection:
        def send(self, said: Any) -> None:
            told.put(said)

    monkeypatch.setattr(process, "write", write)
    files = process._Files(Connection(), dict)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    patient = max(usual, process._NICE)
    found = []
    for path, then in (("1", ()), ("2", ("1", "2")), ("3", ("3",))):
        files.begin(Task(Path("a"), 1, 1, Path(path), "gw", "zstd", "", Record()))
        found.append(told.get())
        for done in then:  # its threads wait for the link, and would do so for ever
            files.follow(Path(done), "")
            assert told.get() == (Path(done), done)
    assert found == [(nice, nice) for nice in (patient, usual, patient)]
