"""The moment through which tables are complete, as words, ledger and incarnations tell it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.node.incarnation import Record
from gateway.store.node.lives import Heard, Lives
from gateway.store.node.through import Through
from gateway.store.objects.node_record import NodeRecord
from gateway.store.readers import complete
from gateway.store.readers.complete import Completeness, Found
from gateway.store.readers.lake import Accepted
from incarnations import A, B
from samples import some_of

S = 10**6
C = "c" * 10
NOW = 1_000_000 * S
MIDNIGHT = 86_400 * 11 * S


@dataclass
class Played:
    """What a job knows, and what it has found."""

    committed: dict[Life, Lsns] = field(default_factory=dict)
    words: dict[Life, NodeRecord] = field(default_factory=dict)
    records: dict[Life, Record] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    aside: dict[Life, Lsns] = field(default_factory=dict)
    silent: set[Life] = field(default_factory=set)
    found: Found = field(default_factory=lambda: Found(Completeness(), (), {}))
    off: float = 0.0
    waiting: dict[Life, Lsns] = field(default_factory=dict)

    def says(
        self, life: Life, through: Through | None, *, since: int = 1, **more: object
    ) -> None:
        """Its word, at once heard."""
        lsn = since - 1 if through is None else through.lsn
        at = NOW / S if through is None else through.at / S
        record = NodeRecord(
            life.incarnation, since, lsn, at, "journal", through=through
        )
        for name, value in more.items():
            record = replace_field(record, name, value)
        self.words[life] = record

    def take(self, life: Life, first: int, last: int) -> None:
        """A batch has these."""
        self.committed.setdefault(life, Lsns()).add(first, last)

    def complete(self, now: int = NOW) -> int | None:
        """A look: the moment through which it is."""
        self.look(now)
        return self.through

    def look(self, now: int = NOW) -> Found:
        nodes: dict[str, tuple[Lives, Sequence[Heard]]] = {}
        for node in sorted({one.node for one in (*self.words, *self.committed)}):
            heard = [
                Heard(word, word.at - self.off, life not in self.silent)
                for life, word in self.words.items()
                if life.node == node
            ]
            lives = Lives(node, heard)
            of = [life for life in self.committed if life.node == node]
            for life in of:
                lives.of(life.incarnation)
            lives.records(
                {o.incarnation: r for o, r in self.records.items() if o.node == node}
            )
            lives.node_records(heard)
            lives.settle()
            nodes[node] = lives, heard
        self.found = complete.look(
            nodes,
            complete.Job(
                lambda life: self.committed.get(life, Lsns()),
                self.waiting,
                self.aside,
                self.accepted,
                self.found.completeness,
            ),
            {},
            now,
        )
        return self.found

    @property
    def through(self) -> int | None:
        return self.found.completeness.through

    @property
    def why(self) -> Mapping[str, str]:
        return {one.node: one.why for one in reversed(self.found.holders)}


def replace_field(record: NodeRecord, name: str, value: object) -> NodeRecord:
    import msgspec

    return msgspec.structs.replace(record, **{name: value})


def test_it_is_the_least_of_all():
    """Of two gateways, once what they had then is in the tables; and nothing is known of none."""
    played = Played()
    assert played.look().completeness.through is None
    one, other = Life("gw-1", A), Life("gw-2", B)
    played.says(one, Through(500 * S, 0))
    played.says(other, Through(510 * S, 0))
    assert played.complete() == 500 * S
    played.says(one, Through(600 * S, 9))
    assert played.complete() == 500 * S
    played.take(one, 1, 8)
    assert played.complete() == 500 * S
    played.take(one, 9, 9)
    assert played.complete() == 510 * S


def test_one_that_always_goes_on_is_not_waited_for_in_vain():
    """Where each word names lsns that are not there yet, the one before counts."""
    played, life = Played(), Life("gw-1", A)
    for turn in range(5):
        played.says(life, Through((500 + turn) * S, 10 * turn))
        played.take(life, 1, 10 * turn - 5)
        played.look()
    assert played.through is not None
    assert played.through >= 502 * S


def test_who_goes_on_takes_its_place():
    """What the one before had not brought yet holds; then it holds nothing."""
    played = Played()
    one, other = Life("gw", A), Life("gw", B)
    played.says(one, Through(500 * S, 0))
    played.look()
    played.says(other, Through(700 * S, 20), since=21, earlier=(A,), begins=(1,))
    assert played.complete() == 500 * S
    played.look(now=701 * S)
    assert played.why == {}
    played.look()
    assert "lsn 1 to 20 in no table" in played.why["gw"]
    played.take(one, 1, 20)
    assert played.complete() == 700 * S
    assert not [*filter(lambda one: one == A, played.found.completeness.of_lives)]


def test_a_silent_one_is_named_until_it_is_decommissioned():
    """With since when."""
    played, life = Played(), Life("shop-17", A)
    played.says(Life("gw", B), Through(NOW - S, 0))
    played.says(life, Through(500 * S, 3))
    played.take(life, 1, 3)
    played.silent = {life}
    assert played.complete() == 500 * S
    assert played.why == {"shop-17": "is silent since 1970-01-01 00:08:20 UTC"}
    played.words[life] = replace_field(played.words[life], "decommissioned", "closed")
    assert played.complete() == NOW - S
    assert played.why == {}


def test_a_lost_disk_holds_until_it_is_accepted():
    """Another directory has its name, and knows nothing of it."""
    played = Played()
    lost, new = Life("gw", A), Life("gw", C)
    played.says(lost, Through(500 * S, 7))
    played.take(lost, 1, 7)
    played.look()
    played.silent = {lost}
    played.says(new, Through(NOW - S, 0), began=600.0)
    assert played.complete() == 500 * S
    assert "nobody knows, behind lsn 7" in played.why["gw"]
    played.accepted = [Accepted("gw", A, 8, None, "the disk", "ann", 1.0)]
    assert played.complete() == NOW - S


def test_a_lost_disk_without_anything_acknowledged_holds_nothing():
    """With `ack: spool`, once another directory has its name."""
    played, lost = Played(), Life("gw", A)
    played.says(lost, Through(500 * S, 7), ack="spool")
    played.take(lost, 1, 7)
    played.silent = {lost}
    assert played.complete() == 500 * S
    played.says(Life("gw", C), Through(NOW - S, 0), began=600.0, ack="spool")
    assert played.complete() == NOW - S


def test_a_file_that_can_not_be_read_holds_until_it_is_accepted():
    """It is named."""
    played, life = Played(), Life("gw", A)
    played.says(life, Through(500 * S, 0))
    played.look()
    played.says(life, Through(NOW - S, 9))
    played.take(life, 1, 4)
    played.take(life, 7, 9)
    played.aside = {life: Lsns([(5, 6)])}
    assert played.complete() == 500 * S
    assert "lsn 5 to 6 in a file that could not be read" in played.why["gw"]
    played.accepted = [Accepted("gw", A, 5, 6, "damaged", "ann", 1.0)]
    assert played.complete() == NOW - S


def test_a_hole_of_one_that_ended_long_ago_holds_nothing():
    """The word names it still, and the ledger has closed its incarnation."""
    played, life = Played(), Life("gw", B)
    played.accepted = [Accepted("gw", A, 10, 12, "the disk", "ann", 1.0)]
    said = {
        "since": 5000,
        "began": 900.0,
        "holes": {A: ((10, 12),), B: ((5005, 5005),)},
    }
    played.says(life, Through(NOW - S, 5005), **said)
    played.take(life, 5000, 5004)
    played.look()
    assert played.why == {"gw": "had lsn 5005, which its disk did not give back"}
    played.take(life, 5005, 5005)
    assert (played.complete(), played.why) == (NOW - S, {})


def test_one_that_comes_back_is_waited_for_though_its_end_was_accepted():
    """It was not lost: what it has acknowledged since is to come."""
    played, shop = Played(), Life("shop", A)
    played.says(shop, Through(500 * S, 7))
    played.take(shop, 1, 7)
    played.look()
    played.accepted = [Accepted("shop", A, 8, None, "the disk", "ann", 1.0)]
    played.says(shop, Through(NOW - S, 20))
    assert played.complete() == 500 * S
    played.take(shop, 8, 20)
    assert played.complete() == NOW - S


def test_one_that_began_before_holds_from_there():
    """The clock was set back since the one before it had told all, or it is a copy's."""
    played = Played()
    one, other, far = Life("gw", A), Life("gw", B), Life("far", C)
    played.says(one, Through(700 * S, 0))
    played.says(far, Through(100 * S, 0))
    played.look()
    played.says(
        other, Through(650 * S, 9), since=1, earlier=(A,), begins=(1,), began=600.0
    )
    played.says(far, Through(NOW - S, 0))
    assert played.complete() == 600 * S - 1
    played.take(other, 1, 9)
    assert played.complete() == 650 * S


def test_a_clock_that_is_behind_is_the_reason():
    """All that it has is in the tables."""
    played = Played(off=-3600.0)
    played.says(Life("gw", A), Through(NOW - 3600 * S, 0))
    played.look()
    assert played.why == {"gw": "has a clock that is 3600 s behind"}


def test_files_that_wait_are_to_come() -> None:
    """Behind the last word of one that is decommissioned, and of one that nobody has heard of."""
    played, shop, new = Played(), Life("shop", A), Life("new", C)
    played.says(Life("gw", B), Through(500 * S, 0))
    played.says(shop, Through(500 * S, 3), decommissioned="closed")
    played.take(shop, 1, 3)
    assert played.complete() == 500 * S
    played.silent = {shop}
    played.waiting = {shop: Lsns([(4, 6)])}
    played.says(Life("gw", B), Through(NOW - S, 0))
    assert played.complete() == 500 * S
    assert played.why == {"shop": "has lsn 4 to 6 in no table"}
    played.take(shop, 4, 6)
    played.waiting = {new: Lsns([(1, 9)])}
    assert played.complete() == 500 * S
    assert played.why == {"new": "has lsn 1 to 9 in a file that waits"}
    played.waiting = {}
    assert played.complete() == NOW - S


def test_one_that_says_nothing_holds():
    """Of an earlier version, or where nobody hears it: nothing is known to be complete."""
    played = Played()
    played.says(Life("gw", B), Through(NOW - S, 0))
    played.says(Life("old", A), None)
    played.take(Life("dumb", C), 1, 4)
    played.look()
    assert played.through is None
    assert played.why == {
        "dumb": "says nothing of itself",
        "old": "does not say up to which moment it has told all",
    }


def test_a_clock_that_is_wrong_is_named():
    """More than a minute; and it is never complete through a moment that is to come."""
    played = Played(off=120.0)
    played.says(Life("gw", A), Through(NOW + 120 * S, 0))
    assert played.look().clocks == {"gw": 120.0}
    assert played.through == NOW
    assert replace(played, off=59.0).look().clocks == {}


def test_days_are_said_once_each():
    """At first the last one alone; then each; what was taken back once more."""
    first = complete.day_of(MIDNIGHT) - 1
    state = Completeness(MIDNIGHT - 2)
    assert state.due() == [first - 1]
    state = replace(state, through=MIDNIGHT - 1)
    assert state.due() == [first]
    state = state.saying(state.due())
    assert state.has(date(1970, 1, 11))
    assert state.due() == []
    state = replace(state, through=MIDNIGHT + 3 * 86_400 * S)
    assert state.due() == [first + 1, first + 2, first + 3]
    state = state.saying(state.due())
    assert state.late([first + 2, first + 9]) == [first + 2]
    assert state.late([first - 9]) == [first - 9]
    assert state.late([math.inf]) == [first, first + 1, first + 2, first + 3]
    many = range(first - 200, first)
    back = state.without(many)
    assert len(back.taken_back) == 100
    assert back.due() == [*many]
    assert state.since == first
    state = state.without([first + 2])
    assert not state.has(date.fromordinal(first + 2))
    assert state.due() == [first + 2]
    back = replace(state, through=MIDNIGHT)
    assert back.due() == []
    assert Completeness.read(state.plain()) == state
    assert state.saying(state.due()).taken_back == {first + 2: 1}


class World:
    """Gateways that give lsns, files that travel in any order, and a job that looks."""

    def __init__(self) -> None:
        self.now = 1_000
        self.played = Played()
        self.given: dict[Life, list[int]] = {}
        """When each lsn of an incarnation came."""
        self.since: dict[Life, int] = {}
        self.of: dict[str, Life] = {}

    def start(self, node: str) -> None:
        before = self.of.get(node)
        number = len(self.since)
        digits = str.maketrans("0123456789", "abcdefghij")
        life = Life(node, f"{number:010}".translate(digits))
        first = 1
        earlier: tuple[str, ...] = ()
        begins: tuple[int, ...] = ()
        if before is not None:
            first = self.since[before] + len(self.given[before])
            word = self.played.words[before]
            earlier = (*word.earlier, before.incarnation)
            begins = (*word.begins, self.since[before])
        self.of[node], self.since[life], self.given[life] = life, first, []
        self.played.says(
            life, Through(self.now * S - 1, first - 1), since=first,
            earlier=earlier, begins=begins, began=float(self.now),
        )  # fmt: skip

    def event(self, node: str) -> None:
        if (life := self.of.get(node)) is not None:
            self.given[life].append(self.now * S)

    def word(self, node: str) -> None:
        if (life := self.of.get(node)) is not None:
            word = self.played.words[life]
            last = self.since[life] + len(self.given[life]) - 1
            through = Through(self.now * S - 1, last)
            word = replace_field(word, "through", through)
            self.played.words[life] = replace_field(word, "lsn", last)

    def batch(self, node: str, which: int) -> None:
        """A file of one of its incarnations is taken."""
        lives = [life for life in self.given if life.node == node and self.given[life]]
        if not lives:
            return
        life = lives[which % len(lives)]
        lsns = range(self.since[life], self.since[life] + len(self.given[life]))
        first = lsns[which % len(lsns)]
        last = min(first + 3, lsns[-1])
        self.played.take(life, first, last)

    def broken(self) -> list[tuple[Life, int]]:
        """Events that came before what is said to be complete, and are in no table."""
        through = self.played.through
        return [
            (life, self.since[life] + at)
            for life, times in self.given.items()
            for at, came in enumerate(times)
            if through is not None
            and came <= through
            and not self.played.committed.get(life, Lsns()).covers(
                self.since[life] + at, self.since[life] + at
            )
        ]


_NODES = st.sampled_from(("gw-1", "gw-2"))


@settings(max_examples=some_of(1000, 300), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(("start", "event", "event", "word")), _NODES),
            st.tuples(st.just("batch"), _NODES, st.integers(0, 30)),
            st.tuples(st.sampled_from(("look", "pass"))),
        ),
        max_size=60,
    )
)
def test_nothing_is_missing_that_came_before(steps):
    """Whichever way gateways start, say something, and their files come."""
    world = World()
    for node in ("gw-1", "gw-2"):
        world.start(node)
    before = 0
    for name, *arguments in steps:
        if name == "pass":
            world.now += 7
        elif name == "look":
            world.played.look(world.now * S)
            assert not world.broken()
            assert (world.played.through or 0) >= before
            before = world.played.through or 0
        else:
            getattr(world, str(name))(*arguments)
    for life, times in world.given.items():
        if times:
            since = world.since[life]
            world.played.take(life, since, since + len(times) - 1)
    world.now += 20
    for node in ("gw-1", "gw-2"):
        world.word(node)
    world.played.look(world.now * S)
    world.played.look(world.now * S)
    assert world.played.through == world.now * S - 1
