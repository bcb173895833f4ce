"""Every judgement of the simulation can fail: a fault that is planted ends a seed with
the sentence that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.admin.metrics import Metrics
from gateway.daemon import statistics
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pressure import Valve
from gateway.store.digests import NOTHING, Link
from gateway.store.journal import Journal
from gateway.store.spool import Spool
from gateway.store.spool.expired import ExpiredRecord
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.levels import Levels
from gateway.store.spool.publisher import Publisher
from gateway.store.storage import Storage
from simulation import senders
from simulation.world import simulate

Plant = Callable[[pytest.MonkeyPatch], None]


def ignore_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "full", property(lambda self: bool(self._holds)))
    patch.setattr(senders, "_WINDOW", 40)


def forget_to_count_less(patch: pytest.MonkeyPatch) -> None:
    original = Journal.withdraw

    def withdraw(self: Any, batch: Any) -> bool:
        size = len(batch.body)
        withdrawn = original(self, batch)
        self._held += size if withdrawn else 0
        return withdrawn

    patch.setattr(Journal, "withdraw", withdraw)


def never_pause(patch: pytest.MonkeyPatch) -> None:
    original = Valve.regulate

    def regulate(self: Any, _: int, *, feeding: bool = True) -> None:
        original(self, 0, feeding=feeding)

    patch.setattr(Valve, "regulate", regulate)


def read_on_when_full(patch: pytest.MonkeyPatch) -> None:
    original = Valve.regulate

    def regulate(self: Any, unacknowledged: int, **_: bool) -> None:
        original(self, unacknowledged, feeding=False)

    patch.setattr(Valve, "regulate", regulate)


def let_the_spool_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Levels, "why_full", lambda *_: None)


def let_the_archive_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Expiry, "run", lambda *_: 0)


def forget_the_last_file(patch: pytest.MonkeyPatch) -> None:
    original = Publisher._write_file

    def write(self: Any, *args: Any) -> Any:
        self.link = Link(0, NOTHING)
        return original(self, *args)

    patch.setattr(Publisher, "_write_file", write)


def show_an_old_link(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Storage, "link", Link(0, NOTHING))


def expire_without_a_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExpiredRecord, "note", lambda *_: None)


def fail_in_the_status(patch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("planted")

    patch.setattr(statistics, "of_state", fail)


def show_less_durable(patch: pytest.MonkeyPatch) -> None:
    original = statistics.of_storage

    def of_storage(*args: Any) -> statistics.Stores:
        stores = original(*args)
        return stores._replace(journal=replace(stores.journal, durable_lsn=0))

    patch.setattr(statistics, "of_storage", of_storage)


def call_durable_what_waits(patch: pytest.MonkeyPatch) -> None:
    original = Journal.submit

    def submit(self: Any, batch: Any) -> Any:
        self.durable_lsn += 1000
        return original(self, batch)

    patch.setattr(Journal, "submit", submit)


def call_published_what_waits(patch: pytest.MonkeyPatch) -> None:
    original = Spool.publish

    def publish(self: Any, sealed: Any) -> None:
        original(self, sealed)
        self.published_lsn = max(self.published_lsn, sealed.last_lsn)

    patch.setattr(Spool, "publish", publish)


def take_off_what_came_later(patch: pytest.MonkeyPatch) -> None:
    def left(self: Any, removed: int) -> None:
        self.archive.bytes -= removed

    patch.setattr(Levels, "left_archive", left)


def count_from_zero_again(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Any, *_: Any) -> None:
        self._ack_seconds.__init__("gateway_ack_seconds", "Planted.", (1.0,))

    patch.setattr(Metrics, "committed", committed)


def fail_to_reload(patch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("planted")

    patch.setattr(Pomelo, "reload", fail)


PLANTED = [
    (ignore_memory, 2, r"journal\.memory_bytes: \d+ is more than \d+, at step \d+"),
    (forget_to_count_less, 2, r"\d+ bytes count as held, and \d+ are"),
    (never_pause, 10, r"limits\.unacknowledged_bytes of \S+: \d+ is more than \d+, at"),
    (read_on_when_full, 9, r"is read while the journal is full|hands the journal more"),
    (let_the_spool_grow, 30, r"spool\.max_bytes: \d+ is more than \d+, at step \d+"),
    (let_the_archive_grow, 1, r"spool\.archive_bytes: \d+ is more than \d+, at step"),
    (forget_the_last_file, 1, r"says that 0+ was before it, and lsn \d+ is in \w+"),
    (show_an_old_link, 0, r"gw\S* shows Link\(.*, and Link\(.* is public"),
    (fail_in_the_status, 0, r"the status can not be made: ZeroDivisionError"),
    (show_less_durable, 0, r"shows \d+ as published of 0"),
    (call_durable_what_waits, 0, r"shows \d+ as durable, and \d+ is synced"),
    (call_published_what_waits, 2, r"shows \d+ as published, and \d+ is"),
    (take_off_what_came_later, 42, r"shows archive\.bytes -\d+"),
    (count_from_zero_again, 30, r"gateway_ack_seconds.* went back from"),
    (fail_to_reload, 0, r"logged: .*ZeroDivisionError"),
    (expire_without_a_word, 5, r"the audit of gw\S*'s chain: .*removed"),
]
"""What is done to the product, the seed to begin with, and the sentence that names it.

The seed, or one of the next few, is one that shows it: look for a new one when seeds have
come to do something else.
"""
_SEEDS = 20
"""So many are tried: a judge that broke shows in seconds."""


@pytest.mark.parametrize(
    ("plant", "first", "sentence"),
    PLANTED,
    ids=[plant.__name__ for plant, *_ in PLANTED],
)
def test_what_is_planted_is_named(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, first: int, sentence: str
) -> None:
    """Of a few seeds, one ends with the sentence for this fault."""
    plant(monkeypatch)
    assert any(
        re.search(sentence, simulate(seed, keep=0).broken or "")
        for seed in range(first, first + _SEEDS)
    )
