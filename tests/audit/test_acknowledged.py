"""Ids of acknowledged events are found wherever the events are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs import write
from gateway.audit.acknowledged import event_id, read_ids, search
from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.journal import Log
from gateway.store.node.incarnation import Incarnation
from gateway.store.system.disk import RealDisk
from incarnations import A
from spools import SpoolFolder


def split(body: bytes) -> Rows:
    return Rows(body.split(b"\n"))


DECODERS = {"plain": split}


def event(name: str) -> bytes:
    return b'{"event":{"id":"%s"}}' % name.encode()


@pytest.fixture
def places(tmp_path) -> Directories:
    places = Directories.under(tmp_path)
    for path in (places.journal / "gw", places.spool, places.lake / "events"):
        path.mkdir(parents=True)
    write(places.journal / "gw", Incarnation(A, 1, 0))
    return places


def journal(places: Directories, first: int, *names: str) -> None:
    body = b"\n".join(map(event, names))
    batch = Batch(Origin("plain", "l", "s", "p"), 1, len(names), body, len(body))
    Log(places.journal / "gw", RealDisk(), first, A).commit([batch])


def spool(places: Directories, first: int, *names: str) -> None:
    SpoolFolder(places.spool).put("gw", first, [*map(event, names)])


def variant(name: str) -> dict[str, bytes]:
    """The VARIANT {"event": {"id": name}}."""
    text = bytes([len(name) << 2 | 1]) + name.encode()
    inner = bytes([2, 1, 1, 0, len(text)]) + text
    value = bytes([2, 1, 0, 0, len(inner)]) + inner
    return {"value": value, "metadata": b"\x01\x02\x00\x05\x07eventid"}


def lake(places: Directories, first: int, *names: str, flawed: bool = False) -> Path:
    path = places.lake / ("quarantine" if flawed else "events") / f"{first}.parquet"
    path.parent.mkdir(exist_ok=True)
    body = pa.struct({"value": pa.binary(), "metadata": pa.binary()})
    columns = {
        "node": ["gw"] * len(names),
        "incarnation": [A] * len(names),
        "lsn": pa.array(range(first, first + len(names)), pa.int64()),
        "payload": pa.array([event(n) if flawed else None for n in names], pa.binary()),
        "body": pa.array([None if flawed else variant(n) for n in names], body),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_bodies_of_text(places):
    """Tables with the JSON's text are searched like those with a VARIANT."""
    path = lake(places, 1, "a", "b")
    rows = pq.read_table(path)
    text = pa.array([event(name).decode() for name in ("a", "b")])
    at = rows.schema.get_field_index("body")
    pq.write_table(rows.set_column(at, "body", text), path)
    found = search(places, ["a", "b", "c"], DECODERS)
    assert found.missing == ["c"]


def test_events_of_one_size(places):
    """Those that the journal holds in one piece are searched, too."""
    size = len(event("a"))

    def pieces(body: bytes) -> Rows:
        block = body.replace(b"\n", b"")
        return Rows([], block=block, ends=range(size, len(block) + 1, size))

    journal(places, 1, "a", "b", "c")
    found = search(places, ["b", "c", "d"], {"plain": pieces})
    assert (found.ids, found.missing) == (3, ["d"])


def test_every_place_is_searched(places):
    """Journal, spool, tables as VARIANT and as payload."""
    lake(places, 1, "a", "b")
    lake(places, 3, "c", flawed=True)
    spool(places, 4, "d", "e")
    journal(places, 6, "f")
    found = search(places, "abcdefg", DECODERS)
    assert (found.ids, found.missing) == (7, ["g"])
    assert (found.resent, found.copies) == (0, 0)


def test_an_event_in_two_places_is_there_once(places):
    """An event on its way is not taken for one that was sent again."""
    lake(places, 1, "a", "b", "c")
    spool(places, 1, "a", "b", "c", "d")
    journal(places, 3, "c", "d", "e")
    found = search(places, "abcde", DECODERS)
    assert (found.missing, found.resent) == ([], 0)


def test_resent_events_are_counted(places):
    """The same id at other lsns is a copy; ids that nobody counts on are not."""
    lake(places, 1, "a", "b", "x")
    spool(places, 4, "a", "x", "a")
    found = search(places, ["a", "b", "a"], DECODERS)
    assert (found.ids, found.missing, found.resent, found.copies) == (2, [], 1, 2)


def test_damaged_and_foreign_files_are_passed_over(places):
    """They hold nothing to count on; what can never be searched is told."""
    (places.lake / "events" / "empty.parquet").touch()
    (places.journal / "gw" / f"{9:020d}.journal").write_bytes(b"x" * 99)
    path = places.lake / "events" / "shredded.parquet"
    body = pa.array([{"value": None, "metadata": b"", "typed_value": 1}])
    pq.write_table(pa.table({"node": ["gw"], "lsn": [1], "body": body}), path)
    found = search(places, ["a"], DECODERS)
    assert found.missing == ["a"]
    assert [problem.file for problem in found.unsearched] == [str(path)]


def test_a_lake_of_some_other_kind(places):
    """Tables without payload and body have no ids, and break nothing."""
    pq.write_table(
        pa.table({"node": ["gw"], "lsn": [1]}), places.lake / "events" / "a.parquet"
    )
    assert search(places, ["a"], DECODERS).missing == ["a"]


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (b'{"event":{"id":"a"}}', "a"),
        (b'{"event.id":"a"}', "a"),
        (b'{"event":{"id":7}}', "7"),
        (b'{"event":"login","event.id":"a"}', "a"),
        (b'{"event":{"kind":"x"}}', None),
        (b'{"message":"event"}', None),
        (b'{"event":{"id":"a"}', None),
        (b'{"event":{"id":"\xff"}}', None),
        (b"plain event text", None),
        (b'["event"]', None),
        (b'{"event":' + b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_event_ids(payload, wanted):
    """`event.id` as ECS has it, nested or dotted; anything else is no id."""
    assert event_id(payload) == wanted


def test_ids_of_a_file():
    """One a line; blank lines are none."""
    assert read_ids(["a\n", "\n", " b \r\n", "c"]) == ["a", "b", "c"]
