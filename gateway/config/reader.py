"""A configuration file, from bytes to plain values: YAML, read narrowly.

Only what a configuration needs is taken from YAML: one document of mappings,
lists and scalars; `true`, `false`, `null`, numbers, everything else is text (`no`
is the text "no").  Tags are refused, so no file can make Python objects.  Aliases
are fine, but what they stand for counts each time: ten lines of YAML can stand for
a billion values.

`${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}` are filled in here, in
scalar values only and after parsing, so what they bring can never become structure.
`$${` stands for `${`.  What came that way is never repeated in a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway import DEFAULT_CONFIGS
from gateway.config.problems import Invalid, Problem, Unreadable
from gateway.sdk.fields import Filled
from gateway.sdk.section import Place

MAX_FILE_BYTES = 1 << 20
MAX_VALUES = 10_000
MAX_DEPTH = 20
MAX_SECRET_BYTES = 64 << 10
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^{}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_INT = re.compile(r"[-+]?[0-9]{1,640}", re.ASCII)  # some Pythons read no more
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Dumper(yaml.SafeDumper):
    """A writer of YAML: in quotes stands what `read` would take for no text, as `1e5`, `08`."""


for _tag, _number in (("int", _INT), ("float", _FLOAT)):
    _whole = re.compile(rf"(?:{_number.pattern})\Z", re.ASCII)
    Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, None)

#: Stands where a placeholder could not be filled in; the problem is reported already.
UNRESOLVED = object()


@dataclass(slots=True)
class Document:
    """The content of a file, and the line numbers and problems of its places."""

    file: str
    folder: Path
    """Relative paths in the file are below this one; absolute."""
    value: object = None
    problems: list[Problem] = field(default_factory=list)
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int | None:
        """The line of a place, or of the nearest place around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)

    def object_to(self, place: Place, message: str) -> None:
        self.problems.append(Problem(place, message, self.line(place)))


def read(path: Path, environ: Mapping[str, str]) -> Document:
    """Parse and fill in; problems of single values are left in the document.

    Raises:
        Unreadable: there is no such file.
        Invalid: it is no YAML at all, or more of it than a person would write.
    """
    document = Document(str(path), path.absolute().parent)
    text = _text(path)
    try:
        _Builder(document, environ, text).build()
    except yaml.MarkedYAMLError as why:
        mark = why.problem_mark or why.context_mark
        line = mark.line + 1 if mark else None
        text = f"not YAML: {why.problem}"
        if "nesting depth" in str(why.problem):  # libyaml reads ahead, and has a limit
            text = _TOO_DEEP
        raise Invalid(str(path), [Problem((), text, line)]) from None
    except (_Refused, yaml.YAMLError) as why:
        raise Invalid(str(path), [Problem((), str(why).replace("\n", " "))]) from None
    return document


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as why:
        message = (why.strerror or str(why)).lower()
        here, last = DEFAULT_CONFIGS
        if str(path) == last and not Path(here).exists():
            message += f", and no {here} in this folder; name one: --config FILE"
        raise Unreadable(str(path), [Problem((), message)]) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"larger than {MAX_FILE_BYTES} bytes: this is no configuration"
        raise Invalid(str(path), [Problem((), message)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        raise Invalid(str(path), [Problem((), "not UTF-8", line)]) from None


#: PyYAML's stubs leave out most of what its events have.
_Event = Any


def _line(event: _Event) -> int:
    return int(event.start_mark.line) + 1


class _Refused(Exception):
    """The file as a whole is not acceptable."""


class _Builder:
    """Values from parser events, so that limits hold before anything is built."""

    def __init__(
        self, document: Document, environ: Mapping[str, str], text: str
    ) -> None:
        self._document = document
        self._environ = environ
        self._events: Iterator[_Event] = yaml.parse(text, Loader=_LOADER)
        self._anchors: dict[str, tuple[object, int]] = {}
        self._values = 0

    def build(self) -> None:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                break
        else:
            return
        self._document.value = self._node(next(self._events), ())
        next(self._events)  # the document's end
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise _Refused("more than one YAML document (---)")

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise _Refused(f"more than {MAX_VALUES} values, aliases included")

    def _node(self, event: _Event, place: Place) -> object:
        self._document.lines.setdefault(place, _line(event))
        before = self._values
        self._count(1)
        if len(place) > MAX_DEPTH:
            raise _Refused(_TOO_DEEP)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place)
        if event.tag is not None:
            self._document.object_to(place, f"YAML tags are not allowed: {event.tag}")
        value: object
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(place)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(place)
        else:
            value = self._scalar(event, place)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _alias(self, event: _Event, place: Place) -> object:
        if event.anchor not in self._anchors:
            self._document.object_to(place, f"no anchor &{event.anchor} above it")
            return UNRESOLVED
        value, values = self._anchors[event.anchor]
        self._count(values)
        return value

    def _mapping(self, place: Place) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key in self._events:
            if isinstance(key, yaml.MappingEndEvent):
                break
            if not isinstance(key, yaml.ScalarEvent):
                raise _Refused(f"line {_line(key)}: a key must be text")
            inner = (*place, key.value)
            if key.value in mapping:
                first = self._document.lines[inner]
                line = _line(key)
                message = f"given twice, first in line {first}"
                self._document.problems.append(Problem(inner, message, line))
            else:
                self._document.lines[inner] = _line(key)
            value = self._node(next(self._events), inner)
            mapping.setdefault(key.value, value)
        return mapping

    def _sequence(self, place: Place) -> list[object]:
        items: list[object] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, (*place, len(items))))
        return items

    def _scalar(self, event: _Event, place: Place) -> object:
        text = event.value
        if "${" in text:
            return self._filled(text, place)
        return text if event.style else _plain(text)

    def _filled(self, text: str, place: Place) -> object:
        def value(match: re.Match[str]) -> str:
            return "${" if match[1] else self._lookup(match)

        try:
            filled = _PLACEHOLDER.sub(value, text)
        except ValueError as why:
            self._document.object_to(place, str(why))
            return UNRESOLVED
        return Filled(filled, text)

    def _lookup(self, match: re.Match[str]) -> str:
        whole, inside = match[0], match[2]
        kind, _, rest = inside.partition(":")
        if whole.endswith("}") and kind == "env":
            name, has_default, default = rest.partition(":-")
            if _NAME.fullmatch(name):
                if name in self._environ:
                    return self._environ[name]
                if has_default:
                    return default
                raise ValueError(f"the environment variable {name} is not set: {whole}")
        if whole.endswith("}") and kind == "file" and rest:
            return _secret(self._document.folder / rest, whole)
        raise ValueError(
            f"{whole}: must be ${{env:NAME}}, ${{env:NAME:-default}} or ${{file:PATH}}; "
            "$${ stands for ${"
        )


def _plain(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _secret(path: Path, whole: str) -> str:
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{whole}: not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
    except OSError as why:
        raise ValueError(f"{whole}: {(why.strerror or str(why)).lower()}") from None
    if len(data) > MAX_SECRET_BYTES:
        raise ValueError(f"{whole}: larger than {MAX_SECRET_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{whole}: not UTF-8") from None
