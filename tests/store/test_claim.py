"""A node's name in a bucket: one gateway has it, whoever else starts is told by whom."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.store import claim
from gateway.store.bucket import BucketError
from gateway.store.claim import Claim, Forgotten, Taken
from gateway.store.incarnation import Incarnation
from gateway.store.word import UNDECIDED, Holder, Word, encode, name_of
from gateway_testkit.bucket import MemoryBucket


class Time:
    """Seconds that pass while somebody sleeps; *meanwhile* is what others do then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Turns:
    """Threads that run one at a time; the clock goes on when all of them sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleeping: list[tuple[float, int, threading.Semaphore]] = []
        self._number = 0
        self._back = threading.Semaphore(0)

    def sleep(self, seconds: float) -> None:
        turn = self._at(self.now + seconds)
        self._back.release()
        turn.acquire()

    def begin(self, at: float, act: Callable[[], object]) -> None:
        turn = self._at(at)

        def run() -> None:
            turn.acquire()
            try:
                act()
            finally:
                self._back.release()

        threading.Thread(target=run, daemon=True).start()

    def run(self) -> None:
        """Until nobody sleeps."""
        while self._sleeping:
            self.now, _, turn = heapq.heappop(self._sleeping)
            turn.release()
            assert self._back.acquire(timeout=60)

    def _at(self, at: float) -> threading.Semaphore:
        turn = threading.Semaphore(0)
        self._number += 1
        heapq.heappush(self._sleeping, (at, self._number, turn))
        return turn


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def gateway(bucket: MemoryBucket, time: Time) -> Callable[..., Claim]:
    """A gateway's claim, on a machine of its own."""

    def make(
        host: str = "a", incarnation: str = "", path: str = "/data", run: str = ""
    ) -> Claim:
        me = Holder(run or f"run of {host}", host, 7, path, incarnation)
        return Claim(bucket, "gw", me, lambda: time.now, time.sleep)

    return make


def say(bucket: MemoryBucket, word: Word) -> None:
    """Whatever is there."""
    bucket.replace(name_of("gw"), encode(word))


def open_journal(
    mine: Claim, incarnation: str, behind: int, *earlier: str, ack: str = "journal"
) -> Journal:
    """As a start does, once it has the name; how far it is from then on."""
    own = Incarnation(incarnation, behind + 1, 0, earlier)
    journal = Journal(behind)
    mine.known_as(
        own, behind, here=behind, ack=ack, acknowledged=lambda: journal.acknowledged
    )
    return journal


@dataclass
class Journal:
    """How far one is."""

    acknowledged: int


def test_the_first_has_it(gateway: Callable[..., Claim], time: Time) -> None:
    """At once; and after a clean stop the next one, wherever it is."""
    first = gateway()
    assert first.take() is None
    assert first.look() is None
    first.release()
    assert gateway("b").take() is None
    assert time.now == 0


def test_nobody_serves_whom_the_bucket_has_never_heard_of(
    bucket: MemoryBucket, gateway: Callable[..., Claim]
) -> None:
    """A new directory that is lost before the word has its incarnation would be missed by
    nobody.  One that was heard of goes on while the bucket is away.
    """

    def away(request: str, name: str) -> None:
        raise BucketError(f"{request} {name}: 503 SlowDown")

    first = gateway()
    first.take()
    bucket.fault = away
    with pytest.raises(BucketError, match=r"has to know of pid 7 on a .*503 SlowDown"):
        open_journal(first, "5f0c", 0)
    bucket.fault = lambda request, name: None
    open_journal(first, "5f0c", 0)
    again = gateway("a", "5f0c")
    assert again.take() is None
    bucket.fault = away
    open_journal(again, "5f0c", 0)


def test_a_second_one_is_refused_with_both_names(
    gateway: Callable[..., Claim], time: Time, logged: list[dict[str, object]]
) -> None:
    """It starts nothing; the first one goes on, and tells that somebody asked."""
    first, second = gateway("a", "5f0c"), gateway("b")
    first.take()
    time.meanwhile = first.look
    with pytest.raises(Taken) as caught:
        second.take()
    for word in (
        "node gw",
        "pid 7 on a with /data, incarnation 5f0c",
        "on b",
        "`node`",
    ):
        assert word in str(caught.value)
    assert not second.held
    assert first.look() is None
    assert any("on b" in str(event.get("other")) for event in logged)


def test_one_that_does_not_answer_is_taken_over(
    gateway: Callable[..., Claim], time: Time
) -> None:
    """Its machine is lost; should it live after all, it is told who has the name."""
    lost, new = gateway("a"), gateway("b")
    lost.take()
    told = new.take()
    assert told is not None
    assert "on a with /data" in told
    assert time.now >= claim.PATIENCE
    assert new.look() is None
    why = lost.look()
    assert why is not None
    assert "on b with /data" in why


def test_one_that_was_silent_may_be_back(
    gateway: Callable[..., Claim], time: Time
) -> None:
    """Whoever brings files of its node does so without it, and asks it no more, until it
    has answered.
    """
    one, silent = gateway(), dict[str, str]()
    one.take()
    assert gateway("b").served(silent) is None
    waited = time.now
    assert gateway("c").served(silent) is None
    assert time.now == waited >= claim.PATIENCE
    one.look()
    time.meanwhile = one.look
    assert "is served by" in (gateway("d").served(silent) or "")


def test_the_same_directory_need_not_wait(
    gateway: Callable[..., Claim], time: Time
) -> None:
    """After `kill -9`: it is locked, so nobody else has it."""
    gateway("a", "5f0c").take()
    again = gateway("a", "5f0c", run="another")
    assert again.take() is None
    assert time.now == 0


@pytest.mark.parametrize(
    "other", [("b", "5f0c", "/data"), ("a", "5f0c", "/copy"), ("a", "e0e0", "/data")]
)
def test_a_copy_of_the_directory_asks(
    gateway: Callable[..., Claim], time: Time, other: tuple[str, str, str]
) -> None:
    """It may run beside the one that it was made of."""
    first = gateway("a", "5f0c")
    first.take()
    time.meanwhile = first.look
    second = gateway(*other, run="run-2")
    with pytest.raises(Taken):
        second.take()


def test_of_two_that_ask_one_has_it(gateway: Callable[..., Claim], time: Time) -> None:
    """The other one is told, then or at its next look."""
    gateway("a").take()
    second, third = gateway("b"), gateway("c")
    begun: list[bool] = []

    def beside() -> None:
        if not begun:
            begun.append(True)
            third.take()
        if third.held:
            third.look()

    time.meanwhile = beside
    with pytest.raises(Taken):
        second.take()
    assert third.look() is None


@pytest.mark.parametrize("askers", [2, 5])
@pytest.mark.parametrize("phase", [0.0, 0.05, 0.25])
def test_who_runs_refuses_all_that_ask_at_once(
    bucket: MemoryBucket, askers: int, phase: float
) -> None:
    """Each question takes the place of another one, and none of an answer."""
    turns = Turns()

    def gateway(host: str) -> Claim:
        me = Holder(f"run of {host}", host, 7, "/data")
        return Claim(bucket, "gw", me, lambda: turns.now, turns.sleep)

    live = gateway("live")
    live.take()
    refused: list[str] = []
    problems: list[str | None] = []

    def ask(host: str) -> None:
        try:
            gateway(host).take()
        except Taken:
            refused.append(host)

    def look() -> None:
        while turns.now < 2 * claim.PATIENCE:
            turns.sleep(claim._LOOK)
            problems.append(live.look())

    turns.begin(0.0, look)
    names = [str(number) for number in range(askers)]
    for number, name in enumerate(names):
        turns.begin(0.1 + number * phase, lambda name=name: ask(name))  # type: ignore[misc]
    turns.run()
    assert sorted(refused) == names
    assert set(problems) == {None}


@pytest.mark.parametrize("askers", [2, 5])
@pytest.mark.parametrize("phase", [0.0, 0.05, 0.25])
def test_of_all_that_take_over_at_once_one_does(
    bucket: MemoryBucket, askers: int, phase: float
) -> None:
    """None of the others ever has it: in a moment it would have given the same lsns."""
    turns = Turns()

    def gateway(host: str) -> Claim:
        me = Holder(f"run of {host}", host, 7, "/data", f"incarnation of {host}")
        return Claim(bucket, "gw", me, lambda: turns.now, turns.sleep)

    gateway("lost").take()
    had: list[str] = []
    refused: list[str] = []

    def ask(host: str) -> None:
        mine = gateway(host)
        try:
            mine.take()
        except Taken:
            refused.append(host)
            return
        had.append(host)
        while len(refused) < askers - 1:
            assert mine.look() is None
            turns.sleep(claim._LOOK)

    names = [str(number) for number in range(askers)]
    for number, name in enumerate(names):
        turns.begin(0.1 + number * phase, lambda name=name: ask(name))  # type: ignore[misc]
    turns.run()
    assert len(had) == 1
    assert sorted(had + refused) == names


def test_what_comes_from_who_was_taken_over_is_fenced(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """First nothing may, then what was seen; and for good: also who lets go leaves that."""
    lost, new = gateway("a", "5f0c"), gateway("b")
    lost.take()
    new.take()
    word = new.read()
    assert word is not None
    assert word.last_lsn_of("5f0c") == UNDECIDED
    open_journal(new, "e0e0", 100)
    word = new.read()
    assert word is not None
    assert word.last_lsn_of("5f0c") == 100
    assert word.last_lsn_of("e0e0") is None
    new.release()
    word = new.read()
    assert word is not None
    assert word.last_lsn_of("5f0c") == 100
    why = lost.look()
    assert why is not None
    assert "start it again" in why
    assert gateway("c").take() is None
    again = gateway("a", "5f0c", run="another")
    say(bucket, word)
    again.take()
    assert again.taken_over
    assert again.look() is None  # while the journal is opened
    open_journal(again, "another", 120)
    assert again.look() is None
    open_journal(again, "5f0c", 120)  # the disk had no room for another
    assert again.look() is not None


def test_who_gave_no_lsn_fences_nobody(gateway: Callable[..., Claim]) -> None:
    """It ended before it knew its own; the silent one, should it wake, goes on."""
    lost, new = gateway("a", "5f0c"), gateway("b")
    lost.take()
    new.take()
    new.release()
    assert new.read() is None
    assert lost.look() is None


def test_a_name_is_seen_to_be_ours_after_a_request(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """And before one, if a look was not a moment ago: the process may have stood still."""
    mine = gateway("a", "5f0c")
    mine.take()
    bucket.requests.clear()
    mine.check()
    assert bucket.requests == []
    mine.confirm()
    time.now += claim.PATIENCE
    mine.check()
    assert bucket.requests == [("swap", name_of("gw")), ("read", name_of("gw"))]
    gateway("b").take()
    with pytest.raises(BucketError, match="on b"):
        mine.confirm()
    with pytest.raises(BucketError, match="on b"):
        mine.check()


def test_a_server_whose_tags_never_fit_is_told(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """Nobody asks it for ever."""
    gateway("a", "5f0c").take()
    bucket.read_tagged = lambda name: (bucket.read(name), "odd")  # type: ignore[method-assign]
    with pytest.raises(BucketError, match="If-Match"):
        gateway("a", "5f0c", run="another").take()


def test_one_that_was_refused_before_waits_for_an_answer_again(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """Its own old answer, which a failed request kept from it, hides none."""
    first, second = gateway("a"), gateway("b")
    first.take()
    say(bucket, Word(first.me, refused=second.me.run))
    time.meanwhile = first.look
    with pytest.raises(Taken):
        second.take()


def test_a_question_counts_from_when_it_is_there(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """A request that takes long takes nothing of the holder's time to answer it."""
    first, second = gateway("a"), gateway("b")
    first.take()

    def slow(request: str, name: str) -> None:
        if request == "swap" and time.now < claim.PATIENCE:
            time.now = claim.PATIENCE

    bucket.fault = slow
    time.meanwhile = lambda: (
        first.look() if time.now > claim.PATIENCE + claim._LOOK else None
    )
    with pytest.raises(Taken):
        second.take()


def test_a_stop_ends_a_question(
    gateway: Callable[..., Claim], bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is not taken over by one that ends; nor looked for after that."""
    monkeypatch.setattr(claim, "_LOOK", 0.0001)
    monkeypatch.setattr(claim, "PATIENCE", 1e9)
    gateway("a").take()
    asks = threading.Event()
    mine = gateway("b")
    mine._sleep = lambda _: asks.set()
    mine.watch(pytest.fail)
    assert asks.wait(60)
    mine.stop()
    assert mine._thread is not None
    assert not mine._thread.is_alive()
    word = mine.read()
    assert word is not None
    assert word.holder == gateway("a").me


class Watched:
    """A claim whose looks end as *ends* says, one after the other; its thread's end."""

    def __init__(self, mine: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claim, "_LOOK", 0.0001)
        self.mine = mine
        self.lost: list[str] = []
        self._ended = threading.Event()

    def until_it_is_lost(self, *ends: Exception | None) -> None:
        left = iter(ends)

        def look() -> str | None:
            for end in left:
                if end is not None:
                    raise end
                return None
            return "it is another's"

        self.mine.look = look  # type: ignore[method-assign]

        def lost(why: str) -> None:
            self.lost.append(why)
            self._ended.set()

        self.mine.watch(lost)
        assert self._ended.wait(60)
        self.mine.release()


def test_a_look_that_fails_is_not_the_last(
    gateway: Callable[..., Claim],
    monkeypatch: pytest.MonkeyPatch,
    logged: list[dict[str, object]],
) -> None:
    """Whatever it is; the log has it once."""
    watched = Watched(gateway(), monkeypatch)
    watched.until_it_is_lost(ValueError("odd"), ValueError("odd"), None)
    assert watched.lost == ["it is another's"]
    assert len([event for event in logged if "log_failure" in event]) == 1


@pytest.mark.parametrize(("failures", "told"), [(2, 0), (3, 1), (9, 1)])
def test_a_bucket_that_can_not_be_asked_is_told_once(
    gateway: Callable[..., Claim],
    monkeypatch: pytest.MonkeyPatch,
    logged: list[dict[str, object]],
    failures: int,
    told: int,
) -> None:
    """After some failures: who starts under this name would get no answer."""
    watched = Watched(gateway(), monkeypatch)
    away = BucketError("503 SlowDown")
    watched.until_it_is_lost(None, *[away] * failures)
    assert len([one for one in logged if one.get("why") == "503 SlowDown"]) == told


def test_a_name_that_is_taken_over_later_is_told(
    gateway: Callable[..., Claim],
    bucket: MemoryBucket,
    logged: list[dict[str, object]],
) -> None:
    """By a gateway that started while the bucket was away."""
    gateway("a").take()
    assert gateway("b").look() is None
    assert any("is taken over" in str(event.get("told")) for event in logged)


def test_a_node_that_was_forgotten_is_nobodys(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """Under its lsns the tables have other events: a new one would be taken for old."""
    keeper = gateway("a")
    keeper.take()
    keeper.forget(99)
    with pytest.raises(Forgotten, match=r"99.*another `node`"):
        gateway("b").take()
    assert "forgotten" in str(gateway("b").look())


def test_a_bucket_that_was_away_is_asked_later(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """And what is removed by hand is written anew."""
    first = gateway()
    bucket.away()
    with pytest.raises(BucketError):
        first.take()
    bucket.back()
    assert first.look() is None
    del bucket.objects[name_of("gw")]
    assert first.look() is None
    assert name_of("gw") in bucket.objects


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "object"),
        (b"{}", "it says nothing"),
        (b'{"holder": {"name": "somebody"}}', "run"),
        (b'{"owner": "somebody"}', "owner"),
        (b'{"form": 3}', "form 3; this version knows 2"),
        (b'{"form": 2, "fenced": {"a": "b"}}', "int"),
        (
            b'{"reached": {"incarnation": "a", "since": 1, "lsn": 1e30, "at": 1, "ack": ""}}',
            "reached.lsn",
        ),
        (b'{"form":' + b"[" * 20_000, ""),
    ],
)
def test_what_is_not_a_gateways_is_said_and_left_alone(
    gateway: Callable[..., Claim], bucket: MemoryBucket, data: bytes, why: str
) -> None:
    """Damaged, somebody else's or of a newer version: named, and nobody guesses, neither
    who starts nor who runs nor who stops."""
    runs = gateway("b")
    runs.take()
    open_journal(runs, "5f0c", 7)
    bucket.objects[name_of("gw")] = data
    for ask in (gateway().take, runs.look, runs.confirm, lambda: runs.served({})):
        with pytest.raises(BucketError) as caught:
            ask()
        assert f"{bucket.url}/{name_of('gw')}" in str(caught.value)
        assert "not a gateway's, or a newer one's" in str(caught.value)
        assert why in str(caught.value)
    runs.keep()
    runs.release()
    assert bucket.objects[name_of("gw")] == data


def test_a_word_of_earlier_versions_is_read(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """It has no form, and does not say how far anybody is."""
    bucket.objects[name_of("gw")] = b'{"fenced":{"5f0c":7}}'
    mine = gateway("a", "e0e0")
    mine.take()
    word = mine.read()
    assert word == Word(mine.me, fenced={"5f0c": 7})
    assert b'"form":2' in bucket.objects[name_of("gw")]
    bucket.objects[name_of("gw")] = b'{"forgotten":9}'
    with pytest.raises(Forgotten):
        gateway("b").take()


def test_the_word_says_how_far_its_holder_is(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """With each look while that changes, and nothing is written while it does not."""
    mine = gateway("a", "5f0c")
    mine.take()
    journal = open_journal(mine, "5f0c", 0)
    for number in (3, 9):
        journal.acknowledged = number
        mine.look()
        word = mine.read()
        assert word is not None
        assert word.reached is not None
        assert (word.reached.lsn, word.reached.incarnation) == (number, "5f0c")
    bucket.requests.clear()
    mine.look()
    mine.look()
    assert {request for request, _ in bucket.requests} == {"read"}


def test_a_swap_whose_reply_is_lost_is_looked_after(
    gateway: Callable[..., Claim], bucket: MemoryBucket
) -> None:
    """Nobody knows whether it was made: the next one asks, and says it once."""
    mine = gateway("a", "5f0c")
    mine.take()
    open_journal(mine, "5f0c", 0, ack="spool")

    def lose(request: str, name: str) -> None:
        raise BucketError("timed out")

    for where in ("fault", "after"):
        setattr(bucket, where, lose)
        with pytest.raises(BucketError, match="timed out"):
            mine.confirm(5)
        bucket.back()
        bucket.requests.clear()
        mine.confirm(5)
        assert bucket.requests[0] == ("read", name_of("gw"))
        mine.confirm(5)
        assert bucket.requests[-1] == ("swap", name_of("gw"))
    word = mine.read()
    assert word is not None
    assert word.reached is not None
    assert word.reached.lsn == 5


def test_a_confirmation_answers_who_asks(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """The tag is another one then; and who has lost the name says nothing more."""
    mine, other = gateway("a", "5f0c"), gateway("b")
    mine.take()
    open_journal(mine, "5f0c", 0, ack="spool")
    number = iter(range(1, 99))
    time.meanwhile = lambda: mine.confirm(next(number))
    with pytest.raises(Taken):
        other.take()
    time.meanwhile = lambda: None
    other.take()
    before = bucket.objects[name_of("gw")]
    with pytest.raises(BucketError, match="on b"):
        mine.confirm(100)
    assert bucket.objects[name_of("gw")] == before


def test_threads_that_confirm_at_once_share_a_request(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """Of one that began after all of them had asked; not of one that was under way."""
    mine = gateway("a", "5f0c")
    mine.take()
    open_journal(mine, "5f0c", 0)
    under_way, going_on = threading.Event(), threading.Event()

    def fault(request: str, name: str) -> None:
        time.now += 1
        under_way.set()
        assert going_on.wait(60)

    bucket.fault = fault
    bucket.requests.clear()
    first = threading.Thread(target=mine.confirm)
    first.start()
    assert under_way.wait(60)
    asked = threading.Semaphore(0)

    def clock() -> float:
        asked.release()
        return time.now

    mine._clock = clock
    others = [threading.Thread(target=mine.confirm) for _ in range(5)]
    for one in others:
        one.start()
    for _ in others:
        assert asked.acquire(timeout=60)
    time.now += 1
    going_on.set()
    for one in (first, *others):
        one.join(60)
    assert len(bucket.requests) == 2


def test_a_shared_request_has_to_say_the_lsn(
    gateway: Callable[..., Claim], bucket: MemoryBucket, time: Time
) -> None:
    """Of a thread that waited for another one's, which did not know of it."""
    mine = gateway("a", "5f0c")
    mine.take()
    open_journal(mine, "5f0c", 0, ack="spool")
    time.now = 5
    mine.confirm(3)
    bucket.requests.clear()
    time.now = 4  # when it began to wait
    mine.confirm(3)
    assert bucket.requests == []
    mine.confirm(9)
    word = mine.read()
    assert word is not None
    assert word.reached is not None
    assert word.reached.lsn == 9


@pytest.mark.parametrize("ack", ["journal", "spool"])
def test_how_one_ended_is_noted_by_the_next(
    gateway: Callable[..., Claim], ack: str
) -> None:
    """Once, and for good; exactly, where nothing was acknowledged that the word did not
    say; the newest fifty."""
    lost = gateway("a", "5f0c")
    lost.take()
    open_journal(lost, "5f0c", 0, ack=ack).acknowledged = 7
    lost.look()
    new = gateway("b")
    new.take()
    word = new.read()
    assert word is not None
    assert word.reached is not None
    assert word.reached.incarnation == "5f0c", "until the journal is open"
    open_journal(new, "e0e0", 9)
    for _ in range(2):
        word = new.read()
        assert word is not None
        assert word.reached is not None
        assert (word.reached.incarnation, word.reached.lsn) == ("e0e0", 9)
        [(who, ended)] = word.ended.items()
        assert (who, ended.acknowledged, ended.exact) == ("5f0c", 7, ack == "spool")
        new.look()
    for number in range(60):
        new.release()
        new = gateway("b", f"{number}")
        new.take()
        open_journal(new, f"{number}", 10 + number).acknowledged = 11 + number
        new.look()
    word = new.read()
    assert word is not None
    assert [*word.ended][-1] == "58"
    assert len(word.ended) == 50


def test_a_directory_that_is_back_has_not_ended(gateway: Callable[..., Claim]) -> None:
    """With all that it was heard to have acknowledged; or it has, if it lacks some."""
    for here, stays in ((7, False), (6, True)):
        first = gateway("a", "5f0c")
        first.take()
        open_journal(first, "5f0c", 0).acknowledged = 7
        first.look()
        first.release()
        second = gateway("b", "e0e0")
        second.take()
        open_journal(second, "e0e0", 7)
        second.release()
        again = gateway("a", "5f0c")
        again.take()
        open_journal(again, "0a0a", here, "5f0c")
        word = again.read()
        assert word is not None
        assert ("5f0c" in word.ended) is stays
        again.forget(99)
        word = again.read()
        assert word is not None
        assert word.reached is not None
        again.bucket.remove(name_of("gw"))


def test_one_that_ended_before_it_gave_any_leaves_what_was_said(
    gateway: Callable[..., Claim],
) -> None:
    """The silent one, should it wake, goes on; and nobody has noted its end."""
    silent, new = gateway("a", "5f0c"), gateway("b")
    silent.take()
    open_journal(silent, "5f0c", 0).acknowledged = 7
    silent.look()
    new.take()
    new.release()
    word = new.read()
    assert word is not None
    assert word.holder is None
    assert word.reached is not None
    assert (word.reached.lsn, word.reached.exact) == (7, False)
    assert silent.look() is None
    word = silent.read()
    assert word is not None
    assert word.holder == silent.me


def test_this_process_is_named(tmp_path: Path) -> None:
    """Each run is another one, in the same directory too."""
    one, other = Holder.here(tmp_path, "5f0c"), Holder.here(tmp_path, "5f0c")
    assert one.run != other.run
    assert one.was(other)
    assert str(tmp_path) in str(one)
