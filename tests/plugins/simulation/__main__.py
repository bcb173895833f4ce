"""Runs seeds for a minute, or one of them: see `simulation`."""

import gc
import os
import sys
import tempfile
import time
from pathlib import Path

from twisted.logger import globalLogBeginner

from simulation.rebuilt import rebuild
from simulation.world import simulate

_SECONDS = float(os.environ.get("SECONDS_TO_RUN", "60"))


def one(seed: int) -> int:
    """Replay it and print its history."""
    outcome = simulate(seed, keep=None)
    print("\n".join(outcome.history))
    print(outcome.broken or "all promises were kept", outcome.digest)
    return outcome.broken is not None


def rebuilt(seed: int) -> int:
    """Likewise, of the world in which machines are lost."""
    with tempfile.TemporaryDirectory(prefix="rebuilt-") as folder:
        outcome = rebuild(seed, Path(folder), keep=None)
    print("\n".join(outcome.history))
    print(outcome.broken or "all promises were kept")
    return outcome.broken is not None


def many(begin: int) -> int:
    """Until the time is over; how many are broken."""
    until = time.monotonic() + _SECONDS
    begun, seeds, steps, events, lives, files, broken = (
        time.monotonic(),
        0,
        0,
        0,
        0,
        0,
        0,
    )
    seed = begin
    while time.monotonic() < until:
        outcome = simulate(seed, keep=0)
        seeds += 1
        steps, events = steps + outcome.steps, events + outcome.events
        lives, files = lives + outcome.lives, files + outcome.files
        if outcome.broken:
            broken += 1
            print(f"SEED={seed} make simulate   # {outcome.broken[:300]}", flush=True)
        seed += 1
    took = time.monotonic() - begun
    print(
        f"{seeds} seeds from {begin}, {steps} steps ({steps / took:.0f}/s), {lives} lives, "
        f"{events} events in {files} files; {broken} seeds broke a promise"
    )
    return min(broken, 1)


if __name__ == "__main__":
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    gc.freeze()
    if seed := os.environ.get("SEED"):
        sys.exit(one(int(seed)))
    if seed := os.environ.get("REBUILT"):
        sys.exit(rebuilt(int(seed)))
    sys.exit(many(int(os.environ.get("FIRST_SEED", time.time_ns() // 1000))))
