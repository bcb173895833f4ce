"""The admin port and SIGHUP: status and metrics, made and judged at random steps, reloads.

Of every status: it can be made; what it calls durable was synced, what it calls published
is public, and no more is published than is durable; no count is negative.  Of two in one
life: no lsn and no counter goes back.  When it happens is drawn of numbers of its own, so
that it changes nothing of what else a seed brings.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.admin.metrics import Metrics
from gateway.admin.status import Status, as_json
from gateway.daemon import statistics
from gateway.event import Stored
from gateway.store.spool import Published
from simulation.judge import Broken

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.world import World

__all__ = ["AdminJudge", "AdminPort"]

_STATUS, _METRICS, _RELOAD = 0.01, 0.05, 0.004
"""How likely at a step; metrics: at one with a status."""


class AdminPort:
    """What the daemon's shows, of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._begun = life.world.now
        self.metrics = Metrics(self.status)

    def durable(self, group: list[Stored]) -> None:
        """As the daemon tells its metrics."""
        now = self._life.world.now
        self.metrics.acknowledged([now - one.batch.submitted_at for one in group])

    def committed(self, seconds: float, events: int, size: int) -> None:
        """As the daemon tells its metrics; in the journal's thread."""
        self.metrics.committed(seconds, events, size)

    def published(self, file: Published) -> None:
        """Likewise; in the spool's thread."""
        self.metrics.published(file.seconds, file.flaws)

    def status(self) -> Status:
        """As `Gateway.status`."""
        life = self._life
        assert life.storage is not None
        assert life.net is not None
        stores = statistics.of_storage(
            life.storage, life.world.settings.spool.max_bytes
        )
        return Status(
            node=life.node,
            version="0",
            uptime_seconds=life.world.now - self._begun,
            not_ready_reason=stores.journal.why_full,
            listeners=statistics.of_listeners(life.net.all.values()),
            **stores._asdict(),
            more=[
                *life.protocols.statistics(),
                *statistics.of_state(life.storage.checkpoint),
            ],
        )


class AdminJudge:
    """Raises `Broken`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} admin")
        self._life: Life | None = None
        self._before: dict[str, float] = {}
        """What must not go back in this life."""

    def look(self, life: Life) -> None:
        """At every step of a life that is ready, between two turns of its reactor."""
        drawn = self._chance.random()
        if drawn < _STATUS:
            self._ask(life, metrics=drawn < _STATUS * _METRICS)
        elif drawn > 1 - _RELOAD:
            self._world.tell("SIGHUP")
            assert life.net is not None
            life.net.reload()

    def _ask(self, life: Life, *, metrics: bool) -> None:
        if life is not self._life:
            self._life, self._before = life, {}
        try:
            status = life.admin.status()
            shown = json.loads(as_json(status))
            counters = dict(_counters(life.admin.metrics)) if metrics else {}
        except Exception as why:
            raise Broken(f"the status can not be made: {why!r}") from why
        if shown["journal"]["durable_lsn"] != status.journal.durable_lsn:
            raise Broken(f"the status document differs from {status}")
        self._judge_lsns(status, started_at=life.started_at)
        self._judge_counts(status)
        self._judge_progress(status, counters)

    def _judge_lsns(self, status: Status, *, started_at: int) -> None:
        judge, node = self._world.judge, status.node
        durable, published = status.journal.durable_lsn, status.spool.published_lsn
        synced = max(judge.last[node], started_at)
        public = self._world.chain.newest(node).last_lsn
        if published > durable:
            raise Broken(f"{node} shows {published} as published of {durable}")
        if published > public and not judge.rotten:
            raise Broken(f"{node} shows {published} as published, and {public} is")
        if durable > max(synced, public):
            raise Broken(f"{node} shows {durable} as durable, and {synced} is synced")

    def _judge_counts(self, status: Status) -> None:
        journal, spool, archive = status.journal, status.spool, status.archive
        counts = {
            "journal.bytes": journal.bytes,
            "journal.oldest_wait_seconds": journal.oldest_wait_seconds,
            "spool.files": spool.files,
            "spool.bytes": spool.bytes,
            "archive.files": archive.files,
            "archive.bytes": archive.bytes,
        }
        for name, count in counts.items():
            if count < 0:
                raise Broken(f"{status.node} shows {name} {count}")

    def _judge_progress(self, status: Status, counters: dict[str, float]) -> None:
        now = {
            "journal.durable_lsn": status.journal.durable_lsn,
            "spool.published_lsn": status.spool.published_lsn,
            "chain.last_lsn": status.chain.last_lsn,
            **counters,
        }
        for one in status.listeners:
            now[f"{one.name}.events"], now[f"{one.name}.bytes"] = one.events, one.bytes
        for name, value in now.items():
            if value < self._before.get(name, 0):
                raise Broken(
                    f"{name} went back from {self._before.get(name, 0)} to {value}"
                )
        self._before.update(now)


def _counters(metrics: Metrics) -> Iterator[tuple[str, float]]:
    """All that only grow; the process's own are the process's."""
    metrics.render("")
    for family in metrics.registry.collect():
        if family.type in ("counter", "histogram") and family.name[:7] == "gateway":
            for sample in family.samples:
                yield f"{sample.name}{sample.labels}", sample.value
