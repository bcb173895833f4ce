"""Stored forms of each number, as they lie in tests/vectors, are read by every later version.

`python tests/plugins/whole.py tests/vectors/forms-N` makes those of a new number.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.sdk import summed
from gateway.spark.commit import closing
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.store.finder import Finder
from gateway.store.hub.arrivals import Record
from gateway.store.lsns import Lsns
from gateway.store.names import Life, parse_kept_name
from gateway.store.node.catalog import look
from gateway.store.node.expired import Expired
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.mark import Mark
from gateway.store.node.removal_clock import Seen
from gateway.store.objects.node_record import NodeRecord, at_hub
from gateway.store.readers.consumers import Mark as Read
from gateway.store.readers.deleted import deletions
from gateway.store.readers.lake import committed
from gateway.store.system import statefile
from whole import EDGE, ITS, Place, starting

FORMS = sorted((Path(__file__).parents[1] / "vectors").glob("forms-*"))


MORE = b'"of a later version":{"a":[1]},'


def with_one_field_more(forms: Path) -> None:
    """Have each line and each object of JSON say one thing more, as a later version may: a
    field that is added with a default changes no number.
    """
    for path in (each for each in forms.rglob("*") if each.is_file()):
        data = path.read_bytes()
        if path.name == "facts.json" or path.name.endswith((".ndjson", ".reason")):
            continue
        if data[:1] == b"{" and path.parent.name != "closed":  # named by their content
            path.write_bytes(b"{" + MORE + data[1:])
        elif re.match(rb"1 [0-9a-f]{8} \{", data):
            texts = [
                line[11:].replace(b"{", b"{" + MORE, 1)
                for line in data.split(b"\n")[:-1]
            ]
            lines = [msgspec.Raw(text) for text in texts]
            path.write_bytes(b"".join(map(summed.encode, lines)))


@pytest.fixture(params=["as it is", "with one field more"])
def more(request) -> bool:
    return request.param != "as it is"


@pytest.fixture(params=FORMS, ids=[path.name for path in FORMS])
def forms(request, tmp_path, more) -> Path:
    """A copy."""
    found = Path(shutil.copytree(request.param, tmp_path / "forms"))
    if more:
        with_one_field_more(found)
        assert (
            len(
                [
                    path
                    for path in found.rglob("*")
                    if path.is_file() and MORE in path.read_bytes()
                ]
            )
            >= 10
        )
    return found


@pytest.fixture
def stored(forms, tmp_path) -> Iterator[Place]:
    """A data directory that may be started in."""
    place = Place(tmp_path / "forms/data").copy(tmp_path / "forms/data-here")
    with starting():
        yield place


@pytest.fixture
def facts(stored) -> Any:
    return json.loads((stored.data.parent / "facts.json").read_text())


def test_there_are_some():
    assert FORMS


def test_a_start_gives_back_what_was_acknowledged(stored, facts):
    """Of all protocols, out of segments, catalog, mark, states and files; and the audit finds
    each event once."""
    stored.start()
    assert [[lsn, payload.decode()] for lsn, payload in stored.rows()] == facts["rows"]
    assert stored.complete(content=True)
    now = look(stored.directories.journal_of("gw-1")).newest(Incarnation)
    assert now is not None
    assert facts["incarnation"] in now.earlier
    # What readers of streams need is in the place of the file of the archive.
    assert not [*stored.directories.archive.iterdir()]
    finder = Finder(stored.directories, "gw-1", retained=True)
    finder.refresh()
    kept = next(finder.files(1))
    assert parse_kept_name(kept.name) == (1, 24, 0)
    with finder.open(kept) as file:
        rows = file.read(["lsn", "payload"]).to_pylist()
    of_streams = [[row["lsn"], row["payload"].decode()] for row in rows]
    assert len(rows) == 12
    assert all(row in facts["rows"] for row in of_streams)


def test_what_others_keep_is_read(stored, facts):
    """Mark, job, consumers, hub, retention, deletion, and the word in a bucket."""
    [(by, (first, last))] = facts["committed"].items()
    state = stored.directories.state_of("gw-1")
    mark = statefile.look(state / "mark", Mark)
    assert mark is not None
    assert (mark.durable, mark.incarnation) == (96, facts["incarnation"])
    ledger = Ledger.load(Lake(), stored.data / "lake/.gateway/events.json")
    assert dict(ledger.committed.each()) == {Life("gw-1", by): Lsns([(first, last)])}
    read = statefile.look(stored.directories.consumers / "reader", Read)
    assert read == Read({f"gw-1_{by}": Lsns([(first, last)])})
    hub = statefile.look(stored.directories.arrivals / EDGE, Record)
    assert hub == Record(ITS, {ITS: ()})
    expired = look(stored.directories.journal_of("gw-1")).all(Expired)
    assert expired == [Expired(f"{EDGE}_{ITS}", Lsns([(1, 5)]))]
    clock = statefile.look(stored.data / "lake/.gateway/removal-clock", Seen)
    assert clock == Seen(1_795_966_853.0)
    [deletion] = deletions(stored.data / "lake")
    assert (deletion.id, deletion.reason) == ("delete-1", "case 1")
    [word] = (stored.data.parent / "bucket").iterdir()
    said = msgspec.json.decode(word.read_bytes(), type=NodeRecord)
    assert (said.incarnation, said.lsn) == (facts["incarnation"], 96)


def test_what_a_hub_and_its_job_keep_is_read(forms):
    """Incarnations that are closed, the sets of lsns that have come, and an edge's record."""
    path = forms
    a, b, c, d = (letter * 10 for letter in "abcd")
    lake = path / "hub/lake"
    ledger = closing.load(lake, Lake())
    assert [*ledger.committed.closed.files.values()] == [20]
    known = {by: [*lsns] for by, lsns in committed(lake)["edge"].items()}
    assert known == {a: [(1, 10)], b: [(11, 20)], c: [(21, 30)]}
    hub = statefile.look(path / "hub/arrivals/edge", Record)
    assert hub == Record(c, {a: ((1, 10),), b: ((11, 20),), c: ((21, 23), (27, 30))})
    [heard] = at_hub(path / "hub/arrivals")
    assert heard.record is not None
    assert (heard.node, heard.record.incarnation, heard.record.lsn) == ("edge", c, 30)
    assert (heard.record.earlier, heard.record.begins) == ((a, b), (1, 11))
    assert heard.record.left == {f"shop_{d}": ((4, 5),)}
