"""The Spark job: reads files when it likes, and takes them out of the spool later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.store.spool import parse_file_name

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Spark"]


class Spark:
    """What it has read is in its tables, whatever happens to the file afterwards."""

    def __init__(self, world: World, *, archives: bool) -> None:
        self._world = world
        self.archives = archives
        """Else it deletes what it has committed."""
        self.read: set[str] = set()
        """Names, as its commit log has them."""

    def look(self) -> None:
        """Read some of the files that are there, the oldest first."""
        world = self._world
        new = [name for name in self._names() if name not in self.read]
        world.judge.sees(new)
        for name in new[: world.chance.randint(1, 4)]:
            content = world.disk.read(world.directories.spool / name)
            world.judge.reads(name, content)
            self.read.add(name)
            world.tell(f"spark reads {name}")

    def clean(self) -> None:
        """Archive or remove what is committed."""
        world = self._world
        spool, archive = world.directories.spool, world.directories.archive
        for name in self._names():
            if name in self.read and world.chance.random() < 0.7:
                world.tell(f"spark moves {name}")
                if self.archives:
                    world.disk.rename(spool / name, archive / name)
                    world.bounds.archived(name)
                else:
                    world.disk.unlink(spool / name)
        for directory in (archive, spool):
            if str(directory) in world.disk.names:
                world.disk.sync_directory(directory)

    def _names(self) -> list[str]:
        names = self._world.disk.names.get(str(self._world.directories.spool), {})
        return sorted(name for name in names if parse_file_name(name))
