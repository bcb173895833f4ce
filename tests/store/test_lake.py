"""What others than the Spark job read beside the tables: its ledger, and accepted holes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.store.lsns import Lsns
from gateway.store.readers.lake import (
    INTERNAL,
    Accepted,
    End,
    KnownHole,
    accepted,
    accepted_folder,
    committed,
    ends,
    known_holes,
    sink_of,
)

ACCEPTED = {
    "node": "gw-1",
    "incarnation": "ab12",
    "first": 5,
    "last": 9,
    "reason": "the disk died",
    "who": "ops@host",
    "at": 3.5,
}
END = {"acknowledged": 9, "heard": 2.5, "ack": "journal", "exact": False, "found": 4.5}


def ledger(lake: Path, **content: Any) -> None:
    path = lake / INTERNAL / "events.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_a_lake_without_a_ledger_says_nothing(tmp_path):
    """Whoever looks before the first batch finds nothing, and no error."""
    assert not committed(tmp_path)
    assert not known_holes(tmp_path)
    assert not ends(tmp_path)
    assert not accepted(tmp_path)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_ledger_of_before_is_refused(tmp_path, number):
    """But for the last one that had no form: it is read once."""
    ledger(tmp_path, format=number, committed={"gw-1": [[1, 3]]})
    with pytest.raises(ValueError, match=f"format {number}, and 3 is the only one"):
        committed(tmp_path)
    ledger(tmp_path, format=3, committed={"gw-1": {"ab12": [[1, 3]]}})
    assert committed(tmp_path) == {"gw-1": {"ab12": Lsns([(1, 3)])}}


def test_a_ledger_of_today_names_them(tmp_path):
    """It has lsns, holes and ends by incarnation, and what was accepted."""
    hole = {"node": "gw-1", "incarnation": "ab12", "first": 4, "last": 6}
    ledger(
        tmp_path,
        form=1,
        committed={"gw-1": {"": [[1, 3]], "ab12": [[2, 3], [7, 9]]}},
        holes=[{**hole, "file": "f", "why": "cut", "at": 1.0}],
        accepted=[ACCEPTED],
        ends={"gw-1": {"ab12": END}},
    )
    found = committed(tmp_path)
    assert found == {"gw-1": {"": Lsns([(1, 3)]), "ab12": Lsns([(2, 3), (7, 9)])}}
    assert known_holes(tmp_path) == [KnownHole("gw-1", 4, 6, "f", "cut", "ab12")]
    assert ends(tmp_path) == {"gw-1": {"ab12": End(9, 2.5, "journal", False, 4.5)}}
    assert accepted(tmp_path) == [Accepted(**ACCEPTED)]  # type: ignore[arg-type]


def test_what_waits_for_the_job_is_accepted_already(tmp_path):
    """A file beside the ledger counts as the ledger's own; one that is in both, once."""
    folder = accepted_folder(tmp_path)
    folder.mkdir(parents=True)
    ledger(tmp_path, format=3, committed={}, accepted=[ACCEPTED])
    (folder / "one.json").write_text(json.dumps(ACCEPTED))
    (folder / "two.json").write_text(json.dumps({**ACCEPTED, "last": None}))
    (folder / ".three.json.new").write_text("{")
    assert [one.last for one in accepted(tmp_path)] == [9, None]


@pytest.mark.parametrize("read", [committed, known_holes, ends, accepted])
def test_a_newer_ledger_is_not_guessed_at(tmp_path, read):
    """What a newer version wrote is named, not read as if it were nothing."""
    ledger(tmp_path, form=2, committed={})
    with pytest.raises(ValueError, match="form 2, and 1 is known here"):
        read(tmp_path)


@pytest.mark.parametrize("damaged", ["", "null"])
@pytest.mark.parametrize(
    ("read", "name"), [(committed, "events.json"), (sink_of, "sink.json")]
)
def test_a_damaged_file_of_the_job_is_named(tmp_path, read, name, damaged):
    """Whoever reads beside the tables says which file it was."""
    path = tmp_path / INTERNAL / name
    path.parent.mkdir()
    path.write_text(damaged)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read(tmp_path)


@pytest.mark.parametrize(
    "damage", [{"first": 0}, {"last": 4}, {"last": "x"}, {"reason": None, "at": None}]
)
def test_a_damaged_file_of_an_accepted_hole_is_named(tmp_path, damage):
    """It is not passed over, and its path is said."""
    path = accepted_folder(tmp_path) / "one.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**ACCEPTED, **damage}))
    with pytest.raises(ValueError, match=r"one\.json: "):
        accepted(tmp_path)
