"""What the tests of tap and events share: a node whose files are moved by hand."""

from __future__ import annotations

import itertools
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.event import Batch, Origin, Rows, Stored
from gateway.feeds import columns
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.sdk.publisher import Finished, Request
from gateway.store.directories import Directories
from gateway.store.journal import log
from gateway.store.opening import Start, open_node
from gateway.store.system.machine import Machine
from making import Make

ORIGINS = [
    Origin("good", "one", f"s-{n}", "192.0.2.1:1", attributes={"n": str(n)})
    for n in range(2)
] + [Origin("other", "two", "s-9", "192.0.2.2:1", "somebody")]
SELF = Origin("rsio", "r", "s-0", "192.0.2.9:1")


def decode(body: bytes) -> Rows:
    """A body is a list of JSON numbers; odd ones have another channel."""
    numbers = msgspec.msgpack.decode(body)
    payloads = [b'{"n": %4d}' % n for n in numbers]
    packed = len(numbers) > 3
    return Rows(
        [] if packed else payloads,
        block=b"".join(payloads) if packed else b"",
        ends=[*accumulate(map(len, payloads))] if packed else (),
        seqs=numbers,
        channel="even",
        channels={row: "odd" for row, n in enumerate(numbers) if n % 2},
    )


DECODERS = {"good": decode, "other": decode}


class Threads:
    """Calls that wait for their turn."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Make, Any]] = []

    def __call__(self, call: Make, *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, call, args))
        return done

    def run(self, which: int = 0) -> bool:
        """Run one; false if there is none."""
        if not self.waiting:
            return False
        done, call, args = self.waiting.pop(which % len(self.waiting))
        try:
            result = call(*args)
        except Exception:
            done.errback()
        else:
            done.callback(result)
        return True


class World:
    """A node's journal, spool and archive, and its publishers."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.directories = Directories.under(root)
        self.journal = self.directories.journal_of("n")
        opened = open_node(
            Start("n", self.directories, Machine(), DECODERS, remembering=True)
        )
        self.log, self.publisher = opened.log, opened.publisher
        self.lineage = opened.lineage
        self.sealed: list[log.Segment] = []
        self.published: list[log.Segment] = []
        self.clock = Clock()
        self.threads = Threads()
        self.durable_lsn = 0
        self.origins = itertools.cycle(ORIGINS)
        self.live = Live(
            "n",
            DECODERS,
            durable_lsn=lambda: self.durable_lsn,
            in_thread=self.threads,
            clock=self.clock,
            **options,
        )
        self.tap = Tap(self.live)
        self.replay = Replay(self.live, self.directories, in_thread=self.threads)

    # What the gateway does

    def commit(self, *counts: int, tell: bool = True) -> list[Stored]:
        """Make batches of these sizes durable, in one group; 0 is metadata."""
        at = self.log.next_lsn
        batches = []
        for count in counts:
            body = msgspec.msgpack.encode(list(range(at, at + count)))
            origin = next(self.origins)
            batches.append(Batch(origin, 1_700_000_000_000_000 + at, count, body, 9))
            at += count
        lsn = self.log.commit(batches)
        group = []
        for batch in batches:
            group.append(Stored(batch, lsn))
            lsn += batch.count
        self.durable_lsn = lsn - 1
        if tell:
            self.live.durable(group)
        return group

    def seal(self) -> None:
        """The open segment takes no more."""
        sealed = self.log.seal()
        if sealed is not None:
            self.sealed.append(sealed)

    def publish(self) -> None:
        """The oldest sealed segment becomes a file; it stays in the journal."""
        if self.sealed:
            sealed = self.sealed.pop(0)
            self.publisher.publish(sealed)
            self.published.append(sealed)

    def remove(self) -> None:
        """The oldest published segment leaves the journal."""
        if self.published:
            self.published.pop(0).path.unlink()

    def archive(self) -> None:
        """Spark moves the oldest file of the spool."""
        for path in sorted(self.directories.spool.glob("*.parquet"))[:1]:
            path.rename(self.directories.archive / path.name)

    def expire(self) -> None:
        """The oldest file of the archive goes."""
        for path in sorted(self.directories.archive.glob("*.parquet"))[:1]:
            path.unlink()

    # What passes

    def pause(self) -> None:
        """Time enough for what waits a moment."""
        self.clock.advance(0.02)

    def tell(self, *counts: int) -> None:
        """Batches of these sizes become durable, and whoever waits has them."""
        self.commit(*counts)
        self.settle()

    def to_spool(self, *, keep: bool = False) -> None:
        """All that is durable is published; the journal has it no longer, unless it keeps it."""
        self.seal()
        self.publish()
        if not keep:
            self.remove()

    def follow(self, *asked: Any) -> Subscriber:
        """Like `subscribe`, for one that wants all, and has what there is."""
        found = self.subscribe(*asked)
        found.follow()
        return found

    def settle(self) -> None:
        """Until nothing waits."""
        while self.threads.waiting or self.clock.getDelayedCalls():
            while self.threads.run():
                pass
            self.pause()

    def subscribe(
        self, name: str, offset: int | None = None, origin: Origin = SELF
    ) -> Subscriber:
        """Like a connection does."""
        return Subscriber(self, name, offset, origin)


class Subscriber:
    """What somebody got, and as much as was wanted."""

    def __init__(
        self, world: World, name: str, offset: int | None, origin: Origin
    ) -> None:
        publisher, _, query = name.partition("?")
        given = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        self.world, self.name = world, name
        self.arrow = given.get("format") == "arrow"
        self.elements: list[bytes] = []
        self.demand = 0
        self.ended = False
        self.error: str | None = None
        self.woken = 0
        self._taking = False
        known: Any = {"tap": world.tap, "events": world.replay}[publisher]
        self.source = known.subscribe(
            Request(publisher, given, offset, origin), self.wake
        )

    def wake(self) -> None:
        """See `gateway.sdk.publisher.Publisher.subscribe`."""
        assert not self._taking, "wake from within take"
        self.woken += 1
        self.take()

    def follow(self) -> None:
        """Ask for all, and have what there is."""
        self.want(2**63 - 1)
        self.world.settle()

    def want(self, more: int) -> None:
        """Ask for more."""
        self.demand += more
        self.take()

    def take(self) -> None:
        """Take what there is, within the demand."""
        while not (self.ended or self.error):
            self._taking = True
            try:
                found = self.source.take(self.demand)
            except Finished:
                self.ended = True
                return
            except Exception as why:
                self.error = str(why)
                return
            finally:
                self._taking = False
            if not found:
                return
            assert len(found) <= self.demand, "no more than asked for"
            self.demand -= len(found)
            self.elements += found.elements

    def close(self) -> None:
        """No more."""
        self.ended = True
        self.source.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events and gaps that came."""
        if not self.arrow:
            return [json.loads(element) for element in self.elements]
        found: list[dict[str, Any]] = []
        for element in self.elements:
            batch = columns.read(element)
            told = batch.schema.metadata or {}
            if b"gap_from" in told:
                first, last = int(told[b"gap_from"]), int(told[b"gap_to"])
                found.append({"gap": {"from": first, "to": last}})
            found += batch.to_pylist()
        return found

    @property
    def lsns(self) -> list[int]:
        """Of all events; gaps aside."""
        return [event["lsn"] for event in self.events if "lsn" in event]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last lsn of each."""
        told = [event["gap"] for event in self.events if "gap" in event]
        return [(gap["from"], gap["to"]) for gap in told]


@pytest.fixture
def world(tmp_path) -> World:
    """A node without events."""
    return World(tmp_path)


@pytest.fixture
def make_world(tmp_path) -> Make[World]:
    """Makes one in a directory of its own; keyword arguments are those of `Live`."""
    count = 0

    def make(**options: Any) -> World:
        nonlocal count
        count += 1
        root = tmp_path / str(count)
        root.mkdir()
        return World(root, **options)

    return make
