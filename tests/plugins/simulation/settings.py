"""How the gateway of a seed is configured: limits so small that all of them are reached."""

from __future__ import annotations

import random
from dataclasses import dataclass

from gateway.config import model
from gateway_testkit.settings import options_of

__all__ = ["Settings"]


@dataclass(slots=True, kw_only=True)
class Settings:
    """How the gateway of this seed is configured."""

    journal: model.Journal
    spool: model.Spool
    acknowledge_when_published: bool
    checkpoint_bytes: int
    protocols: tuple[str, ...]
    remembering: bool
    real_files: bool
    unacknowledged_bytes: int | None
    """None: as by default."""

    @property
    def limits(self) -> dict[str, object]:
        """Of all listeners."""
        most = self.unacknowledged_bytes
        return {} if most is None else {"unacknowledged_bytes": most}

    @classmethod
    def drawn(cls, chance: random.Random, also: random.Random) -> Settings:
        """Small limits, so that all of them are reached.

        Whatever is drawn of *also* changes nothing of what *chance* brings.
        """
        pick = chance.choice
        resumed = ("pravega", "rsio") if chance.random() < 0.6 else ()
        names = ("lumberjack", "pomelo", *resumed)
        protocols = tuple(name for name in names if chance.random() < 0.5)
        return cls(
            journal=options_of(
                model.Journal,
                commit_interval=pick((0.0, 0.002, 0.02)),
                segment_bytes=pick((2_000, 20_000, 1 << 20)),
                # Half of it holds the largest message: who sends that would never end.
                memory_bytes=pick((130_000, 1 << 20)),
            ),
            spool=options_of(
                model.Spool,
                roll_interval=pick((0.2, 1.0, 5.0)),
                roll_events=pick((3, 20, 1000)),
                compression=pick(("zstd", "none")),
                max_bytes=pick((20_000, 100_000, 1 << 24)),
                retention=pick((5.0, 60.0, 3600.0)),
                archive_bytes=pick((None, 10_000)),
            ),
            acknowledge_when_published=chance.random() < 0.25,
            checkpoint_bytes=pick((1, 4_000, 1 << 20)),
            protocols=protocols,
            remembering=chance.random() < 0.5
            or bool({"pravega", "rsio"} & {*protocols}),
            real_files=chance.random() < 0.2,
            unacknowledged_bytes=also.choice((None, None, None, 1_000, 10_000)),
        )
