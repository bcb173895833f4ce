"""The ready tests for plug-ins: a sound protocol passes them, and for each of them there
is a fault that it finds."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pydantic import Field
from twisted.internet.defer import Deferred, succeed

from gateway.event import Decode, Rows, Stored
from gateway.sdk.batches import BatchListener, BatchServer, Ready
from gateway.sdk.fields import Count
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Context, Port, Protocol, Service
from gateway.sdk.section import Section
from gateway_testkit.contract import ProtocolContract

READY = [name for name in dir(ProtocolContract) if name.startswith("test_")]


class Session:
    """`5:a b c` is a batch of three events, and so is a line `a b c`."""

    limit = 1 << 16

    def __init__(self, settings: Any, clock: Any, origin: Any) -> None:
        self.buffer = b""

    @property
    def held_bytes(self) -> int:
        return len(self.buffer)

    def received(self, data: bytes) -> Iterator[Ready]:
        self.buffer += data
        while (batch := self.next()) is not None:
            count = len(batch.split())
            yield Ready(count, batch, len(batch), ack=b"+%d\n" % count)

    def next(self) -> bytes | None:
        head, colon, rest = self.buffer.partition(b":")
        if self.buffer[:1].isdigit():
            self.check(int(head) if head.isdigit() else self.limit + 1)
            if not colon or len(rest) < int(head):
                return None
            self.buffer = rest[int(head) :]
            return rest[: int(head)]
        line, end, rest = self.buffer.partition(b"\n")
        self.check(len(line))
        if not end:
            return None
        self.buffer = rest
        return line

    def check(self, size: int) -> None:
        if size > self.limit:
            raise Refusal(
                f"batch of {size} bytes", limit=self.limit, key="limits.message_bytes"
            )


class Options(Section):
    words: Count = Field(default=3, description="Words in a line (number)")


def decode(body: bytes) -> Rows:
    return Rows(list(body.split()))


class Sound(Protocol):
    """What the faults are variations of."""

    name = "sound"
    __module__ = "gateway.sdk.protocol"  # where `test_importing_it_is_cheap` looks

    def __init__(
        self,
        *,
        session: type[Any] = Session,
        server: type[BatchServer] = BatchServer,
        service: type[Service] | None = None,
        decoder: Callable[[Sequence[Any]], Decode] = lambda options: decode,
        options: type[Section] = Options,
        acknowledges: bool = True,
        prefixes: Sequence[bytes] = (),
    ) -> None:
        self._port = {"acknowledges": acknowledges, "prefixes": prefixes}
        self._session, self._server, self._service = session, server, service
        self._decoder, self._options = decoder, options

    def options(self) -> type[Section]:
        return self._options

    def decoder(self, options: Sequence[Any]) -> Decode:
        return self._decoder(options)

    def service(self, context: Context) -> Service:
        session, server, port = self._session, self._server, self._port

        class Listener(BatchListener):
            def __call__(self, connection: Any) -> BatchServer:
                return server(self, connection)

        class Own(self._service or Service):  # type: ignore[misc]
            def ports(self, listener: Any) -> Iterator[Port]:
                args = listener, context.journal, context.reactor, session
                yield Port(accept=Listener(*args), **port)

        return Own()


class Contract(ProtocolContract):
    protocol = Sound()
    batches = [(b"a b c\n", 3), (b"5:d e f", 3), (b"g\n", 1)]
    too_much = {"limits.message_bytes": b"70000:"}
    unfinished = b"x" * 1000
    endless = b"x" * 1000

    def acknowledged(self, sent: bytes) -> int:
        return sum(map(int, sent.split()))


class TestSound(Contract):
    """It passes all of them."""


# Faults


class Forgetful(Session):
    """What is not complete is forgotten."""

    def received(self, data: bytes) -> Iterator[Ready]:
        self.buffer = b""
        return super().received(data)


class Raising(Session):
    """It believes what it reads to be ASCII."""

    def received(self, data: bytes) -> Iterator[Ready]:
        data.decode("ascii")
        return super().received(data)


class Patient(Session):
    """It waits for what is too much, and refuses it then."""

    def check(self, size: int) -> None:
        if len(self.buffer) > size:
            super().check(size)


class Hasty(Session):
    """It takes what a read ends with for a line."""

    def received(self, data: bytes) -> Iterator[Ready]:
        yield from super().received(data)
        if self.buffer and not self.buffer[:1].isdigit():
            yield Ready(1, self.buffer, 1)
            self.buffer = b""


class Boundless(Session):
    """It has no limit for lines."""

    def check(self, size: int) -> None:
        if self.buffer[:1].isdigit():
            super().check(size)


class Early(BatchServer):
    """It acknowledges what it has read."""

    def _submit(self, ready: Ready) -> None:
        self._connection.write(ready.ack)
        ready.ack = b""
        super()._submit(ready)


class Careless(BatchServer):
    """It acknowledges what can not be stored."""

    def lost(self, failure: Any, *, goes_on: bool = False) -> None:
        assert self._pending
        for pending in self._pending:
            pending.batch = None
        self._acknowledge()


class Greedy(BatchServer):
    """It reads on and on."""

    def _settle(self) -> None:
        pass


class Uncounted(BatchServer):
    """It does not say what it holds."""

    @property
    def held_bytes(self) -> int:
        return 0


class Abrupt(BatchServer):
    """It closes at once when the daemon stops."""

    def drain(self) -> None:
        self._hang_up()


class Stubborn(BatchServer):
    """It does not close."""

    def drain(self) -> None:
        pass


class Restless(Service):
    async def stop(self) -> None:
        await Deferred()


class Embroidering(Service):
    """It remembers more each time it is restored."""

    def __init__(self) -> None:
        self.memory = self  # type: ignore[assignment]
        self.data = b"once upon a time"

    def restore(self, data: bytes) -> None:
        self.data = data + b"!"

    def replay(self, stored: Stored) -> None:
        pass

    def snapshot(self) -> Deferred[bytes]:
        return succeed(self.data)


class Remembering(Sound):
    __module__ = Sound.__module__
    remembers = True


class Unexplained(Section):
    words: Count = 3


class Heavy(Sound):
    __module__ = "gateway.store.spool.columns"  # it imports pyarrow


TIMES = itertools.count()


def counted(body: bytes) -> Rows:
    """It depends on more than the body."""
    return Rows(list(body.split()), channel=f"number {next(TIMES)}")


class Foreign(Contract):
    """Its clients begin as HTTP does, and its port does not say that this is its own."""

    batches = [(b"GET a b\n", 3), (b"5:d e f", 3), (b"g\n", 1)]


def test_it_goes_by_what_a_port_looks_for(tmp_path):
    """What a real port would refuse is refused here, and the key to it is named."""
    with pytest.raises(AssertionError, match=r"an HTTP request on .*Port.prefixes"):
        Foreign().test_any_slicing_of_the_stream_is_the_same(tmp_path)

    class Known(Foreign):
        protocol = Sound(prefixes=[b"GET "])

    Known().test_any_slicing_of_the_stream_is_the_same(tmp_path)


def test_it_says_how_many_events_came(tmp_path):
    """Beside how many the subclass says."""

    class Wrong(Contract):
        batches = [*Contract.batches[:2], (b"g\n", 4)]

    with pytest.raises(AssertionError, match="have 10 events, and 7 came"):
        Wrong().test_any_slicing_of_the_stream_is_the_same(tmp_path)


FAULTS: dict[str, Sound] = {
    "test_any_slicing_of_the_stream_is_the_same": Sound(session=Forgetful),
    "test_garbage_is_stored_or_refused": Sound(session=Raising),
    "test_too_much_is_refused_when_it_is_declared": Sound(session=Patient),
    "test_a_batch_is_stored_whole_or_not_at_all": Sound(session=Hasty),
    "test_it_is_acknowledged_when_it_is_durable": Sound(server=Early),
    "test_what_can_not_be_stored_is_not_acknowledged": Sound(server=Careless),
    "test_a_full_journal_stops_reading": Sound(server=Greedy),
    "test_unacknowledged_bytes_are_limited": Sound(server=Greedy),
    "test_unfinished_batches_of_all_are_limited": Sound(server=Uncounted),
    "test_a_batch_without_end_holds_no_more_than_the_limits": Sound(session=Boundless),
    "test_draining_answers_what_is_pending_and_closes": Sound(server=Abrupt),
    "test_draining_without_anything_pending_closes": Sound(server=Stubborn),
    "test_events_survive_a_crash": Sound(decoder=lambda options: counted),
    "test_memory_survives_a_restart": Remembering(service=Embroidering),
    "test_importing_it_is_cheap": Heavy(),
    "test_its_options_are_explained": Sound(options=Unexplained),
    "test_the_daemon_can_ask_it": Sound(service=Restless),
}


@pytest.mark.parametrize("name", READY)
def test_each_finds_its_fault(name, tmp_path):
    """A plug-in that breaks the promise fails the ready test of that name."""

    class Faulty(Contract):
        protocol = FAULTS[name]

    ready = getattr(Faulty(), name)
    arguments = [tmp_path] if ready.__code__.co_argcount > 1 else []
    with pytest.raises(AssertionError):
        ready(*arguments)


def test_it_says_when_a_protocol_does_acknowledge(tmp_path):
    """`acknowledges = False` is no way round."""

    class Wrong(Contract):
        protocol = Sound(acknowledges=False)
        acknowledges = False

    with pytest.raises(AssertionError, match="acknowledges = True"):
        Wrong().test_it_is_acknowledged_when_it_is_durable(tmp_path)
