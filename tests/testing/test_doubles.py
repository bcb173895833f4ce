"""The doubles keep the promises that servers rely on."""

import pytest

from gateway.event import Batch
from gateway.sdk.interfaces import Accept, Connection, Journal, NotStored, Refusal
from gateway.testing import FakeConnection, ManualJournal


class Echo:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.over = False

    def received(self, data: bytes) -> None:
        if data == b"bad":
            raise Refusal("bad word", reply=b"no")
        if data == b"bug":
            raise ZeroDivisionError
        if data == b"stop":
            self.connection.pause()
        self.connection.write(data)

    def closed(self) -> None:
        self.over = True

    def drain(self) -> None:
        self.connection.close()


def _served(accept: Accept = Echo) -> FakeConnection:
    connection = FakeConnection()
    connection.serve(accept(connection))
    return connection


def test_it_holds_bytes_back_while_paused():
    """A paused connection delivers nothing; a resumed one delivers it in order."""
    connection = _served()
    for data in (b"stop", b"a", b"stop", b"b"):
        connection.deliver(data)
    assert connection.written == [b"stop"]
    connection.resume()
    assert connection.written == [b"stop", b"a", b"stop"]
    connection.resume()
    assert connection.sent == b"stopastopb"


def test_a_refusal_is_answered_and_ends_it():
    """The reply goes out, later bytes and writes go nowhere."""
    connection = _served()
    connection.deliver(b"bad")
    connection.deliver(b"more")
    assert str(connection.refused) == "bad word"
    assert connection.written == [b"no"]
    assert connection.closed


def test_a_bug_is_not_a_refusal():
    """Any other exception is kept for the test to see, and aborts."""
    connection = _served()
    connection.deliver(b"bug")
    assert isinstance(connection.failure, ZeroDivisionError)
    assert connection.aborted
    assert connection.refused is None


def _batch(count: int) -> Batch:
    return Batch(FakeConnection().origin, 0, count, b"", 0)


def test_it_stores_in_order_of_submission():
    """Each `store` makes the oldest batch durable and numbers its events."""
    journal = ManualJournal()
    firsts: list[int] = []
    for count in (2, 3):
        stored = journal.submit(_batch(count))
        stored.addCallback(lambda stored: firsts.append(stored.lsn))
    assert len(journal.pending) == 2
    journal.store()
    assert firsts == [1]
    journal.store_all()
    assert firsts == [1, 3]
    assert journal.durable_lsn == 5


def test_a_batch_it_refuses_is_nowhere():
    """The Deferred fails with NotStored and no lsn is spent."""
    journal: ManualJournal = ManualJournal()
    failures: list[object] = []
    journal.submit(_batch(2)).addErrback(
        lambda why: failures.append(why.check(NotStored))
    )
    journal.refuse()
    assert failures == [NotStored]
    assert journal.durable_lsn == 0
    with pytest.raises(IndexError):
        journal.store()


def test_room_comes_when_the_test_says():
    """`when_room` waits for `full` to become false."""
    manual = ManualJournal()
    journal: Journal = manual
    manual.full = True
    came: list[None] = []
    journal.when_room().addCallback(came.append)
    assert not came
    manual.full = False
    assert came == [None]
    journal.when_room().addCallback(came.append)
    assert len(came) == 2
