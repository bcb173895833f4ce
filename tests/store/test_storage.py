"""The storage of one node: when senders may be served."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bucket_node import Node
from checkpoints import Words
from gateway.event import Batch, Origin, Rows
from gateway.store.checkpoint import saved_names
from gateway.store.directories import Directories
from gateway.store.node.mark import NAME, Mark
from gateway.store.node.owners import Owners
from gateway.store.storage import OpenedStorage, Settings, Storage, StorageCallbacks
from gateway.store.system import statefile
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway.store.system.shared import SharedDeque, SharedDict
from gateway_testkit.reactor import QueuedReactor


class NoRoomForFiles(RealDisk):
    """Nothing can be put into the spool, for a while."""

    full = True
    begin = ".events-"

    def create(self, path: Path) -> Any:
        if self.full and path.name.startswith(self.begin):
            raise OSError(errno.ENOSPC, "no room", str(path))
        return super().create(path)


class NoRoomForTheMark(NoRoomForFiles):
    begin = ".mark"


def opened(
    root: Path, disk: RealDisk, reactor: Any, *, published: bool, **more: Any
) -> Storage:
    return OpenedStorage(
        settings=Settings(
            node="gw",
            directories=Directories.under(root),
            acknowledge_when_published=published,
        ),
        machine=Machine(disk),
        reactor=reactor,
        decoders={"plain": lambda body: Rows([body])},
        callbacks=StorageCallbacks(fatal=pytest.fail),
        remembering=False,
        in_thread=reactor.in_thread,
        **more,
    ).recover({})


@pytest.mark.parametrize("published", [True, False])
def test_senders_wait_for_files_of_what_was_left(tmp_path, published):
    """With `ack: spool`: who resumes is told how far it is, and that acknowledges it."""
    reactor, disk = QueuedReactor(), NoRoomForFiles()
    before = opened(tmp_path, disk, reactor, published=published)
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    before._opened.found.log.commit([Batch(origin, 1, 1, b"a", 1)])
    before._opened.found.publisher.close()
    storage = opened(tmp_path, disk, reactor, published=published)
    assert not storage.ready.called
    storage.start()
    assert storage.ready.called is not published
    disk.full = False
    reactor.run(lambda: storage.ready.called)
    if published:
        assert storage.spool.published_lsn == 1
        assert [path.suffix for path in (tmp_path / "spool").iterdir()] == [".parquet"]
    reactor.wait(Deferred.fromCoroutine(storage.stop()))


def test_senders_wait_for_the_first_state_files(tmp_path):
    """A gateway that was killed before those, and goes on without the protocol, would let
    go of what only its memory can keep: batches without events."""

    memory = Words()
    memory.by_hand = True
    node = Node(tmp_path, None, ack="journal", memory=memory)
    node.storage.start()
    assert memory.asked
    assert not node.storage.ready.called
    assert "for the first time" in str(node.storage.waits_for)
    memory.answer()
    node.reactor.run(lambda: node.storage.ready.called)
    assert node.storage.waits_for is None
    assert saved_names(Directories.under(tmp_path).state_of("gw"), RealDisk())
    node.stop()
    again = Node(tmp_path, None, ack="journal", memory=Words())
    again.storage.start()
    assert again.storage.ready.called, "what is known needs no second file"
    again.stop()


@pytest.mark.parametrize("ack", ["journal", "spool"])
def test_who_ends_well_vouches_for_a_journal_that_is_lost_then(tmp_path, ack):
    """Also who had nothing to do after that.  Of one that is killed the last second is not
    known, unless nothing is acknowledged that is in no file."""
    root, killed = tmp_path / "gw", tmp_path / "killed"
    node = Node(root, None, ack=ack).start().sent(b"a")

    def mark(root: Path) -> Mark:
        path = Directories.under(root).state_of("gw") / NAME
        return statefile.look(path, Mark) or Mark()

    node.reactor.run(lambda: mark(root).published == 1)
    assert mark(root).exact is (ack == "spool")
    shutil.copytree(root, killed)
    node.stop()
    Node(root, None, ack=ack).start().stop()
    for each, doubted in ((root, False), (killed, ack == "journal")):
        shutil.rmtree(each / "journal")
        assert mark(each).exact is not doubted
        again = Node(each, None, ack=ack)
        assert not mark(each).exact, "it may acknowledge by its journal from here on"
        assert any("knows nothing of it" in one for one in again.told) is doubted
        again.start().stop()


def test_nobody_is_served_while_the_mark_vouches_for_what_may_come(tmp_path):
    """A disk that was full as the gateway started: if the journal were lost then, the next
    one would say that all of it is in files."""
    Node(tmp_path, None, ack="journal").start().sent(b"a").stop()
    path = Directories.under(tmp_path).state_of("gw") / NAME
    mark = statefile.look(path, Mark)
    assert mark is not None
    assert mark.exact
    reactor, disk = QueuedReactor(), NoRoomForTheMark()
    storage = opened(tmp_path, disk, reactor, published=False)
    storage.start()
    assert not storage.ready.called
    assert "mark can not be written" in str(storage.waits_for)
    disk.full = False
    reactor.run(lambda: storage.ready.called)
    mark = statefile.look(path, Mark)
    assert mark is not None
    assert not mark.exact
    reactor.wait(Deferred.fromCoroutine(storage.stop()))


def test_files_of_nodes_that_have_a_daemon_are_not_ours(tmp_path):
    """It removes them itself, and keeps what its streams need.  A node that ran here has
    left its journal.
    """
    journal = Directories.under(tmp_path).journal_of
    for node in ("old", "live", "unreadable"):
        journal(node).mkdir(parents=True)

    def is_live(path: Path) -> bool:
        if path == journal("unreadable"):
            raise PermissionError(path)
        return path == journal("live")

    owners = Owners("gw", Directories.under(tmp_path), RealDisk(), is_live)
    nodes = ("gw", "old", "live", "unreadable", "elsewhere")
    assert [node for node in nodes if owners.is_ours(node)] == ["gw", "old"]


def test_a_snapshot_stays_as_it_was():
    """Whoever goes through one sees neither what comes nor what goes meanwhile."""
    there, queue = SharedDict({1: "a", 2: "b"}), SharedDeque(["a", "b"], 3)
    for key in there.snapshot():
        del there[key]
        there[key + 10] = "c"
    for one in queue.snapshot():
        queue.append(one * 2)
    assert there.snapshot() == {11: "c", 12: "c"}
    assert queue.snapshot() == ["b", "aa", "bb"]
