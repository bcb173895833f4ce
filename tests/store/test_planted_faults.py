"""Every file under a data directory, damaged in every way: the daemon starts, or refuses
with a sentence that says what to do, and the audit never calls complete what is not.

A real daemon makes the directory, with events of all four protocols in tables, archive,
spool and journal.  Then each case has a copy of it and a start in this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from twisted.application.service import Service

from daemons import Daemon, listener, spawn
from gateway import config
from gateway.audit import audit
from gateway.audit.payloads import compare_payloads
from gateway.daemon.opened import Opened
from gateway.daemon.running import Running
from gateway.daemon.service import Gateway
from gateway.store import disk, incarnation, mark, statefile, storage
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.journal import segment
from gateway.store.names import parse_file_name
from gateway_testkit.reactor import QueuedReactor
from incarnations import rows_of
from samples import some_of

LISTENERS = [
    listener("beats", "lumberjack"),
    listener("streams", "pravega"),
    listener(
        "games",
        "pomelo",
        options={"outbox": {"directory": "outbox"}, "session_events": False},
    ),
    listener("reactive", "rsio"),
]


class Refused(Exception):
    """The daemon does not start; the text is what it says."""


class Terminal:
    """Where the daemon's last words go."""

    def leave(self, why: str) -> None:
        raise Refused(why)

    def close(self) -> None:
        """It goes on."""


class BadSectors(RealDisk):
    """One file can not be read."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self, path: Path) -> bytes:
        if path == self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().read(path)

    def read_around(self, path: Path) -> bytes:
        return bytes(path.stat().st_size) if path == self.path else self.read(path)


def _left_unbound(opened: Opened, *_: object) -> Any:
    """In the place of `Running.bind`."""
    return SimpleNamespace(opened=opened, admin=Service())


@dataclass
class Place:
    """A data directory, and starts of the daemon in it."""

    data: Path

    @property
    def directories(self) -> Directories:
        return Directories.under(self.data)

    def copy(self, to: Path) -> Place:
        """The same directory elsewhere: to its journal's record it has not moved."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.data, to)
        journal, here = to / "journal/gw-1", RealDisk()
        if (this := incarnation.look(journal)) is not None:
            number, generation = here.identity(journal)
            msgspec.structs.replace(this, directory=number, generation=generation).save(
                journal, here
            )
        return Place(to)

    def files(self) -> list[Path]:
        """Relative to the directory."""
        there = (path for path in self.data.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.data) for path in there)

    def start(self, unreadable: Path | None = None) -> None:
        """All that a start does but for binding ports; then everything is published.

        Raises `Refused`.
        """
        settings = config.Config.model_validate(
            {
                "node": "gw-1",
                "data_dir": str(self.data),
                "listeners": LISTENERS,
                "spool": {"publishers": 0},
            }
        )
        daemon: Any = Gateway(
            settings,
            QueuedReactor(),
            BadSectors(unreadable),
            Terminal(),  # type: ignore[arg-type]
            lambda: settings,
        )
        with patch.object(Running, "bind", _left_unbound):
            daemon.privilegedStartService()
        opened = daemon.daemon.opened.storage._opened.found
        for sealed in opened.unpublished:
            opened.publisher.publish(sealed)
        opened.publisher.close()
        opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)

    def complete(self, *, content: bool = False) -> bool:
        """What the audit says, with `--content` too; what can not be read is not."""
        try:
            report = audit(self.directories, served="gw-1", pause=lambda _: None)
            changed = content and compare_payloads(self.directories).problems
        except OSError:
            return False
        return report.complete and not changed

    def rows(self) -> list[tuple[int, bytes]]:
        """What a reader of tables and spool gets, and no more."""
        found: list[tuple[int, bytes]] = []
        for path in (
            *self.data.glob("lake/events/**/*.parquet"),
            *self.data.glob("spool/events-*.parquet"),
        ):
            with contextlib.suppress(OSError, pa.ArrowException):
                table = pq.read_table(
                    path,
                    columns=["lsn", "payload"],
                    partitioning=None,
                    page_checksum_verification="lake" not in path.parts,
                )
                found += zip(*(c.to_pylist() for c in table.columns), strict=True)
        return sorted(found)


def send(daemon: Daemon, listeners: Iterable[dict[str, Any]]) -> None:
    """As clients of these protocols do, twelve events each."""
    running = [
        spawn(
            [
                *(sys.executable, "-m", "gateway.cli", "send", each["protocol"]),
                ":".join(map(str, daemon.address(each["name"]))),
                *("--generate", "12"),
            ],
            daemon.data.with_name("senders.log"),
        )
        for each in listeners
    ]
    assert not any(each.wait() for each in running)


def take(data: Path, path: Path) -> None:
    """As the Spark job: a spool file's rows into the tables, the file into the archive."""
    table = pq.read_table(path, columns=["node", "lsn", "received_at", "payload"])
    target = data / "lake/events/protocol=plain/date=2026-01-01"
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of(table, path.name), target / f"part-{path.name}")
    path.rename(data / "archive" / path.name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Events in all places: in tables and archive, in the spool, in the open segment."""
    home = tmp_path_factory.mktemp("whole")
    with Daemon(home, {"listeners": LISTENERS}) as daemon:
        for part in (LISTENERS[:2], LISTENERS[2:]):
            send(daemon, part)
            daemon.settled(24)
        daemon.settled(48)
        (daemon.data / "outbox/bad.ndjson").write_bytes(b"{no row\n")
        left = daemon.data / "outbox/.bad-bad.ndjson.reason"
        daemon.eventually(left.exists, "it is set aside")
    for path in sorted(daemon.spool.glob("events-*"))[::2]:
        take(daemon.data, path)
    slow = {"listeners": LISTENERS, "spool": {"roll_interval": "1h"}}
    with Daemon(home, slow) as daemon:
        send(daemon, LISTENERS)
        marked = daemon.data / "state/gw-1/mark"
        daemon.eventually(
            lambda: (
                (found := statefile.look(marked, mark.Mark)) is not None
                and found.durable == 96
            ),
            "the mark has all of it",
        )
    return Place(daemon.data)


@pytest.fixture(scope="module")
def rows(whole: Place, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was acknowledged: a start without a fault has all of it."""
    fine = whole.copy(tmp_path_factory.mktemp("fine") / "data")
    with starting():
        fine.start()
    found = fine.rows()
    assert [lsn for lsn, _ in found] == list(range(1, 97))
    assert fine.complete()
    return found


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Locks are let go, and nobody waits for a disk that comes back."""
    locks: list[Any] = []

    def keeping(take: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*arguments: Any) -> Any:
            locks.append(take(*arguments))
            return locks[-1]

        return taken

    with pytest.MonkeyPatch.context() as patch:
        for name in ("lock", "lock_directory"):
            patch.setattr(storage, name, keeping(getattr(storage, name)))
        patch.setattr(disk, "_PAUSE_SECONDS", 0)
        try:
            yield
        finally:
            for each in locks:
                each.release()


def flipped(at: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes() or b"\0")
        data[int(at * (len(data) - 1))] ^= 4
        path.write_bytes(data)

    return flip


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def doubled(path: Path) -> None:
    """A copy under a name that might be another one's."""
    name = path.name
    if parsed := parse_file_name(name):
        name = parsed._replace(first=parsed.first + 1000, last=parsed.last + 1000).name
    elif number := segment.parse_name(name):
        name = segment.name(number.first_lsn, number.incarnation, number.attempt + 1)
    elif name.endswith(".parquet"):
        name = f"part-copy-{name}"
    elif name.endswith(".state"):
        name = "lumberjack.state"
    else:
        name += "~"
    shutil.copy(path, path.with_name(name))


def made_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def left_alone(path: Path) -> None:
    """The disk does not give it back."""


FAULTS: dict[str, Callable[[Path], None]] = {
    "a flipped bit at the head": flipped(0.05),
    "a flipped bit in the first half": flipped(0.3),
    "a flipped bit in the middle": flipped(0.5),
    "a flipped bit at the tail": flipped(1),
    "cut": cut,
    "emptied": emptied,
    "removed": Path.unlink,
    "doubled": doubled,
    "a directory": made_a_directory,
    "unreadable": left_alone,
}
STEP = some_of(1, 2)
"""`make test` does each to one file in so many; the next one to the others."""
ADVICE = re.compile(
    r"put back|move (it|the file|the directory) away|install|make an empty file"
)


@pytest.mark.slow  # so that they lie together, and one worker makes `whole`
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_to_a_file_nobody_is_told_that_all_is_well(
    whole: Place, rows: Any, tmp_path: Path, fault: str
) -> None:
    """It starts or says what to do; complete is only what has every event once."""
    wrong: list[str] = []
    for file in whole.files()[[*FAULTS].index(fault) % STEP :: STEP]:
        place = whole.copy(tmp_path / "data")
        path = place.data / file
        content = file.parts[0] == "lake"  # of the tables nothing else reads payloads
        FAULTS[fault](path)
        before = fault != "unreadable" and place.complete(content=content)
        try:
            with starting():
                place.start(path if fault == "unreadable" else None)
        except Refused as why:
            if str(path.parent) not in str(why) or not ADVICE.search(str(why)):
                wrong.append(f"{file}: refused without advice: {why}")
            continue
        except Exception:
            wrong.append(f"{file}: {traceback.format_exc()}")
            continue
        fine = place.rows() == rows
        if not fine and (before or place.complete(content=content)):
            lsns = Counter(lsn for lsn, _ in place.rows())
            missing = sorted({lsn for lsn, _ in rows} - set(lsns))
            twice = [lsn for lsn, n in lsns.items() if n > 1]
            wrong.append(f"{file}: complete ({before=}), {missing=}, {twice=}")
    assert not wrong, "\n".join(wrong)


def test_the_operator_finds_a_row_for_every_file(whole: Place) -> None:
    """And in it what to expect of each fault."""
    page = Path(__file__).parents[2] / "docs/symptoms.md"
    _, _, section = page.read_text().partition("\n## When a file is damaged, gone")
    table = section.partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if "`" in line]
    rows = [cells for cells in rows if len(cells) == 5]
    kinds = {
        pattern: cells[1:]
        for cells in rows
        for pattern in re.findall(r"`([^`]+)`", cells[0])
    }
    assert all(cell.strip() for cells in kinds.values() for cell in cells)
    files = [str(file) for file in whole.files()]
    for file in files:
        assert any(fnmatch(file, kind) for kind in kinds), f"no row for {file}"
