"""Batches that fail on some of their files: the files go aside, and the batch comes without them.

Which files those are, and why, is in `not_taken`.  The files of a batch that ran out of heap
are tried one at a time, and one that does not fit alone is moved aside, too (`heap`).
"""

from __future__ import annotations

import logging
from pathlib import Path

from attrs import define

from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit.ledger import Broken, Hole
from gateway.spark.commit.sink import Sink
from gateway.spark.files import footers, heap
from gateway.spark.files.not_taken import FILES
from gateway.spark.files.overlaps import Overlap, Overlaps
from gateway.spark.files.poison import Poison, make_readable
from gateway.spark.jvm import session
from gateway.spark.run.failure import Failed, reason
from gateway.spark.run.health import Health
from gateway.store.lsns import spelled
from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import BucketError

_log = logging.getLogger("gateway.spark")


@define(eq=False, slots=False)
class IncompleteBatches:
    """The failed batches that a sink makes of one spool."""

    _spool: Path
    _poison: Poison
    _overlaps: Overlaps
    _suspects: heap.Suspects
    _sink: Sink
    _inbox: Inbox | None
    """The inbox that has fetched the files, where they come from a bucket."""
    _health: Health

    @property
    def one_by_one(self) -> bool:
        """Whether files are tried alone now."""
        return bool(self._suspects or self._overlaps.in_turns)

    def finish(self) -> None:
        """Finish what the job before this one was at, or has found and not moved."""
        self._poison.finish()
        self.give_up()
        self._sweep()

    def move_aside(self, why: Exception) -> bool:
        """Whether what kept the last batch from being read was found, and is out of the way."""
        if isinstance(why, Overlap):
            self._overlaps.settle(why.files)
            return True
        if isinstance(why, Broken) and "spool" not in str(why):
            return False
        names = self._sweep()
        files = self._sink.batch_files
        try:
            holes, changed = make_readable(
                files, self._inbox, self._poison.examine, known=bool(names)
            )
        except BucketError:
            return False  # *why* says it better
        for hole in holes:
            self._say_aside(hole)
            names.append(hole.file)
        if names:
            self._health.say(last_error=f"moved aside: {', '.join(names)}")
        return bool(names or changed)

    def suspect(self, why: Exception) -> bool:
        """Whether the last batch ran out of heap: its files are to be tried alone now."""
        files = self._sink.batch_files
        if not heap.ran_out(why) or self._sink.failure is None or not files:
            return False
        if self._sink.repeats or self._innocent():
            raise Failed(self._ran_out()) from why
        _log.warning("%s", self._ran_out())
        self._suspects.failed(files)
        return True

    def _innocent(self) -> bool:
        """Whether the last batch is not why the heap was too small for it."""
        files = self._sink.batch_files
        stored, in_memory = footers.sizes(self._spool / file.name for file in files)
        return stored > 0 and self._suspects.innocent(files, in_memory)

    def _ran_out(self) -> str:
        """A sentence: the heap was too small, for what, and what to do."""
        names = [file.name for file in self._sink.batch_files]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        if self._sink.repeats:
            then = "the batch comes again, whole, once there is more"
        elif self._innocent():
            then = (
                "it is small and was alone, so something else fills that: give it more"
            )
        else:
            then = (
                "its files are tried one at a time, and one that does not fit alone is"
                " moved aside"
            )
        return (
            f"Java's heap of {self._suspects.heap} was too small for a batch"
            f" of {names[0] if names else 'no file'}{more}: {then}"
        )

    def java_ended(self, why: Exception) -> str:
        """Why, as far as that is known; the next start goes on with what is noted here."""
        at_work = self._sink.busy or self._sink.failure is not None
        if session.java_status() != heap.EXIT or not at_work:
            return f"Spark's Java has ended: {reason(why)}"
        told = self._ran_out()
        if not self._sink.repeats and not self._innocent():
            self._suspects.failed(self._sink.batch_files)
        return told

    def give_up(self) -> None:
        """Move aside what did not fit alone."""
        self._sink.careful = bool(self._suspects)
        name = self._suspects.alone
        file = None if name is None else parse_file_name(name)
        if name is None or file is None:
            return
        if self._inbox is not None:
            self._inbox.complete([file])
        if (self._spool / name).exists():
            why = FILES["heap"].format(self._suspects.heap)
            self._say_aside(self._poison.move(file, why))
        self._suspects.aside(name)
        self._sink.careful = bool(self._suspects)

    def settle(self, waiting: set[str]) -> bool:
        """Only these files still wait; whether the last one that was tried alone is done."""
        fit = self._suspects.keep(waiting)
        if fit:
            self._sink.careful = False
        turns = self._overlaps.in_turns
        if turns and not turns & waiting:
            turns.clear()
            return not self._suspects
        return fit

    def _say_aside(self, hole: Hole) -> None:
        _log.error(
            "%s is moved to %s: %s. Its events, %s of %s, are in no table"
            " until it is mended (gateway spark requeue)",
            *(hole.file, self._poison.aside, hole.why),
            *(spelled(hole.first, hole.last), hole.node),
        )
        self._health.say(last_error=f"moved aside: {hole.file}")

    def _sweep(self) -> list[str]:
        names = self._poison.sweep()
        for name in names:
            _log.error("%s in the spool is not the gateway's: moved aside", name)
        return names
