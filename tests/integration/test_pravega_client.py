"""The published Python client of Pravega, unchanged, against the real daemon."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.parquet as pq
import pytest

from daemons import archiving, nothing_is_kept
from deadlines import rest

pytestmark = pytest.mark.needs_pravega

KiB, MiB = 2**10, 2**20


def numbered(what: str, count: int) -> list[bytes]:
    return [b"%s %d" % (what.encode(), n) for n in range(count)]


def keyed(events: Iterable[bytes]) -> list[tuple[bytes, str]]:
    """With routing keys, of which there are ten."""
    return [(event, str(n % 10)) for n, event in enumerate(events)]


@pytest.fixture
def begun(serve, pravega_client) -> Callable[[int], tuple[Any, Any]]:
    """Start a daemon and a client, which makes the stream `s/t`, of so many segments."""

    def begin(segments: int) -> tuple[Any, Any]:
        streams = serve()
        client = pravega_client(streams.controller)
        client.manager.create_scope("s")
        client.manager.create_stream("s", "t", segments)
        return streams, client

    return begin


@pytest.mark.smoke
def test_written_is_read_and_in_the_files(serve, pravega_client):
    """Text, bytes, with and without keys, waited for and flushed: every event is read
    back once, and is in the files once; those of one key are in order.
    """
    streams = serve()
    client = pravega_client(streams.controller)
    manager = client.manager
    assert manager.create_scope("s")
    assert manager.create_stream("s", "t", 3)

    patient = manager.create_writer("s", "t")
    patient.write_event("grün", "a")
    patient.write_event("no key")
    patient.write_event_bytes(b"\0\xff", "a")
    hasty = manager.create_writer("s", "t", 100)
    events = numbered("event", 2000)
    client.whole.write(hasty, keyed(events))
    hasty.flush()
    expected = ["grün".encode(), b"no key", b"\0\xff", *events]

    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    read = client.whole.read(reader, len(expected))
    assert Counter(read) == Counter(expected)
    for key in range(10):
        mine = [event for event in read if event in set(events[key::10])]
        assert mine == events[key::10]
    rows = streams.rows()
    assert Counter(row["payload"] for row in rows) == Counter(expected)
    assert len({row["channel"] for row in rows}) == 3
    assert all(row["flaw"] is None for row in rows)


def test_scaled_while_it_is_written_to(begun):
    """A stream gets more segments and fewer again while one writer writes: every event is
    read once, those of a key in order, and each is in the files once.
    """
    streams, client = begun(1)
    manager, written = client.manager, numbered("event", 1500)
    writer = manager.create_writer("s", "t", 100)
    for part, segments in enumerate((3, 2, 5)):
        client.whole.write(writer, keyed(written)[part * 500 : part * 500 + 300])
        assert client.whole.resize(manager, "s", "t", segments)
        client.whole.write(writer, keyed(written)[part * 500 + 300 : part * 500 + 500])
    writer.flush()
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    read = client.whole.read(reader, len(written))
    assert Counter(read) == Counter(written)
    for key in range(10):
        assert [event for event in read if event in set(written[key::10])] == (
            written[key::10]
        )
    rows = streams.rows()
    assert Counter(row["payload"] for row in rows) == Counter(written)
    assert len({row["channel"] for row in rows}) > 3


def test_several_readers_of_one_group(begun, pravega_client):
    """Two readers in two processes share the segments: each event is read once over
    both.  What a reader left unread when it went is read by the other.
    """
    streams, one = begun(4)
    two = pravega_client(streams.controller)
    events = numbered("event", 400)
    writer = one.manager.create_writer("s", "t")
    one.whole.write(writer, keyed(events))

    first = one.manager.create_reader_group("g", "s", "t").create_reader("r1")
    begun = first.get_segment_slice_async()
    found = one.whole.head(begun, 3)
    second = two.manager.create_reader_group("g", "s", "t").create_reader("r2")
    # The first has not said how far it is; it goes, and says so.
    first.release_segment(begun)
    first.reader_offline()
    found += two.whole.read(second, len(events) - len(found))
    assert Counter(found) == Counter(events)


def test_a_reader_waits_at_the_tail(begun, pravega_client):
    """An event that is written while a reader waits reaches it."""
    streams, one = begun(1)
    two = pravega_client(streams.controller)
    writer = one.manager.create_writer("s", "t")
    reader = two.manager.create_reader_group("g", "s", "t").create_reader("r")
    for n in range(3):
        two.begin(-1, "read", reader, 1)
        rest(0.3)
        assert two.waits
        one.whole.write(writer, [(b"event %d" % n, None)])
        assert two.finish() == [b"event %d" % n]


def test_transactions(begun, eventually):
    """A committed one's events are in the table together and not before, those of one
    that was aborted never; and readers see the same.
    """
    streams, client = begun(2)
    manager = client.manager
    writer = manager.create_transaction_writer("s", "t", 1)

    def begun(what: str, count: int) -> Any:
        transaction = writer.begin_txn()
        client.whole.write(transaction, keyed(numbered(what, count)))
        return transaction

    committed, aborted, other = (
        begun("committed", 100), begun("aborted", 10), begun("other", 5)
    )  # fmt: skip
    assert streams.rows() == []
    committed.commit()
    eventually(lambda: not committed.is_open(), "it is committed")
    aborted.abort()
    eventually(lambda: not aborted.is_open(), "it is aborted")
    assert other.is_open()
    rows = streams.rows()
    assert Counter(row["payload"] for row in rows) == Counter(
        numbered("committed", 100)
    )
    [file] = {
        path
        for place in (streams.daemon.spool, streams.daemon.archive)
        for path in place.glob("events-*.parquet")
        if pq.read_metadata(path).num_rows
    }
    assert pq.read_metadata(file).num_rows == 100
    assert len({row["attributes"]["merged"] for row in rows}) == 1
    with pytest.raises(client.Failed):
        client.whole.write(aborted, [(b"too late", None)])

    other.commit()
    eventually(lambda: not other.is_open(), "the other is committed")
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    everything = numbered("committed", 100) + numbered("other", 5)
    assert Counter(client.whole.read(reader, 105)) == Counter(everything)
    assert Counter(streams.payloads()) == Counter(everything)
    assert streams.daemon.listener("streams")["events"] == 0
    assert streams.daemon.listener("streams.controller")["events"] == 105


def test_byte_streams(serve, pravega_client):
    """Bytes are written, sought, read, truncated; a row is a write, as it came."""
    streams = serve()
    client = pravega_client(streams.controller)
    manager = client.manager
    manager.create_scope("s")
    manager.create_stream("s", "b", 1)
    stream = manager.create_byte_stream("s", "b")
    data = bytes(range(256)) * 4000
    for at in range(0, len(data), 100_000):
        stream.write(data[at : at + 100_000])
    stream.flush()
    assert client.whole.readinto(stream, len(data)) == data
    assert stream.current_tail_offset() == len(data)
    assert stream.seek(1000, 0) == 1000
    assert client.whole.readinto(stream, 500) == data[1000:1500]
    assert stream.tell() == 1500
    assert stream.seek(-700, 2) == len(data) - 700
    assert client.whole.readinto(stream, 700) == data[-700:]
    stream.truncate(300_000)
    assert stream.current_head_offset() == 300_000
    stream.seek(300_000, 0)
    assert client.whole.readinto(stream, 500_000) == data[300_000:800_000]

    rows = streams.rows()
    assert b"".join(row["payload"] for row in rows) == data
    assert {row["flaw"] for row in rows} == {"unframed"}


def test_a_large_event(begun):
    """Nine MiB travel through a segment of their own, and are one event and one row."""
    streams, client = begun(1)
    manager = client.manager
    large = bytes(range(251)) * (9 * MiB // 251)
    writer = manager.create_writer("s", "t")
    client.whole.write(writer, [(b"before", "k"), (large, "k"), (b"behind", "k")])
    events = [b"before", large, b"behind"]
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    assert client.whole.read(reader, 3) == events
    assert streams.payloads() == events


def test_streams_listed_sealed_and_deleted(serve, pravega_client):
    """Scopes and streams are listed with their tags; only a sealed stream is deleted,
    and only an empty scope; one that is made again begins anew.
    """
    streams = serve()
    client = pravega_client(streams.controller)
    manager = client.manager
    assert manager.create_scope("s")
    assert not manager.create_scope("s")
    assert manager.create_scope("empty")
    assert manager.create_stream("s", "plain", 1)
    assert not manager.create_stream("s", "plain", 1)
    assert manager.list_scope() == ["empty", "s"]
    assert client.whole.tagged(manager, "create", "s", "tagged", ["a", "b"])
    assert manager.get_stream_tags("s", "tagged") == ["a", "b"]
    assert client.whole.tagged(manager, "update", "s", "tagged", ["c"])
    assert manager.get_stream_tags("s", "tagged") == ["c"]
    assert sorted(manager.list_stream("s")) == ["plain", "tagged"]

    writer = manager.create_writer("s", "plain")
    writer.write_event("old")
    assert manager.seal_stream("s", "plain")
    reader = manager.create_reader_group("g", "s", "plain").create_reader("r")
    assert client.whole.read(reader, 1) == [b"old"]
    assert manager.delete_stream("s", "plain")
    assert manager.list_stream("s") == ["tagged"]
    assert manager.create_stream("s", "plain", 1)
    manager.create_writer("s", "plain").write_event("new")
    again = manager.create_reader_group("h", "s", "plain").create_reader("r")
    assert client.whole.read(again, 1) == [b"new"]
    old, new = streams.rows("plain")
    assert (old["payload"], new["payload"]) == (b"old", b"new")
    assert old["channel"] != new["channel"]
    assert manager.delete_scope("empty")
    assert manager.list_scope() == ["s"]


def test_streams_that_come_and_go(serve, pravega_client):
    """However many there were, there is room for more; and streams of the same names, in a
    scope that was deleted and made again, repeat no channel's number.
    """
    streams = serve(options={"table_bytes": "64KiB"})
    client = pravega_client(streams.controller)
    manager, whole = client.manager, client.whole
    for life in range(3):
        assert manager.create_scope("s")
        assert whole.come_and_go(manager, "s", 435) == 435
        assert manager.create_stream("s", "t", 2)
        whole.write(manager.create_writer("s", "t"), keyed(numbered("event", 20)))
        assert manager.seal_stream("s", "t")
        assert manager.delete_stream("s", "t")
        assert manager.delete_scope("s"), life
    rows = streams.rows()
    assert len(rows) == 60
    assert len({(row["channel"], row["seq"]) for row in rows}) == 60


def test_json_is_checked_where_events_are_said_to_be_json(serve, pravega_client):
    """What is none is stored, read as it was, and has a flaw, so that it goes to quarantine."""
    streams = serve(options={"content_type": "application/json"})
    client = pravega_client(streams.controller)
    manager = client.manager
    manager.create_scope("s")
    manager.create_stream("s", "t", 1)
    flaws = {b'{"a": 1}': None, b'{"a": ': "invalid-json", b"\xff": "invalid-utf8"}
    client.whole.write(manager.create_writer("s", "t"), [(e, "k") for e in flaws])
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    assert client.whole.read(reader, len(flaws)) == [*flaws]
    assert {row["payload"]: row["flaw"] for row in streams.rows()} == flaws


def test_without_a_spark_job_at_spool_max_bytes(serve, pravega_client):
    """Appends wait, and the log and the status say for what; reads and metadata go on.  Once
    files are taken away all is stored, once.
    """
    streams = serve(
        spool={"max_bytes": "1MiB", "roll_bytes": "256KiB", "compression": "none"},
        journal={"segment_bytes": "256KiB"},
    )
    daemon = streams.daemon
    client, patient = (pravega_client(streams.controller) for _ in range(2))
    manager = client.manager
    manager.create_scope("s")
    manager.create_stream("s", "t", 1)
    events = [b"%06d" % n + 2**16 * b"x" for n in range(100)]
    writer = patient.manager.create_writer("s", "t")
    patient.begin(-1, "write_flushed", writer, keyed(events))
    full = daemon.eventually(
        lambda: daemon.status()["journal"]["why_full"], "the spool is full"
    )
    assert "spool.max_bytes" in full
    assert "spool.max_bytes" in daemon.log
    assert manager.create_stream("s", "other", 2)
    assert sorted(manager.list_stream("s")) == ["other", "t"]
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    assert client.whole.read(reader, 1)[0] == events[0]
    assert patient.waits
    with archiving(daemon):
        patient.finish()
        daemon.settled()
    stored = [row["payload"] for row in daemon.rows()]
    assert Counter(stored) == Counter(events)


def test_tls_and_passwords(serve, pravega_client, eventually, authority, tmp_path):
    """Over TLS with a name and a password all goes as without; who has the wrong one,
    or none, gets nothing.
    """
    pair = authority.issue("localhost")
    certificates = tmp_path / "trusted"
    certificates.mkdir()
    (certificates / "ca.pem").write_bytes(authority.ca.read_bytes())
    tls = {"certificate": str(pair.certificate), "private_key": str(pair.key)}
    streams = serve(
        listener={"tls": tls},
        options={"users": {"ann": "secret"}, "token_lifetime": "10s"},
    )
    trust = {"pravega_client_tls_cert_path": str(certificates)}
    basic = {
        "pravega_client_auth_method": "Basic",
        "pravega_client_auth_username": "ann",
        "pravega_client_auth_password": "secret",
    }
    uri = f"tls://localhost:{streams.controller_port}"
    client = pravega_client(uri, **trust, **basic)
    manager = client.manager
    assert manager.create_scope("s")
    assert manager.create_stream("s", "t", 2)
    events = numbered("event", 200)
    writer = manager.create_writer("s", "t")
    client.whole.write(writer, keyed(events))
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    assert Counter(client.whole.read(reader, 200)) == Counter(events)
    assert len(streams.payloads()) == 200

    # It tries again for a minute before it says so.
    wrong = {**basic, "pravega_client_auth_password": "wrong"}
    for credentials in (wrong, {}):
        other = pravega_client(uri, **trust, **credentials)
        before = refusals(streams)
        other.begin(other.manager._number, "create_scope", "other")
        eventually(
            lambda known=before: refusals(streams) > known, "credentials are refused"
        )
        assert other.waits
        other.kill()
    assert manager.list_scope() == ["s"]


def refusals(streams: Any) -> int:
    """So many wrong credentials were counted."""
    listener = b'listener="streams.controller"'
    return sum(
        int(float(line.split()[-1]))
        for line in streams.daemon.get("/metrics").splitlines()
        if line.startswith(b"gateway_wrong_credentials_total{") and listener in line
    )


def test_restart_in_between(begun):
    """Clients live through a restart of the daemon: writer, reader, group, and an open
    transaction go on where they were.
    """
    streams, client = begun(2)
    manager = client.manager
    writer = manager.create_writer("s", "t")
    transaction = manager.create_transaction_writer("s", "t", 1).begin_txn()
    group = manager.create_reader_group("g", "s", "t")
    reader = group.create_reader("r")
    client.whole.write(writer, keyed(numbered("before", 50)))
    client.whole.write(transaction, keyed(numbered("open", 10)))
    assert Counter(client.whole.read(reader, 50)) == Counter(numbered("before", 50))
    streams.restart()
    client.whole.write(writer, keyed(numbered("behind", 50)))
    transaction.commit()
    expected = Counter(numbered("behind", 50) + numbered("open", 10))
    assert Counter(client.whole.read(reader, 60)) == expected
    assert Counter(streams.payloads()) == expected + Counter(numbered("before", 50))


def test_empty_events(begun):
    """They are events and rows, too.  This client's reader stops in front of one for
    ever (in what it has in its memory), so nobody reads them here.
    """
    streams, client = begun(1)
    manager = client.manager
    writer = manager.create_writer("s", "t")
    for event in (b"one", b"", b"", b"two"):
        writer.write_event_bytes(event, "k")
    writer.flush()
    assert streams.payloads() == [b"one", b"", b"", b"two"]


@pytest.mark.slow
def test_a_group_that_pauses_longer_than_the_archive(serve, pravega_client, eventually):
    """Without a lake: when every file has left the archive, and after kill -9, it reads
    on where it was, and what comes then; a new group reads all.
    """
    keep = {"after": "keep", "retention": "1s"}
    streams = serve(spool=keep, options={"recent_bytes": "64KiB"})
    client = pravega_client(streams.controller)
    client.manager.create_scope("s")
    client.manager.create_stream("s", "t", 2)
    writer = client.manager.create_writer("s", "t")
    group = client.manager.create_reader_group("g", "s", "t")
    reader = group.create_reader("r")
    first, second = numbered("first", 100), numbered("second", 20)
    client.whole.write(writer, keyed(first))
    assert Counter(client.whole.read(reader, 100)) == Counter(first)
    client.whole.write(writer, keyed(second))
    daemon = streams.daemon
    daemon.settled()
    eventually(lambda: nothing_is_kept(daemon), "every file leaves the archive")
    daemon.restart()
    third = numbered("third", 20)
    client.whole.write(writer, keyed(third))
    assert Counter(client.whole.read(reader, 40)) == Counter(second + third)
    other = client.manager.create_reader_group("h", "s", "t").create_reader("q")
    assert Counter(client.whole.read(other, 140)) == Counter(first + second + third)


@pytest.mark.slow
def test_what_streams_let_go_of_leaves_the_disk(serve, pravega_client, eventually):
    """By time, by size, truncated, deleted: soon the disk has what streams keep, and
    little more; all of that is read, what comes then, too.
    """
    streams = serve(
        spool={"after": "keep", "retention": "1s", "compression": "none"},
        options={"recent_bytes": "64KiB"},
    )
    daemon = streams.daemon
    client = pravega_client(streams.controller)
    manager, whole = client.manager, client.whole
    manager.create_scope("s")
    for name in ("kept", "bytes", "deleted"):
        assert manager.create_stream("s", name, 1)
    assert whole.limited(manager, "s", "old", "by_time", 1)
    assert whole.limited(manager, "s", "big", "by_size", MiB)
    stream = manager.create_byte_stream("s", "bytes")
    names = ("kept", "deleted", "old", "big")
    writers = {name: manager.create_writer("s", name) for name in names}
    events = {name: [] for name in names}
    data = b""
    for _ in range(16):
        for name, writer in writers.items():
            some = [os.urandom(16 * KiB) for _ in range(16)]
            whole.write_flushed(writer, [(event, "k") for event in some])
            events[name] += some
        data += (piece := os.urandom(256 * KiB))
        stream.write(piece)
        stream.flush()
    stream.truncate(3 * MiB)
    assert manager.seal_stream("s", "deleted")
    assert manager.delete_stream("s", "deleted")
    least = (4 + 1 + 1) * MiB  # kept, big, bytes

    def on_disk() -> int:
        places = (daemon.spool, daemon.archive, daemon.archive.parent / "retained")
        files = [path for place in places for path in place.rglob("*.parquet")]
        try:
            return sum(path.stat().st_size for path in files)
        except FileNotFoundError:  # it was moved, or deleted, meanwhile
            return on_disk()

    # A mark more of each, and what Parquet needs.
    eventually(lambda: on_disk() < least + MiB, "the disk is freed", 180)
    daemon.settled()
    assert on_disk() > least
    daemon.restart()

    def reader_of(name: str) -> Any:
        return manager.create_reader_group(f"of-{name}", "s", name).create_reader("r")

    assert whole.read(reader_of("kept"), 256) == events["kept"]
    stream.seek(3 * MiB, 0)
    assert whole.readinto(stream, MiB) == data[3 * MiB :]
    for name, least_left in (("big", 65), ("old", 1)):
        whole.write_flushed(writers[name], [(b"new", "k")])
        found, reader = [], reader_of(name)
        while b"new" not in found[-1:]:
            found += whole.read(reader, 1)
        assert found == [*events[name], b"new"][-len(found) :]
        assert len(found) <= least_left + 20
