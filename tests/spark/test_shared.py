"""Words of commits in which several jobs have their ledgers."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.sinks.delta_table import DeltaTable
from gateway.sinks.words import ledgers_in
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.shared import SharedTable, persistently, take_newest
from incarnations import A


class Commits(SharedTable):
    """A table whose commits are a list of words."""

    def __init__(self, words: list[str], job: str = "") -> None:
        super().__init__("t", job)
        self.words = words

    def shared(self) -> bool:
        """See `SharedTable`."""
        return True

    def _newest(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text in reversed(self.words):
            take_newest(found, ledgers_in(text))
        return found

    def _all_rows(self) -> Any:
        raise NotImplementedError

    def _location(self) -> str:
        raise NotImplementedError

    def _objects(self, place: str, rows: Any) -> Any:
        raise NotImplementedError

    def commit(self, sequence: int, **committed: Any) -> None:
        """A batch of ours, after which the ledger has all that."""
        ledger = Ledger(committed=Ranges(committed), sequence=sequence)
        self.others()
        self._check_nodes(ledger)
        self.words.append(self._words(ledger))

    def maintain(self) -> None:
        """Carry all on, and forget the commits of before."""
        words = self._carried()
        assert words is not None
        self.words[:] = [words]


def test_maintenance_by_anybody_keeps_every_ledger():
    """Also after commits of others, and again; that of a job alone is as it was written."""
    words: list[str] = []
    old, north, south = (Commits(words, job) for job in ("", "north", "south"))
    old.commit(4, gw={A: [[1, 9]]})
    alone = words[0]
    assert alone == Ledger(committed=Ranges({"gw": {A: [[1, 9]]}}), sequence=4).text()
    old.maintain()
    assert words == [alone]
    north.commit(1, n={A: [[1, 3]]})
    south.maintain()
    south.commit(1, s={A: [[1, 2]]})
    stale = words[0]
    north.commit(2, n={A: [[1, 5]]})
    words.append(stale)
    for each in (old, north, south):
        each.maintain()
    found = north._newest()
    numbers = {job: one["sequence"] for job, one in found.items()}
    assert numbers == {"": 4, "north": 2, "south": 1}
    assert Ledger.of(found["north"], "").committed == Ranges({"n": {A: [[1, 5]]}})


def test_who_maintains_a_table_knows_whether_others_write_it():
    """Also one that has done nothing else: the audit leaves out what is theirs by that."""
    words: list[str] = []
    Commits(words).commit(1, gw={A: [[1, 9]]})
    alone = Commits(words)
    alone.maintain()
    assert alone.state() == {}
    Commits(words, "north").commit(1, n={A: [[1, 3]]})
    beside = Commits(words)
    beside.maintain()
    assert beside.state() == {"shared": "yes", "complete": '{"north": null}'}


def test_the_newest_word_of_another_job_counts():
    """Whichever is read last: how far it is complete may have been taken back."""
    south = Commits([], "south")
    for number in (4, 5, 3):
        word = {"job": "north", "sequence": number, "committed": {"n": {}}}
        south._heed([{**word, "complete": {"of": number}}])
    assert json.loads(south.state()["complete"]) == {"north": {"of": 5}}


def test_all_commits_of_a_table_that_others_have_begun_are_heeded():
    """Where there was none at the start: its first one, too; and none is passed over where
    others commit while it is asked for the last few."""
    asked: list[int] = []
    newest = 2

    def history(most: int) -> list[Any]:
        asked.append(most)
        there = range(newest, newest - most, -1)
        return [
            SimpleNamespace(
                version=each,
                operation="RESTORE" if each == 6 else "WRITE",
                userMetadata=None,
            )
            for each in there
        ]

    table: Any = DeltaTable(None, "t")
    table._history = history
    for version in (-1, 2, 2):
        table._check_set_back(version)
    newest = 5
    table._check_set_back(5)
    assert asked == [3, 3]
    newest = 8  # as two were committed behind a look that found one
    with pytest.raises(Broken, match="version 6"):
        table._check_set_back(6)
    assert asked == [3, 3, 1, 3]


@pytest.mark.parametrize("looked", [1, 3, 6])
def test_a_ledger_of_before_a_table_was_set_back(looked):
    """It counts no more, however often was looked while it was committed: its writer had not
    seen that."""
    commits = [
        ("WRITE", ledger_of("a", 1, seen=-1)),
        ("WRITE", ledger_of("b", 1, seen=0)),
        ("RESTORE", None),
        ("WRITE", ledger_of("a", 2, seen=2)),
        ("WRITE", ledger_of("b", 2, seen=1)),
        ("WRITE", ledger_of("a", 3, seen=4)),
    ]
    rows = [
        SimpleNamespace(version=at, operation=what, userMetadata=said)
        for at, (what, said) in enumerate(commits)
    ]
    table: Any = DeltaTable(None, "t", job="a")
    for there in range(looked, len(rows) + 1):
        table._now = lambda there=there: (
            None,
            SimpleNamespace(version=lambda: there - 1),
        )
        table._numbers_in = lambda _: {"a": 3, "b": 2}
        table._history = lambda most, there=there: rows[:there][::-1][:most]
        found = table._newest()
    assert {job: one["sequence"] for job, one in found.items()} == {"a": 3}


def ledger_of(job: str, sequence: int, seen: int) -> str:
    committed = Ranges({job: {A: [(1, sequence)]}})
    return Ledger(committed=committed, sequence=sequence).text(job=job, seen=seen)


def test_a_node_is_one_jobs():
    """Whoever commits second is told, by both names, and commits nothing."""
    words: list[str] = []
    old, north = Commits(words), Commits(words, "north")
    old.commit(1, gw={A: [[1, 9]]})
    with pytest.raises(
        Broken, match=r"node gw is one of the job without a name .*north"
    ):
        north.commit(1, gw={A: [[10, 12]]})
    north.commit(1, n={A: [[1, 1]]})
    with pytest.raises(Broken, match="node n is one of job north, which"):
        old.commit(2, gw={A: [[1, 9]]}, n={A: [[1, 1]]})
    assert len(words) == 2
    assert north.others() == {"gw": ""}


def test_conflicts_are_tried_again_a_few_times():
    """What is no conflict is raised at once, and one that does not end in the end."""
    tries: list[int] = []

    def do(*, conflicts: int, why: str) -> None:
        tries.append(0)
        if len(tries) <= conflicts:
            raise ValueError(why)

    conflict = re.compile("Conflict")
    persistently(lambda: do(conflicts=2, why="a Conflict"), conflict)
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(ValueError, match="else"):
        persistently(lambda: do(conflicts=2, why="else"), conflict)
    assert len(tries) == 1
    with pytest.raises(ValueError, match="Conflict"):
        persistently(lambda: do(conflicts=99, why="a Conflict"), conflict)
