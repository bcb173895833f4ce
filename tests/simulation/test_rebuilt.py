"""Machines that are lost and rebuilt under their node's name (`simulation.rebuilt`): what
senders heard is in the tables, or the audit says that something is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.incarnations import Lives
from gateway.store import lineage
from gateway.store.claim import Claim
from gateway.store.names import Life, SpoolFile
from gateway.store.word import Word
from incarnations import A
from simulation.rebuilt import rebuild

GROUP = 10
GROUPS = -(-int(os.environ.get("SEEDS", "100")) // 5 // GROUP)
"""A fifth of the seeds: each of them has several lives of everything."""

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_senders_heard_is_there_or_said_to_be_missing(
    group: int, tmp_path: Path
) -> None:
    """Whatever is lost of a machine, and whoever tidies the bucket up."""
    broken = {
        seed: outcome.broken
        for seed in range(group * GROUP, (group + 1) * GROUP)
        if (outcome := rebuild(seed, tmp_path / str(seed), keep=0)).broken
    }
    assert not broken


def test_one_seed_has_one_history(tmp_path: Path) -> None:
    """Step by step."""
    one, other = (rebuild(3, tmp_path / name).history for name in ("one", "other"))
    assert one == other
    assert rebuild(4, tmp_path / "third").history != one


def name_events_by_node_and_lsn(patch: pytest.MonkeyPatch) -> None:
    """The job takes another incarnation's events for what it has."""
    patch.setattr(SpoolFile, "life", property(lambda file: Life(file.node, A)))


def forget_what_was_heard(patch: pytest.MonkeyPatch) -> None:
    """A node that lost its memory goes on behind what it finds of itself alone, and tells
    nobody how the one before it ended."""
    patch.setattr(Claim, "_ended", lambda self, said: dict(said.ended))
    patch.setattr(lineage, "heard_of", lambda *_: None)


def say_too_little(patch: pytest.MonkeyPatch) -> None:
    """The word is behind what was acknowledged, and says that it is exact."""
    original = Claim._ended

    def ended(self: Any, said: Word) -> Any:
        return {
            by: type(end)(0, end.heard, end.ack, True, end.found, end.since)
            for by, end in original(self, said).items()
        }

    patch.setattr(Claim, "_ended", ended)


def vouch_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """The audit takes it for granted that who has ended had told all."""
    patch.setattr(Lives, "vouched", lambda *_: True)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (name_events_by_node_and_lsn, (31,)),
        (forget_what_was_heard, (0, 6, 8, 11, 25)),
        (say_too_little, (17, 25)),
        (vouch_for_everybody, (0, 17, 25)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_breaks_the_promise_is_found(
    plant: Plant,
    seeds: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each fault that was reported, planted again, is caught by one of these seeds.  A change
    of the store may give them other histories: then look for new ones.
    """
    plant(monkeypatch)
    assert any(rebuild(seed, tmp_path / str(seed), keep=0).broken for seed in seeds)
