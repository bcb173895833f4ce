"""`gateway audit` on directories as the gateway and the Spark job leave them."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs import expire
from deadlines import run
from gateway.audit import audit
from gateway.audit.lake import Lake
from gateway.audit.sites import Site
from gateway.cli import _audit_note
from gateway.sdk.command import WrongUse
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name
from gateway.store.readers.audited import Audited
from incarnations import A, segment_name
from making import Make

Run = Make[tuple[int, str, str]]


@pytest.fixture
def verdict(gateway) -> Make[dict[str, Any]]:
    """`gateway audit --json`, whose exit status must agree with what it says."""

    def verdict(*argv: object) -> dict[str, Any]:
        status, out, _ = gateway("audit", "--json", *argv)
        report: dict[str, Any] = json.loads(out)
        assert status == (0 if report["complete"] else 1)
        return report

    return verdict


def test_events_in_all_three_places_are_complete(system, gateway):
    """An event is fine in the lake, in the spool or in the journal; sealed or not.  A file
    system that is mounted there is no node."""
    system.node().everywhere()
    (system.root / "journal" / "lost+found").mkdir()
    status, out, _ = gateway("audit")
    head, row, last = out.splitlines()
    assert " ".join(head.split()) == (
        "node first last in lake in spool in journal holes doubles"
    )
    assert row.split() == ["gw-1", "1", "14", "5", "4", "5", "0", "0"]
    assert last == "complete: 14 events, each exactly once"
    assert status == 0


def test_an_event_on_its_way_is_no_double(node, system, verdict):
    """In journal and spool, spool and lake, archive and lake: that is one event."""
    node.store(count=3)
    kept = node.log.seal()
    data = kept.path.read_bytes()
    node.log.next_lsn = 1
    path = node.publish(count=3)
    kept.path.write_bytes(data)
    assert verdict()["nodes"][0]["in_spool"] == 3
    named = parse_file_name(path.name)
    assert named is not None
    system.lake([1, 2, 3], "a.parquet", by=named.incarnation)
    report = verdict()
    assert report["complete"]
    assert report["nodes"][0]["in_lake"] == 3
    path.rename(node.archive / path.name)
    assert verdict()["complete"]


def test_flawed_events_count(system, verdict):
    """Quarantine is part of the lake; stats and hidden files are not."""
    system.lake([1, 3], "a.parquet")
    system.lake([2], "a.parquet", table="quarantine")
    system.lake([1, 2, 3], ".staged.parquet")
    system.lake([1, 2, 3], "_temporary/a.parquet")
    system.lake([1, 2, 3], "a.parquet", table=".gateway/staging")
    system.lake([1, 2, 3], "a.parquet", table="stats")
    report = verdict()
    assert report["complete"]
    assert report["events"] == 3


def test_a_hole_in_the_lake_is_found(says, system):
    """What is nowhere is named, and the exit status says so."""
    system.lake([1, 2, 3, 7, 8, 10], "a.parquet")
    out = says(1, "audit")
    assert "hole: gw-1 lsn 4-6: nowhere" in out
    assert "hole: gw-1 lsn 9: nowhere" in out
    assert out.splitlines()[-1] == "INCOMPLETE: 4 events missing (gw-1 4-6, gw-1 9)"


def test_the_archive_is_pointed_at(node, system, gateway, verdict):
    """What the tables lost and the archive still has is told with the file's name."""
    archived = node.take(node.publish(count=5), into="lost.parquet")
    node.take(node.publish(count=5))
    (lost,) = system.root.rglob("lost.parquet")
    lost.unlink()
    _, out, _ = gateway("audit")
    assert f"hole: gw-1 lsn 1-5: the archive still has them: {archived}" in out
    (hole,) = verdict()["nodes"][0]["holes"]
    assert hole["archive"] == [str(archived)]


def test_a_tail_that_vanished_is_missed(node, verdict):
    """The catalog remembers what was acknowledged when all files of it are gone."""
    node.take(node.publish(count=5))
    path = node.publish(count=5)
    path.unlink()
    (found,) = verdict()["nodes"]
    assert found["last"] == 10
    (hole,) = found["holes"]
    assert (hole["first"], hole["last"]) == (6, 10)
    assert path.name in hole["note"]


def test_a_gap_in_the_journal_is_found(node, verdict):
    """A segment that is missing leaves a hole."""
    node.store(count=3)
    first = node.seal()
    node.store(count=3)
    middle = node.seal()
    node.store(count=3)
    middle.path.unlink()
    (hole,) = verdict()["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (4, 6)
    first.path.rename(first.path.with_name(first.path.name + ".damaged"))
    holes = verdict()["nodes"][0]["holes"]
    assert [(hole["first"], hole["last"]) for hole in holes] == [(1, 6)]
    assert "found damaged" in holes[0]["note"]


def test_damage_in_the_journal_is_found(node, verdict):
    """An acknowledged batch that can not be read back is missing."""
    node.store(b"first")
    node.store(b"second")
    node.store(b"third")
    path = node.seal().path
    path.write_bytes(path.read_bytes().replace(b"second", b"sec0nd"))
    report = verdict()
    (hole,) = report["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (2, 2)
    assert "damaged bytes" in report["problems"][0]["why"]


def test_a_torn_tail_is_not_missed(node, verdict):
    """What was never synced was never acknowledged."""
    node.store(count=3)
    (path,) = node.journal.glob("*.journal")
    whole = path.read_bytes()
    node.store(count=3)
    path.write_bytes(path.read_bytes()[: len(whole) + 20])
    report = verdict()
    assert report["complete"]
    assert report["events"] == 3


def test_a_segment_being_made_is_no_problem(node, verdict):
    """A file that has no whole header yet holds no event."""
    node.store(count=3)
    (node.journal / segment_name(4)).write_bytes(b"gwj")
    assert verdict()["complete"]
    (node.journal / segment_name(4)).write_bytes(b"x" * 100)
    assert verdict()["problems"][0]["why"] == "not a journal segment"


def test_a_double_in_the_lake_is_found(says, system):
    """The same event in two files of the tables, with their names."""
    one = system.lake(range(1, 100), "a.parquet")
    two = system.lake([50, 51], "b.parquet", table="quarantine")
    system.lake([100], "c.parquet")
    out = says(1, "audit")
    [line] = [line for line in out.splitlines() if line.startswith("double: ")]
    assert line.startswith("double: gw-1 lsn 50-51: in ")
    assert {*line.partition(": in ")[2].split(", ")} == {str(one), str(two)}
    assert out.splitlines()[-1] == "INCOMPLETE: 2 events doubled (gw-1 50-51)"


def test_a_double_within_one_file_is_found(system, verdict):
    """Even out of order, and however often."""
    path = system.lake([1, 3, 2, 4, 3, 3], "a.parquet")
    (double,) = verdict()["nodes"][0]["doubles"]
    place = {"first": 3, "last": 3, "incarnation": A}
    assert double == {**place, "files": [str(path)]}


@pytest.mark.parametrize("other", ["spool", "archive"])
def test_files_that_meet_are_doubles_where_no_job_compares_them(system, verdict, other):
    """A job of ours does: copies of one directory publish their past with bounds of their own."""
    one = system.spooled(1, 10)
    two = system.spooled(8, 20, directory=other)
    system.lake(range(1, 21), "a.parquet")
    assert verdict()["complete"]
    place = Site(Directories.under(system.root), keeps=True)
    [double] = audit(place, pause=lambda _: None).doubles["gw-1"]
    assert (double.first, double.last) == (8, 10)
    assert {*double.files} > {str(one), str(two)}


def test_a_file_that_is_being_archived_is_one_file(system, verdict):
    """One name in spool and archive is the same file, copied or moved."""
    system.spooled(1, 10)
    system.spooled(1, 10, directory="archive")
    assert verdict()["complete"]


def test_a_spool_file_is_not_believed_by_its_name(system, verdict):
    """Events that a name promises and the file does not hold are a hole."""
    system.spooled(
        1,
        8,
        name="events-gw-1_aaaaaaaaaa-00000000000000000001-00000000000000000010.parquet",
    )
    (hole,) = verdict()["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (9, 10)


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense PAR1"])
def test_a_corrupt_file_in_the_lake_is_named(says, system, content):
    """An empty or damaged Parquet file is a problem by itself."""
    system.lake([1, 2], "a.parquet")
    bad = system.lake([3], "b.parquet")
    bad.write_bytes(content)
    out = says(1, "audit")
    assert f"problem: {bad}: it " in out
    assert out.splitlines()[-1] == "INCOMPLETE: 1 file with problems"


def test_foreign_columns_are_named(system, verdict):
    """A file without lsns, or with other types, is no silent nothing."""
    path = system.lake([1], "a.parquet")
    for columns, why in (
        ({"lsn": [1]}, "it has no column node"),
        ({"node": ["gw-1"], "lsn": ["1"]}, "its column lsn is string, not int64"),
        ({"node": ["gw-1"], "lsn": [0]}, "it has an lsn outside"),
        ({"node": pa.array([None], pa.string()), "lsn": [1]}, "no node or no lsn"),
    ):
        pq.write_table(pa.table(columns), path)
        (problem,) = verdict()["problems"]
        assert problem["file"] == str(path)
        assert why in problem["why"]


def test_a_corrupt_file_in_the_spool_is_a_hole(system, verdict):
    """Nothing can be read from it, so its events are nowhere."""
    path = system.spooled(1, 5)
    path.write_bytes(path.read_bytes()[:100])
    report = verdict()
    assert report["problems"][0]["file"] == str(path)
    assert report["nodes"][0]["holes"][0]["last"] == 5
    system.lake(range(1, 6), "a.parquet")
    assert verdict()["complete"]


def test_every_node_is_judged(warns, system, verdict):
    """Nodes have lsns of their own; --node asks for one."""
    system.node("gw-1").publish(count=3)
    system.lake([1, 2, 4], "a.parquet", node="gw-2")
    system.lake([5], "b.parquet", node="gw-2-1")
    report = verdict()
    found = {
        n["node"]: [(h["first"], h["last"]) for h in n["holes"]]
        for n in report["nodes"]
    }
    assert found == {"gw-1": [], "gw-2": [(3, 3)], "gw-2-1": [(1, 4)]}
    assert report["events"] == 12
    assert verdict("--node", "gw-1")["complete"]
    assert not verdict("--node", "gw-2")["complete"]
    err = warns(2, "audit", "--node", "gw-3")
    assert "no such node; there is gw-1, gw-2, gw-2-1" in err


def test_a_file_with_several_nodes(system, verdict):
    """Spark puts events of all nodes into one file."""
    path = system.lake([], "a.parquet")
    nodes = ["a", "b", "b", "a", "b"]
    pq.write_table(pa.table({"node": nodes, "lsn": [1, 1, 3, 2, 3]}), path)
    report = verdict()
    one, two = report["nodes"]
    assert (one["in_lake"], one["holes"], one["doubles"]) == (2, [], [])
    assert [(h["first"], h["last"]) for h in two["holes"]] == [(2, 2)]
    assert [(d["first"], d["last"]) for d in two["doubles"]] == [(3, 3)]


def test_from_leaves_out_what_is_older(system, verdict):
    """With --from, what was pruned long ago is not asked for."""
    system.lake([*range(50, 61), 3, 3], "a.parquet")
    assert not verdict()["complete"]
    report = verdict("--from", 50)
    assert report["complete"]
    assert report["events"] == 11
    assert verdict("--from", 100)["events"] == 0


def test_a_system_that_has_taken_nothing_is_complete(says, system):
    """Nothing acknowledged, nothing missing."""
    system.node()
    out = says(0, "audit")
    assert out.splitlines()[-1] == "complete: 0 events, each exactly once"


def test_a_directory_that_is_no_data_dir_is_not_complete(tmp_path, gateway):
    """A mistyped directory must not look like a proof."""
    for path, why in (
        (tmp_path / "none", "no such directory"),
        (tmp_path, "neither journal nor spool nor lake in it"),
        (Path(__file__), "not a directory"),
    ):
        status, out, err = gateway("audit", "--data-dir", path, where=False)
        assert (status, out) == (2, "")
        assert f"--data-dir {path}: {why}" in err


def test_a_missing_data_dir_is_named_by_its_key(says, warns, tmp_path, system):
    """With --config, the sentence names file and key; and directories are its own."""
    config = tmp_path / "gateway.yaml"
    text = "listeners: [{name: b, protocol: lumberjack, listen: tcp:0}]\n"
    config.write_text(text + f"data_dir: {system.root}\nspool: {{directory: out}}\n")
    err = warns(2, "audit", "--config", config, where=False)
    assert f"{config}: data_dir: {system.root}: no such directory" in err
    system.spooled(1, 5, directory="out")
    out = says(0, "audit", "--config", config, where=False)
    assert "complete: 5 events" in out
    err = warns(2, "audit", "--config", tmp_path / "no.yaml", where=False)
    assert "no.yaml" in err


def test_no_permission_is_a_sentence(system, gateway, monkeypatch):
    """Without the right to read, the audit says so and proves nothing."""
    system.node().store(count=1)

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    status, out, err = gateway("audit")
    assert (status, out) == (2, "")
    assert "permission denied; run this as the user that owns data_dir" in err


def test_names_can_not_play_with_the_terminal(says, system):
    """Control characters in names of nodes and files are spelled out."""
    system.lake([2], "a\x1b[2J.parquet", node="gw\x1b]0;evil\x07").write_bytes(b"")
    system.lake([2], "b.parquet", node="gw\x1b]0;evil\x07")
    out = says(1, "audit")
    assert "gw\\u001b]0;evil\\u0007" in out
    assert not [c for c in out if not c.isprintable() and c != "\n"]


def test_only_the_first_of_many_faults_are_shown(system, gateway, verdict):
    """A thousand holes are counted, twenty are named, --json has them all."""
    system.lake(range(1, 2002, 2), "a.parquet")
    _, out, _ = gateway("audit")
    assert out.count("hole:") == 20
    assert "… and 980 more; --json has them all" in out
    assert "INCOMPLETE: 1000 events missing (gw-1 2, gw-1 4," in out
    assert "(980 more)" in out.splitlines()[-1]
    assert len(verdict()["nodes"][0]["holes"]) == 1000


# -- while the gateway and the Spark job are at work --------------------------------


def test_a_batch_that_is_committed_while_we_look(node, system, monkeypatch):
    """Files that move between the look at one place and the next are all met."""
    paths = [node.publish(count=5) for _ in range(4)]
    original = Lake.look

    def look(lake: Lake) -> None:
        if paths:
            node.take(paths.pop(0))
        original(lake)
        if paths:
            node.take(paths.pop(0))

    monkeypatch.setattr(Lake, "look", look)
    report = audit(Directories.under(system.root), pause=lambda _: None)
    assert report.complete
    assert report.events == 20
    assert len(paths) == 2


def test_a_segment_that_is_published_while_we_look(node, system, monkeypatch):
    """An event that left the journal before we read it is met in the spool."""
    node.store(count=5)
    original = Path.read_bytes
    moved = []

    def read_bytes(path: Path) -> bytes:
        if path.suffix == ".journal" and not moved:
            moved.append(path)
            node.publish(count=1)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    report = audit(Directories.under(system.root), pause=lambda _: None)
    assert moved
    assert report.complete
    assert (report.events, report.nodes[0].in_spool) == (6, 6)


def test_events_that_no_job_takes_are_in_the_archive(system, gateway, tmp_path):
    """With `spool.after: keep`: what consumers have read and retention has removed, the
    state says; the rest has to be there.
    """
    config = tmp_path / "gateway.yaml"
    config.write_text(
        f"node: gw-1\ndata_dir: {system.root}\nspool: {{after: keep}}\n"
        "listeners: [{name: a, protocol: lumberjack, listen: tcp:1}]\n"
    )
    node = system.node()
    paths = [node.publish(b'{"event":{"id":"a"}}')]
    paths += [node.publish(count=3), node.publish(count=2)]
    for path in paths:
        path.rename(node.archive / path.name)
    ids = tmp_path / "ids"
    ids.write_text("a\n")

    def says() -> tuple[int, str]:
        status, out, _ = gateway("audit", "--config", config, where=False)
        return status, out.splitlines()[-1]

    assert says() == (0, "complete: 6 events, each exactly once")
    found = gateway("audit", "--config", config, "--acknowledged", ids, where=False)
    assert "senders: 1 of 1 acknowledged events found" in found[1]
    expire(system.root, [paths[0].name], "gw")
    (node.archive / paths[0].name).unlink()
    gone = "complete: 5 events, each exactly once; 1 event expired by retention"
    assert says() == (0, gone)
    (node.archive / paths[2].name).unlink()
    assert says() == (1, "INCOMPLETE: 2 events missing (gw-1 5-6)")


def test_what_was_missed_once_is_looked_for_again(system):
    """Only what stays away through several looks is a hole; later events do not matter."""
    system.lake([1, 2, 5], "a.parquet")
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            system.lake([3, 9], "b.parquet")
        if len(pauses) == 2:
            system.lake([4], "c.parquet")

    report = audit(Directories.under(system.root), pause=pause)
    assert report.complete
    assert (report.looks, report.events) == (3, 5)


def test_a_file_that_is_replaced_is_counted_afresh(system):
    """Two files that become one while we look are not three."""
    one = system.lake([1, 2], "a.parquet")
    two = system.lake([3, 5], "b.parquet")

    def pause(seconds: float) -> None:
        if one.exists():
            one.unlink()
            two.unlink()
            system.lake([1, 2, 3, 4, 5], "c.parquet")

    report = audit(Directories.under(system.root), pause=pause)
    assert report.complete
    assert report.looks == 2


def test_nothing_is_written(node, system, gateway):
    """The audit leaves every byte, name and time as it was."""
    node.take(node.publish(count=5))
    node.publish(count=4)
    node.store(count=3)

    def state() -> list[tuple[str, int, bytes | None]]:
        return sorted(
            (str(p), p.stat().st_mtime_ns, None if p.is_dir() else p.read_bytes())
            for p in system.root.rglob("*")
        )

    before = state()
    gateway("audit")
    assert state() == before


# -- what the senders say -------------------------------------------------------------


def test_acknowledged_events_are_looked_for(says, warns, node, verdict, tmp_path):
    """Ids in spool and lake are found; one that is nowhere fails the audit."""
    node.take(node.publish(b'{"event":{"id":"a"}}', b'{"event":{"id":"b"}}'))
    node.publish(b'{"event":{"id":"b"}}', b'{"event":{"id":"c"}}')
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\nb\n")
    two.write_text("c\n")
    out = says(0, "audit", "--acknowledged", one, two)
    assert "senders: 3 of 3 acknowledged events found" in out
    assert "note: 1 of them are there more than once (1 copies)" in out
    two.write_text("c\nd\n")
    out = says(1, "audit", "--acknowledged", one, "--acknowledged", two)
    assert "missing: acknowledged event d is nowhere" in out
    assert out.splitlines()[-1] == "INCOMPLETE: 1 acknowledged id not found"
    report = verdict("--acknowledged", two)
    assert report["acknowledged"]["missing"] == ["d"]
    err = warns(2, "audit", "--acknowledged", tmp_path / "none")
    assert f"--acknowledged {tmp_path / 'none'}: no such file" in err


@pytest.fixture
def config(system, tmp_path) -> Make[Path]:
    """A file for the system's directories, with this section `spark.audit`."""

    def written(**audit: object) -> Path:
        path = tmp_path / "gateway.yaml"
        path.write_text(
            f"node: gw-1\ndata_dir: {system.root}\n"
            "listeners: [{name: beats, protocol: lumberjack, listen: tcp:127.0.0.1:0}]\n"
            f"spark: {{audit: {audit or {}}}}\n"
        )
        return path

    return written


def noted(config: Path, *more: str) -> tuple[int, str]:
    """In a process of its own: it lowers its priority for good."""
    words = ("audit", "--note", "--config", config, *more)
    done = run(sys.executable, "-m", "gateway", *words)
    return done.returncode, done.stdout + done.stderr


def test_what_it_found_lies_beside_the_tables(system, config):
    """Complete, then with events that are nowhere and one that is there twice; when one is
    to come, and how often, stays as it was.
    """
    lake = system.root / "lake"
    system.lake([1, 2, 3], "a.parquet")
    Audited(since=5.0, every=86400.0, unfinished="it took 1 h").write(lake)
    status, said = noted(config())
    assert (status, said.splitlines()[-1]) == (
        0,
        "complete: 3 events, each exactly once",
    )
    found = Audited.read(lake)
    assert (found.complete, found.events, found.missing, found.unfinished) == (
        True, 3, 0, None,
    )  # fmt: skip
    assert (found.since, found.every) == (5.0, 86400.0)
    assert found.at is not None
    assert found.tried is not None
    system.lake([6, 9, 9], "b.parquet")
    status, said = noted(config())
    assert status == 1
    assert "INCOMPLETE" in said
    found = Audited.read(lake)
    assert not found.complete
    assert (found.missing, found.holes, found.doubled) == (4, 2, 1)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"time_limit": "1s"}, "it took 1.0 s (spark.audit.time_limit)"),
        ({"read_bytes": "1MiB"}, "it read 1.0 MiB (spark.audit.read_bytes)"),
    ],
)
def test_it_ends_at_its_limits(limits, why, system, config, monkeypatch, capsys):
    """Without a verdict; what the last one found is still what is known."""
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)
    lake = system.root / "lake"
    before = Audited(since=1.0, every=60.0, at=7.0, events=12)
    before.write(lake)

    def endless(args: object, heard: object) -> int:
        while True:
            time.sleep(0.01)
            Path("/proc/self/maps").read_bytes()
            try:
                Path(sys.executable).resolve().read_bytes()
            except Exception:
                pytest.fail("its end was taken for a bad file")

    assert _audit_note.run(asked(config(**limits)), endless) == 1
    assert capsys.readouterr().out == f"unfinished: {why}\n"
    found = Audited.read(lake)
    assert found.unfinished == why
    assert (found.at, found.events, found.every) == (7.0, 12, 60.0)
    assert found.tried is not None


def test_it_ends_when_it_is_asked_to_and_leaves_signals_as_they_were(
    system, config, monkeypatch
):
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)
    handler = signal.getsignal(signal.SIGTERM)

    def stopped(args: object, heard: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0.01)

    assert _audit_note.run(asked(config()), stopped) == 1
    assert Audited.read(system.root / "lake").unfinished == "it was ended"
    assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_error_is_noted_and_told(system, config, monkeypatch):
    """As it would be without."""
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)

    def broken(args: object, heard: object) -> int:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        _audit_note.run(asked(config()), broken)
    assert Audited.read(system.root / "lake").unfinished == "the disk is gone"


@pytest.mark.parametrize(
    "more", [{"data_dir": [Path("x")]}, {"node": "gw-1"}, {"first": 7}]
)
def test_a_part_is_not_noted_as_the_whole(more, config):
    with pytest.raises(WrongUse, match="--note is about all"):
        _audit_note.run(asked(config(), **more), lambda args, heard: 0)


def test_a_word_that_can_not_be_read_is_none(tmp_path):
    """Cut off, of another kind, or with fields of a later version."""
    path = Audited.path(tmp_path)
    path.parent.mkdir()
    for text in ("", "{", "[]", '{"at": "yesterday"}'):
        path.write_text(text)
        assert Audited.read(tmp_path) == Audited()
    path.write_text('{"at": 7, "missing": 2, "of_later": true}')
    assert Audited.read(tmp_path) == Audited(at=7.0, missing=2)


def asked(config: Path, **more: Any) -> argparse.Namespace:
    given = {"config": [str(config)], "data_dir": [], "node": None, "first": 1}
    return argparse.Namespace(**{**given, **more})
