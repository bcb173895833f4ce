"""Positions say whose lsn they are: replays of a directory that had another incarnation before."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.feeds import columns
from gateway.sdk.publisher import Fault
from gateway.store.node.incarnation import KEY, Incarnation
from incarnations import A, B

UNBOUNDED = 2**63 - 1
C = "c" * 10


@pytest.fixture
def moved(make_world) -> Any:
    """A node of three incarnations: lsns 1 to 3 in a file, 4 to 6 and 7 on in the journal."""
    own = Incarnation(C, 7, 0, (A, B), begins=(1, 4))
    world = make_world(lineage=SimpleNamespace(now=own, holes={}))
    world.log.incarnation = A
    world.commit(3)
    world.seal()
    world.publish()
    world.log.incarnation = B
    world.commit(3)
    world.seal()
    world.log.incarnation = C
    world.commit(3)
    return world


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_events_say_which_incarnation_gave_them(moved, shape):
    """From files, of the journal and live."""
    reader = moved.subscribe(f"events?format={shape}")
    tap = moved.subscribe(f"tap?format={shape}")
    for one in (reader, tap):
        one.want(UNBOUNDED)
    moved.settle()
    moved.commit(1)
    moved.settle()
    given: dict[int, str] = {}
    for element in [*reader.elements, *tap.elements]:
        if shape == "json":
            event = json.loads(element)
            assert [*event][:3] == ["node", "incarnation", "lsn"]
            given[event["lsn"]] = event["incarnation"]
            continue
        batch = columns.read(element)
        for lsn in batch.column("lsn").to_pylist():
            given[lsn] = batch.schema.metadata[KEY].decode()
    assert [given[lsn] for lsn in range(1, 11)] == [A] * 3 + [B] * 3 + [C] * 4


@pytest.mark.parametrize(
    ("incarnation", "first"),
    [(A, 1), (A, 4), (B, 4), (B, 7), (C, 8), (C, 10)],
)
def test_a_position_says_whose_lsn_it_is(moved, incarnation, first):
    """It goes on with what was given behind that, by whoever goes on."""
    reader = moved.subscribe(f"events?incarnation={incarnation}&from={first}")
    reader.want(UNBOUNDED)
    moved.settle()
    assert reader.lsns == list(range(first, 10))


@pytest.mark.parametrize(
    ("query", "number", "told"),
    [
        ("incarnation=f00d&from=5", 409, ["f00d", f"{C} since lsn 7", "from=1 "]),
        (f"incarnation={A}&from=5", 409, ["lsn 4", A, C, "up to 3", "from=4"]),
        (f"incarnation={B}&from=3", 409, ["lsn 2", B, "from 4 on", "from=7"]),
        (f"incarnation={C}&from=5", 409, ["lsn 4", "from 7 on", "from=7"]),
        (f"incarnation={C}", 400, ["from=LSN"]),
        (f"incarnation={C}&from=earliest", 400, ["from=LSN"]),
        (f"incarnation={C}&from=11", 416, ["still to come"]),
    ],
)
def test_a_position_that_is_not_ours_is_refused(moved, query, number, told):
    """Never other events under the same number: both incarnations are named, and from
    where to go on."""
    with pytest.raises(Fault) as caught:
        moved.subscribe(f"events?{query}")
    assert caught.value.number == number
    for words in told:
        assert words in caught.value.text


def test_an_offset_is_a_position_too(moved):
    """As extension 2 counts, from lsn 1 on."""
    with pytest.raises(Fault, match="E409"):
        moved.subscribe(f"events?incarnation={A}", offset=5)
    reader = moved.subscribe(f"events?incarnation={A}", offset=3)
    reader.want(UNBOUNDED)
    moved.settle()
    assert reader.lsns == list(range(4, 10))


def test_without_an_incarnation_all_is_as_before(world):
    """Whoever does not know of them, on either side."""
    world.commit(3)
    reader = world.subscribe("events?from=2")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == [2, 3]
    assert "incarnation" not in reader.events[0]
    world.subscribe("events?from=2&incarnation=f00d")
