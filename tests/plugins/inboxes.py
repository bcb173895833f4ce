"""A job's inbox, whose bucket and whose tables a test plays."""

from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.spark.bucket.inbox import Inbox
from gateway.spark.bucket.requests import by_threads
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Hole, Ledger, Ranges
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.store.names import file_name, parse_file_name
from gateway_testkit.bucket import MemoryBucket
from incarnations import A


class World:
    """A bucket, and a job that has committed what the test says."""

    def __init__(self, root: Path) -> None:
        self.bucket = MemoryBucket()
        self.folder = root / "inbox"
        self.committed = Ranges()
        self.holes: tuple[Hole, ...] = ()

    def inbox(
        self,
        *,
        archived: bool = True,
        most_bytes: int = 1000,
        threads: bool = False,
        tell_behind: Callable[[Mapping[str, int]], None] = lambda _: None,
        whole: bool = True,
        deleted: DeletedRanges | None = None,
    ) -> Inbox:
        found = Inbox(
            self.bucket,
            self.folder,
            Lake(),
            lambda: Ledger(committed=self.committed, holes=self.holes),
            archived=archived,
            most_bytes=most_bytes,
            at_once=by_threads if threads else map,
            tell_behind=tell_behind,
            whole=whole,
            deleted=deleted,
        )
        found.copies.recover()
        return found

    def put(self, first: int, last: int, node: str = "gw", by: str = A) -> str:
        name = file_name(node, by, first, last)
        self.bucket.objects[name] = b"x" * 100
        return name

    def looked(self) -> Inbox:
        """An inbox that has looked once."""
        found = self.inbox()
        found.look()
        return found

    def commit(self, *names: str) -> None:
        """As the job does: into the tables, and out of its directory."""
        for name in names:
            file = parse_file_name(name)
            assert file is not None
            self.committed.add(file.life, file.first, file.last)
            (self.folder / name).unlink(missing_ok=True)

    def here(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())
