"""Every file under a data directory, damaged in every way: the daemon starts, or refuses
with a sentence that says what to do, and the audit never calls complete what is not.

A real daemon makes the directory, with events of all four protocols in tables, archive,
spool and journal.  Then each case has a copy of it and a start in this process.
"""

import os
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from gateway.store.journal import segment
from gateway.store.names import parse_file_name
from samples import some_of
from whole import Place, Refused, make, starting


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Place:
    """Events in all places: in tables and archive, in the spool, in the open segment."""
    return make(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def rows(whole, tmp_path_factory) -> Any:
    """What was acknowledged: a start without a fault has all of it."""
    fine = whole.copy(tmp_path_factory.mktemp("fine") / "data")
    with starting():
        fine.start()
    found = fine.rows()
    assert [lsn for lsn, _ in found] == list(range(1, 97))
    assert fine.complete()
    return found


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
    whole, rows, tmp_path, fault
):
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


def test_the_operator_finds_a_row_for_every_file(whole):
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
