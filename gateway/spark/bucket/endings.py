"""Endings of incarnations, by the node records in the bucket (`gateway.store.objects.node_record`)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from attrs import define, field

from gateway.spark.bucket.requests import AtOnce, asked
from gateway.store.names import Life
from gateway.store.objects import node_record
from gateway.store.objects.bucket import Bucket
from gateway.store.objects.node_record import Heard, NodeRecord
from gateway.store.readers.lake import End


@define(eq=False, slots=False)
class Endings:
    """The endings of the incarnations that write to one bucket."""

    _bucket: Bucket
    _clock: Callable[[], float]
    ends: dict[Life, End | None] = field(factory=dict, init=False)
    """How incarnations have ended, as far as records tell; None: they have not after all."""
    _heard: dict[str, tuple[Heard, float]] = field(factory=dict, init=False)
    """The records, by their objects' names, and when each was read."""
    _heard_at: float = field(default=-math.inf, init=False)
    heard: tuple[float, list[Heard]] = field(default=(0.0, []), init=False)
    """When the records were listed last, in seconds since the epoch, and all of them: who has
    acknowledged anything by then is among them."""

    def hear(self, at_once: AtOnce) -> None:
        """Read what is new of the records, once a minute.  Raises `BucketError`."""
        now = self._clock()
        if now - self._heard_at < node_record.EVERY_SECONDS:
            return
        listed = time.time()
        there = {one.name: one for one in node_record.listed(self._bucket)}
        before = self._heard
        self._heard = {name: before[name] for name in there if name in before}
        new = [
            one
            for name, one in there.items()
            if name not in before
            or before[name][0].record is None
            or before[name][0].modified != one.modified
        ]
        read, _ = asked(at_once, lambda one: node_record.read(self._bucket, one), new)
        for one, heard in read:
            self._heard[one.name] = heard, now
            if heard.record is None and one.name in before:  # the one before counts
                self._heard[one.name] = before[one.name][0], now
        self._heard_at = now
        self.heard = listed, [heard for heard, _ in self._heard.values()]
        nodes: dict[str, dict[str, tuple[NodeRecord, float]]] = {}
        for heard, since in self._heard.values():
            if heard.record is not None:
                mine = nodes.setdefault(heard.node, {})
                mine[heard.record.incarnation] = heard.record, since
        for node, mine in nodes.items():
            silent = [
                by
                for by, (_, since) in mine.items()
                if now - since > node_record.SILENT_SECONDS
            ]
            ended = node_record.ended(
                [one for one, _ in mine.values()], silent, time.time()
            )
            for by in mine:
                life, end = Life(node, by), ended.get(by)
                told = self.ends.get(life)
                if told is not None and end is not None:  # as it was found first
                    end = replace(end, found=told.found)
                self.ends[life] = end
