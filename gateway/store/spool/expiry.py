"""Removes files from the archive: when they were there for `spool.retention`, the oldest
while there are more than `spool.archive_bytes`, and when the disk has no room otherwise.

What is in the archive is in the tables, so it goes before senders are held back.  What
readers of streams still need of it is kept before that (`retained`).

What a consumer has not read stays beyond its time (`gateway.store.readers.consumers`).  Where there
is more than there may be, or no room, it goes after what all of them have read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attrs import define
from twisted.logger import Logger

from gateway.sdk.disk import Disk
from gateway.store.names import FoundFile, SpoolFile, parse_file_name
from gateway.store.readers.consumers import Consumers
from gateway.store.spool.retained import Retained
from gateway.store.system.disk import NO_ROOM

_MOST_SECONDS = 60.0  # between two looks
_AT_ONCE = 100
_BYTES_AT_ONCE = 64 << 20
_SECONDS_AT_ONCE = 1.0
"""A look takes no longer, or little: nothing is published meanwhile.  Then publishing has
as much time."""
_HELD_SECONDS = 600.0
_LISTING_SHARE = 20
"""Listing the archive takes one part in so many of our time, at most."""
_STEP_SECONDS = 1.0  # a clock that drifts is less off


@define(eq=False, slots=False)
class Expiry:
    """The expiry of one archive.  Blocks.

    A file's change time tells since when it is there: the wall clock gave it when it was
    renamed.  That clock may be set forward, and everything would be old at once.  So that is
    taken off again for as long as files from before may be there.

    *retained* None: nothing of what goes is needed.

    *retention* in seconds; *most_bytes* None: no limit.  *on_expired* is called when
    files were removed, and *before* with the names of those that are about to be.

    *ours* says of a node whether its files are ours to remove: another daemon may share
    the archive, which knows what its readers need.  *only_copy* says of a file
    whether no table has what is in it: it goes when its time is over, and not for room.

    *consumers* None: there are none.

    25 attributes: 12 are given, the others say where a look at a large archive goes on.
    """

    _log = Logger()

    _archive: Path
    _disk: Disk
    _retention: float
    _most_bytes: int | None
    _on_expired: Callable[[], None]
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _before: Callable[[Iterable[str]], None] = lambda _: None
    _retained: Retained | None = None
    _ours: Callable[[str], bool] = lambda _: True
    _only_copy: Callable[[SpoolFile], bool] = lambda _: False
    _consumers: Consumers | None = None

    def __attrs_post_init__(self) -> None:
        self._next = self._clock()
        self._configured = False
        """Whether what was found is of limits that hold no more."""
        self._offset = self._wall_clock() - self._clock()
        self._due: list[FoundFile] = []
        """Files of the last look that are still to be removed."""
        self._goes_on = self._clock()
        """When that is gone on with."""
        self._gone: list[int] = []
        """Sizes of what was removed in this look."""
        self._known_bytes = 0
        """The archive's size, which the last look could not help."""
        self._listed: list[FoundFile] = []
        """Files that may make room, the oldest first."""
        self._next_listing = self._clock()
        self._held: set[Path] = set()
        """Most of these is needed by readers, as of some minutes ago."""
        self._held_until = self._clock()
        self._unsaid: dict[str, None] = {}
        """Names that have gone, and there was no room to say so."""
        self._set_forward: list[tuple[float, float]] = []
        """When, and by how many seconds."""

    def configure(self, retention: float, most_bytes: int | None) -> None:
        """Keep files for so many seconds, and so many bytes; any thread may call."""
        self._retention, self._most_bytes = retention, most_bytes
        self._configured = True

    def run(self, archived_bytes: int) -> int:
        """Look if it is time to, or if so many are too many.

        Returns how many bytes were removed; raises OSError.
        """
        if self._unsaid:
            self._note(())
        self._gone.clear()
        tidied = False
        try:
            if self._due and self._clock() >= self._goes_on:  # of an earlier look
                self._known_bytes = 0
                self._remove_due()
            if self._configured:
                self._look_anew()
            now = self._clock()
            if not self._due and self._is_time(now, archived_bytes - sum(self._gone)):
                self._known_bytes = 0  # unless it goes well: then more would not help
                self._next = now + min(_MOST_SECONDS, self._retention)
                self._due = self._find_due(now)
                ended = self._clock()  # it may have listed millions
                self._next = max(self._next, ended + _LISTING_SHARE * (ended - now))
                try:  # what it gives back may be needed for the rest
                    tidied = self._retained is not None and self._retained.tidy()
                finally:
                    self._remove_due()
                self._known_bytes = archived_bytes - sum(self._gone)
        finally:
            if tidied or self._gone:
                self._on_expired()
        return sum(self._gone)

    def _look_anew(self) -> None:
        """Look anew: what is due by other limits may stay by these."""
        self._configured = False
        self._due.clear()
        self._known_bytes = 0
        self._next = self._clock()

    def _is_time(self, now: float, archived_bytes: int) -> bool:
        """Whether to look again, or whether there are more than the last look has left.

        The latter counts only above the limit.
        """
        if now >= self._next:
            return True
        most = self._most_bytes
        return most is not None and archived_bytes > max(most, self._known_bytes)

    def _find_due(self, now: float) -> list[FoundFile]:
        present = self._wall_clock() - self._steps(now)
        files = self._oldest_first()
        if (consumers := self._consumers) is not None:
            consumers.look()
            consumers.count(files, present, self._retention)
        due: list[FoundFile] = []
        others: list[FoundFile] = []
        for one in files:
            old = one.since < present - self._retention
            (due if old and self._is_read(one) else others).append(one)
        if (most := self._most_bytes) is not None:
            excess = sum(one.bytes for one in others) - most
            for one in sorted(others, key=self._is_unread):
                if excess <= 0:
                    break
                excess -= one.bytes
                due.append(one)
        return due

    def _is_read(self, file: FoundFile) -> bool:
        consumers = self._consumers
        return consumers is None or consumers.all_have(file.file)

    def _is_unread(self, file: FoundFile) -> bool:
        return not self._is_read(file)

    def _unlink(self, file: FoundFile) -> None:
        consumers = self._consumers
        if consumers is None:
            self._disk.unlink(self._archive / file.name)
            return
        missing = consumers.who_misses(file.file)
        self._disk.unlink(self._archive / file.name)
        for name in consumers.missed(missing):
            self._log.error(
                "Consumer {name} misses {file}, and maybe others: it had to leave the "
                "archive before it was read",
                name=name,
                file=file.name,
            )

    def _remove_due(self) -> None:
        """Remove what is due, as far as there is time."""
        begun = self._clock()
        until = begun + _SECONDS_AT_ONCE
        while self._due and not self._configured:
            some = _portion(self._due)
            noted = self._note([one.name for one in some])
            del self._due[: len(some)]  # what fails now is found again in a minute
            self._due[:0] = self._remove(some, noted=noted)
            if (ended := self._clock()) >= until:
                self._goes_on = ended + (ended - begun)
                break

    def make_room(self, enough: Callable[[], bool]) -> list[int]:
        """Remove the oldest files until there is *enough* room, or none is left, or a
        second is over.

        Returns their sizes; raises OSError.
        """
        now = self._clock()
        if now >= self._held_until:
            self._held.clear()
            self._held_until = now + _HELD_SECONDS
        if now >= self._next_listing:
            self._listed = sorted(self._oldest_first(), key=self._is_unread)
            ended = self._clock()
            self._next_listing = ended + _LISTING_SHARE * (ended - now)
        until = self._clock() + _SECONDS_AT_ONCE
        files = self._listed
        removed = noted = 0
        while removed < len(files) and not enough():
            if self._clock() >= until:
                break
            if not self._frees(files[removed]):
                del files[removed]
                noted -= noted > removed
                continue
            if noted == removed:
                noted = self._note_next(files, noted)
            self._unlink(files[removed])
            removed += 1
            if noted < removed:  # there may be room for it now
                self._unsaid[files[removed - 1].name] = None
                noted = self._note_next(files, noted)
        sizes = [one.bytes for one in files[:removed]]
        del files[:removed]
        if removed:
            self._on_expired()
        return sizes

    def _frees(self, file: FoundFile) -> bool:
        """Whether there is more room without this file; what is needed of it is kept."""
        if self._only_copy(file.file):
            return False
        path, retained = self._archive / file.name, self._retained
        if retained is None:
            return True
        with contextlib.suppress(OSError):  # no room to keep that
            if (
                path not in self._held
                and retained.frees(path)
                and list(retained.keep([path]))
            ):
                return True
        self._held.add(path)
        return False

    def _note_next(self, files: Sequence[FoundFile], noted: int) -> int:
        """Say of the next ones that they go; returns how many are noted then.

        Each time costs two syncs of a disk that is full.
        """
        some = files[noted : noted + _AT_ONCE]
        told = self._note([one.name for one in some])
        return noted + len(some) if told else noted

    def _remove(self, files: Sequence[FoundFile], *, noted: bool) -> list[FoundFile]:
        """Remove files; one that can not be read, and is needed, stays.

        Returns those for which there was no time: to keep what is needed may take long.
        """
        until = self._clock() + _SECONDS_AT_ONCE
        left = {self._archive / one.name: one for one in files}
        free: Iterable[Path] = [*left]
        if self._retained is not None:
            free = self._retained.keep([*left])
        for path in free:  # each as soon as it may, which makes room for the next
            self._unlink(left[path])
            self._gone.append(left.pop(path).bytes)
            if not noted:
                self._unsaid[path.name] = None
            if self._clock() >= until:
                break
        else:
            left.clear()  # these have to stay
        if self._unsaid:
            self._note(())
        return [*left.values()]

    def _note(self, names: Iterable[str]) -> bool:
        """Say that they go; a disk that is full must not prevent that they do.

        It is said once there is room.  Any other failure of the disk does prevent it, or
        the audit would take them for removed by others.  Raises OSError.
        """
        try:
            self._before([*self._unsaid, *names])
        except OSError as why:
            if why.errno not in NO_ROOM:
                raise
            return False
        self._unsaid.clear()
        return True

    def _oldest_first(self) -> list[FoundFile]:
        found: list[FoundFile] = []
        ours: dict[str, bool] = {}
        for name in self._disk.names(self._archive):
            if (file := parse_file_name(name)) is None:
                continue
            node = file.node
            if node not in ours:
                ours[node] = self._ours(node)
            if not ours[node]:
                continue
            with contextlib.suppress(FileNotFoundError):  # somebody else removed it
                path = self._archive / name
                since = self._disk.changed(path)
                found.append(FoundFile(since, name, self._disk.size(path), file))
        return sorted(found)

    def _steps(self, now: float) -> float:
        """Seconds by which the wall clock was set forward lately."""
        offset = self._wall_clock() - now
        step, self._offset = offset - self._offset, offset
        if step > _STEP_SECONDS:
            self._set_forward.append((now, step))
        since = now - self._retention
        self._set_forward = [each for each in self._set_forward if each[0] > since]
        return sum(step for _, step in self._set_forward)


def _portion(files: Sequence[FoundFile]) -> list[FoundFile]:
    """The first of them, as many as are removed at once; one at least."""
    some: list[FoundFile] = []
    total = 0
    for one in files[:_AT_ONCE]:
        if some and total + one.bytes > _BYTES_AT_ONCE:
            break
        some.append(one)
        total += one.bytes
    return some
