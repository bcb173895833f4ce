"""A node's name in a bucket: one gateway has it, and answers when another asks for it.

A directory is locked by the operating system; a bucket has no lock, and a lease needs
clocks that agree and renewals in time.  So a gateway that starts asks, and who runs
answers: what is silent for `PATIENCE` seconds is gone, and its name is taken over.  What is
written is written by compare and swap, so of two that take over at once one does.

One that was silent may only have been stopped for a while.  So nothing counts as uploaded
before the name was seen to be ours *after* the request for it had ended (`confirm`), and
what arrives all the same is fenced (`gateway.store.word`).

The word says how far its holder has acknowledged, as of the last look or upload: whoever
comes after a disk that is lost goes on behind that, and says what is missing.  It is there
for good, also after a clean stop, and once a node was forgotten (`gateway spark forget`).

While nobody starts, a look now and then and a swap for each file are all that it costs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec
from attrs import define
from twisted.logger import Logger

from gateway.sdk.disk import Disk
from gateway.store import incarnation, word
from gateway.store.bucket import AlreadyThere, Bucket, BucketError, Changed
from gateway.store.incarnation import Incarnation
from gateway.store.lake import End
from gateway.store.word import UNDECIDED, Holder, Reached, Word, encode, name_of

PATIENCE = 15.0
"""Seconds in which whoever serves the name answers."""
_LOOK = 3.0
_ASK_AGAIN = 0.5
_STOP_SECONDS = 5.0
"""A stop does not wait for a request that hangs."""
REQUEST_SECONDS = 4.0
"""The most that a request of a claim takes: a look and its answer fit in `PATIENCE`."""
_AWAY_LOOKS = 3
"""So many that fail in a row are told; one is what any network does."""
_MOST_FENCED = _MOST_ENDED = 50
_MOST_CHANGES = 20
"""Whoever meets so many in a row writes to a server that knows no tags."""


class Taken(BucketError):
    """Another gateway, *holder*, serves this node's name; the text names both."""

    def __init__(self, text: str, holder: Holder) -> None:
        super().__init__(text)
        self.holder = holder


class Forgotten(BucketError):
    """The node was forgotten: its lsns are used, and nobody gives them again."""


def _now() -> float:
    """Seconds that pass while this machine is suspended, too, where that is known."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@define
class _Life:
    """Of the journal that has the name."""

    own: Incarnation
    here: int
    """The last lsn that its own disk knew to be given, when it was opened."""
    ack: str
    acknowledged: Callable[[], int]
    wanted: int = 0
    """An lsn that is to be acknowledged once the word says it."""

    def goes_on_from(self, before: Reached) -> bool:
        """Whether all that was acknowledged then was known here."""
        return before.is_behind(self.own, self.here)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a claim stood at one moment: its thread may change it meanwhile."""

    unclaimed: str | None = None
    """Why it is not known whether another gateway has the name, if so."""
    said: Word | None = None
    """What the word said when we had it."""
    fenced: int | None = None
    """See `lineage.go_on`."""


@define(eq=False, slots=False)
class Claim:
    """Of *me* to the name *node*: `take` it, `watch` it, `release` it or just `stop`.

    *bucket* ends its requests within `REQUEST_SECONDS`; *clock*, *sleep* and *wall_clock*
    are the machine's, but in tests.
    """

    _log = Logger()

    bucket: Bucket
    node: str
    me: Holder
    _clock: Callable[[], float] = _now
    _sleep: Callable[[float], None] = time.sleep
    _wall_clock: Callable[[], float] = time.time
    ids: Collection[str] = ()
    """The incarnations that the journal has had, as far as it says."""

    def __attrs_post_init__(self) -> None:
        self.held = False
        self.why: str | None = None
        """Why it is not known whose the name is, if a request for it failed."""
        self.taken_over = False
        """Whether somebody else has given lsns since this journal had the name last: it
        begins another incarnation (`known_as`)."""
        self.fence = UNDECIDED
        """Behind which lsn what it gave before that is refused, if that was said."""
        self.found: Word | None = None
        """What the object said when the name was had, if there was one."""
        self._life: _Life | None = None
        """None until the journal is open."""
        self._behind: int | None = None
        """The last lsn before this life's, once that is known."""
        self._said = Word()
        """What the object said last …"""
        self._tag = ""
        """… and its tag; empty if that is not known."""
        self._seen = -float("inf")
        """When the request began that has seen the name to be ours, last."""
        self._lost: str | None = None
        """Why the name is no longer ours, once that was seen."""
        self._on_lost: Callable[[str], None] | None = None
        self._on_had: Callable[[], None] | None = None
        self._looking = threading.RLock()
        """Whoever has it looks; the word of others waits for it."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def standing(self) -> Standing:
        """How it stands now."""
        return Standing(
            unclaimed=None if self.held else self.why,
            said=self.found,
            fenced=self.fence if self.taken_over else None,
        )

    @classmethod
    def by(cls, bucket: Bucket, node: str, journal: Path, disk: Disk) -> Claim:
        """Of who has that node's *journal*.  Raises OSError."""
        known, _ = incarnation.read(journal, disk)
        here = known is not None and known.lives_in(disk.identity(journal))
        me = Holder.here(journal, known.id if known and here else "")
        ids = () if known is None else (known.id, *known.earlier)
        return cls(bucket, node, me, ids=ids)

    def take(self) -> str | None:
        """Hold the name; a sentence if it is taken over from one that does not answer.

        Blocks.  Raises `Taken`, `Forgotten`, `BucketError`.
        """
        try:
            return self._take()
        except (Taken, Forgotten):
            raise
        except BucketError as why:
            self.why = str(why)
            raise

    def _take(self) -> str | None:
        for _ in range(_MOST_CHANGES):
            began, told = self._clock(), None
            if (found := word.read(self.bucket, self.node)) is None:
                with contextlib.suppress(AlreadyThere):
                    self._create(Word(self.me))
                    self.held, self._seen, self.found = True, began, None
                    return None
                continue
            said, tag = found
            if said.forgotten is not None:
                raise Forgotten(
                    f"node {self.node} of {self.bucket.url} was forgotten (gateway spark"
                    f" forget) with lsns up to {said.forgotten}: what it gave under them"
                    " again would be taken for what the tables have; give this gateway"
                    " another `node`"
                )
            before, fenced = said.holder, dict(said.fenced)
            if before is not None and not self._mine(before):
                if (silent := self._silent(before, found)) is None:
                    continue
                tag = silent
                if before.fence != self.me.fence:
                    fenced.pop(before.fence, None)
                    fenced[before.fence] = UNDECIDED
                told = (
                    f"node {self.node} of {self.bucket.url} was served by {before},"
                    f" which has not answered for {PATIENCE:g} s: it is taken over"
                )
            while len(fenced) > _MOST_FENCED:
                del fenced[next(iter(fenced))]
            mine = msgspec.structs.replace(
                said,
                holder=self.me,
                asks=None,
                refused="",
                fenced=self._decided(fenced),
                reached=self._open_again(said.reached),
            )
            with contextlib.suppress(Changed):
                self._write(mine, tag)
                self.held, self._seen, self.found = True, began, said
                self.taken_over = self.me.fence in fenced
                self.fence = fenced.get(self.me.fence, UNDECIDED)
                return told
        raise self._ever_changing()

    def _open_again(self, before: Reached | None) -> Reached | None:
        """It had ended in good order, and now it goes on, if it is ours."""
        mine = (self.me.incarnation, *self.ids)
        if before is None or before.incarnation not in mine:
            return before
        return msgspec.structs.replace(before, exact=False)

    def _ever_changing(self) -> BucketError:
        return BucketError(
            f"{self.bucket.url}/{name_of(self.node)} is another one whenever it is written:"
            " does this server know PUTs with If-Match?"
        )

    def _mine(self, holder: Holder) -> bool:
        return holder.run == self.me.run or self.me.was(holder)

    def _decided(self, fenced: dict[str, int]) -> dict[str, int]:
        """*fenced*, with where we go on, as far as that is known."""
        if self._behind is None:
            return fenced
        return {
            each: self._behind if last == UNDECIDED else last
            for each, last in fenced.items()
        }

    def _silent(self, holder: Holder, found: tuple[Word, str]) -> str | None:
        """Ask *holder*: the object's tag if there is no answer; None if it is another one
        by now.

        Whom it had refused before does not matter.  Whom it refuses after that, it lives:
        others may ask at the same time, and their questions take each other's place.
        """
        self._log.info(
            "Node {node} of {bucket} is or was served by {holder}; it is asked, for"
            " {seconds:g} s",
            node=self.node,
            bucket=self.bucket.url,
            holder=str(holder),
            seconds=PATIENCE,
        )
        said, tag = found
        # Or an attempt that a failed request ended.
        refused = "" if said.refused == self.me.run else said.refused
        try:
            self._ask(said, refused, tag)
        except Changed:
            return None
        until = self._clock() + PATIENCE
        while True:
            self._sleep(_ASK_AGAIN)
            late = self._clock() >= until  # before the request, which may take long
            again = word.read(self.bucket, self.node)
            if again is None or again[0].holder != holder:
                return None
            said, tag = again
            if said.forgotten is not None:
                return None
            if said.refused not in ("", refused):
                raise Taken(self._both(holder), holder)
            if self._ending.is_set():
                raise BucketError(f"node {self.node} is not asked for: a stop")
            if late:
                return tag
            if said.asks != self.me:  # or another one's question is in its place
                with contextlib.suppress(Changed):
                    self._ask(said, said.refused, tag)

    def _ask(self, said: Word, refused: str, tag: str) -> None:
        asking = msgspec.structs.replace(said, asks=self.me, refused=refused)
        self._write(asking, tag)

    def look(self) -> str | None:
        """Answer whoever asks; a sentence if somebody else has taken the name.

        Raises `BucketError`.
        """
        with self._looking:
            if self._lost is None:
                self._lost = self._look()
                if self._lost is not None:
                    self.held = False
            return self._lost

    def _look(self) -> str | None:
        if not self.held:  # the bucket was away at the start
            try:
                told = self.take()
            except (Taken, Forgotten) as why:
                return str(why)
            if told is not None:
                self._log.warn("{told}", told=told)
            if self.taken_over:
                return (
                    f"node {self.node} of {self.bucket.url} was taken over from this"
                    f" gateway, {self.me}, while that did not answer: start it again, and"
                    " it goes on behind what the other one has given"
                )
            return self._meanwhile()
        for _ in range(_MOST_CHANGES):
            began = self._clock()
            found = word.read(self.bucket, self.node)
            # Whoever is faster asks, or takes the name.
            with contextlib.suppress(AlreadyThere, Changed):
                if found is None:
                    self._create(self._renewed(Word(self.me)))
                elif (lost := self._why_not(found[0])) is not None:
                    return lost
                else:
                    self._said, self._tag = found
                    self._answer(*found)
                self._seen = began
                return None
        raise self._ever_changing()

    def _meanwhile(self) -> str | None:
        """Who has given lsns since the journal was opened, when the bucket was away."""
        before = None if self.found is None else self.found.reached
        if self._life is None or self._behind is None or before is None:
            return None
        if self._life.goes_on_from(before) or before.lsn <= self._behind:
            return None
        return (
            f"another gateway of node {self.node} of {self.bucket.url}, incarnation"
            f" {before.incarnation or 'unknown'}, has given lsns up to {before.lsn}; this"
            f" one, {self.me}, could not know, and gives those behind {self._behind}: start"
            " it again, and it goes on behind what the other one has given"
        )

    def _why_not(self, said: Word) -> str | None:
        if said.forgotten is not None:
            return f"node {self.node} of {self.bucket.url} was forgotten while it ran"
        if said.holder is not None and said.holder.run != self.me.run:
            return self._both(said.holder)
        fenced = self.me.fence in said.fenced and not self.taken_over
        # Who had taken it over may have ended before it gave any.
        others = said.reached is not None and (
            said.reached.incarnation != self.me.incarnation
        )
        if fenced or (said.holder is None and others):
            return (
                f"node {self.node} of {self.bucket.url} was taken over from this gateway,"
                f" {self.me}, and let go of: start it again, and it goes on behind what"
                " the other one has given"
            )
        return None

    def _answer(self, said: Word, tag: str) -> None:
        now = self._renewed(said)
        if now == said:
            return
        self._write(now, tag)
        if said.asks is not None:
            self._log.warn(
                "Another gateway has this one's node, {node}, and is refused: {other}",
                node=self.node,
                other=str(said.asks),
            )

    def _renewed(self, said: Word) -> Word:
        """What the object is to say now, where it says *said*."""
        return msgspec.structs.replace(
            said,
            holder=self.me,
            asks=None,
            refused=said.refused if said.asks is None else said.asks.run,
            fenced=self._decided(dict(said.fenced)),
            reached=self._reached(said),
            ended=self._ended(said),
        )

    def _reached(self, said: Word) -> Reached | None:
        """How far we are; never less than what it says of those that we go on from."""
        life, before = self._life, said.reached
        if life is None:
            return before
        own = life.own
        lsn = max(life.acknowledged(), life.wanted)
        if before is not None and life.goes_on_from(before):
            by_journal = before.ack == "journal" != life.ack
            lsn = max(lsn, before.lsn, life.here if by_journal else 0)
        elif before is not None and before.incarnation == own.id:
            lsn = max(lsn, before.lsn)
        at = self._wall_clock()
        if before is not None and (before.incarnation, before.lsn) == (own.id, lsn):
            at = before.at
        return Reached(own.id, own.since, lsn, at, life.ack, earlier=own.whole)

    def _ended(self, said: Word) -> dict[str, End]:
        """With how the one before us ended, unless this directory goes on from it."""
        ended, life, before = dict(said.ended), self._life, said.reached
        if life is None:
            return ended
        mine = (life.own.id, *life.own.whole)
        for each in mine:  # its disk is back, with all of it
            if each in ended and ended[each].acknowledged <= life.here:
                del ended[each]
        if before is None or before.incarnation == life.own.id:
            return ended
        # Also one that has acknowledged nothing: files of it may be in the bucket.
        if life.goes_on_from(before):
            return ended
        ended.pop(before.incarnation, None)
        ended[before.incarnation] = End(
            before.lsn,
            before.at,
            before.ack,
            before.all_told,
            self._wall_clock(),
            before.since,
        )
        return dict([*ended.items()][-_MOST_ENDED:])

    def check(self) -> None:
        """Raise `BucketError` unless the name was seen to be ours a moment ago."""
        since = self._clock() - (_LOOK + REQUEST_SECONDS)
        if self._seen > since and self._lost is None:
            return  # and wait for no request of somebody else's
        with self._looking:
            if self._seen <= since or self._lost is not None:
                self._look_or_raise()

    def confirm(self, lsn: int = 0) -> None:
        """Raise `BucketError` unless the name was ours after this call, when the word
        said that all up to *lsn*, at least, may be acknowledged.

        One request as a rule, which threads that call at once share.
        """
        since = self._clock()
        with self._looking:
            life = self._life
            if life is not None:
                life.wanted = max(life.wanted, lsn)
            if self._seen > since and self._lost is None and self._says(lsn):
                return
            if not (self.held and self._tag and self._swapped()):
                self._look_or_raise()

    def _says(self, lsn: int) -> bool:
        said = self._said.reached
        return self._life is None or (
            said is not None
            and said.incarnation == self._life.own.id
            and said.lsn >= lsn
        )

    def _swapped(self) -> bool:
        """Write the word in place of the one that was seen last, which was ours; whether
        it was there still.
        """
        began = self._clock()
        try:
            self._write(self._renewed(self._said), self._tag)
        except Changed:
            return False
        self._seen = began
        return True

    def _look_or_raise(self) -> None:
        if (lost := self.look()) is not None:
            raise BucketError(lost)

    def known_as(
        self,
        own: Incarnation,
        behind: int,
        *,
        here: int = 0,
        ack: str = "journal",
        acknowledged: Callable[[], int] = lambda: 0,
    ) -> None:
        """The journal has an incarnation now, which goes on behind an lsn; the bucket is
        told, now if it answers, or by the next look.

        Raises `BucketError` where it does not answer and has never heard of this directory:
        if that were lost before the next look, nobody could miss what it had acknowledged.

        *here*: see `_Life`; *acknowledged* says how far it is, in any thread.
        """
        with self._looking:
            self.me = msgspec.structs.replace(self.me, incarnation=own.id)
            self._behind = behind
            self._life = _Life(own, here, ack, acknowledged)
            self.taken_over = False
            if self.held:  # maybe since the journal was opened, which did not know then
                self._lost = self._meanwhile()
                self.held = self._lost is None
            if self.held:
                try:
                    self.look()
                except BucketError as why:
                    if not self._was_heard_of(own):
                        raise BucketError(
                            f"{self.bucket.url} has to know of {self.me} before this"
                            f" acknowledges anything as node {self.node}: {why}"
                        ) from None

    def _was_heard_of(self, own: Incarnation) -> bool:
        """Whether the word said of this directory how far it was, when the name was taken."""
        before = None if self.found is None else self.found.reached
        return before is not None and before.is_of(own)

    def begin(self) -> None:
        """Look now and then, in a thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="claim", daemon=True)
            self._thread.start()

    def watch(
        self, lost: Callable[[str], None], had: Callable[[], None] = lambda: None
    ) -> None:
        """`begin`; *lost* is told once, and then nothing is, *had* when the name is held.

        Both in the thread.  What *had* raises as `BucketError` is tried again.
        """
        self._on_lost, self._on_had = lost, had
        self.begin()

    def _run(self) -> None:
        failures = 0
        while not self._ending.wait(_LOOK):
            try:
                why = self.look()
                had = self._on_had
                if why is None and self.held and had is not None:
                    had()
                    self._on_had = None
            except Exception as error:
                failures += 1
                self._tell_failed(error, failures)
                continue
            failures = 0
            if why is not None and self._on_lost is not None:
                self._on_lost(why)
                return

    def _tell_failed(self, why: Exception, times: int) -> None:
        """A look has failed, so often in a row."""
        if not isinstance(why, BucketError):
            if times == 1:
                self._log.failure("Node {node} of its bucket: a look", node=self.node)
        elif times == _AWAY_LOOKS:
            self._log.error(
                "Whether another gateway has node {node} of {bucket} can not be known: "
                "{why}.  It is looked for again until it can, and who starts as {node} "
                "meanwhile gets no answer",
                node=self.node,
                bucket=self.bucket.url,
                why=str(why),
            )

    def stop(self) -> None:
        """Answer nobody any more; the name stays as it is.  Blocks."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(_STOP_SECONDS)

    def keep(self) -> None:
        """`stop`, after the journal's end: say that nothing more is acknowledged."""
        self.stop()
        self._leave(self.me)

    def release(self) -> None:
        """Likewise, and let go of the name, so that the next start need not wait."""
        self.stop()
        self._leave(None)
        self.held = False

    def _leave(self, holder: Holder | None) -> None:
        with self._looking, contextlib.suppress(BucketError):
            found = word.read(self.bucket, self.node) if self.held else None
            if found is None or self._lost is not None:
                return
            said, tag = found
            if said.holder is None or said.holder.run != self.me.run:
                return
            now = self._renewed(said)
            reached = now.reached
            if self._life is not None and reached is not None:
                reached = msgspec.structs.replace(reached, exact=True)
            # Where nobody has given lsns since, there is nothing to fence.
            fences = now.fenced.items()
            asked = holder is not None
            left = Word(
                holder,
                asks=said.asks if asked else None,
                refused=said.refused if asked else "",
                fenced={each: last for each, last in fences if last != UNDECIDED},
                reached=reached,
                ended=now.ended,
            )
            if left == Word():
                self.bucket.remove(name_of(self.node))
            else:
                self._write(left, tag)

    def served(self, silent: dict[str, str]) -> str | None:
        """Why nobody else may upload under this name, a sentence; None: nobody has it.

        Who may have it is asked, as by `take`.  Who did not answer is in *silent*, by node,
        and not asked again as long as the question stands there.  Blocks; raises
        `BucketError`.
        """
        node = f"node {self.node} of {self.bucket.url}"
        for _ in range(_MOST_CHANGES):
            if (found := word.read(self.bucket, self.node)) is None:
                return None
            said, holder = found[0], found[0].holder
            if said.forgotten is not None:
                return f"{node} was forgotten"
            if self.me.fence in said.fenced:
                return f"{node} was taken over"
            if holder is None or self._mine(holder):
                return None
            if silent.get(self.node) == holder.run and said.asks is not None:
                return None
            try:
                if self._silent(holder, found) is not None:
                    silent[self.node] = holder.run
                    return None
            except Taken:
                return f"{node} is served by {holder}"
        raise self._ever_changing()

    def forget(self, lsn: int) -> None:
        """Let nobody have the name any more, which is held.  Raises `BucketError`."""
        found = word.read(self.bucket, self.node)
        if found is None or found[0].holder is None or not self._mine(found[0].holder):
            raise Changed(f"{name_of(self.node)} is another gateway's by now")
        self._behind = lsn
        said, tag = found
        fenced = self._decided(dict(said.fenced))
        forgotten = Word(
            forgotten=lsn, fenced=fenced, reached=said.reached, ended=said.ended
        )
        self._write(forgotten, tag)
        self.held = False

    @property
    def unvouched(self) -> dict[str, End]:
        """Who ended so that nobody knows what was acknowledged last, as was said last."""
        ended = self._said.ended.items() if self.held else ()
        return {each: end for each, end in ended if not end.exact}

    def read(self) -> Word | None:
        """What the object says; None if there is none.  Raises `BucketError`."""
        found = word.read(self.bucket, self.node)
        return None if found is None else found[0]

    def _create(self, said: Word) -> None:
        self._tag = ""
        tag = self.bucket.create(name_of(self.node), encode(said))
        self._said, self._tag = said, tag

    def _write(self, said: Word, tag: str) -> None:
        self._tag = ""  # whatever becomes of it, the one that was seen is gone
        tag = self.bucket.swap(name_of(self.node), encode(said), tag)
        self._said, self._tag = said, tag

    def _both(self, other: Holder) -> str:
        return (
            f"two gateways have node {self.node} of {self.bucket.url}: {other}; and this"
            f" one, {self.me}.  Give one of them another `node`"
        )


def claimed(
    bucket: Bucket, node: str, journal: Path, disk: Disk, tell: Callable[[str], None]
) -> Claim:
    """The node's name in its bucket, which this gateway has from now on.

    Where a request fails it is not held: a start that may go on then claims it later, and
    uploads nothing before.  Raises `Taken`, `Forgotten`, OSError.
    """
    claim = Claim.by(bucket, node, journal, disk)
    try:
        told = claim.take()
    except (Taken, Forgotten):
        raise
    except BucketError:
        told = None
    if told is not None:
        tell(told)
    return claim
