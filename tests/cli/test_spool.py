"""`gateway spool` on files that the publisher wrote, and on files that went bad."""

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway import cli
from gateway.event import SCHEMA
from gateway.store.lsns import Lsns
from gateway.store.names import file_name
from gateway.store.readers import consumers
from gateway.store.readers.consumers import FileMarks, ObjectMarks
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B
from spools import SpoolFolder


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(one) for one in text.splitlines()]


# -- ls -------------------------------------------------------------------------------


def test_ls_shows_where_every_event_is(says, system):
    """Archive, spool and what waits in the journal, with lsns and events."""
    system.node().everywhere()
    out = says(0, "spool", "ls")
    head, *rows, last = out.splitlines()
    assert head.split() == [
        "where",
        "node",
        "first",
        "last",
        "events",
        "size",
        "age",
        "file",
    ]
    assert [row.split()[:5] for row in rows] == [
        ["archive", "gw-1", "1", "5", "5"],
        ["spool", "gw-1", "6", "9", "4"],
        ["journal", "gw-1", "10", "12", "3"],
        ["journal", "gw-1", "13", "14", "2"],
    ]
    assert last.startswith("4 files, 14 events, ")


def test_ls_for_programs(system, gateway):
    """--json gives numbers and whole paths."""
    path = system.node().publish(count=4)
    os.utime(path, (1, 1))
    status, out, _ = gateway("spool", "ls", "--json")
    (entry,) = json.loads(out)
    assert status == 0
    assert entry.pop("age_seconds") > 1e9
    assert entry == {
        "where": "spool",
        "node": "gw-1",
        "first": 1,
        "last": 4,
        "events": 4,
        "bytes": path.stat().st_size,
        "file": str(path),
    }


def test_ls_of_a_directory(says, warns, system, tmp_path):
    """A directory of files needs no gateway around it; hidden names are not there."""
    path = system.spooled(1, 3, directory="elsewhere")
    system.spooled(4, 6, directory="elsewhere", name=".events-gw-1")
    out = says(0, "spool", "ls", path.parent, where=False)
    assert "elsewhere" in out
    assert "1 file, 3 events" in out
    err = warns(2, "spool", "ls", tmp_path / "none", where=False)
    assert f"{tmp_path / 'none'}: no such file or directory" in err
    file = system.spooled(1, 5)
    err = warns(2, "spool", "ls", file, where=False)
    assert err == f"gateway: {file}: not a directory\n"


def test_ls_of_nothing(says, system):
    """An idle system has no files, and that is fine."""
    system.node()
    out = says(0, "spool", "ls")
    assert out.splitlines()[-1] == "0 files, 0 events, 0 B"


# -- cat ------------------------------------------------------------------------------


def test_cat_prints_events_as_json(says, system):
    """A line for each event: the envelope, and the payload as it was written."""
    path = system.node().publish(b'{"n": 1e400,\n "n":2.50}', b"{}")
    out = says(0, "spool", "cat", path)
    first, second = lines(out)
    assert (first["node"], first["lsn"], second["lsn"]) == ("gw-1", 1, 2)
    assert first["received_at"] == "1970-01-01T00:00:05Z"
    assert '"payload": {"n":1e400,"n":2.50}}' in out
    assert "principal" not in first


def test_cat_finds_a_file_by_its_name(warns, node, gateway):
    """The bare name of a file in spool or archive is enough."""
    moved = node.take(node.publish(b'"old"'))
    path = node.publish(b'"new"')
    assert lines(gateway("spool", "cat", moved.name)[1])[0]["payload"] == "old"
    assert lines(gateway("spool", "cat", path.name)[1])[0]["payload"] == "new"
    err = warns(2, "spool", "cat", "events-none.parquet")
    assert "events-none.parquet: not here, nor in " in err


def test_cat_by_lsn_crosses_all_places(says, node, gateway):
    """From the archive through the spool into the journal."""
    node.take(node.publish(b"1", b"2"))
    node.publish(b"3")
    node.publish(b"4", b"5")
    node.store(b"6", b"7")
    out = says(0, "spool", "cat", "--lsn", 2, "-n", 5)
    assert [event["lsn"] for event in lines(out)] == [2, 3, 4, 5, 6]
    assert [event["payload"] for event in lines(out)[:4]] == [2, 3, 4, 5]
    assert [e["lsn"] for e in lines(gateway("spool", "cat", "--lsn", 3)[1])] == [3]
    status, out, err = gateway("spool", "cat", "--lsn", 8)
    assert (status, out) == (1, "")
    assert "no event: lsn 8" in err


def test_cat_by_lsn_wants_to_know_the_node(warns, system, gateway):
    """The same lsn of two nodes is two events."""
    system.spooled(1, 5, node="a")
    system.spooled(5, 9, node="b")
    assert lines(gateway("spool", "cat", "--lsn", 2)[1])[0]["node"] == "a"
    err = warns(2, "spool", "cat", "--lsn", 5)
    assert "lsn 5 is there for a, b: say which with --node" in err
    _, out, _ = gateway("spool", "cat", "--lsn", 5, "--node", "b")
    assert lines(out)[0]["node"] == "b"
    system.spooled(1, 3, node="a", name=file_name("a", B, 1, 3))
    err = warns(2, "spool", "cat", "--lsn", 2)
    assert f"lsn 2 of a is there for incarnations {A}, {B}: say which FILE" in err


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a":"\\u001b\x7f\xc2\x9b"}', '"payload": {"a":"\\u001b\\u007f\\u009b"}'),
        ("\x1b]0;evil\x07 \u202e \U0001f600 \U000e0001".encode(),
         '"payload_text": "\\u001b]0;evil\\u0007 \\u202e \U0001f600 \\udb40\\udc01"'),
        (b"\xff\x1b", '"payload_base64": "/xs="'),
        (b"[" * 5000, '"payload_text": "[[['),
    ],
)  # fmt: skip
def test_nothing_raw_reaches_a_terminal(system, gateway, payload, shown):
    """Control characters of any kind come out spelled, and mean the same in JSON."""
    path = system.node().publish(payload)
    _, out, _ = gateway("spool", "cat", path)
    assert shown in out
    assert not [c for c in out if not c.isprintable() and c != "\n"]
    (event,) = lines(out)
    if "payload_text" in event:
        assert event["payload_text"].encode() == payload


def test_payloads_alone_are_the_bytes_as_sent(system, capfdbinary):
    """Into a pipe, --payload-only changes nothing."""
    path = system.node().publish(b'{"a": 1}', b"\x00\xff\x1b")
    assert cli.main(["spool", "cat", str(path), "--payload-only"]) == 0
    assert capfdbinary.readouterr().out == b'{"a": 1}\n\x00\xff\x1b\n'


def test_payloads_alone_are_spelled_for_a_terminal(system, gateway, monkeypatch):
    """On a terminal even --payload-only prints nothing raw."""
    path = system.node().publish(b'{"a":"\x7f"}', b"\x00\xff\x1b[2J")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = gateway("spool", "cat", path, "--payload-only")
    assert out.splitlines() == ['{"a":"\\u007f"}', "\\u0000\\xff\\u001b[2J"]


def test_cat_of_a_damaged_file_says_so(warns, system):
    """No stack trace for a file that is none."""
    path = system.spooled(1, 5)
    path.write_bytes(b"nonsense")
    err = warns(2, "spool", "cat", path)
    assert f"{path}: no spool file, or a damaged one" in err
    rows = pa.table({"lsn": [1], "payload": pa.nulls(1, pa.binary())})
    pq.write_table(rows, path)
    assert "rows without a payload, as tables have" in warns(2, "spool", "cat", path)


@pytest.mark.parametrize("count", ["-1", "0", "9223372036854775808", "many"])
def test_cat_of_no_number_of_events(count, warns, system):
    """Wrong use, and no stack trace."""
    system.spooled(1, 5)
    assert "argument -n: " in warns(2, "spool", "cat", "--lsn", 1, "-n", count)


# -- verify ---------------------------------------------------------------------------


def test_good_files_are_fine(says, node):
    """What the publisher wrote passes, in spool and archive."""
    node.take(node.publish(count=5))
    node.publish(count=4)
    out = says(0, "spool", "verify")
    assert out == "fine: 2 files, 9 events, every byte as it should be\n"


@pytest.mark.parametrize("column", ["lsn", "payload"])
def test_a_flipped_bit_is_found(says, system, column):
    """One bit in the data of one page of any column: its checksum does not fit."""
    path = system.spooled(1, 1000)
    data = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(
        group.column(n)
        for n in range(group.num_columns)
        if group.column(n).path_in_schema == column
    )
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
    out = says(1, "spool", "verify", path, where=False)
    assert f"{path}: it can not be read: " in out
    assert out.splitlines()[-1] == "1 problem in 1 file, 0 events"


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path, write_page_checksum=True)


def test_every_promise_of_a_name_is_checked(says, system):
    """Columns, number of events, lsns, node, size, name, time."""
    good = system.spooled(1, 5).read_bytes()

    def lsns(*values: int) -> Callable[[pa.Table], pa.Table]:
        return lambda t: t.set_column(1, SCHEMA.field(1), pa.array(values, pa.int64()))

    for change, why in (
        (lambda p: rewritten(p, lambda t: t.slice(1)), "has 4 events, its name promises 5"),
        (lambda p: rewritten(p, lsns(1, 2, 4, 3, 5)), "where lsn 3 should be, it has lsn 4"),
        (lambda p: rewritten(p, lsns(1, 2, 2, 3, 4)), "where lsn 3 should be, it has lsn 2 to 4"),
        (lambda p: rewritten(p, lsns(2, 3, 4, 5, 6)), "where lsn 1 should be, it has lsn 2 to 6"),
        (lambda p: rewritten(p, lambda t: t.drop_columns(["seq"])), "no seq int64"),
        (lambda p: p.write_bytes(b""), "it is empty"),
        (lambda p: p.write_bytes(good[:-9]), "it can not be read"),
        (lambda p: os.utime(p, (2**33, 2**33)), "lies in the future"),
        (lambda p: p.rename(p.with_name("events-x.parquet")), "not a name that"),
        (
            lambda p: p.rename(p.with_name(p.name.replace("gw-1", "gw-2"))),
            "it has an event of node 'gw-1'",
        ),
        (
            lambda p: p.rename(p.with_name(p.name.replace("0001-", "0009-"))),
            "not a name that",
        ),
    ):  # fmt: skip
        path = system.spooled(1, 5)
        change(path)
        out = says(1, "spool", "verify")
        assert why in out
        for left in path.parent.iterdir():
            left.unlink()


def test_overlaps_are_found(says, system):
    """Between any two files, in any two directories, however far apart in the list; a machine
    that was rebuilt gives its lsns again, to other events."""
    system.spooled(1, 50)
    system.spooled(60, 61)
    inner = system.spooled(5, 6)
    other = system.spooled(40, 55, directory="archive")
    system.spooled(5, 6, node="gw-2")
    system.spooled(5, 6, name=file_name("gw-1", B, 5, 6))
    out = says(1, "spool", "verify", "--json")
    report = json.loads(out)
    assert [problem["file"] for problem in report["problems"]] == [
        str(inner),
        str(other),
    ]
    assert "it overlaps with " in report["problems"][0]["why"]
    assert (report["files"], report["events"]) == (6, 74)


def test_a_file_that_moves_while_we_verify(says, system, monkeypatch):
    """What the Spark job takes away is no problem; it is verified where it goes."""
    path = system.spooled(1, 5)
    (system.root / "archive").mkdir()
    original = Path.iterdir

    def iterdir(directory: Path) -> Any:
        found = list(original(directory))
        if path in found:
            path.rename(system.root / "archive" / path.name)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    out = says(0, "spool", "verify")
    assert "note: meanwhile the Spark job took 1 file" in out
    assert "fine: 1 file, 5 events" in out


def test_hidden_files_are_not_there(system, gateway):
    """What is still being written is nobody's business."""
    system.spooled(1, 5)
    (system.root / "spool" / ".events-half").write_bytes(b"half")
    assert gateway("spool", "verify")[0] == 0


def test_no_flipped_bit_goes_unseen(system, gateway):
    """Wherever a bit flips, verify says so or every event still reads the same."""
    chance = random.Random(1)
    path = system.spooled(1, 50)
    good, wanted = path.read_bytes(), pq.read_table(path)
    for _ in range(200):
        data = bytearray(good)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        status, _, err = gateway("spool", "verify", path, where=False)
        assert status in (0, 1), err
        assert status == 1 or pq.read_table(path).equals(wanted)


# -- done -----------------------------------------------------------------------------


@pytest.fixture
def configured(tmp_path) -> Path:
    """A configuration with a consumer."""
    path = tmp_path / "consumers.yaml"
    path.write_text(
        f"""
node: gw-1
data_dir: {tmp_path / "data"}
listeners: [{{name: beats, protocol: lumberjack, listen: tcp:5044}}]
spool: {{after: keep, consumers: [mine]}}
"""
    )
    return path


def query(folder: Path, *batches: list[str]) -> Path:
    """The checkpoint of a query of Spark's over these files, which has committed one batch."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    for batch, paths in enumerate(batches):
        entries = [
            json.dumps({"path": path, "timestamp": 1, "batchId": batch})
            for path in paths
        ]
        (folder / "sources/0" / str(batch)).write_text("\n".join(["v1", *entries]))
        offset = json.dumps({"logOffset": batch})
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")
    (folder / "commits/0").write_text("v1\n{}")
    return folder


def test_a_consumer_says_what_it_has_read(configured, capsys, monkeypatch):
    """By names, paths, lines of its input, and what its query has committed."""
    archive = SpoolFolder(configured.parent / "data" / "archive")
    made = [archive.events("gw-1", lsn, 1) for lsn in range(1, 6)]
    names = [path.name for path in made]
    made[1].unlink()
    batches = ([f"file:///archive/{name}"] for name in names[3:])
    checkpoint = query(configured.parent / "checkpoint", *batches)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{names[2]}\n\n"))
    said = ["spool", "done", "--config", str(configured), "mine"]
    assert cli.main([*said, names[0], f"/elsewhere/{names[1]}", "-"]) == 0
    assert cli.main([*said, "--checkpoint", str(checkpoint)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "consumer mine needs 3 files no more",
        "consumer mine needs 1 file no more",
    ]
    mark = FileMarks(
        configured.parent / "data" / "consumers", "mine", RealDisk()
    ).read()
    assert mark is not None
    assert mark.done == {f"gw-1_{A}": Lsns([(1, 4)])}


def test_a_checkpoint_of_thousands_costs_two_requests(configured, capsys, monkeypatch):
    """Names say whose lsns files have: no object is read of those that a query has committed."""
    names = [file_name("gw-1", A, lsn, lsn) for lsn in range(1, 2001)]
    paths = [f"s3a://b/p/{each}" for each in names]
    checkpoint = query(configured.parent / "checkpoint", paths)
    bucket = MemoryBucket()
    monkeypatch.setattr(consumers, "bucket_of", lambda spool, seconds=None: bucket)
    said = ["spool", "done", "--config", str(configured), "mine"]
    assert cli.main([*said, "--checkpoint", str(checkpoint)]) == 0
    assert "needs 2,000 files no more" in capsys.readouterr().out
    assert [request for request, _ in bucket.requests] == ["read", "create"]
    mark = ObjectMarks(bucket, "mine").read()
    assert mark is not None
    assert mark.done == {f"gw-1_{A}": Lsns([(1, 2000)])}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["other", "x"], "other is not in spool.consumers, which has mine"),
        (["mine"], "say which FILE, or --checkpoint DIR"),
        (["mine", "x.parquet"], "x.parquet is no name of a spool file"),
        (["mine", "--checkpoint", "/nowhere"], "/nowhere: no such file or directory"),
    ],
)
def test_what_can_not_be_done_is_said(configured, capsys, words, told):
    """And nothing is written down."""
    assert cli.main(["spool", "done", "--config", str(configured), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (configured.parent / "data" / "consumers" / "mine").exists()


Run = Callable[..., tuple[int, str, str]]


def look(gateway: Run) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(gateway("audit", "--json")[1])
    return report


def test_audit_counts_a_kept_event_where_it_is_going(system, gateway):
    """An event is in the spool or in the lake, not in the journal and not doubled."""
    node = system.node(remembers=True)
    node.remember()
    path = node.publish(count=3)
    node.store(count=2)
    node.remember()
    report = look(gateway)
    assert report["complete"]
    [found] = report["nodes"]
    assert (found["in_lake"], found["in_spool"], found["in_journal"]) == (0, 3, 2)
    node.take(path)
    report = look(gateway)
    assert report["complete"]
    [found] = report["nodes"]
    assert (found["in_lake"], found["in_spool"], found["in_journal"]) == (3, 0, 2)


def test_a_kept_segment_does_not_hide_a_lost_file(system, gateway):
    """Nobody publishes it again, so its events are missing though they lie there."""
    node = system.node(remembers=True)
    path = node.publish(count=3)
    path.unlink()
    report = look(gateway)
    assert not report["complete"]
    [hole] = report["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (1, 3)
    assert path.name in hole["note"]


def test_a_file_that_a_crash_left_hidden_is_still_to_come(system, gateway):
    """The next start makes it public; until then the journal has its events."""
    node = system.node(remembers=True)
    path = node.publish(count=3)
    path.rename(path.with_name(f".{path.name}"))
    report = look(gateway)
    assert report["complete"]
    assert report["nodes"][0]["in_journal"] == 3


def test_spool_ls_shows_what_waits(system, gateway):
    """Kept segments and metadata are not waiting; the events of others are."""
    node = system.node(remembers=True)
    node.publish(count=3)
    node.remember()
    node.seal()
    assert [e["where"] for e in json.loads(gateway("spool", "ls", "--json")[1])] == [
        "spool"
    ]
    node.remember()
    node.store(count=2)
    entries = json.loads(gateway("spool", "ls", "--json")[1])
    assert [(e["where"], e["first"], e["events"]) for e in entries] == [
        ("spool", 1, 3),
        ("journal", 4, 2),
    ]


def test_spool_cat_prints_each_event_once(says, system):
    """From a lsn on, through files and journal, though a segment has them as well."""
    node = system.node(remembers=True)
    node.publish(b"1", b"2")
    node.remember()
    node.store(b"3")
    out = says(0, "spool", "cat", "--lsn", "1", "-n", "9")
    lsns = [json.loads(line)["lsn"] for line in out.splitlines()]
    assert lsns == [1, 2, 3]


def test_acknowledged_ids_are_searched_past_metadata(system, gateway, tmp_path):
    """A batch without events is no event with an id."""
    node = system.node(remembers=True)
    node.remember(b'{"event":{"id":"x"}}')
    node.publish(b'{"event":{"id":"a"}}')
    node.store(b'{"event":{"id":"b"}}')
    said = tmp_path / "acknowledged"
    said.write_text("a\nb\n")
    status, out, _ = gateway("audit", "--acknowledged", str(said), "--json")
    report = json.loads(out)
    assert status == 0, report
