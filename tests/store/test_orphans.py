"""A node with a new name publishes what it left under the old one."""

import shutil
from contextlib import nullcontext

import pyarrow.parquet as pq
import pytest

from catalogs import expire
from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.journal.segment import incarnation_of
from gateway.store.names import file_name
from gateway.store.node.mark import Mark, Marker
from gateway.store.node.orphans import Orphan, publish_orphans
from gateway.store.objects.node_record import at_hub
from gateway.store.opening import Start, open_node
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from incarnations import A


def split(body: bytes) -> Rows:
    return Rows(body.split(b","))


DECODERS = {"plain": split}


@pytest.fixture
def directories(tmp_path) -> Directories:
    return Directories.under(tmp_path)


def leave(directories: Directories, node: str, *bodies: bytes) -> None:
    """What a killed daemon of this name acknowledged."""
    opened = open_node(Start(node, directories, Machine(), DECODERS, remembering=False))
    origin = Origin("plain", "beats", "s-1", "127.0.0.1:9")
    opened.log.commit(
        [Batch(origin, 1, body.count(b",") + 1, body, len(body)) for body in bodies]
    )


def test_acknowledged_events_are_published_under_their_name(directories):
    """Once, and as that node's; the next start finds nothing to do."""
    leave(directories, "host-a", b"a,b", b"c")
    found = publish_orphans("host-b", directories, RealDisk(), DECODERS)
    assert found == [Orphan("host-a", 3)]
    [path] = directories.spool.glob("events-host-a_*.parquet")
    table = pq.read_table(path)
    assert table["payload"].to_pylist() == [b"a", b"b", b"c"]
    assert set(table["node"].to_pylist()) == {"host-a"}
    assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == []
    leave(directories, "host-a", b"d")  # it comes back, with the next lsn
    assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == [
        Orphan("host-a", 1)
    ]
    [path] = directories.spool.glob(f"events-host-a_*-{4:020d}-{4:020d}.parquet")


def test_spare_files_of_an_orphan_go(directories):
    """Of one that was killed at its stop, when nothing else was left."""
    leave(directories, "host-a", b"a")
    publish_orphans("host-b", directories, RealDisk(), DECODERS)
    spare = directories.journal_of("host-a") / f"{1:020d}-{A}.spare"
    spare.write_bytes(b"old")
    assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == []
    assert not spare.exists()


def test_of_one_that_left_nothing_it_is_said_that_this_is_all(directories):
    """It stopped in good order while its hub was away, and its machine has another name now:
    that is said once, and of no journal that was only set aside.
    """
    leave(directories, "host-a", b"a")
    journal = directories.journal_of("host-a")
    shutil.copytree(journal, directories.journal_of("host-a.old"))
    for path in journal.glob("*.journal"):
        path.unlink()
    for _ in range(2):
        assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == []
        [heard] = at_hub(directories.arrivals)
        assert heard.record is not None
        assert (heard.node, heard.record.exact) == ("host-a", True)
        assert heard.record.decommissioned == "node host-b has its directory now"


def test_who_is_alive_is_left_alone(directories):
    """As its lock tells."""
    leave(directories, "host-a", b"a")
    found = publish_orphans(
        "host-b", directories, RealDisk(), DECODERS, alone_with=lambda _: nullcontext()
    )
    assert found == []
    assert list(directories.spool.iterdir()) == []


@pytest.mark.parametrize("name", ["other", "host-a-old", "Host_A"])
def test_only_nodes_of_this_data_directory_are_orphans(directories, name):
    """Journals of other gateways may lie beside ours, and copies that somebody made."""
    leave(directories, "host-a", b"a")
    journal = directories.journal_of("host-a").rename(directories.journal / name)
    assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == []
    assert len(list(journal.glob("*.journal"))) == 1


def test_a_journal_whose_state_is_lost_is_published(directories):
    """It lies below this data directory, and no other node has its incarnations."""
    leave(directories, "host-a", b"a")
    shutil.rmtree(directories.state)
    [orphan] = publish_orphans("host-b", directories, RealDisk(), DECODERS)
    assert (orphan.node, orphan.events) == ("host-a", 1)


def test_who_only_shares_spool_and_archive_is_no_orphan(tmp_path):
    """What of its files left our archive is noted in our own catalog."""
    shared = tmp_path / "journal", tmp_path / "spool"
    one, two = (
        Directories.under(tmp_path / name, journal=shared[0], spool=shared[1])
        for name in ("one", "two")
    )
    leave(two, "gw-2", b"a")
    expire(one.root, [file_name("gw-2", A, 1, 9)], "gw-1")
    assert publish_orphans("gw-1", one, RealDisk(), DECODERS) == []
    assert len(list(two.journal_of("gw-2").glob("*.journal"))) == 1
    leave(one, "gw-2", b"b")  # it was here after all
    mark = Marker(one.state_of("gw-2"), RealDisk())
    mark.write(Mark(1, 1), now=True)
    [orphan] = publish_orphans("gw-1", one, RealDisk(), DECODERS)
    assert orphan.events == 2


def test_the_mark_of_an_orphan_says_that_it_is_published(directories):
    """So nothing is missing to it when its journal's directory was removed since."""
    leave(directories, "host-a", b"a,b")
    marker = Marker(directories.state_of("host-a"), RealDisk())
    marker.write(Mark(5, 2, 0), now=True)
    publish_orphans("host-b", directories, RealDisk(), DECODERS)
    found, _ = marker.read()
    assert (found.given, found.durable, found.published) == (5, 2, 2)
    for directory in (directories.journal_of("host-a"), directories.spool):
        shutil.rmtree(directory)
    opened = open_node(
        Start("host-a", directories, Machine(), DECODERS, remembering=False)
    )
    assert (opened.losses, opened.first_lsn) == ([], 6)


def test_damage_of_an_orphan_is_told(directories):
    """As that of the node's own journal is."""
    leave(directories, "host-a", b"a")
    [path] = directories.journal_of("host-a").glob("*.journal")
    path.write_bytes(b"?" + path.read_bytes()[1:])
    [orphan] = publish_orphans("host-b", directories, RealDisk(), DECODERS)
    assert orphan.events == 1
    assert [loss.path for loss in orphan.losses] == [path]


def test_what_can_not_be_published_is_told(directories):
    """It stays where it is, and does not stop the start."""
    leave(directories, "host-a", b"a")
    [orphan] = publish_orphans("host-b", directories, RealDisk(), {})
    assert orphan.events == 0
    assert orphan.problem is not None
    assert "protocol 'plain', which is not installed" in orphan.problem
    assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == [
        Orphan("host-a", 1)
    ]


def test_state_that_nobody_serves_is_told(directories):
    """Streams and writers' numbers are that node's; each start says where they are."""
    leave(directories, "host-a", b"a")
    (directories.state_of("host-a") / "pravega.state").write_bytes(b"")
    for events in (1, 0):
        assert publish_orphans("host-b", directories, RealDisk(), DECODERS) == [
            Orphan("host-a", events, remembers=["pravega"])
        ]


def test_what_a_node_left_is_said_to_be_all(directories):
    """For the audit: its directory is another node's now, and nothing follows."""
    leave(directories, "host-a", b"a,b", b"c")
    [before] = directories.journal_of("host-a").glob("*.journal")
    publish_orphans("host-b", directories, RealDisk(), DECODERS, clock=lambda: 7.0)
    [heard] = at_hub(directories.arrivals)
    assert heard.node == "host-a"
    assert heard.record is not None
    assert (heard.record.lsn, heard.record.exact, heard.modified) == (3, True, 7.0)
    assert incarnation_of(before.name) in heard.record.earlier
    assert heard.record.decommissioned == "node host-b has its directory now"
