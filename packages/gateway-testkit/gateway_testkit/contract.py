r"""Ready tests for any protocol plug-in: inherit them, and say what its clients send.

    class TestSyslog(ProtocolContract):
        protocol = gateway_syslog.protocol
        acknowledges = False
        batches = [(b"<13>one\n", 1), (b"<13>two\n", 1), (b"<13>three\n", 1)]
        too_much = {"limits.message_bytes": b"70000 "}
        unfinished = b"<13>" + b"x" * 1000
        endless = b"x" * 1000

They hold the protocol to what docs/design.md §7 promises.  The protocol runs in a
`FakeDaemon`: no network, no disk, no clock but the test's.  It comes with
`pip install gateway-testkit`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from gateway.event import DecodeTogether
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Protocol
from gateway.store.journal.segment import Encoder, Header, Scan
from gateway.store.spool.decoding import Decoder
from gateway.testing import FakeConnection
from gateway.testing.plugins import FakeDaemon, Row, rows_of, rows_together
from gateway_testkit.streams import damaged, sliced

__all__ = ["ProtocolContract"]

_DRAIN_SECONDS = 10
"""Seconds for which the daemon waits for its connections when it stops."""
_MOST_CUTS = 300
_CONNECTIONS = 8
_BOOLEANS = st.booleans()
_HEAVY = {"pyarrow", "twisted.internet.reactor", "twisted.internet.defer"}


class ProtocolContract:
    """Ready tests; a subclass has the attributes about its protocol."""

    protocol: ClassVar[Protocol]
    """The plug-in's object."""
    options: ClassVar[Mapping[str, object]] = {}
    """`listeners[].options` for the tests, as in the configuration file."""
    limits: ClassVar[Mapping[str, object]] = {
        "message_bytes": "64KiB",
        "inflated_bytes": "256KiB",
        "unacknowledged_bytes": "256KiB",
    }
    """`listeners[].limits` for the tests."""
    opening: ClassVar[bytes] = b""
    """Bytes that a client sends first on each connection; they have no events."""
    batches: ClassVar[Sequence[tuple[bytes, int]]]
    """Bytes of further batches, and how many events each has.  A batch is what the client
    expects to be stored as a whole.  Three at least."""
    too_much: ClassVar[Mapping[str, bytes]]
    """The beginning of something that declares to exceed a limit, by the limit's key."""
    unfinished: ClassVar[bytes]
    """The beginning of a batch that is never completed, of about a kilobyte."""
    endless: ClassVar[bytes | None]
    """Bytes that can follow `unfinished` again and again without completing its batch.

    None: a batch declares its length before its bytes."""
    acknowledges: ClassVar[bool] = True
    """False: the protocol has no acknowledgements."""

    def acknowledged(self, sent: bytes) -> int:
        """How many events are acknowledged by *sent*, which is all that the client got
        since the opening.  Asserts that they are acknowledged in order.
        """
        raise NotImplementedError

    def replies(self, sent: bytes) -> object:
        """The part of *sent* that does not depend on how the stream was sliced.

        This is all of it, unless acknowledgements may be joined.
        """
        return sent

    # The stream

    def test_any_slicing_of_the_stream_is_the_same(self, tmp_path: Path) -> None:
        """The same events and replies, however the bytes arrive, however slow the disk."""
        stream = self._stream
        whole = self._outcome(tmp_path, [stream], prompt=False)
        assert len(whole[0]) == self._events, (
            f"`batches` have {self._events} events, and {len(whole[0])} came of them"
        )
        for prompt in (True, False):
            single = [stream[at : at + 1] for at in range(len(stream))]
            found = self._outcome(tmp_path, single, prompt=prompt)
            assert found == whole, "byte by byte it is not what it is in one piece"

        @given(pieces=sliced(st.just(stream)), prompt=_BOOLEANS)
        @settings(max_examples=50, deadline=None)
        def check(pieces: list[bytes], prompt: bool) -> None:  # noqa: FBT001 - hypothesis
            found = self._outcome(tmp_path, pieces, prompt=prompt)
            assert found == whole, f"in these pieces it is another: {pieces}"

        check()

    def test_garbage_is_stored_or_refused(self, tmp_path: Path) -> None:
        """Nothing but `Refusal` is ever raised, and what is stored can be decoded."""
        stream = self._stream

        @given(data=st.data(), opened=_BOOLEANS)
        @settings(max_examples=150, deadline=None)
        def check(data: st.DataObject, opened: bool) -> None:  # noqa: FBT001
            said = stream if opened else self.opening + stream
            bad = st.binary(max_size=200) | damaged(said)
            daemon = self._daemon(tmp_path)
            connection = self._opened(daemon) if opened else daemon.connect()
            for piece in filter(None, data.draw(sliced(bad))):
                connection.deliver(piece)
            self._end(daemon, connection)
            daemon.rows()

        check()

    def test_too_much_is_refused_when_it_is_declared(self, tmp_path: Path) -> None:
        """A limit is enforced before the bytes arrive; the refusal names limit and key."""
        for key, beginning in self.too_much.items():
            self._check_key(key)
            daemon = self._daemon(tmp_path)
            connection = self._opened(daemon)
            for at in range(len(beginning)):
                connection.deliver(beginning[at : at + 1])
            why = connection.refused
            assert why is not None, f"{key}: {beginning[:40]!r} is not refused"
            assert why.key == key, f"refused by {why.key}, not by {key}"
            assert why.limit is not None, f"{key}: the refusal does not say the limit"
            if isinstance(why.limit, int):
                assert len(beginning) <= why.limit, "too_much: more than a declaration"
            self._end(daemon, connection)
            assert daemon.rows() == [], f"{key}: some of it is stored"

    # Batches

    def test_a_batch_is_stored_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """A connection that is cut anywhere leaves whole batches, and holds no memory."""
        stream = self._stream
        ends = list(itertools.accumulate(len(data) for data, _ in self.batches))
        totals = list(itertools.accumulate(count for _, count in self.batches))
        step = max(1, len(stream) // _MOST_CUTS)
        for cut in sorted(
            {*range(0, len(stream), step), *ends, *(e - 1 for e in ends)}
        ):
            daemon = self._daemon(tmp_path)
            connection = self._opened(daemon)
            connection.deliver(stream[:cut])
            if self.acknowledges:  # else it is withdrawn, perhaps, and sent again
                daemon.store()
            self._end(daemon, connection)
            whole = [
                total for end, total in zip(ends, totals, strict=True) if end <= cut
            ]
            found = len(daemon.rows())
            assert found == max(whole, default=0), f"cut at {cut}: {found} events"
            stored = itertools.accumulate(s.batch.count for s in daemon.journal.stored)
            assert set(stored) <= {0, *totals}, (
                "a batch is stored in more than one piece"
            )

    def test_it_is_acknowledged_when_it_is_durable(self, tmp_path: Path) -> None:
        """Not before; in order; and all of it in the end."""
        daemon = self._daemon(tmp_path)
        assert daemon.port.acknowledges == self.acknowledges, "its Port says the other"
        connection = self._opened(daemon)
        for data, _ in self.batches:
            connection.deliver(data)
        daemon.clock.advance(0)
        before = connection.sent
        durable = 0
        if self.acknowledges:
            assert self.acknowledged(before) == 0, "acknowledged before it is durable"
            assert connection.waiting, "the network is not told that the client waits"
        while daemon.journal.pending:
            durable += daemon.journal.store().batch.count
            daemon.clock.advance(0)
            if self.acknowledges:
                known = self.acknowledged(connection.sent)
                assert known <= durable, f"{known} acknowledged, {durable} durable"
        if self.acknowledges:
            assert self.acknowledged(connection.sent) == self._events, "not all of it"
            assert not connection.waiting, "the network is told that the client waits"
        else:
            assert connection.sent == before, "it acknowledges: acknowledges = True"
        assert connection.counted == self._events, (
            "`Connection.count` is not told of all"
        )
        self._end(daemon, connection)

    def test_what_can_not_be_stored_is_not_acknowledged(self, tmp_path: Path) -> None:
        """The client is told, at least by the end of its connection."""
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        for data, _ in self.batches:
            connection.deliver(data)
        durable = daemon.journal.store().batch.count
        daemon.clock.advance(0)
        before = connection.sent
        daemon.journal.refuse()
        daemon.clock.advance(0)
        told = connection.sent != before or connection.closed or connection.aborted
        assert told, "the client does not learn that its batch is not stored"
        durable += sum(batch.count for batch in daemon.journal.pending)
        daemon.store()
        if self.acknowledges:
            known = self.acknowledged(connection.sent)
            assert known <= durable, f"{known} acknowledged, {durable} durable"
        self._end(daemon, connection)

    # Pressure

    def test_a_full_journal_stops_reading(self, tmp_path: Path) -> None:
        """Unread bytes stay with the client, until there is room."""
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        daemon.journal.full = True
        first, *more = self.batches
        connection.deliver(first[0])
        assert connection.paused, "the connection is read though the journal is full"
        submitted = len(daemon.journal.submitted)
        for data, _ in more:
            connection.deliver(data)
        daemon.store()
        assert connection.paused, "the connection is read though the journal is full"
        assert len(daemon.journal.submitted) == submitted, "read while it is paused"
        daemon.journal.full = False
        daemon.store()
        assert len(daemon.rows()) == self._events, (
            "not read to its end when there is room"
        )
        self._end(daemon, connection)

    def test_unacknowledged_bytes_are_limited(self, tmp_path: Path) -> None:
        """A connection with too much that is not durable is not read."""
        daemon = self._daemon(tmp_path, unacknowledged_bytes=1)
        connection = self._opened(daemon)
        for data, _ in self.batches:
            connection.deliver(data)
        assert connection.paused, "read in spite of limits.unacknowledged_bytes"
        waiting = sum(batch.count for batch in daemon.journal.pending)
        assert waiting < self._events, "all of it is taken at once"
        daemon.store()
        assert len(daemon.rows()) == self._events, (
            "not read to its end when it is stored"
        )
        self._end(daemon, connection)

    def test_unfinished_batches_of_all_are_limited(self, tmp_path: Path) -> None:
        """When connections hold too much together, one of them is refused."""
        daemon = self._daemon(tmp_path)
        connections = [self._opened(daemon) for _ in range(_CONNECTIONS)]
        connections[0].deliver(self.unfinished)
        one = daemon.journal.reserved
        assert one >= len(self.unfinished) // 2, (
            f"{len(self.unfinished)} bytes of an unfinished batch came, and {one} are "
            "counted with `Connection.hold`"
        )
        daemon.journal.reservable = 3 * one
        for connection in connections[1:]:
            connection.deliver(self.unfinished)
            assert daemon.journal.reserved <= 3 * one, "more is held than may be"
        refused = [each.refused for each in connections if each.refused is not None]
        assert refused, "none is refused"
        assert {why.key for why in refused} == {"journal.memory_bytes"}
        for each in connections:
            if each.refused is not None:
                kept: int = getattr(each.server, "held_bytes", 0)
                assert not kept, f"{kept} bytes are kept of a refused connection"
        self._end(daemon, *connections)

    def test_a_batch_without_end_holds_no_more_than_the_limits(
        self, tmp_path: Path
    ) -> None:
        """An endless batch is refused, by a limit with a key, or its memory is let go of."""
        if self.endless is None:
            pytest.skip("a batch declares its length: see `too_much`")
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        limits = daemon.listener.limits
        most = limits.message_bytes + limits.inflated_bytes
        connection.deliver(self.unfinished)
        for _ in range(4 * most // len(self.endless)):
            connection.deliver(self.endless)
            held = daemon.journal.reserved
            assert held <= most, f"{held} bytes are held, which is beyond all limits"
        why = connection.refused
        if why is not None:
            assert why.limit is not None, f"the refusal does not say its limit: {why}"
            assert why.key is not None, f"the refusal does not say its key: {why}"
            self._check_key(why.key)
        self._end(daemon, connection)
        assert daemon.rows() == [], "some of a batch that was never complete is stored"

    # Stop and start

    def test_draining_answers_what_is_pending_and_closes(self, tmp_path: Path) -> None:
        """When the daemon stops it takes nothing more, and loses nothing that it took."""
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        (one, _), (two, _), *more = self.batches
        connection.deliver(one)
        connection.deliver(two)
        taken = sum(batch.count for batch in daemon.journal.pending)
        connection.drain()
        for data, _ in more:
            connection.deliver(data)
        pending = sum(batch.count for batch in daemon.journal.pending)
        assert pending == taken, "it takes more while it drains"
        if self.acknowledges:
            assert not connection.closed, "it closes before what is pending is durable"
        daemon.store()
        if self.acknowledges:
            assert self.acknowledged(connection.sent) == taken, (
                "some is not acknowledged"
            )
        daemon.advance(_DRAIN_SECONDS)
        assert connection.closed, f"not closed {_DRAIN_SECONDS} s after it was drained"
        self._end(daemon, connection)

    def test_draining_without_anything_pending_closes(self, tmp_path: Path) -> None:
        """Whether a connection has said something or not."""
        for opened in (False, True):
            daemon = self._daemon(tmp_path)
            connection = self._opened(daemon) if opened else daemon.connect()
            connection.drain()
            daemon.store()
            daemon.advance(_DRAIN_SECONDS)
            assert connection.closed, "an idle connection is not closed when drained"
            self._end(daemon, connection)

    def test_events_survive_a_crash(self, tmp_path: Path) -> None:
        """Read back from a journal segment they are the same, and fit the columns."""
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        for data, _ in self.batches:
            connection.deliver(data)
        daemon.store()
        header = Header(first_lsn=1, created=0, salt=1)
        encoder = Encoder(header)
        chunks = [header.encode()]
        for stored in daemon.journal.stored:
            chunks += encoder.batch(stored.batch, stored.lsn, 0)
        found = list(Scan(b"".join(chunks)))
        decode = daemon.context.decode
        assert rows_of(found, decode) == daemon.rows()
        if isinstance(decode, DecodeTogether):
            many = [stored for stored in found if stored.batch.count] * 20
            while many:
                taken, rows = rows_together(many, decode)
                alone = rows_of(many[:taken], decode)
                assert rows == alone, "decoded together they are something else"
                many = many[taken + 1 :]
        # Tools that only read files know no listener, and so no options.
        assert len(rows_of(found, self.protocol.decoder(()))) == self._events
        spool = Decoder({self.protocol.name: decode}, careful=True)
        for stored in found:
            if stored.batch.count:
                spool.rows(stored)
        assert not spool.failures, f"rows that can not be published: {spool.failures}"
        assert {row.kind for row in daemon.rows()} <= {"data", "request", "notify"}
        self._end(daemon, connection)

    def test_memory_survives_a_restart(self, tmp_path: Path) -> None:
        """A snapshot, with the batches since or with all there are, gives the same."""
        daemon = self._daemon(tmp_path)
        has_memory = daemon.service.memory is not None
        assert has_memory == self.protocol.remembers, "`remembers` and `memory` differ"
        if not has_memory:
            return
        connection = self._opened(daemon)
        first, *more = self.batches
        connection.deliver(first[0])
        daemon.store()
        early = daemon.snapshot()
        for data, _ in more:
            connection.deliver(data)
        self._end(daemon, connection)
        last = daemon.snapshot()
        for snapshot in (None, early, last):
            again = FakeDaemon(
                self.protocol,
                tmp_path,
                options=self.options,
                limits=self.limits,
                snapshot=snapshot,
                replay=daemon.journal.stored,
            )
            assert again.snapshot() == last, "replayed, it remembers something else"

    # The plug-in

    def test_importing_it_is_cheap(self) -> None:
        """Every command imports every plug-in: it imports what it needs when asked."""
        module = type(self.protocol).__module__
        look = f"import sys, {module}; print(*sys.modules)"
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        loaded = subprocess.check_output(
            [sys.executable, "-c", look], env={**os.environ, **path}, text=True
        )
        assert not _HEAVY.intersection(loaded.split()), (
            f"{module} imports what is slow to import"
        )

    def test_its_options_are_explained(self) -> None:
        """Each has one line for the JSON Schema and for people."""
        kind = self.protocol.options()
        if kind is None:
            assert not self.options, "options() is None, and the tests give some"
            return
        for name, field in kind.model_fields.items():
            assert field.description, f"options.{name} has no description"

    def test_the_daemon_can_ask_it(self, tmp_path: Path) -> None:
        """Statistics, reload and stop can be asked for at any time."""
        daemon = self._daemon(tmp_path)
        service = daemon.service
        connection = self._opened(daemon)
        connection.deliver(self._stream)
        daemon.store()
        names = [section.name for section in service.statistics()]
        assert len(names) == len(set(names)), f"two statistics have one name: {names}"
        assert all(path.startswith("/api/") for path in service.posts())
        said = list(self.protocol.describe(daemon.listener.options))
        assert all(isinstance(each, str) for each in said), f"describe() says {said}"
        service.reload()
        service.files_removed()
        stopped: Deferred[None] = Deferred.fromCoroutine(service.stop())
        self._end(daemon, connection)
        daemon.advance(_DRAIN_SECONDS)
        assert stopped.called, "stop() does not end"
        service.close()

    # What they share

    @property
    def _stream(self) -> bytes:
        assert len(self.batches) >= 3, "batches: at least three"
        return b"".join(data for data, _ in self.batches)

    @property
    def _events(self) -> int:
        return sum(count for _, count in self.batches)

    def _daemon(self, data_dir: Path, **limits: object) -> FakeDaemon:
        return FakeDaemon(
            self.protocol,
            data_dir,
            options=self.options,
            limits={**self.limits, **limits},
        )

    def _opened(self, daemon: FakeDaemon) -> FakeConnection:
        """A connection whose opening is over; nothing was sent on it yet."""
        connection = daemon.connect()
        if self.opening:
            connection.deliver(self.opening)
            daemon.store()
        assert connection.refused is None, (
            f"the opening is refused: {connection.refused}"
        )
        assert connection.failure is None, f"the opening fails: {connection.failure!r}"
        connection.clear()
        return connection

    def _end(self, daemon: FakeDaemon, *connections: FakeConnection) -> None:
        """All peers go away; checks what must hold for every connection."""
        for connection in connections:
            connection.lose()
        daemon.store()
        for connection in connections:
            failure = connection.failure
            assert failure is None, f"it raises {failure!r}, which is no Refusal"
        errors = daemon.journal.errors
        assert not errors, f"told what became of a batch, it raises {errors[0]!r}"
        held = daemon.journal.reserved
        assert held == 0, f"its peers are gone, and {held} bytes are still reserved"

    def _outcome(
        self, data_dir: Path, pieces: Sequence[bytes], *, prompt: bool
    ) -> tuple[list[Row], object]:
        """Events and replies; *prompt*: each piece is durable before the next comes."""
        daemon = self._daemon(data_dir)
        connection = self._opened(daemon)
        for piece in filter(None, pieces):
            connection.deliver(piece)
            if prompt:
                daemon.store()
        daemon.store()
        sent = connection.sent
        assert connection.refused is None, (
            f"the stream is refused: {connection.refused} (`Port.prefixes` says what of "
            "HTTP, TLS and PROXY is the protocol's own)"
        )
        self._end(daemon, connection)
        return daemon.rows(), self.replies(sent)

    def _check_key(self, key: str) -> None:
        section, _, name = key.partition(".")
        kind = {"limits": Limits, "options": self.protocol.options()}.get(section)
        keys: Mapping[str, Any] = {} if kind is None else kind.model_fields
        assert name in keys, f"there is no key {key}"
