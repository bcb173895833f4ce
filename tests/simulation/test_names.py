"""Whatever is copied, set back and resumed: what was acknowledged is in the tables once."""

import os
from dataclasses import astuple

import pytest

from gateway.spark.files import overlaps
from gateway.store.lsns import Lsns
from simulation import names
from simulation.names import KINDS, play

SEEDS = int(os.environ.get("SEEDS", "100"))


def wrong(kinds: tuple[str, ...], seeds: int) -> list[tuple[int, ...]]:
    """Seeds that double or miss an event."""
    found = ((seed, *astuple(play(seed, kinds))) for seed in range(seeds))
    return [one for one in found if one[2] or one[3]]


@pytest.mark.parametrize(
    "kinds", [(), *((kind,) for kind in KINDS), KINDS], ids="-".join
)
def test_no_event_is_doubled_or_missed(kinds):
    """Of a directory that was neither lost nor set back."""
    assert wrong(kinds, SEEDS) == []


def test_pasts_do_part():
    """Or this would show nothing."""
    assert sum(play(seed, ("forks",)).forked for seed in range(20)) > 20
    assert not sum(play(seed, ("versions",)).forked for seed in range(20))


@pytest.mark.parametrize("kind", ["forks", "torn"])
def test_whoever_believes_names_loses_events(kind, monkeypatch):
    """What has one name is not compared: as it was."""

    def same(mine: object, committed: object, known: object, life: object) -> object:
        return overlaps.Rows(Lsns(), Lsns(), Lsns())

    monkeypatch.setattr(names, "compared", same)
    assert any(missing for *_, missing, _ in wrong((kind,), 30))


def test_whoever_forgets_what_is_derived_doubles_events(monkeypatch):
    """A past that has a name of its own comes again under the first one, cut otherwise."""

    def alone(files: object, ledger: object, said: object) -> object:
        return {file.life: [file.life] for file in files}  # type: ignore[attr-defined]

    for module in (names, overlaps):
        monkeypatch.setattr(module, "families", alone)
    assert any(doubled for _, _, doubled, *_ in wrong(("forks",), 100))
