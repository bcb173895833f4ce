"""The directories of a `data_dir`, by what they hold (docs/design.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Config


@dataclass(frozen=True, slots=True)
class Directories:
    """Where events are, in the order in which they move; and what is kept of a node."""

    root: Path
    journal: Path
    """The journals, with a directory for each node."""
    spool: Path
    lake: Path
    archive: Path
    state: Path
    """The state files, with a directory for each node."""
    retained: Path
    """The rows that streams still need of files that left the archive, a directory for
    each node."""
    consumers: Path
    """The marks of `spool.consumers`."""
    arrivals: Path
    """How far the files are here that each other gateway brings."""

    @classmethod
    def under(
        cls,
        data_dir: Path,
        *,
        journal: str | Path = "journal",
        spool: str | Path = "spool",
    ) -> Directories:
        """Directories with the default names, unless others are given."""
        return cls(
            root=data_dir,
            journal=data_dir / journal,
            spool=data_dir / spool,
            lake=data_dir / "lake",
            archive=data_dir / "archive",
            state=data_dir / "state",
            retained=data_dir / "retained",
            consumers=data_dir / "consumers",
            arrivals=data_dir / "arrivals",
        )

    @classmethod
    def of(cls, config: Config) -> Directories:
        """Directories as a configuration names them."""
        return cls.under(
            config.data_dir,
            journal=config.journal.directory,
            spool=config.spool.folder,
        )

    def journal_of(self, node: str) -> Path:
        return self.journal / node

    def retained_of(self, node: str) -> Path:
        return self.retained / node

    def state_of(self, node: str) -> Path:
        return self.state / node
