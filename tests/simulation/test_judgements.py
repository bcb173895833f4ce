"""Every judgement of the simulation can fail: a fault that is planted ends a seed with
the sentence that names it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from OpenSSL import SSL
from twisted.internet.defer import fail

from gateway.admin.metrics import Metrics
from gateway.daemon import statistics
from gateway.net import tls
from gateway.net.listen import Listener
from gateway.net.memory import MemoryBudget
from gateway.net.tls import ServerTls, UnusableCertificate
from gateway.net.writing import Stall
from gateway.protocols.pomelo.listener import Pomelo
from gateway.sdk.pressure import Valve
from gateway.store.digests import NOTHING, Link
from gateway.store.journal import Journal, Log
from gateway.store.journal.lead import Lead
from gateway.store.node.expired import ExpiredRecord
from gateway.store.spool import Spool
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.levels import Levels
from gateway.store.spool.pace import Pace
from gateway.store.spool.publisher import Publisher
from gateway.store.storage import Storage, _Handing
from gateway.store.system.shared import SharedDict
from simulation import senders
from simulation.settings import Settings
from simulation.world import World, simulate

Plant = Callable[[pytest.MonkeyPatch], None]


def small_memory(patch: pytest.MonkeyPatch) -> None:
    """In every world, for a fault that shows where memory is small."""
    original = Settings.drawn

    def drawn(chance: Any, also: Any) -> Settings:
        settings = original(chance, also)
        small = settings.journal.model_copy(update={"memory_bytes": 5_000})
        return replace(settings, journal=small)

    patch.setattr(Settings, "drawn", drawn)


def ignore_memory(patch: pytest.MonkeyPatch) -> None:
    small_memory(patch)
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
    patch.setattr(Pace, "look", lambda *_: math.inf)


def let_the_archive_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Expiry, "run", lambda *_: 0)


def forget_the_last_file(patch: pytest.MonkeyPatch) -> None:
    original = Publisher._write

    def write(self: Any, *args: Any) -> Any:
        self.link = Link(0, NOTHING)
        return original(self, *args)

    patch.setattr(Publisher, "_write", write)


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
    original = Journal.submit_for

    def submit_for(self: Any, told: Any, batch: Any) -> None:
        self.durable_lsn += 1000
        original(self, told, batch)

    patch.setattr(Journal, "submit_for", submit_for)


def call_published_what_waits(patch: pytest.MonkeyPatch) -> None:
    durable = property(lambda spool: spool._journal.durable_lsn)
    patch.setattr(Spool, "published_lsn", durable)


def take_off_twice(patch: pytest.MonkeyPatch) -> None:
    def left(self: Any, removed: int) -> None:
        self.archive.bytes -= 2 * removed

    patch.setattr(Levels, "left_archive", left)


def count_from_zero_again(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Any, *_: Any) -> None:
        each = self._each["gateway_ack_seconds"]
        each.__init__("gateway_ack_seconds", "Planted.", (1.0,))

    patch.setattr(Metrics, "committed", committed)


def fail_to_reload(patch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("planted")

    patch.setattr(Pomelo, "reload", fail)


def forget_nobody(patch: pytest.MonkeyPatch) -> None:
    original = Listener.closed

    def closed(self: Any, connection: Any) -> None:
        connection.counted = False
        original(self, connection)

    patch.setattr(Listener, "closed", closed)


def keep_connections(patch: pytest.MonkeyPatch) -> None:
    original, kept = Listener.opened, []

    def opened(self: Any, connection: Any) -> None:
        kept.append(connection)
        original(self, connection)

    patch.setattr(Listener, "opened", opened)


def count_too_little(patch: pytest.MonkeyPatch) -> None:
    small_memory(patch)

    def let_go(self: Any) -> None:
        self._accounts.clear()
        self.held_bytes = 0

    patch.setattr(MemoryBudget, "_free_largest", let_go)


def let_go_of_nobody(patch: pytest.MonkeyPatch) -> None:
    small_memory(patch)
    patch.setattr(MemoryBudget, "_free", lambda _: None)


def read_ahead_without_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryBudget, "take_room", lambda *_: True)


def take_any_certificate(patch: pytest.MonkeyPatch) -> None:
    original = ServerTls._load

    def load(self: Any) -> Any:
        try:
            return original(self)
        except UnusableCertificate:
            return object()

    patch.setattr(ServerTls, "_load", load)


def say_nothing_of_certificates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerTls, "_log", Mock())


def serve_an_old_certificate(patch: pytest.MonkeyPatch) -> None:
    first: list[Any] = []

    def serve(self: Any, _: object) -> Any:
        first.append(self._context)
        return SSL.Connection(first[0], None)

    patch.setattr(ServerTls, "serverConnectionForTLS", serve)


def read_no_definitions_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pomelo, "reload", lambda _: None)


def keep_a_deferred_that_failed(patch: pytest.MonkeyPatch) -> None:
    original, kept = _Handing.uploaded, []

    def check(self: Any) -> None:
        kept.append(fail(ZeroDivisionError("planted")))
        original(self)

    patch.setattr(_Handing, "uploaded", check)


def let_anybody_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tls, "_VERIFY", {**tls._VERIFY, "required": SSL.VERIFY_NONE})


def ask_for_no_names(patch: pytest.MonkeyPatch) -> None:
    original = ServerTls.principal

    def principal(self: Any, certificate: Any) -> Any:
        self._allowed = frozenset()
        return original(self, certificate)

    patch.setattr(ServerTls, "principal", principal)


def wait_for_whoever_reads_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stall, "is_long", lambda *_: False)


def answer_when_published(patch: pytest.MonkeyPatch) -> None:
    """In every world, on a disk that rots often, for faults that show there."""
    original, rates = Settings.drawn, World._draw_rates

    def drawn(chance: Any, also: Any) -> Settings:
        settings = original(chance, also)
        rolls = settings.spool.model_copy(update={"roll_interval": 5.0})
        mine = {"acknowledge_when_published": True, "protocols": (), "spool": rolls}
        return replace(settings, **mine)

    def draw_rates(self: World) -> Any:
        return {**rates(self), self._rot: 1.0}

    patch.setattr(Settings, "drawn", drawn)
    patch.setattr(World, "_draw_rates", draw_rates)


def answer_before_the_file(patch: pytest.MonkeyPatch) -> None:
    answer_when_published(patch)
    original = Journal._durable

    def durable(self: Any, done: Any) -> None:
        self._acknowledge_when_published = False
        original(self, done)

    patch.setattr(Journal, "_durable", durable)


def answer_for_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    answer_when_published(patch)
    original = Publisher._made

    def made(self: Any, *what: Any) -> Any:
        self.copies = SharedDict()  # what waits for its file is kept in memory
        return original(self, *what)

    patch.setattr(Publisher, "_made", made)


def let_segments_stay_young(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "age", 0.0)
    patch.setattr(Lead, "before_batch", lambda self, begun, interval: begun + interval)


PLANTED = [
    (let_segments_stay_young, 0, r"it does not drain: published up to"),
    (let_anybody_in, 8, r"-certified\S* stores what None has sent"),
    (ask_for_no_names, 50, r"-certified\S* stores what CN=another has sent"),
    (
        wait_for_whoever_reads_nothing,
        6,
        r"a peer reads nothing for \S+ s, and is kept",
    ),
    (answer_before_the_file, 0, r"is acknowledged too early"),
    (answer_for_what_is_lost, 61, r"is acknowledged too early"),
    (ignore_memory, 2, r"journal\.memory_bytes: \d+ is more than \d+, at step \d+"),
    (forget_to_count_less, 3, r"\d+ bytes count as held, and \d+ are"),
    (never_pause, 24, r"limits\.unacknowledged_bytes of \S+: \d+ is more than \d+, at"),
    (
        read_on_when_full,
        22,
        r"is read while the journal is full|hands the journal more",
    ),
    (let_the_spool_grow, 7, r"spool\.max_bytes: \d+ is more than \d+, at step \d+"),
    (let_the_archive_grow, 14, r"spool\.archive_bytes: \d+ is more than \d+, at step"),
    (forget_the_last_file, 3, r"says that 0+ was before it, and lsn \d+ is in \w+"),
    (show_an_old_link, 0, r"gw\S* shows Link\(.*, and Link\(.* is public"),
    (fail_in_the_status, 0, r"the status can not be made: ZeroDivisionError"),
    (show_less_durable, 0, r"shows \d+ as published of 0"),
    (call_durable_what_waits, 0, r"shows \d+ as durable, and \d+ is synced"),
    (call_published_what_waits, 2, r"shows \d+ as published, and \d+ is"),
    (take_off_twice, 1, r"shows archive\.bytes -\d+"),
    (count_from_zero_again, 47, r"gateway_ack_seconds.* went back from"),
    (fail_to_reload, 0, r"logged: .*ZeroDivisionError"),
    (forget_nobody, 0, r"peers have left, and \[.* counts \{"),
    (keep_connections, 0, r"\d+ connections are lost, and kept in memory"),
    (count_too_little, 0, r"connections hold 0, 0 ahead, of \d+"),
    (let_go_of_nobody, 0, r"journal\.memory_bytes, of connections: \d+ is more than"),
    (read_ahead_without_room, 0, r"\d+ bytes count as read ahead|connections hold"),
    (take_any_certificate, 29, r"took a certificate that can not be used"),
    (say_nothing_of_certificates, 29, r"certificate not used, .* not said of \d+"),
    (serve_an_old_certificate, 98, r"-tls\S* shows certificate [abc]: "),
    (read_no_definitions_again, 0, r"a reload did not take what can be used"),
    (keep_a_deferred_that_failed, 0, r"logged: .*ZeroDivisionError"),
    (expire_without_a_word, 10, r"the audit of gw\S*'s chain: .*removed"),
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
def test_what_is_planted_is_named(monkeypatch, plant, first, sentence):
    """Of a few seeds, one ends with the sentence for this fault."""
    plant(monkeypatch)
    assert any(
        re.search(sentence, simulate(seed, keep=0).broken or "")
        for seed in range(first, first + _SEEDS)
    )


@pytest.mark.parametrize(
    ("seed", "once"),
    [
        (113, "a batch's copy came twice, behind one without events and its lsn"),
        (125, "a lsn was given again, as a start removed what told of it"),
    ],
)
def test_a_disk_that_rots_often(monkeypatch, seed, once):
    """What a file is waited for is in it, or told as lost."""
    answer_when_published(monkeypatch)
    assert simulate(seed, keep=0).broken is None, once
