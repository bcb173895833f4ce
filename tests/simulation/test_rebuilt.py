"""Machines that are lost, rebuilt, copied, put back and resumed under their node's name, several
at once, with a bucket or a hub (`simulation.rebuilt`): what senders heard is in the tables, or
was deleted, or the audit says that something is missing.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.lives import Known, Lives, Reason
from gateway.store.objects.node_record import Speaker
from gateway.store.readers import complete
from incarnations import A
from simulation.rebuilt import rebuild

GROUP = 10
GROUPS = -(-int(os.environ.get("SEEDS", "100")) // 5 // GROUP)
"""A fifth of the seeds: each of them has several lives of everything."""

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_senders_heard_is_there_or_said_to_be_missing(group, tmp_path):
    """Whatever is lost of a machine, and whoever tidies the bucket up."""
    broken = {
        seed: outcome.broken
        for seed in range(group * GROUP, (group + 1) * GROUP)
        if (outcome := rebuild(seed, tmp_path / str(seed), keep=0)).broken
    }
    assert not broken


def test_one_seed_has_one_history(tmp_path):
    """Step by step, whatever the module `random` would give: a bucket fails in it."""

    def history(seed: int, name: str) -> list[str]:
        random.seed(name)
        return rebuild(seed, tmp_path / name, keep=None).history

    one = history(3, "one")
    assert any("of requests fail" in each for each in one)
    assert history(3, "other") == one
    assert history(4, "third") != one


def name_events_by_node_and_lsn(patch: pytest.MonkeyPatch) -> None:
    """The job takes another incarnation's events for what it has."""
    patch.setattr(SpoolFile, "life", property(lambda file: Life(file.node, A)))


def say_that_it_is_all(patch: pytest.MonkeyPatch) -> None:
    """Whoever is silent had acknowledged no more than is in files, takes the audit for granted."""
    patch.setattr(Known, "ack", property(lambda _: "spool", lambda *_: None))


def say_nothing(patch: pytest.MonkeyPatch) -> None:
    """No incarnation says in the bucket how far it is."""
    patch.setattr(Speaker, "say", lambda self, *, exact=False: None)


def vouch_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """The audit takes it for granted that who has ended had told all."""
    patch.setattr(Lives, "reason", lambda *_: Reason.HERE)


def believe_each_word(patch: pytest.MonkeyPatch) -> None:
    """The job takes what a word says for what the tables have."""

    def told(node: Any, life: Life, since: int, settled: Lsns) -> int | None:
        heard = node._heard.get(life.incarnation)
        return heard and heard.record.through and heard.record.through.at

    patch.setattr(complete._Node, "_told", told)


def hold_nothing_once_ended(patch: pytest.MonkeyPatch) -> None:
    """An incarnation that has ended is taken to have brought all."""
    patch.setattr(complete._Node, "_end", lambda *_: 0)


def pass_over_what_is_late(patch: pytest.MonkeyPatch) -> None:
    """What comes late is not told."""
    patch.setattr(complete.Completeness, "late", lambda *_: [])


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (name_events_by_node_and_lsn, (3,)),
        (say_that_it_is_all, (16, 20)),
        (say_nothing, (0, 1)),
        (vouch_for_everybody, (16, 17)),
        (believe_each_word, (42, 43)),
        (hold_nothing_once_ended, (0, 4)),
        (pass_over_what_is_late, (1, 5)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_breaks_the_promise_is_found(plant, seeds, tmp_path, monkeypatch):
    """Each fault that was reported, planted again, is caught by one of these seeds.  A change
    of the store may give them other histories: then look for new ones.
    """
    plant(monkeypatch)
    assert any(rebuild(seed, tmp_path / str(seed), keep=0).broken for seed in seeds)
