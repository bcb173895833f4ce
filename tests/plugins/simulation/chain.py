"""The chain of spool files, judged: each names the digest of its node's file before it.

At each new file that is compared with the file that was public last; at the end the
gateway's own audit reads all that is left, and has to find nothing.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.audit.chain import verify_chains
from gateway.store.digests import NOTHING, Link, link_of
from gateway.store.directories import Directories
from gateway.store.readers.lake import INTERNAL
from gateway.store.spool import parse_file_name
from simulation.files import digest_of
from simulation.judge import Broken

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Chain", "audit_chain"]

_FIRST = Link(0, NOTHING)


class Chain:
    """Raises `Broken` where a file does not name the one before it."""

    def __init__(self) -> None:
        self._newest: dict[str, Link] = {}
        """Of each node."""
        self._names: set[str] = set()

    def grows(
        self, name: str, content: bytes, previous: str | None, *, rotten: bool
    ) -> None:
        """A file is public, perhaps not for the first time, and says what was before it.

        *rotten*: that may be forgotten, but not be wrong.
        """
        if name in self._names:
            return
        self._names.add(name)
        parsed = parse_file_name(name)
        assert parsed is not None
        node, last = parsed.node, parsed.last
        before = self.newest(node)
        forgotten = rotten and not previous
        if previous != before.digest and not forgotten:
            raise Broken(
                f"{name} says that {previous} was before it, and lsn {before.last_lsn} "
                f"is in {before.digest}"
            )
        link = link_of(digest_of(content), previous or "")
        self._newest[node] = Link(last, link)

    def newest(self, node: str) -> Link:
        """Of the node's last file that is public."""
        return self._newest.get(node, _FIRST)

    def shows(self, node: str, link: Link, *, rotten: bool) -> None:
        """The node tells its newest link; nothing is on its way into a file."""
        newest = self.newest(node)
        if link != newest and not (rotten and not link.digest):
            raise Broken(f"{node} shows {link}, and {newest} is public")


def audit_chain(world: World) -> None:
    """`gateway audit --chain` finds nothing; of real Parquet files only."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for directory, names in world.disk.names.items():
            copy = root / Path(directory).relative_to("/")
            copy.mkdir(parents=True, exist_ok=True)
            for name, number in names.items():
                (copy / name).write_bytes(world.disk.contents[number])
        directories = Directories.under(root / world.directories.root.relative_to("/"))
        _write_ledger(world, directories.lake)
        # A power cut may undo half of a move, of which Spark syncs nothing.
        deleting = not world.spark.archives or world.disk.power_cuts > 0
        chains = verify_chains(directories, deleting=deleting, pause=lambda _: None)
    for chain in chains.chains:
        for problem in chain.problems:
            where = problem.file.removeprefix(folder)
            raise Broken(f"the audit of {chain.node}'s chain: {where}: {problem.why}")


def _write_ledger(world: World, lake: Path) -> None:
    committed: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for name in sorted(world.spark.read):
        parsed = parse_file_name(name)
        assert parsed is not None
        lives = committed.setdefault(parsed.node, {})
        lives.setdefault(parsed.incarnation, []).append((parsed.first, parsed.last))
    (lake / INTERNAL).mkdir(parents=True)
    (lake / INTERNAL / "events.json").write_text(
        json.dumps({"form": 1, "committed": committed})
    )
