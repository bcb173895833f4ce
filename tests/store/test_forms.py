"""Stored forms of each number, as they lie in tests/vectors, are read by every later version.

`python tests/plugins/whole.py tests/vectors/forms-N` makes those of a new number.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.spark.commit import closing
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.store.hub.arrivals import Record
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.node.catalog import look
from gateway.store.node.expired import Expired
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.mark import Mark
from gateway.store.objects.node_record import NodeRecord, at_hub
from gateway.store.readers.consumers import Mark as Read
from gateway.store.readers.deleted import deletions
from gateway.store.readers.lake import committed
from gateway.store.system import statefile
from whole import EDGE, ITS, Place, starting

FORMS = sorted((Path(__file__).parents[1] / "vectors").glob("forms-*"))


@pytest.fixture(params=FORMS, ids=[path.name for path in FORMS])
def stored(request, tmp_path) -> Iterator[Place]:
    """A copy, which may be started in."""
    shutil.copytree(request.param, tmp_path / "forms")
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
    [deletion] = deletions(stored.data / "lake")
    assert (deletion.id, deletion.reason) == ("delete-1", "case 1")
    [word] = (stored.data.parent / "bucket").iterdir()
    said = msgspec.json.decode(word.read_bytes(), type=NodeRecord)
    assert (said.incarnation, said.lsn) == (facts["incarnation"], 96)


@pytest.mark.parametrize("path", FORMS, ids=[path.name for path in FORMS])
def test_what_a_hub_and_its_job_keep_is_read(path):
    """Incarnations that are closed, the sets of lsns that have come, and an edge's record."""
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
