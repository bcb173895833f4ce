"""Seeds of the simulation (tests/plugins/simulation) keep every promise, and replay."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols.rsio.offsets import Offsets
from gateway.store.journal import log
from gateway.store.spool import publisher
from gateway.store.spool.published import PublishedFiles
from simulation import disk
from simulation.world import simulate

ROOT = Path(__file__).parents[2]
GROUP = 25
GROUPS = -(-int(os.environ.get("SEEDS", "100")) // GROUP)


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_seed_breaks_a_promise(group):
    """Whatever happens to it, in whatever order, every promise is kept."""
    broken = {
        seed: outcome.broken
        for seed in range(group * GROUP, (group + 1) * GROUP)
        if (outcome := simulate(seed, keep=0)).broken
    }
    assert not broken, "SEED=… make simulate prints what happened"


def digest(seed: int, hash_seed: str) -> str:
    """Of a seed's history, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation"],
        env={
            **os.environ,
            "SEED": str(seed),
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'plugins'}",
        },
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_one_seed_has_one_history():
    """Byte by byte, in every process; another seed has another."""
    first = digest(7, "1")
    assert first == digest(7, "2")
    assert "\n".join(simulate(7, keep=None).history) in first
    assert "\n".join(simulate(8, keep=None).history) not in first


def do_nothing(*_: Any, **__: Any) -> None:
    """A call that lies."""


def lose_syncs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk._SimulatedFile, "sync", do_nothing)


def lose_directory_syncs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk.Session, "sync_directory", do_nothing)


def forget_the_catalog(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublishedFiles, "add", do_nothing)


def publish_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublishedFiles, "find", do_nothing)
    patch.setattr(publisher.Publisher, "_unpublished_part", lambda self, each: each)


def number_from_one(patch: pytest.MonkeyPatch) -> None:
    original = log.Log.__attrs_post_init__

    def begin(self: Any) -> None:
        original(self)
        self.next_lsn = 1

    patch.setattr(log.Log, "__attrs_post_init__", begin)


def forget_who_began(patch: pytest.MonkeyPatch) -> None:
    original = Offsets.claim

    def claim(self: Any, *what: Any, named: bool = False, **_: Any) -> Any:
        return original(self, *what, named=named)

    patch.setattr(Offsets, "claim", claim)


@pytest.mark.parametrize(
    ("break_it", "first"),
    [
        (lose_syncs, 0),
        (lose_directory_syncs, 0),
        (forget_the_catalog, 21),
        (publish_again, 1),
        (number_from_one, 0),
        (forget_who_began, 14),
    ],
)
def test_what_breaks_a_promise_is_found(monkeypatch, break_it, first):
    """A gateway, or a disk, that does not do what it says is caught by a few seeds: by the
    first, until seeds come to do something else.
    """
    break_it(monkeypatch)
    assert any(simulate(seed, keep=0).broken for seed in range(first, first + 40))
