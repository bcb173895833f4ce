"""The moment through which the tables are complete: no acknowledged event that came before it
is missing, or may yet come.

    gateways    say again and again up to which moment they have told all (`Through`)
    the ledger  says which of their lsns are in the tables, or accepted to be in none
    `Lives`     says of each incarnation who goes on from it, and whether its end is known

The least moment over all incarnations that have not ended counts.  One that has ended holds
nothing, once all its lsns are there.  Where one holds, it is named, and why.

Nothing here reads a clock, a disk or a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gateway.store import lsns as ranges
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.node.lives import Heard, Lives, Reason
from gateway.store.node.through import Through
from gateway.store.readers.lake import INTERNAL, Accepted, said_complete

CLOCK_SECONDS = 60.0
"""Seconds that a gateway's clock may differ from that of bucket or hub, before it is told."""
HOLDS_SECONDS = 300.0
"""Seconds that an incarnation may be behind before it is told to hold the rest."""
_DAY = 86_400 * 10**6
_EPOCH = date(1970, 1, 1).toordinal()
_GREATEST = 2**62
_MOST_TAKEN_BACK = 100

NAMELESS = "the job without a name (spark.job)"
MARKER = "_COMPLETE-"
"""The name of a day's marker begins with that; readers of tables pass it over."""


class Holder(NamedTuple):
    """An incarnation that keeps the tables from being complete through a later moment."""

    node: str
    incarnation: str
    through: int | None
    """The moment up to which it has told all that is in the tables, in microseconds."""
    why: str
    """The reason: what follows its name in a sentence."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """How far the tables are complete, as their ledger has it."""

    through: int | None = None
    """Microseconds since the epoch, by the clocks of the gateways; None: it is not known."""
    of_lives: Mapping[Life, int] = field(default_factory=dict)
    """The same of each incarnation that has not ended."""
    waits: Mapping[Life, Through] = field(default_factory=dict)
    """Words of some, whose events are not all in the tables yet: they count once these are."""
    days: Lsns = field(default_factory=Lsns)
    """Days that were said to be complete, by `date.toordinal`, and not taken back: with the first
    one all that were before it."""
    since: int = 0
    """The first one that was said, and has a mark; 0: none was yet."""
    taken_back: Mapping[int, int] = field(default_factory=dict)
    """How often days were taken back, as something came late."""

    def has(self, day: date) -> bool:
        """Whether that day was said to be complete."""
        return self.days.covers(day.toordinal(), day.toordinal())

    def due(self) -> list[int]:
        """The days that are complete, and not said to be: those since the last one, or the
        last one of all; and those that were taken back.
        """
        if self.through is None:
            return []
        last = day_of(self.through + 1) - 1
        if not self.since:
            return [last]
        unsaid = Lsns([(1, last)]) - self.days
        return [day for first, end in unsaid for day in range(first, end + 1)]

    def now(self, found: Completeness | None) -> Completeness:
        """This, with the moments that a look has *found* since, if there was one."""
        if found is None:
            return self
        return replace(
            self, through=found.through, of_lives=found.of_lives, waits=found.waits
        )

    def _said(self, day: int) -> bool:
        return self.days.covers(day, day)

    def saying(self, days: Iterable[int]) -> Completeness:
        """This, once these *days* are said to be complete."""
        new = Lsns((day, day) for day in days)
        if self.since or not new:
            return replace(self, days=self.days | new)
        return replace(self, days=Lsns([(1, new.last)]), since=new.last)

    @property
    def held_back(self) -> list[int]:
        """The days that were taken back, and not said since."""
        return [day for day in self.taken_back if not self._said(day)]

    def late(self, days: Collection[float]) -> list[int]:
        """The ones of these *days* that were said to be complete: all, if any may be."""
        if math.inf in days:  # nobody knows
            days = range(self.since, self.days.last + 1)
        return sorted(int(day) for day in days if self._said(int(day)))

    def without(self, days: Iterable[int]) -> Completeness:
        """This, with these *days* taken back."""
        days = set(days)
        if not days:
            return self
        back = {**self.taken_back}
        for day in sorted(days):
            back[day] = back.get(day, 0) + 1
        newest = sorted(back)[-_MOST_TAKEN_BACK:]
        return replace(
            self,
            days=self.days - Lsns((day, day) for day in days),
            taken_back={day: back[day] for day in newest},
        )

    def plain(self) -> dict[str, Any]:
        """The same for JSON, as `read` takes it."""
        of: dict[str, dict[str, int]] = {}
        waits: dict[str, dict[str, Through]] = {}
        for (node, by), at in sorted(self.of_lives.items()):
            of.setdefault(node, {})[by] = at
        for (node, by), said in sorted(self.waits.items()):
            waits.setdefault(node, {})[by] = said
        days = [[spelled(first), spelled(last)] for first, last in self.days]
        back = {spelled(day): times for day, times in self.taken_back.items()}
        return {
            "through": self.through,
            "of": of,
            "waits": waits,
            "days": days,
            "since": spelled(self.since) if self.since else None,
            "taken_back": back,
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Completeness:
        """The one whose `plain` it is.  Raises ValueError, KeyError, TypeError."""
        return cls(
            plain["through"],
            {
                Life(node, by): int(at)
                for node, lives in plain["of"].items()
                for by, at in lives.items()
            },
            {
                Life(node, by): Through(*map(int, said))
                for node, lives in plain["waits"].items()
                for by, said in lives.items()
            },
            Lsns((_ordinal(first), _ordinal(last)) for first, last in plain["days"]),
            _ordinal(plain["since"]) if plain["since"] else 0,
            {_ordinal(day): int(times) for day, times in plain["taken_back"].items()},
        )


def of_lake(lake: Path) -> Completeness:
    """The completeness of the tables in *lake*, as the job's ledger has it, but for days that the
    job is about to take back.

    Raises OSError, and ValueError for a ledger that is damaged or of a newer version.
    """
    again, found = requeued_days(lake), said_complete(lake)
    try:
        known = Completeness.read(found) if found else Completeness()
    except (KeyError, TypeError) as why:
        raise ValueError(f"{lake}: the ledger says {why!r}") from None
    return known.without(known.late(again))


def requeued_path(lake: Path, day: int) -> Path:
    """The word that rows of that day leave quarantine for other tables; the job removes it."""
    return lake / INTERNAL / "requeued" / spelled(day)


def requeued_days(lake: Path) -> list[int]:
    """The days of which rows leave quarantine, or have left it, as far as the job has not said
    anything of them since.
    """
    return [
        _ordinal(path.name) for path in (lake / INTERNAL / "requeued").glob("[!.]*")
    ]


def day_of(micros: int) -> int:
    """The day of a moment, in UTC, by `date.toordinal`."""
    return _EPOCH + micros // _DAY


def spelled(day: int) -> str:
    """A day, by `date.toordinal`, as people read it."""
    return date.fromordinal(day).isoformat()


def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


def moment(micros: int) -> str:
    """A moment as people read it: `2026-11-29 09:41:00 UTC`."""
    at = datetime.fromtimestamp(micros // 10**6, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


class Found(NamedTuple):
    """The findings of one look."""

    completeness: Completeness
    holders: Sequence[Holder]
    """The ones that hold more than a little, who holds most first."""
    clocks: Mapping[str, float]
    """The seconds by which clocks of nodes are ahead, or behind, if by much."""


class Job(NamedTuple):
    """The job's knowledge of the lsns of incarnations, and its findings before."""

    committed: Callable[[Life], Lsns]
    """Gives those that are in the tables."""
    waiting: Mapping[Life, Lsns]
    """The ones of files that it has not taken."""
    aside: Mapping[Life, Lsns]
    """The ones that could not be read."""
    accepted: Sequence[Accepted]
    """The ones that may be missing."""
    before: Completeness


def look(
    nodes: Mapping[str, tuple[Lives, Sequence[Heard]]],
    job: Job,
    unread: Mapping[str, str],
    now: int,
) -> Found:
    """How far the tables are complete, at *now* in microseconds.

    *nodes* has what is known of each, and their words; *unread* are those with a word that can
    not be read, and why: it may be a new gateway's.
    """
    looks = [_Node(node, lives, heard, job) for node, (lives, heard) in nodes.items()]
    holders = [holder for one in looks for holder in one.holders()]
    of_lives = {
        Life(one.node, one.incarnation): one.through
        for one in holders
        if one.through is not None
    }
    waits = {life: said for one in looks for life, said in one.waits.items()}
    # Of these nobody has said since when they are.
    for node, why in unread.items():
        why_not = f"has said something that can not be read: {why}"
        holders.append(Holder(node, "", job.before.through, why_not))
    for life, lsns in job.waiting.items():
        if life.node not in nodes or life.incarnation not in nodes[life.node][0].by:
            why_not = f"has {_spans(lsns)} in a file that waits"
            holders.append(Holder(*life, job.before.through, why_not))
    moments = [one.through for one in holders if one.through is not None]
    through = None
    if nodes and len(moments) == len(holders):
        through = min([now, *moments])
    slow = now - int(HOLDS_SECONDS * 10**6)
    holders = [one for one in holders if (one.through or 0) <= slow]
    holders.sort(key=lambda one: (one.through or 0, one.node, one.incarnation))
    return Found(
        replace(job.before, through=through, of_lives=of_lives, waits=waits),
        holders,
        {one.node: off for one in looks if abs(off := one.clock_off) > CLOCK_SECONDS},
    )


def held_by_jobs(others: Mapping[str, Completeness], now: int) -> Iterator[Holder]:
    """The *others* of several jobs of one table, by name, whose last commit says that they were
    behind by more than a little, or nothing.
    """
    for job, known in others.items():
        if (known.through or 0) <= now - int(HOLDS_SECONDS * 10**6):
            why = "has not said through which moment its rows are complete"
            if known.through is not None:
                why = f"said last that its rows are complete through {moment(known.through)}"
            yield Holder(job, "", known.through, why)


class _Node:
    """One node, as one look finds it."""

    def __init__(
        self, node: str, lives: Lives, heard: Sequence[Heard], job: Job
    ) -> None:
        self.node, self._lives, self._job = node, lives, job
        self._heard = {one.record.incarnation: one for one in heard}
        self._accepted = [one for one in job.accepted if one.node == node]
        self.waits: dict[Life, Through] = {}

    @property
    def clock_off(self) -> float:
        """The seconds by which its clock is ahead of that where its words are."""
        off = [one.record.at - one.at for one in self._heard.values() if one.lately]
        return max(off, key=abs, default=0.0)

    def holders(self) -> Iterator[Holder]:
        """Each incarnation that has not ended, or not with all that it gave."""
        for each in list(self._lives.by):
            life, known = Life(self.node, each), self._lives.of(each)
            there = self._job.committed(life)
            last = max(there.last, known.said, self._lives.gave.get(each, 0))
            why = self._lives.reason(each, last)
            end = self._end(each, last, why)
            settled = there | self._may_lack(each, ended=end is not None)
            # Of one that began nobody knows where, and of which nothing came, none is missed.
            since = known.since or next(iter(there), ((end or 0) + 1, 0))[0]
            if end is not None:
                missing = Lsns([(since, end)]) - settled
                # A last word may be a minute old, and files of that minute be there.
                if missing := missing | (self._job.waiting.get(life, Lsns()) - there):
                    why_not = self._why_missing(life, missing)
                    yield Holder(*life, self._told_before(life), why_not)
            else:
                through = self._told(life, since, settled)
                behind = self._why_behind(life, last, why, settled)
                yield Holder(*life, through, behind)

    def _may_lack(self, each: str, *, ended: bool) -> Lsns:
        """The lsns that were accepted as lost; what one left behind is not, if it goes on."""
        return Lsns(
            (one.first, _GREATEST if one.last is None else one.last)
            for one in self._accepted
            if one.incarnation in ("", each) and (ended or one.last is not None)
        )

    def _end(self, each: str, last: int, why: Reason) -> int | None:
        """The last lsn that it gave, if that is known, and none follows."""
        if why is Reason.DERIVED:
            return 0
        known, lives = self._lives.of(each), self._lives
        # Of a disk that is gone what was not in the bucket was not acknowledged, either.
        lost = known.ack == "spool" and lives.spoken_since(each)
        if lost and lives.has_directory(each) is None:
            return known.said
        if why is Reason.CONTINUED:
            return max(lives.follows(each).values()) - 1
        if known.decommissioned and not known.lately:
            return known.said
        accepts = (one.has_end_of(self.node, each, last) for one in self._accepted)
        return last if not why.vouches and any(accepts) else None

    def _told(self, life: Life, since: int, settled: Lsns) -> int | None:
        """The moment up to which all is in the tables, as far as it has said."""
        heard = self._heard.get(life.incarnation)
        newest = None if heard is None else heard.record.through
        told = self._job.before.of_lives.get(life)
        for said in (self._job.before.waits.get(life), newest):
            if said is None or (told is not None and said.at <= told):
                continue
            if Lsns([(since, said.lsn)]) - settled:
                self.waits[life] = said
                break
            told = said.at
        return self._told_before(life) if told is None else told

    def _told_before(self, life: Life) -> int | None:
        """The moment that it had told all up to, or else one before which nothing of it came.

        That is the one of its directory's incarnation before it, or when it began.  The latter
        is earlier where the clock was set back, or a copy of the directory goes on.
        """
        heard, of_lives = self._heard.get(life.incarnation), self._job.before.of_lives
        if (told := of_lives.get(life)) is not None:
            return told
        moments = []
        seen, each = {life.incarnation}, self._lives.of(life.incarnation).before
        while each and each not in seen:
            if (told := of_lives.get(Life(self.node, each))) is not None:
                moments.append(told)
                break
            seen.add(each)
            each = self._lives.of(each).before
        if heard is not None and heard.record.through and heard.record.began:
            moments.append(int(heard.record.began * 10**6) - 1)
        return min(moments, default=None)

    def _why_missing(self, life: Life, missing: Lsns) -> str:
        if aside := missing & self._job.aside.get(life, Lsns()):
            return f"has {_spans(aside)} in a file that could not be read (poison)"
        if holes := missing & self._lives.holes_of(life.incarnation):
            return f"had {_spans(holes)}, which its disk did not give back"
        return f"has {_spans(missing)} in no table"

    def _why_behind(self, life: Life, last: int, why: Reason, settled: Lsns) -> str:
        heard = self._heard.get(life.incarnation)
        if aside := self._job.aside.get(life, Lsns()) - settled:
            return f"has {_spans(aside)} in a file that could not be read (poison)"
        if holes := self._lives.holes_of(life.incarnation) - settled:
            return f"had {_spans(holes)}, which its disk did not give back"
        if not why.vouches and why not in (Reason.SILENT, Reason.ENDED):
            return f"has acknowledged what nobody knows, behind lsn {last}: {why.value}"
        if heard is None:
            return "says nothing of itself"
        if heard.record.through is None:
            return "does not say up to which moment it has told all"
        if why is Reason.ENDED:
            return f"stopped in good order at {moment(int(heard.at * 10**6))}"
        if not heard.lately:
            return f"is silent since {moment(int(heard.at * 10**6))}"
        if life in self.waits:
            last = self.waits[life].lsn
            return f"has events up to lsn {last}, which are not all in the tables"
        if (off := self.clock_off) < -CLOCK_SECONDS:
            return f"has a clock that is {-off:.0f} s behind"
        return f"was heard of last at {moment(int(heard.at * 10**6))}"


def _spans(lsns: Lsns) -> str:
    (first, last), *more = lsns
    named = ranges.spelled(first, last)
    return f"{named} and {len(more)} ranges more" if more else named
