"""An archive of a test's, whose clocks the test moves."""

import os
from pathlib import Path

from gateway.store.names import file_name
from gateway.store.readers.consumers import Consumers
from gateway.store.spool.expiry import Expiry
from gateway.store.system.disk import RealDisk
from incarnations import A

__all__ = ["HOUR", "AsModified", "World"]

HOUR = 3600.0


class AsModified(RealDisk):
    """A disk on which a test can say when a file was renamed."""

    def changed(self, path: Path) -> float:
        return self.modified(path)


class World:
    """An archive, and its clocks: `set_clock` moves one of them only."""

    def __init__(
        self,
        archive: Path,
        most_bytes: int | None = None,
        consumers: Consumers | None = None,
    ) -> None:
        self.archive = archive
        self.monotonic, self.wall = 50.0, 1_700_000_000.0
        self.told = 0
        self.expiry = Expiry(
            archive,
            AsModified(),
            HOUR,
            most_bytes,
            self._expired,
            clock=lambda: self.monotonic,
            wall_clock=lambda: self.wall,
            consumers=consumers,
        )

    def _expired(self) -> None:
        self.told += 1

    def add(self, lsn: int, size: int = 0) -> None:
        path = self.archive / file_name("gw", A, lsn, lsn)
        path.write_bytes(bytes(size))
        os.utime(path, (self.wall, self.wall))

    def wait(self, seconds: float) -> None:
        """Time passes, and nobody looks."""
        self.monotonic += seconds
        self.wall += seconds

    def pass_time(self, seconds: float) -> list[int]:
        """Look every minute; returns the lsns that are left."""
        end = self.monotonic + seconds
        while self.monotonic < end:
            self.wait(60)
            self.expiry.run(0)
        return self.left()

    def left(self) -> list[int]:
        return sorted(int(path.stem.split("-")[-1]) for path in self.archive.iterdir())

    def set_clock(self, by: float) -> None:
        self.wall += by
