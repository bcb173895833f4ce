"""Suggests columns: the paths that events have, and a type that takes their values.

Reads Parquet files of the spool's form, or of the tables, without Spark: `gateway spark
columns --suggest`.  Its memory is bounded.  An object with ever new keys is one value, as
JSON, and of the keys of whole events those that came once give way.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.config.columns import PATHS, keys, names
from gateway.sdk.arrow import damage_named

#: Keys of one object.
_MANY, _MOST = 100, 1000
#: In so few of the events with that object, on the average, its keys are data.
_RARE = 0.05
_MOST_COLUMNS = 300
#: Of the events of some listener.
_LEAST = 0.01
_MOST_KEYS = 10
_EXAMPLE = 40
_ROWS = 64
_COLUMNS = ("listener", "protocol", "content_type", "flaw", "body", "payload")

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
#: Words that are no text in YAML.
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_LISTED = {
    "text": "string",
    "timestamp": "string",
    "date": "string",
    "big": "string",
}
_decode = msgspec.json.Decoder().decode

Source = tuple[str, str]
"""Listener and protocol."""


class Sent(NamedTuple):
    """An event."""

    listener: str
    protocol: str
    payload: str | bytes


@dataclass(slots=True)
class _Values:
    """The values at a path of events of one source."""

    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Any] = field(default_factory=dict)
    below: dict[str, _Values] = field(default_factory=dict)
    keys_are_data: bool = False
    """Whether keys are data, and no paths."""
    some_are_lost: bool = False
    """Keys that came seldom."""

    def add(self, value: Any, depth: int) -> None:
        kind = _kind(value)
        self.kinds[kind] += 1
        if kind not in self.examples:
            self.examples[kind] = value
        if kind == "object" and not self.keys_are_data and depth < _MOST_KEYS:
            for key, one in value.items():
                self.add_at(key.split(".") if "." in key else (key,), one, depth)
            self.bound(depth)

    def add_at(self, parts: Collection[str], value: Any, depth: int) -> None:
        """One below it; a key with dots leads as far as keys in one another."""
        at = self
        for number, part in enumerate(parts, 1):
            if (found := at.below.get(part)) is None:
                found = at.below[part] = _Values()
            at = found
            if number < len(parts):
                at.kinds["object"] += 1
                if at.bound(depth) and depth:
                    self.keys_are_data = True
                    self.below = {}
                    return
        at.add(value, depth + len(parts))

    def bound(self, depth: int) -> bool:
        """Keep no more keys than a document has; whether they are data."""
        many = len(self.below)
        if many < _MANY:
            return False
        counts = {key: one.kinds.total() for key, one in self.below.items()}
        rare = sum(counts.values()) < _RARE * many * self.kinds.total()
        if many < _MOST and (depth == 0 or not rare):
            return False
        if depth:
            self.keys_are_data = True
            self.below = {}
            return True
        often = sorted(counts, key=lambda key: -counts[key])[: _MOST // 2]
        self.below = {key: self.below[key] for key in often}
        self.some_are_lost = True
        return False


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "long" if -(2**63) <= value < 2**63 else "big"
        case float():
            return "double"
        case dict():
            return "object"
        case list():
            inside = {_LISTED.get(kind := _kind(one), kind) for one in value} - {"null"}
            return f"list<{_of_all(inside)}>"
    if value[4:5] == "-":
        if _INSTANT.match(value):
            return "timestamp"
        if _DAY.fullmatch(value):
            return "date"
    return "text"


def _of_all(inside: set[str]) -> str:
    if not inside:
        return ""
    if "object" in inside or any(one.startswith("list") for one in inside):
        return "json"
    if inside == {"long", "double"}:
        return "double"
    return inside.pop() if len(inside) == 1 else "string"


def type_of(kinds: Collection[str]) -> str:
    """The type of `spark.columns` that takes values of all these kinds."""
    some = set(kinds) - {"null", "object"}
    lists = {one[5:-1] for one in some if one.startswith("list<")}
    if "json" in lists:
        return "json"
    if lists:
        others = {_LISTED.get(one, one) for one in some if not one.startswith("list<")}
        inside = (lists | others) - {""}
        return f"list<{_of_all(inside) or 'string'}>"
    if len(some) == 1 and "big" not in some:
        return {"text": "string"}.get(found := some.pop(), found)
    for several, wide in (
        ({"long", "double"}, "double"),
        ({"long", "big"}, "decimal(38,0)"),
        ({"date", "timestamp"}, "timestamp"),
    ):
        if some <= several:
            return wide
    return "string"


@dataclass
class Suggestion:
    """A column that there might be."""

    name: str
    path: str
    type: str
    counts: Mapping[Source, int]
    """How many events have a value there."""
    remarks: tuple[str, ...] = ()

    def line(self, events: Mapping[Source, int]) -> str:
        """The line in YAML, with the counts behind it."""
        name = json.dumps(self.name) if self.name in _WORDS else self.name
        plain = _PLAIN.fullmatch(self.path) and self.path not in _WORDS
        path = self.path if plain else json.dumps(self.path, ensure_ascii=False)
        kind = json.dumps(self.type) if "," in self.type else self.type
        seen = [
            f"{count / events[of]:.0%} of {of[0]}" for of, count in self.counts.items()
        ]
        remarks = "; ".join([", ".join(seen), *self.remarks])
        return f"{name}: {{path: {path}, type: {kind}}}  # {remarks}"


class Survey:
    """The paths of all events that were looked at."""

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        """*chosen* are the columns of the configuration, which need no suggestion."""
        self.events: Counter[Source] = Counter()
        self.left_out = 0
        """Paths that only few events have."""
        self.too_many: list[Source] = []
        """Sources whose events have ever new keys."""
        self._roots: dict[Source, _Values] = {}
        self._names = names(chosen)
        self._known = {
            ".".join(keys(path))
            for name, paths in {**PATHS, **_paths(chosen)}.items()
            if name in self._names
            for path in paths
        }

    def add(self, event: Sent) -> None:
        """Look at one more; what is no JSON object has no paths."""
        try:
            value = _decode(event.payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
        if type(value) is not dict:
            return
        of = event.listener, event.protocol
        self.events[of] += 1
        if (root := self._roots.get(of)) is None:
            root = self._roots[of] = _Values()
        root.add(value, 0)

    def suggestions(self) -> list[Suggestion]:
        found: dict[str, dict[Source, _Values]] = {}
        for of, root in self._roots.items():
            if root.some_are_lost:
                self.too_many.append(of)
            for path, values in _leaves(root, ()):
                found.setdefault(path, {})[of] = values
        made: list[Suggestion] = []
        taken = set(self._names)
        for path, by in sorted(found.items()):
            if path in self._known:
                continue
            counts = {of: _some(values) for of, values in by.items()}
            counts = {of: count for of, count in counts.items() if count}
            if not any(n >= _LEAST * self.events[of] for of, n in counts.items()):
                self.left_out += 1
            elif len(made) < _MOST_COLUMNS:
                made.append(self._one(path, by, counts, taken))
            else:
                self.left_out += 1
        return made

    def is_common(self, one: Suggestion) -> bool:
        """Whether half of the events of some listener have it."""
        return any(2 * n >= self.events[of] for of, n in one.counts.items())

    def _one(
        self,
        path: str,
        by: Mapping[Source, _Values],
        counts: Mapping[Source, int],
        taken: set[str],
    ) -> Suggestion:
        kinds: Counter[str] = Counter()
        examples: dict[str, Any] = {}
        for values in by.values():
            kinds.update(values.kinds)
            examples = {**values.examples, **examples}
        del kinds["null"]
        objects = kinds.pop("object", 0)
        data = any(values.keys_are_data for values in by.values())
        kind = "json" if data else type_of(kinds)
        narrow, count = kinds.most_common(1)[0] if kinds else ("object", 0)
        remarks = [f"e.g. {_short(examples[narrow])}"]
        if data:
            remarks.append("an object with ever new keys")
        elif objects:
            remarks.append(f"{objects} times an object instead")
        if len(kinds) > 1 and kind != (usual := type_of([narrow])):
            odd = next(one for one in kinds if one != narrow)
            remarks.append(
                f"as {usual} {kinds.total() - count} would be misfits, as"
                f" {_short(examples[odd])}"
            )
        name = _name(path, taken)
        taken.add(name)
        return Suggestion(name, path, kind, counts, tuple(remarks))


def _some(values: _Values) -> int:
    """How many of them are a value of their own."""
    objects = 0 if values.keys_are_data else values.kinds["object"]
    return values.kinds.total() - values.kinds["null"] - objects


def _leaves(at: _Values, above: tuple[str, ...]) -> Iterator[tuple[str, _Values]]:
    """All paths with values below it that can be written down."""
    for key, values in at.below.items():
        way = (*above, key)
        if _some(values) and (path := _path(way)) is not None:
            yield path, values
        yield from _leaves(values, way)


def _path(way: tuple[str, ...]) -> str | None:
    """The path in the words of `spark.columns`; None: it has none."""
    quoted = ['"' + re.sub(r'([\\"])', r"\\\1", key) + '"' for key in way]
    for path in (".".join(way), ".".join(quoted)):
        try:
            if keys(path) == way:
                return path
        except ValueError:
            continue
    return None


def _name(path: str, taken: Collection[str]) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path).lower()
    name = re.sub(r"[^a-z0-9]+", "_", snake).strip("_")[:90] or "value"
    if name[0].isdigit():
        name = f"n_{name}"
    if name in taken:
        name += "_sent"
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(one if one.isprintable() else " " for one in text)
    return text if len(text) <= _EXAMPLE else text[: _EXAMPLE - 1] + "…"


def _paths(chosen: Mapping[str, Any]) -> dict[str, list[str]]:
    """The paths of each column of the configuration."""
    found: dict[str, list[str]] = {}
    for name, given in chosen.items():
        for one in given if isinstance(given, list) else [given] if given else []:
            paths = [one.path] if isinstance(one.path, str) else one.path
            found.setdefault(name, []).extend(paths)
    return found


def without_column(
    paths: Iterable[Path], chosen: Mapping[str, Any], most: int
) -> list[str]:
    """The paths that many of the *most* newest events have, and no column takes.

    *chosen* are the columns of the configuration.  Of files that can not be read it is silent.
    """
    survey = Survey(chosen)
    for event in newest(paths, most):
        survey.add(event)
    return [one.path for one in survey.suggestions() if survey.is_common(one)]


def newest(paths: Iterable[Path], most: int) -> Iterator[Sent]:
    """The newest events, *most* of them, of the files written last first.

    Files that can not be read are passed over.
    """
    stamped = []
    for path in paths:
        try:
            stamped.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue  # compacted meanwhile: newer files have its rows
    for _, path in sorted(stamped, reverse=True):
        try:
            for event in _events(path):
                if most == 0:
                    return
                most -= 1
                yield event
        except (OSError, pa.ArrowException):
            continue


def _events(path: Path) -> Iterator[Sent]:
    parts = dict(part.split("=", 1) for part in path.parts if "=" in part)
    with damage_named(), pq.ParquetFile(path) as file:
        there = [name for name in _COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=there):
            for row in batch.to_pylist():
                sent = row.get("body") or row.get("payload")
                kind = row.get("content_type") or ""
                if sent and "json" in kind and row.get("flaw") is None:
                    protocol = row.get("protocol") or parts.get("protocol", "")
                    yield Sent(row.get("listener") or "", protocol, sent)
