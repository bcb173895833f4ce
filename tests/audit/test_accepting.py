"""What is lost for good is accepted: how it is said, of whom, and that it stays so."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.store.node.incarnation import Incarnation
from gateway.store.readers.lake import accepted_folder

from .accounts import accept, configured, end, journal, ledger, look, say, table, told


def holed(data: Path) -> None:
    table(data, "a", ("aaaa", [*range(1, 5), *range(8, 11)]))
    journal(data, Incarnation("aaaa", 1, 0))


@pytest.mark.parametrize("span", ["4-7", "5-8", "5-", "11-", "2"])
def test_what_is_not_missing_is_not_accepted(tmp_path, capsys, span):
    """It would hide what may be lost later; what is missing is said."""
    holed(tmp_path)
    status, said = accept(capsys, tmp_path, span)
    assert status == 2
    assert f"gw {span}: not all of that is missing; what is: 5-7" in said
    assert not accepted_folder(tmp_path / "lake").exists()


def test_holes_are_accepted_as_the_page_of_operations_says(
    tmp_path, capsys, monkeypatch
):
    """Its lines, as they stand, but for the node's name: the first where a hole is, and the
    second where there is none, and nobody knows what came behind.
    """
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    hole, behind = re.findall(r"^gateway (audit accept .*)$", page, re.MULTILINE)
    for line, rows in ((hole, range(1, 1701)), (behind, range(1, 1801))):
        home = tmp_path / str(len(rows))
        table(home / "data", "a", ("aaaa", rows), ("bbbb", range(1801, 1804)))
        ledger(home / "data", ends={"gw": {"aaaa": end(1800)}})
        journal(home / "data", Incarnation("bbbb", 1801, 0))
        configured(home / "job.yaml", home / "data")
        monkeypatch.chdir(home)
        words = shlex.split(line.replace("gw-1", "gw"), comments=True)
        assert say(capsys, "audit", "--config", "job.yaml")[0] == 1
        assert say(capsys, *words)[0] == 0
        status, said = say(capsys, "audit", "--config", "job.yaml")
        assert status == 0
        assert "complete: " in said


def test_part_of_a_hole_can_be_accepted(tmp_path, capsys):
    """The rest stays a hole; where nothing is missing, that is said."""
    holed(tmp_path)
    assert accept(capsys, tmp_path, "5-6")[0] == 0
    report = look(tmp_path)
    assert [list(node.holes) for node in report.nodes] == [[(7, 7)]]
    assert report.count("accepted") == 2
    status, said = accept(capsys, tmp_path, "7", "--json")
    assert status == 0
    [one] = json.loads(said)
    assert (one["first"], one["last"], one["reason"]) == (7, 7, "the disk died")
    status, said = accept(capsys, tmp_path, "7")
    assert status == 2
    assert "the audit misses nothing of it" in said


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["accept", "gw", "5-7"], "--reason"),
        (["accept", "gw", "5-7", "--reason", " "], "say why"),
        (["accept", "gw", "7-5", "--reason", "x"], "FIRST is first"),
        (["accept", "gw", "x", "--reason", "x"], "say FIRST-LAST"),
        (["accept", "gw-2", "5-7", "--reason", "x"], "no such node; there is gw"),
        (
            ["accept", "gw", "5-7", "--reason", "x", "--incarnation", "ff"],
            "there is aaaa",
        ),
        (["5-7"], "invalid choice"),
    ],
)
def test_wrong_use_is_said(tmp_path, capsys, argv, why):
    """Nothing is written then."""
    holed(tmp_path)
    status, said = told(capsys, tmp_path, *argv)
    assert status == 2
    assert why in said
    assert not accepted_folder(tmp_path / "lake").exists()


def test_where_to_look_may_stand_before_or_behind(tmp_path, capsys):
    """`gateway audit --data-dir D accept …` and `gateway audit accept … --data-dir D`."""
    holed(tmp_path)
    words = ["accept", "gw", "5", "--reason", "x", "--data-dir", tmp_path]
    assert say(capsys, "audit", *words)[0] == 0
    words = ["--data-dir", tmp_path, "accept", "gw", "6", "--reason", "x"]
    assert say(capsys, "audit", *words)[0] == 0
    assert look(tmp_path).count("accepted") == 2


def test_whose_lsns_are_lost_can_be_said(tmp_path, capsys):
    """Two incarnations lack the same lsns; without a word it is accepted of both."""
    table(tmp_path, "a", ("aaaa", [1, 2, 5]), ("bbbb", [1, 2, 5]))
    ended = {**end(5, exact=True), "ack": "spool"}
    ledger(tmp_path, ends={"gw": {"aaaa": ended}})
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    assert look(tmp_path).nodes[0].events == 10
    assert accept(capsys, tmp_path, "3", "--incarnation", "aa")[0] == 0
    assert {
        (one.first, one.last, one.incarnation) for one in look(tmp_path).holes["gw"]
    } == {(4, 4, "aaaa"), (3, 4, "bbbb")}
    assert accept(capsys, tmp_path, "4")[0] == 0
    assert accept(capsys, tmp_path, "3")[0] == 0
    assert look(tmp_path).count("accepted") == 4
    assert look(tmp_path).complete


@pytest.fixture
def accepted_by_the_job() -> Callable[[Path], None]:
    """The files' content goes into the ledger, as the job does it."""

    def take(data: Path) -> None:
        paths = list(accepted_folder(data / "lake").glob("*.json"))
        ledger(data, accepted=[json.loads(path.read_bytes()) for path in paths])
        for path in paths:
            path.unlink()

    return take


def test_it_stays_accepted_in_the_ledger(tmp_path, capsys, accepted_by_the_job):
    """Before the job has taken it, and after."""
    holed(tmp_path)
    assert accept(capsys, tmp_path, "5-7")[0] == 0
    assert look(tmp_path).complete
    accepted_by_the_job(tmp_path)
    assert look(tmp_path).complete
    assert "3 accepted as lost (the disk died)" in told(capsys, tmp_path)[1]
