"""Columns that are taken out of an event's JSON or channel, as Spark expressions.

All paths of all columns are looked up in one pass over a row's JSON (`fields`).  A value is
first taken as the text that it has there and then cast.  So a value that does not fit its
type can be told from one that is not there.

On the way columns are called `raw_NAME` and `typed_NAME`, and nothing else begins so.  A name
that the user chose comes last and is never part of SQL: it may be that of a step (`text`) or
SQL's own (`null`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gateway.config.columns import EVENT_TIME, PATHS, USUAL, keys
from gateway.spark.rows.fields import (
    CONTENTS,
    RULES,
    Asked,
    Wanted,
    elements,
    field,
    micros,
)
from gateway.spark.rows.framed import Schemas
from gateway.spark.rows.times import bounded, day, instant
from gateway.tables import EVENTS, QUARANTINE

if TYPE_CHECKING:
    from gateway.config.tables import Condition, TableByRule

__all__ = ["DEFAULTS", "ENVELOPE", "EVENT_TIME", "Columns", "Source"]

#: What Spark calls otherwise than `spark.columns`.
_TYPES = {"json": "string", "long": "bigint"}
#: What is an instant first.
_TIMES = ("timestamp", "date")
#: A number that is not written out to billions of digits.
_SHORT = "^ *[+-]?[0-9.]{1,100}([eE][+-]?[0-9]{1,2})? *$"


def sql_type(kind: str) -> str:
    """Spark's name of a type of `spark.columns`."""
    if kind.startswith("list<"):
        return f"array<{sql_type(kind[5:-1])}>"
    return _TYPES.get(kind, kind)


@dataclass(frozen=True)
class Source:
    """Where the values of a column come from, for some events or for all."""

    paths: tuple[str, ...]
    """Keys joined by dots; the first that leads to a value counts, and of several an
    empty one only where no other leads to any."""
    type: str = "string"
    default: Any = None
    """The value where no path leads to one."""
    protocol: str | None = None
    listener: str | None = None
    table: str | None = None

    @property
    def condition(self) -> str | None:
        """The condition of its events, in SQL; None: all."""
        parts = [
            f"`{name}` = {literal(value)}"
            for name, value in (
                ("table", self.table),
                ("protocol", self.protocol),
                ("listener", self.listener),
            )
            if value is not None
        ]
        return " AND ".join(parts) or None


#: Numbers as Java alone writes them, which Spark's cast takes: a sender means a day by `1d`.
_JAVAS_OWN = "[0-9.][dDfF][^0-9a-zA-Z]*$|[xX]"

DEFAULTS: Mapping[str, Source] = {
    name: Source(PATHS[name], kind) for name, kind in USUAL.items()
}

#: Where a shipper read an event: what `place` is a hash of, with what the event says.
_WHERE: Mapping[str, Source] = {
    "place_agent": Source(("agent.id",)),
    "place_file": Source(("log.file.fingerprint", "log.file.inode", "log.file.path")),
    "place_offset": Source(("log.offset",)),
}
_PLACE = {**_WHERE, "place_text": Source(("message",))}

#: Streams that clients make for themselves: `_RG…`, `_MARK…`, and the scope `_system`.
_INTERNAL = "(startswith(channel, '_') OR contains(channel, '/_'))"
_STREAM = f"protocol = 'pravega' AND NOT {_INTERNAL}"

#: Parts of the protocol's own address; null for the other protocols.
ENVELOPE: Mapping[str, str] = {
    "scope": f"CASE WHEN {_STREAM} THEN split_part(channel, '/', 1) END",
    "stream": (
        f"CASE WHEN {_STREAM} THEN split_part(channel, '/', 2)"
        " WHEN protocol = 'rsio' THEN concat(session, '/', channel) END"
    ),
    "segment": (
        f"CASE WHEN {_STREAM} THEN"
        " try_cast(split_part(split_part(channel, '/', 3), '.', 1) AS bigint) END"
    ),
    "event_offset": f"CASE WHEN {_STREAM} THEN seq END",
    "route": "CASE WHEN protocol = 'pomelo' THEN channel END",
    "uid": "CASE WHEN protocol = 'pomelo' THEN attributes['uid'] END",
    "publisher": "CASE WHEN protocol = 'rsio' THEN channel END",
}


def literal(value: object) -> str:
    """A value as a text in SQL."""
    said = str(value).lower() if isinstance(value, bool) else str(value)
    escaped = said.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Columns:
    """All columns that are taken out of the JSON."""

    def __init__(
        self,
        chosen: Mapping[str, Any] | None = None,
        doubles: Literal["contents", "place"] | None = None,
        schemas: Schemas | None = None,
        tables: Mapping[str, TableByRule] | None = None,
        of_table: str = "",
    ) -> None:
        """The defaults with those of `spark.columns`: `{name: Source(s) or None}`.

        *tables* by rule have columns of their own.  Rows are in the table that their rule says, or
        in *of_table*.
        With *doubles* there is one more column, by which doubles are told.  It is a hash of where a
        shipper read the event, and of all that it says or of its message.
        """
        self.schemas = schemas
        """The schemas of Avro and Protobuf events, if there are such."""
        self.contents = doubles == "contents"
        """Whether all that an event says is hashed."""
        self._given = chosen, doubles, schemas, tables
        self._of_table = of_table
        self._place = dict(_PLACE) if doubles else {}
        self._sources: dict[str, list[Source]] = {
            name: [source] for name, source in DEFAULTS.items()
        }
        self._envelope = dict(ENVELOPE)
        for name, given in (chosen or {}).items():
            self._choose(name, given)
        self._rules = dict(tables or {})
        for table, one in reversed(self._rules.items()):
            for name, given in one.columns.items():
                self._add(name, table, given)
        of_columns = (
            path
            for sources in [*self._sources.values(), list(self._place.values())]
            for source in sources
            for path in source.paths
        )
        of_rules = (
            condition.path
            for table in self._rules.values()
            for condition in table.conditions
            if condition.path is not None
        )
        self.paths = list(dict.fromkeys(of_columns))
        self.count = len(self.paths)
        """How many of the paths columns have; rules have the others."""
        self.paths += [one for one in dict.fromkeys(of_rules) if one not in self.paths]
        """The wanted paths of the JSON."""
        self.keys = [keys(path) for path in self.paths]
        """The keys that lead to each."""
        self.instants = self._numbers(lambda kind: kind in _TIMES)
        """Numbers of the paths that lead to instants."""
        self.lists = self._numbers(lambda kind: kind.startswith("list<"))
        """Numbers of the paths that lead to lists."""
        self._lookups = {
            path: f"j.{field(number)}" for number, path in enumerate(self.paths)
        }

    @classmethod
    def of(cls, settings: Any) -> Columns:
        """The columns that the section `spark` of a configuration asks for."""
        by = settings.deduplicate_by if settings.deduplicate else None
        schemas = Schemas.of(settings)
        return cls(settings.columns, by, schemas, settings.tables)

    def _numbers(self, wanted: Callable[[str], bool]) -> list[int]:
        """Numbers of the paths of columns whose type is *wanted*."""
        paths = {
            path
            for sources in self._sources.values()
            for source in sources
            if wanted(source.type)
            for path in source.paths
        }
        return [number for number, path in enumerate(self.paths) if path in paths]

    def _choose(self, name: str, given: Any) -> None:
        self._envelope.pop(name, None)
        usual = self._sources.pop(name, [])
        if given is None and name != EVENT_TIME:
            return
        sources = [source_of(one) for one in _listed(given)]
        if name == EVENT_TIME:
            sources = [replace(one, type="timestamp", default=None) for one in sources]
        if all(one.condition for one in sources):
            sources += usual
        self._sources[name] = sources

    def _add(self, name: str, table: str, given: Any) -> None:
        """Add a column of a *table*; other tables have theirs, or null."""
        mine = [replace(source_of(one), table=table) for one in _listed(given)]
        if name == EVENT_TIME:
            mine = [replace(one, type="timestamp", default=None) for one in mine]
        self._sources[name] = [*mine, *self._sources.get(name, [])]

    def ruled_by(self, tables: Mapping[str, TableByRule]) -> Columns:
        """The same columns, for rows that these rules divide."""
        return Columns(*self._given[:-1], tables)

    def of_table(self, name: str) -> Columns:
        """The same columns, for rows that are in the table *name*, whatever rules say."""
        return Columns(*self._given, of_table=name)

    def asked(self) -> list[Asked]:
        """The conditions of rules that are about the JSON."""
        return [
            Asked(rule, self.paths.index(one.path), _wanted(one))
            for rule, table in enumerate(self._rules.values())
            for one in table.conditions
            if one.path is not None and not self._of_table
        ]

    def rules(self, judge: Callable[[Wanted], str]) -> dict[str, str]:
        """The rules by table, as conditions over `j`.

        *judge* gives the name of a function of a text.
        """
        found = {}
        for rule, (name, table) in enumerate(self._rules.items()):
            terms = [_holds(one, judge) for one in table.conditions if one.path is None]
            if len(terms) < len(table.conditions):
                terms.append(f"shiftright(j.{RULES}, {rule}) & 1 = 1")
            found[name] = " AND ".join(terms)
        return found

    def table(self, judge: Callable[[Wanted], str]) -> str | None:
        """The expression of a row's table, over `j`; None: there are no rules."""
        if self._of_table:
            return literal(self._of_table)
        cases = "".join(
            f" WHEN {rule} THEN {literal(name)}"
            for name, rule in self.rules(judge).items()
        )
        fine = f"CASE{cases} ELSE '{EVENTS}' END" if cases else None
        return (
            fine and f"CASE WHEN flaw IS NOT NULL THEN '{QUARANTINE}' ELSE {fine} END"
        )

    def raw(self) -> dict[str, str]:
        """Expressions over `j`, the values of `paths`: each column's text, as `raw_NAME`.

        The message of a `text/…` payload is all of its text.
        """
        made = {
            f"raw_{name}": self._first(sources, self._text)
            for name, sources in self._sources.items()
        }
        if "message" in self._sources:
            found = made["raw_message"]
            made["raw_message"] = (
                f"CASE WHEN content_type LIKE 'text/%' THEN text ELSE {found} END"
            )
        of_place = {name: self._text(source) for name, source in self._place.items()}
        return {**made, **of_place}

    def place(self) -> str | None:
        """A hash of the place, null where there is none; None without *doubles*."""
        if not self._place:
            return None
        known = " AND ".join(f"{part} IS NOT NULL" for part in _WHERE)
        what = f"j.{CONTENTS}" if self.contents else "place_text"
        return f"CASE WHEN {known} THEN xxhash64({', '.join([*_WHERE, what])}) END"

    def cast(self) -> dict[str, str]:
        """Expressions over the `raw_NAME`: each column in its type, as `typed_NAME`."""
        return {
            f"typed_{name}": self._first(
                sources, lambda source, name=name: self._cast(source, f"raw_{name}")
            )
            for name, sources in self._sources.items()
        }

    def values(self) -> dict[str, str]:
        """Expressions over the `typed_NAME`: `NAME` as the tables have it."""
        made = {"timestamp": bounded, "date": lambda name: day(bounded(name))}
        return {
            name: made.get(sources[0].type, str)(f"typed_{name}")
            for name, sources in self._sources.items()
        }

    def envelope(self) -> dict[str, str]:
        """Expressions over the event's own columns."""
        return self._envelope

    def names(self) -> list[str]:
        """The names of all these columns, `event_time` apart."""
        return [name for name in self._sources if name != EVENT_TIME] + [
            *self._envelope
        ]

    def misfits(self) -> str:
        """Names of the columns whose value does not fit, joined by commas, or null."""
        typed = [
            name
            for name, sources in self._sources.items()
            if any(sql_type(source.type) != "string" for source in sources)
        ]
        cases = ", ".join(
            f"CASE WHEN raw_{name} IS NOT NULL AND typed_{name} IS NULL"
            f" THEN {literal(name)} END"
            for name in typed
        )
        some = " OR ".join(
            f"(raw_{name} IS NOT NULL AND typed_{name} IS NULL)" for name in typed
        )
        return f"CASE WHEN {some} THEN concat_ws(',', {cases}) END"

    def time_source(self) -> str:
        """The path that `event_time` came from; `received_at` where there was none."""
        none = f"typed_{EVENT_TIME} IS NULL"
        cases = " ".join(
            f"WHEN {self._guarded(source, self._counts(path))} THEN {literal(path)}"
            for source in self._sources[EVENT_TIME]
            for path in source.paths
        )
        return f"CASE WHEN {none} THEN 'received_at' {cases} END"

    def _text(self, source: Source) -> str:
        values = [self._lookups[path] for path in source.paths]
        some = [f"nullif({value}, '')" for value in values] if values[1:] else []
        return f"coalesce({', '.join([*some, *values])})"

    def _counts(self, path: str) -> str:
        """Whether a path leads to an instant, or to what should be one."""
        return f"{self._lookups[path]} <> ''"

    def _cast(self, source: Source, raw: str) -> str:
        kind = sql_type(source.type)
        if source.type in _TIMES:
            kind = "timestamp"
            value = self._instant(source, raw)
        elif kind == "string":
            value = raw
        elif kind.startswith("array"):
            value = self._list(source, raw, kind[6:-1])
        else:
            value = _fitting(raw, kind)
        if source.default is None:
            return value
        default = f"cast({literal(source.default)} AS {kind})"
        return f"CASE WHEN {raw} IS NULL THEN {default} ELSE {value} END"

    def _instant(self, source: Source, raw: str) -> str:
        """The instant of the path which has the value; most are known without a cast."""
        known = f"({self._found(source, micros)} END)"
        return (
            f"CASE WHEN {known} IS NOT NULL THEN timestamp_micros({known})"
            f" ELSE {instant(raw)} END"
        )

    def _list(self, source: Source, raw: str, kind: str) -> str:
        """The elements of a list, or a single value; null if one does not fit."""
        found = f"{self._found(source, elements)} WHEN {raw} IS NOT NULL THEN array({raw}) END"
        if kind == "string":
            return found
        fits = _fitting("x", kind)
        odd = f"exists(l, x -> x IS NOT NULL AND ({fits}) IS NULL)"
        fine = f"transform(l, x -> {fits})"
        # Once for each row, however often its elements are looked at.
        return f"transform(array({found}), l -> CASE WHEN NOT {odd} THEN {fine} END)[0]"

    def _found(self, source: Source, part: Callable[[int], str]) -> str:
        """The beginning of a CASE: that *part* of `j` which the path with the value has."""
        cases = " ".join(
            f"WHEN {self._counts(path)} THEN j.{part(self.paths.index(path))}"
            for path in source.paths
        )
        return f"CASE {cases}"

    @staticmethod
    def _guarded(source: Source, test: str) -> str:
        return f"{source.condition} AND {test}" if source.condition else test

    @staticmethod
    def _first(sources: Iterable[Source], expression: Any) -> str:
        cases = ""
        for source in sources:
            if source.condition is None:
                last = expression(source)
                return f"CASE {cases}ELSE {last} END" if cases else str(last)
            cases += f"WHEN {source.condition} THEN {expression(source)} "
        return f"CASE {cases}END"


def _fitting(text: str, kind: str) -> str:
    """A text as a value of Spark's type *kind*, or null."""
    value = f"try_cast({text} AS {kind})"
    if kind == "double":
        return f"CASE WHEN NOT {text} RLIKE '{_JAVAS_OWN}' THEN {value} END"
    if kind.startswith("decimal"):
        return f"CASE WHEN {text} RLIKE '{_SHORT}' THEN {value} END"
    return value


def _wanted(one: Condition) -> Wanted:
    if one.matches is not None:
        return Wanted(one.matches, expression=True)
    return Wanted(one.text or "", expression=False)


def _holds(one: Condition, judge: Callable[[Wanted], str]) -> str:
    """A condition of the envelope."""
    value = one.field or f"attributes[{literal(one.attribute)}]"
    if one.matches is None:
        return f"{value} = {literal(one.text)}"
    return f"{judge(_wanted(one))}({value})"


def source_of(given: Any) -> Source:
    """The source of a `gateway.config.Column`, or of what looks like one."""
    if isinstance(given, Source):
        return given
    paths = [given.path] if isinstance(given.path, str) else given.path
    return Source(
        tuple(map(str, paths)),
        given.type,
        given.default,
        given.protocol,
        given.listener,
    )


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]
