"""What one client can make the event loop and the journal do: bounded, by counts."""

import json
import random
import zlib
from typing import Any

import pytest

from gateway.protocols.pomelo import events, wire
from gateway.protocols.pomelo.session import HEARTBEAT

from .conftest import zipped

KiB, MiB = 1 << 10, 1 << 20


def _bomb(size: int) -> bytes:
    body = zlib.compress(b'{"a":"' + bytes(size).replace(b"\0", b"x") + b'"}', 9)
    return zipped(wire.request(1, "a", body))


def _journal_bytes(reader: Any) -> int:
    return sum(len(batch.body) for batch in reader.journal.submitted)


class Counting:
    """Counts what is inflated, by turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        make = events.inflater
        monkeypatch.setattr(events, "inflater", lambda: Inflater(make(), self))


class Inflater:
    """Inflates, and counts."""

    def __init__(self, inner: Any, count: Counting) -> None:
        self._inner, self._count = inner, count

    def decompress(self, data: bytes, most: int) -> bytes:
        found: bytes = self._inner.decompress(data, most)
        self._count.bytes += len(found)
        return found

    @property
    def unconsumed_tail(self) -> bytes:
        found: bytes = self._inner.unconsumed_tail
        return found

    @property
    def eof(self) -> bool:
        found: bool = self._inner.eof
        return found


@pytest.mark.parametrize("size", [KiB, 64 * KiB, MiB, 8 * MiB])
def test_compressed_bodies(make_reader, monkeypatch, size):
    """They are stored as they came, and inflated a MiB in a turn at most."""
    reader = make_reader(message_bytes=16 * MiB - 1, unacknowledged_bytes=1 << 30)
    reader.greet()
    package = _bomb(size)
    stream = package * max(1, min(256 * KiB // len(package), 24 * MiB // size))
    counting = Counting(monkeypatch)
    connection = reader.connection
    connection.stepwise = True
    connection.deliver(stream)
    most = 0
    while connection.turn_due:
        most, counting.bytes = max(most, counting.bytes), 0
        connection.take_turn()
    assert most <= MiB
    monkeypatch.undo()
    assert _journal_bytes(reader) <= 4 * len(stream) + 64 * KiB
    assert sum(batch.count for batch in reader.journal.submitted) == len(stream) // len(
        package
    )
    for batch in reader.journal.submitted:
        rows = events.decode(batch.body)
        assert rows.flaws == {}
        assert batch.payload_bytes == sum(len(each) for each in rows.each())
        assert rows.size(0) == size + 8


def test_small_messages(make_reader):
    """A chunk of them is several turns, and nothing of it is lost or disordered."""
    reader = make_reader(unacknowledged_bytes=1 << 30)
    reader.greet()
    connection = reader.connection
    connection.stepwise = True
    connection.deliver(wire.notify("", b"1") * 1000 + wire.notify("", b"2") * 30_000)
    connection.deliver(wire.notify("", b"3"))
    turns = 1
    while connection.turn_due:
        connection.take_turn()
        turns += 1
    connection.resume()
    assert 8 <= turns <= 40
    assert max(batch.count for batch in reader.journal.submitted) <= 8192
    bodies = b"".join(body for _, _, _, body, *_ in reader.events())
    assert bodies == b"1" * 1000 + b"2" * 30_000 + b"3"


def test_so_many_answers_are_owed_to_one_connection(make_reader):
    """All that are due together are written in one go, and others wait for that."""
    reader = make_reader(unacknowledged_bytes=32 * MiB)
    reader.greet()
    reader.deliver(wire.request(1, "", b"1") * 20_000)
    assert reader.connection.paused
    assert 3000 < sum(batch.count for batch in reader.journal.pending) < 8192
    while reader.journal.pending:
        reader.journal.store()
    assert reader.connection.counted == 20_000
    assert not reader.connection.paused


def test_a_turn_ends_where_the_limit_is(make_reader):
    """What is unacknowledged is looked at after every batch; the rest waits."""
    reader = make_reader(unacknowledged_bytes=256 * KiB)
    reader.greet()
    reader.deliver(wire.request(1, "", b"1") * 20_000)
    assert reader.connection.paused
    assert len(reader.journal.submitted) == 1
    assert not reader.connection.turn_due
    while reader.journal.pending:
        reader.journal.store()
    assert reader.connection.counted == 20_000
    assert reader.sent == wire.response(1, b'{"code":200}') * 20_000
    assert not reader.connection.paused


def test_heartbeats(make_reader):
    """So many in an interval, and no more; a client at work never gets there."""
    reader = make_reader(control_packages=100)
    reader.greet()
    for _ in range(50):
        reader.deliver(HEARTBEAT * 20 + wire.notify("a", b"{}"))
        reader.clock.pump([0.75] * 4)
    assert reader.connection.refused is None
    reader.connection.clear()
    reader.journal.store_all()
    reader.deliver(HEARTBEAT * 65_536)
    refused = reader.connection.refused
    assert (refused.limit, refused.key) == (100, "options.control_packages")
    assert reader.sent.count(HEARTBEAT) <= 100


def test_heartbeats_that_were_not_read(make_reader):
    """Those of a client that was paused for long come all at once."""
    reader = make_reader(control_packages=16)
    reader.greet()
    reader.journal.full = True
    reader.deliver(wire.notify("a", b"{}"))
    for _ in range(400):
        reader.clock.advance(0.75)
    reader.deliver(HEARTBEAT * 100)
    reader.journal.full = False
    assert reader.connection.refused is None
    reader.journal.store_all()
    reader.deliver(HEARTBEAT * 1000)
    assert reader.connection.refused is not None


@pytest.mark.parametrize("compressed", [False, True])
def test_protobuf(make_reader, *, compressed):
    """Its JSON is longer; the journal is not, by much."""
    name = "aNameThatIsMuchLongerThanItsValue" * 3
    protos = {"r": {f"repeated uInt32 {name}": 1, f"optional uInt32 {name}2": 2}}
    reader = make_reader(
        routes=["r"], client_protos=protos, unacknowledged_bytes=1 << 30
    )
    reader.greet()
    chance = random.Random(1)
    if compressed:
        body = b"\x0a" + b"\x80\x20" + b"\x01" * 4096
        package = zipped(wire.notify(1, zlib.compress(body, 9)))
    else:
        package = wire.notify(1, b"\x10" + bytes((chance.randrange(128),)))
    stream = package * (64 * KiB // len(package))
    reader.deliver(stream)
    assert _journal_bytes(reader) <= 4 * len(stream) + 64 * KiB
    found = reader.events()
    assert len(found) == len(stream) // len(package)
    if not compressed:
        assert all(
            name in json.loads(payload).popitem()[0] for *_, payload, _, _ in found
        )
