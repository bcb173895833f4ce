"""A reader of its own process that reads a lake again and again, and what it must not see.

    plain   every file below a table's folder, as any reader finds them
    whole   the files that `gateway.spark.reading` names

No read may show an event twice, or less than one before it; none of the second kind a
part of a spool file, as batches are made of whole ones.  Files that a compaction took
away between listing and opening are listed again, as docs/spark.md says.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from deadlines import eventually
from programs import Script

__all__ = ["Steady", "Watch"]

_READER = """
import json, sys, time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds

from gateway.spark.reading import files

lake, size, home = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
rows_of_file = {"events": size - 1, "quarantine": 1}
before = {}

def plain(table):
    if not (lake / table).is_dir():
        return None
    found = ds.dataset(lake / table, partitioning="hive", format="parquet")
    return found if found.files else None

def whole(table):
    found = files(lake, table)
    return ds.dataset(found, format="parquet") if found else None

def read(way, table, *columns):
    while True:
        try:
            found = way(table)
            return found.to_table(columns=list(columns)).to_pylist() if found else []
        except FileNotFoundError:
            if not (lake / ".gateway" / "events.json").exists():
                return []

def judge(way, table):
    seen = Counter((row["node"], row["lsn"]) for row in read(way, table, "node", "lsn"))
    if twice := [event for event, times in seen.items() if times > 1]:
        yield "twice", sorted(twice)
    if gone := before.get((way, table), set()) - seen.keys():
        yield "gone", sorted(gone)
    before[way, table] = set(seen)
    if way is whole:
        parts = Counter((node, (lsn - 1) // size) for node, lsn in seen)
        if cut := [part for part, n in parts.items() if n != rows_of_file[table]]:
            yield "in part", sorted(cut)

def judge_counts():
    counted = sum(row["events"] for row in read(whole, "stats", "events"))
    if counted % size or counted < before.get("stats", 0):
        yield "counts", [counted, before.get("stats", 0)]
    before["stats"] = counted

with (home / "looks").open("a", 1) as looks, (home / "wrong").open("a", 1) as wrong:
    while True:
        for way in plain, whole:
            for table in rows_of_file:
                for what, which in judge(way, table):
                    print(json.dumps([way.__name__, table, what, which[:20]]), file=wrong)
        for what, which in judge_counts():
            print(json.dumps(["whole", "stats", what, which]), file=wrong)
        print(len(before.get((whole, "events"), ())), file=looks)
        time.sleep(0.1)
"""


_STEADY = """
import sys, time
from collections import Counter
from pathlib import Path
import pyarrow.dataset as ds
from gateway.spark.reading import files

lake, home, stay = Path(sys.argv[1]), Path(sys.argv[3]), set(map(int, sys.argv[2].split(",")))

def plain():
    return ds.dataset(lake / "events", partitioning="hive", format="parquet")

def whole():
    return ds.dataset(files(lake, "events"), format="parquet")

with (home / "looks").open("a", 1) as looks, (home / "wrong").open("a", 1) as wrong:
    while True:
        for way in whole, plain:
            try:
                seen = Counter(way().to_table(columns=["lsn"])["lsn"].to_pylist())
            except FileNotFoundError:
                continue
            # A plain listing may take a day for empty in the moment of a swap.
            lacking = stay - seen.keys() if way is whole else set()
            if lacking or set(seen.values()) - {1}:
                print(way.__name__, sorted(lacking), seen, file=wrong)
        print(len(seen), file=looks)
        time.sleep(0.05)
"""


class Steady:
    """A reader of its own process that looks all the while: no row may be there twice, and
    those *lsns* of `events` must be there at any moment.
    """

    def __init__(self, lake: Path, home: Path, lsns: Iterable[int]) -> None:
        self._reader = Script(_STEADY, home, lake, ",".join(map(str, lsns)))

    def look_again(self) -> None:
        """Wait until it has looked from now on, whole."""
        seen = len(self._reader.lines("looks"))
        eventually(lambda: len(self._reader.lines("looks")) > seen + 1, "a look")

    def end(self) -> list[str]:
        """What it has seen and must not see."""
        self.look_again()
        self.kill()
        return [" ".join(line) for line in self._reader.lines("wrong")]

    def kill(self) -> None:
        """In any case."""
        self._reader.kill()


class Watch:
    """Of a lake whose spool files have *size* events each, one of them flawed."""

    def __init__(self, lake: Path, home: Path, size: int) -> None:
        self._home = home
        self._reader = Script(_READER, home, lake, size)

    @property
    def looks(self) -> list[int]:
        """Of each look at all tables: how many rows of `events` were in whole batches."""
        return [int(line[0]) for line in self._reader.lines("looks")]

    def look_again(self) -> None:
        """Wait until all tables were looked at, from now on."""
        seen = len(self.looks)
        eventually(
            lambda: len(self.looks) >= seen + 2 or not self._alive, "a look at the lake"
        )
        assert self._alive, "the reader has failed"

    def end(self) -> list[list[object]]:
        """What it has seen and must not see."""
        self.look_again()
        self._reader.kill()
        wrong = self._home / "wrong"
        return [json.loads(line) for line in wrong.read_text().splitlines()]

    @property
    def _alive(self) -> bool:
        return self._reader.process.poll() is None

    def kill(self) -> None:
        """In any case."""
        self._reader.kill()
