"""An edge and a hub in memory: files go over once, whatever becomes of the line."""

import errno
import itertools
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode
from twisted.logger import formatEvent, globalLogPublisher

from edges import ALL, FILES, Pair
from forwarded import Sent
from gateway.config.model import Forward
from gateway.forward import hub as module
from gateway.forward.http import HubLine, Lost, Reply, _context
from gateway.sdk.http1 import Request, Requests
from gateway.sdk.protocol import Answer
from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.node_record import NodeRecord, Relay, at_hub, hear
from gateway.store.system.disk import RealDisk
from gateway_testkit.settings import options_of
from incarnations import A, B


@pytest.fixture
def pair(tmp_path) -> Pair:
    return Pair(tmp_path)


def test_files_go_to_the_hub_in_order(pair):
    """Those that are there, and those that come; each stays in the spool until the hub has
    it, and then in the archive.
    """
    pair.publish(*FILES[:2])
    pair.forwarder.start(0)
    assert not pair.forwarder.hub.connected
    pair.run()
    assert pair.forwarder.hub.connected
    assert [*pair.hub.files()] == [*ALL][:2]
    assert pair.waiting() == []
    pair.publish(*FILES[2:])
    pair.run()
    assert pair.hub.files() == ALL
    assert pair.archived() == [*ALL]
    forwarder = pair.forwarder
    assert (forwarder.sent_files, forwarder.sent_events) == (4, 705)
    assert forwarder.sent_bytes == sum(map(len, ALL.values()))
    assert forwarder.files == 4
    assert forwarder.arrived_lsn == 705
    assert len(pair.open) == 1


def test_a_hub_that_is_away(pair):
    """It is asked again, with pauses that grow; how long it is away, and why, is known."""
    pair.away = True
    pair.forward(*FILES, seconds=60)
    hub = pair.forwarder.hub
    assert not hub.connected
    assert hub.seconds == pytest.approx(60)
    assert "refused" in hub.why
    assert pair.forwarder.why_waiting.startswith("the hub, http://hub:7410, is away: ")
    assert pair.waiting() == [*ALL]
    pair.away = False
    pair.run(20)
    assert pair.hub.files() == ALL


def test_a_hub_without_room(pair):
    """Its reason is known here; nothing is sent again, and nothing leaves."""
    pair.hub.full = "the spool holds 20 GiB"
    pair.forward(*FILES, seconds=70)
    assert pair.forwarder.hub.why == "the spool holds 20 GiB"
    assert pair.forwarder.why_waiting == (
        "the hub, http://hub:7410, is behind: the spool holds 20 GiB"
    )
    assert pair.waiting() == [*ALL]
    pair.hub.full = None
    pair.run(15)
    assert pair.hub.files() == ALL
    assert pair.forwarder.hub.why == ""
    assert len(pair.lines) < 30


def test_a_file_that_is_refused_is_not_sent_without_end(pair, monkeypatch):
    """By a hub that does not know its form: each time costs all of its bytes, so the pauses
    grow, though the hub answers.  It stays, and goes over when that knows it.
    """

    def older(*_: object) -> str:
        return "this gateway is to be upgraded first"

    pair.publish(*FILES)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.store.hub.arrivals.why_no_spool_file", older)
        pair.forward(seconds=60)
    assert pair.forwarder.hub.refused == 422
    assert "upgraded first" in pair.forwarder.hub.why
    assert len(pair.lines) < 20
    assert pair.waiting() == [*ALL]
    pair.run(70)
    assert pair.archived() == [*ALL]


def test_an_archive_that_takes_no_file(pair):
    """What the hub has stays in the spool meanwhile; it is not asked ten times a second."""
    pair.disk.full = True
    pair.forward(*FILES[:2], seconds=60)
    assert pair.waiting() == [*ALL][:2]
    assert "No space left" in pair.forwarder.hub.why
    assert len(pair.lines) < 20
    pair.disk.full = False
    pair.run(70)
    assert pair.archived() == [*ALL][:2]
    assert [*pair.hub.files()] == [*ALL][:2]


def test_a_file_that_is_none(pair):
    """Its hub says so: if it is that, it is set aside, and those behind it go on."""
    pair.publish(*FILES)
    (pair.edge.spool / FILES[0].name).write_bytes(Sent(1, 200, node="other").data)
    pair.forward()
    assert [*pair.hub.files()] == pair.archived() == [*ALL][1:]
    assert pair.forwarder.set_aside == 1
    reason = pair.edge.root / "poison" / f"{FILES[0].name}.json"
    assert "it has events of other nodes" in reason.read_text()


def test_a_file_that_is_damaged(pair):
    """It is set aside with its reason, as the Spark job does, and the others go on."""
    broken = pair.edge.spool / FILES[0].name
    pair.publish(FILES[0], FILES[1])
    broken.write_bytes(b"no Parquet")
    pair.forward()
    assert [*pair.hub.files()] == [FILES[1].name]
    aside = pair.edge.root / "poison"
    assert sorted(path.name for path in aside.iterdir()) == [
        broken.name, f"{broken.name}.json"
    ]  # fmt: skip
    assert "footer can not be read" in (aside / f"{broken.name}.json").read_text()
    assert pair.forwarder.set_aside == 1


@pytest.mark.parametrize("why", [OSError(errno.EMFILE, "too many"), MemoryError()])
def test_a_file_that_can_not_be_read_now(pair, monkeypatch, why):
    """It is not taken for one that is damaged: it waits, as those behind it do."""

    def failing(opened: object) -> Any:
        raise why

    pair.publish(FILES[0], FILES[1])
    with monkeypatch.context() as patched:
        patched.setattr("gateway.forward.hub.pq.read_metadata", failing)
        pair.forward()
    assert pair.waiting() == [FILES[0].name, FILES[1].name]
    pair.run(70)
    assert [*pair.hub.files()] == [FILES[0].name, FILES[1].name]
    assert pair.forwarder.set_aside == 0


def test_what_can_not_be_brought_is_told(pair):
    """Files of a node that is none of ours, and of one that the hub does not take from here."""
    pair.names.add("held")
    pair.hub.require({"edge": "secret"})
    pair.publish(
        Sent(1, 3, node="other"), Sent(4, 2, node="other"), Sent(1, node="held")
    )
    pair.forwarder.configure(options_of(Forward, to="http://hub:7410", token="secret"))
    pair.forward(seconds=70)
    left = {life: list(lsns) for life, lsns in pair.forwarder.left.items()}
    assert left == {f"other_{A}": [(1, 5)], f"held_{A}": [(1, 3)]}


def test_a_clock_that_is_set(pair):
    """The hub says that it is off as long as that is so: each request says what it shows."""
    pair.forward(seconds=20)
    assert pair.hub.troubles == []
    pair.ahead = -3600.0
    pair.run(40)
    assert ["1.0 h behind" in one for one in pair.hub.troubles] == [True]
    pair.ahead = 2.0
    pair.run(40)
    assert pair.hub.troubles == []
    pair.hub.ahead = -3600.0
    assert ["1.0 h ahead" in one for one in pair.hub.troubles] == [True]


def test_nothing_leaves_before_it_is_told(pair):
    """A hub that has it and could not say so: it stays, and is not sent again."""
    pair.forward(seconds=1)
    pair.lines[0].down = 0
    pair.publish(FILES[0])
    pair.step()
    assert pair.lines[0].cut_off
    assert pair.hub.files() == {FILES[0].name: FILES[0].data}
    assert pair.waiting() == [FILES[0].name]
    pair.run()
    assert pair.archived() == [FILES[0].name]
    assert pair.forwarder.sent_files == 0
    assert pair.hub.taker.files == 1


def test_a_hub_that_hangs_up_on_all(pair):
    """It says who it is each time, and then nothing more: the pauses grow nevertheless."""
    pair.cuts = itertools.repeat((2000, float("inf")))
    pair.publish(Sent(1, 1000))
    pair.forward(seconds=60)
    assert len(pair.lines) < 60
    pair.cuts = iter([])
    pair.cut()
    pair.run(20)
    assert pair.archived() == [Sent(1, 1000).name]


def test_the_line_is_cut_in_every_place(tmp_path):
    """After any number of bytes that either side says: all of it is there once, in the same
    bytes.
    """
    whole = Pair(tmp_path / "whole")
    whole.publish(*FILES[1:3])
    whole.forwarder.start(0)
    whole.run(3)
    said = sum(len(one.data) + 400 for one in FILES[1:3]) + 700
    places = [(at, float("inf")) for at in range(0, said, 331)]
    places += [(float("inf"), at) for at in range(0, 800, 17)]
    for number, place in enumerate(places):
        pair = Pair(tmp_path / str(number))
        pair.cuts = iter([place])
        pair.forward(*FILES[1:3], seconds=3)
        assert pair.hub.files() == {one.name: one.data for one in FILES[1:3]}, place
        assert pair.waiting() == [], place
        assert pair.hub.taker.files == 2, place


def test_a_slow_line(pair):
    """64 kbit/s, an answer after two seconds: it is full nearly all the time."""
    pair.slow = 8000.0, 1.0
    files = [Sent(1 + 900 * number, 900) for number in range(20)]
    pair.publish(*files)
    pair.forwarder.start(0)
    size = sum(len(one.data) for one in files)
    assert size > 100_000
    pair.run(1.2 * size / 8000 + 15)
    assert pair.hub.files() == {one.name: one.data for one in files}
    assert pair.waiting() == []
    assert len(pair.lines) <= 8


@pytest.mark.parametrize("seed", range(5))
def test_a_line_that_is_bad(tmp_path, seed):
    """Slow, and of ten connections three are lost before they are there, or in the middle:
    all comes over, once, and what has come is not sent again each time.
    """
    chance = random.Random(seed)
    pair = Pair(tmp_path)
    pair.slow = 8000.0, 1.0

    def cuts() -> Iterator[tuple[float, float]]:
        while True:
            lost = chance.random() < 0.3
            yield (chance.randrange(30_000) if lost else 60_000, float("inf"))

    pair.cuts = cuts()
    files = [Sent(1 + 900 * number, 900) for number in range(20)]
    pair.publish(*files)
    pair.forwarder.start(0)
    size = sum(len(one.data) for one in files)
    for _ in range(200):
        pair.away = chance.random() < 0.3
        pair.run(3)
        if not pair.waiting():
            break
    assert pair.hub.files() == {one.name: one.data for one in files}
    assert pair.archived() == [one.name for one in files]
    assert pair.hub.taker.files == len(files)
    assert sum(line.carried for line in pair.lines) < 2 * size


def test_a_hub_that_says_nothing(pair):
    """A line that is dead and not closed is given up after a minute."""
    pair.forward(seconds=1)
    [line] = pair.lines
    line.dead = True
    pair.publish(FILES[0])
    pair.run(65)
    assert line.cut_off
    pair.run(20)
    assert pair.archived() == [FILES[0].name]


def test_a_proxy_that_keeps_no_connection(pair, monkeypatch):
    """The hub is asked each half minute who it is, and not each second."""
    answer = Requests.answer

    def last(self: Requests, said: Answer, request: Request, **_: bool) -> Any:
        return answer(self, said, request, close=True)

    monkeypatch.setattr(Requests, "answer", last)
    pair.forward(FILES[0], seconds=100)
    assert pair.archived() == [FILES[0].name]
    assert pair.forwarder.hub.connected
    assert len(pair.lines) < 10


def test_a_rate(pair):
    """So many bytes a second, and no more; others have the rest of the line."""
    large = Sent(1, 60_000)
    pair.settings = options_of(Forward, to="http://hub:7410", rate=1 << 14)
    pair.begin()
    pair.publish(large)
    pair.forwarder.start(0)
    seconds = len(large.data) / (1 << 14)
    assert seconds > 2
    pair.run(seconds - 1.5)
    assert pair.waiting() == [large.name]
    pair.run(3)
    assert pair.archived() == [large.name]


@pytest.mark.parametrize("lost", [FILES[1:3], FILES[3:], FILES])
@pytest.mark.parametrize("running", [True, False])
def test_a_hub_that_was_put_back(pair, lost, *, running):
    """It is sent again what it lacks, also in the middle, out of the archive; and nothing
    else is.
    """
    pair.forward(*FILES)
    pair.hub.forget(*lost)
    if running:
        pair.cut()
    else:
        pair.restart()
    pair.run(20)
    assert pair.hub.files() == ALL
    assert pair.archived() == [*ALL]
    assert pair.hub.taker.files == len(lost)
    assert pair.forwarder.arrived_lsn == 705 or not running


def test_an_archive_that_can_not_be_listed_once(pair, monkeypatch):
    """A hub that was put back is sent what it lacks as soon as it can be."""
    pair.forward(*FILES)
    pair.hub.forget(*FILES[1:3])
    failed: list[Path] = []
    names = pair.disk.names

    def fails(folder: Path) -> list[str]:
        if folder == pair.edge.archive and not failed:
            failed.append(folder)
            raise OSError(errno.EMFILE, "Too many open files")
        return names(folder)

    monkeypatch.setattr(pair.disk, "names", fails)
    pair.cut()
    pair.run(60)
    assert failed
    assert pair.hub.files() == ALL


def test_a_hub_that_is_put_back_right_after_an_answer(pair, monkeypatch):
    """What it told before is no word of what it has since."""
    put = module.Hub._put

    def slow(*given: Any) -> str | None:
        there = put(*given)
        if given[1] == FILES[1].named and not pair.hub.told:
            pair.hub.told.append("put back")
            pair.hub.forget(FILES[1])
            pair.cut()
            pair.threads.pause(40)  # it is asked meanwhile who it is
        return there

    monkeypatch.setattr(module.Hub, "_put", slow)
    pair.forward(*FILES, seconds=120)
    assert pair.hub.files() == ALL


def test_an_answer_without_end():
    """It takes no more memory than any answer of a hub has."""

    class Endless:
        taken = 0

        def sendall(self, _: bytes) -> None:
            pass

        def recv(self, size: int) -> bytes:
            assert self.taken < 1 << 27
            self.taken += size
            piece = b"x" * size
            head = b"" if self.taken > size else b"HTTP/1.1 200 OK\r\n\r\n"
            return head + piece

        def shutdown(self, _: int) -> None:
            pass

        def close(self) -> None:
            pass

    line = HubLine(Endless(), "hub", "")  # type: ignore[arg-type]
    with pytest.raises(Lost, match="no end"):
        line.ask("GET", "/nodes/edge", {})
    assert line.over


class Hung:
    """A socket that takes nothing, until it is hung up."""

    def __init__(self) -> None:
        self.sending, self.woken = threading.Event(), threading.Event()
        self.closed_by: list[str] = []

    def sendall(self, _: bytes) -> None:
        self.sending.set()
        self.woken.wait()
        raise BrokenPipeError

    def shutdown(self, _: int) -> None:
        self.woken.set()

    def close(self) -> None:
        self.closed_by.append(threading.current_thread().name)


def test_a_line_is_closed_by_the_thread_that_has_it(tmp_path):
    """Another one that hangs up wakes it, and no more: TLS may write once more then, by a
    number that would be another file's.
    """
    settings, made = options_of(Forward, to="http://hub:7410"), Hung()
    hub = module.Hub(
        settings.hubs[0], settings, "edge", tmp_path, RealDisk(), lambda *_: made,
        module.Rate(None, time.monotonic, None), print,
    )  # fmt: skip

    def ask() -> None:
        with pytest.raises(Lost):
            hub.greet()

    asking = threading.Thread(target=ask, name="asking")
    asking.start()
    made.sending.wait()
    hub.close()
    asking.join()
    assert made.closed_by == ["asking"]


def test_whoever_answers_for_the_hub(pair, monkeypatch):
    """A page that says 200 to all, as of a proxy before it: no file is taken for there."""
    pair.forward(seconds=2)

    def page(*_: Any, **__: Any) -> Reply:
        return Reply(200, {"content-type": "text/html"}, b"<html>")

    with monkeypatch.context() as patched:
        patched.setattr(HubLine, "ask", page)
        pair.publish(FILES[0])
        pair.run(20)
        assert pair.waiting() == [FILES[0].name]
    pair.run(60)
    assert pair.hub.files() == {FILES[0].name: FILES[0].data}


def test_authorities_that_are_none(tmp_path):
    """What was configured may be another file by now: it is said which one."""
    file = tmp_path / "ca.pem"
    file.write_text("none")
    with pytest.raises(ValueError, match=f"{file}: no certificate"):
        _context(options_of(Forward, to="https://hub:7410", ca=str(file)))


def test_a_hub_whose_records_were_removed(pair):
    """All that is still here is offered to it, and what is there is not taken again."""
    pair.forward(*FILES)
    (pair.hub.directories.arrivals / "edge").unlink()
    pair.hub.restart()
    pair.cut()
    pair.run(20)
    assert pair.hub.files() == ALL
    assert pair.hub.taker.files == 0
    assert pair.hub.lsns() == {A: [(1, 705)]}


def test_what_is_here_no_more_is_told(pair):
    """A hub that lacks what has left the archive has a hole, which the log names."""
    pair.forward(*FILES)
    (pair.edge.archive / FILES[1].name).unlink()
    pair.hub.forget(*FILES[1:])
    told: list[str] = []

    def hear(event: Any) -> None:
        told.append(str(formatEvent(event)))

    globalLogPublisher.addObserver(hear)
    try:
        pair.cut()
        pair.run(20)
    finally:
        globalLogPublisher.removeObserver(hear)
    assert any(f"lacks lsn 201 to 203 of incarnation {A}" in one for one in told)
    assert pair.hub.lsns() == {A: [(1, 200), (204, 705)]}


def test_an_edge_that_was_restored_from_a_copy(pair):
    """What is left of its earlier incarnation comes, what is there does not come again."""
    pair.publish(FILES[0])
    pair.forward()
    pair.forwarder.stop()
    pair.incarnation = Incarnation(B, 204, 0, (A,), begins=(1,))
    pair.begin()
    new = Sent(204, 2, by=B)
    pair.publish(FILES[0], FILES[1], new)
    pair.forward()
    assert [*pair.hub.files()] == [FILES[0].name, FILES[1].name, new.name]
    assert pair.waiting() == []
    assert pair.hub.lsns() == {A: [(1, 203)], B: [(204, 205)]}


def test_another_past_of_one_incarnation(pair):
    """A machine that was resumed from a copy of its memory brings other events under names
    that are there: they go over under an incarnation of their own.  Of other bounds, the
    hub takes what comes, and its job compares.
    """
    pair.publish(FILES[0], FILES[1])
    pair.forward()
    same, other = Sent(201, text="other"), Sent(202, 3, text="other")
    pair.publish(same, other)
    pair.run()
    assert pair.waiting() == []
    derived = {*pair.hub.files()} - {FILES[0].name, FILES[1].name, other.name}
    assert len(derived) == 1
    [(by, lsns)] = [(by, at) for by, at in pair.hub.lsns().items() if by != A]
    assert by in derived.pop()
    assert lsns == [(201, 203)]
    assert pair.hub.lsns()[A] == [(1, 204)]


def test_two_gateways_of_one_name(pair, tmp_path):
    """Each brings its own events, and nothing is refused for good or lost."""
    pair.publish(FILES[0])
    pair.forward()
    other = Pair(tmp_path / "other")
    other.hub, other.incarnation = pair.hub, Incarnation(B, 1, 0)
    other.begin()
    theirs = Sent(1, 2, by=B)
    other.publish(theirs)
    other.forwarder.start(0)
    other.run()
    pair.publish(FILES[1])
    pair.run()
    assert pair.waiting() == other.waiting() == []
    sent = (*FILES[:2], theirs)
    assert pair.hub.files() == {one.name: one.data for one in sent}


def test_another_configuration(pair):
    """It goes on with that, on a new connection; with the same one it does not."""
    pair.forward(seconds=1)
    pair.forwarder.configure(options_of(Forward, to="http://hub:7410"))
    assert not pair.lines[0].cut_off
    pair.forwarder.configure(options_of(Forward, to="http://hub:7410", rate=1 << 20))
    assert pair.lines[0].cut_off
    pair.publish(FILES[0])
    pair.run(2)
    assert pair.archived() == [FILES[0].name]
    pair.forwarder.stop()
    pair.run(2)
    assert pair.threads.tasks == []


def test_what_a_gateway_says_of_itself_comes_to_the_hub(pair):
    """At once on each connection, and once a minute, with when it was heard; one that others
    have said comes once until it is said anew, and keeps when that was.  The hub keeps
    nothing of a node that this name may not bring.
    """
    lsn = 7
    relay = Relay(pair.edge.arrivals, RealDisk())

    def said(left: Mapping[str, Lsns]) -> list[tuple[str, str, bytes]]:
        own = encode(NodeRecord(A, 1, lsn, 5.0, "journal"))
        return [("edge", A, own), *relay()]

    pair.begin(words=lambda: said)
    hear(
        pair.edge.arrivals,
        "shop",
        NodeRecord(B, 1, 3, 5.0, "journal"),
        11.0,
        RealDisk(),
    )
    pair.forward()
    hub = pair.hub.directories.arrivals

    def heard() -> dict[str, tuple[int, float]]:
        words = ((one.node, one.record) for one in at_hub(hub))
        return {node: (word.lsn, word.heard) for node, word in words if word}

    first = heard()
    assert (first["edge"][0], first["shop"]) == (7, (3, 11.0))
    lsn = 9
    pair.run(30)
    assert heard() == first
    pair.run(60)
    assert heard()["edge"][0] == 9
    pair.hub.require({"edge": "secret"})
    hear(
        pair.edge.arrivals,
        "shop",
        NodeRecord(B, 1, 4, 5.0, "journal"),
        12.0,
        RealDisk(),
    )
    pair.forwarder.configure(options_of(Forward, to="http://hub:7410", token="secret"))
    pair.run(90)
    assert pair.forwarder.hub.connected
    assert heard()["shop"] == (3, 11.0)


def test_a_word_that_the_hub_can_not_keep(pair, monkeypatch):
    """Files go over all the same, and so do the words behind it; it is said again, though
    nobody has said it anew.
    """
    words = [
        (node, A, encode(NodeRecord(A, 1, 7, 5.0, "journal"))) for node in ("a", "b")
    ]
    keep = pair.hub.taker.hear

    def fails(node: str, *rest: Any) -> None:
        if node == "a":
            raise OSError(errno.EIO, "Input/output error")
        keep(node, *rest)

    def once(_: object) -> list[tuple[str, str, bytes]]:
        said = [*words]
        words.clear()
        return said

    pair.begin(words=lambda: once)
    with monkeypatch.context() as patched:
        patched.setattr(pair.hub.taker, "hear", fails)
        pair.forward(*FILES, seconds=20)
    assert pair.hub.files() == ALL

    def heard() -> list[str]:
        return [one.node for one in at_hub(pair.hub.directories.arrivals)]

    assert heard() == ["b"]
    pair.run(70)
    assert heard() == ["a", "b"]


def test_two_gateways_of_one_name_are_told(pair):
    """Those that speak in turns, and do not go on from each other."""
    taker = pair.hub.taker

    def speaks(by: str, earlier: tuple[str, ...] = ()) -> None:
        word = NodeRecord(by, 1, 3, 5.0, "journal", earlier=earlier)
        taker.hear("edge", by, encode(word))

    speaks(A)
    speaks(B, (A,))
    assert pair.hub.told == taker.twins == []
    speaks("c" * 10)
    [told] = pair.hub.told
    assert f"incarnation {'c' * 10} knows nothing of {B}" in told
    assert taker.twins == []
    speaks(B, (A,))
    assert taker.twins == ["edge"]


def test_two_damaged_files_of_one_name(pair):
    """Neither takes the place of the other in poison/."""
    for damaged in (b"one", b"another"):
        (pair.edge.spool / FILES[0].name).write_bytes(damaged)
        pair.restart()
        pair.run(2)
    aside = pair.edge.root / "poison"
    name = FILES[0].name
    assert (aside / name).read_bytes() == b"one"
    assert (aside / f"{name}.2").read_bytes() == b"another"
    assert f"{name}.2" in (aside / f"{name}.2.json").read_text()
