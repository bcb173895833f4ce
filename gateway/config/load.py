"""Reading a configuration: from a path to a `Config`, or to all that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gateway.config.explain import explain, without
from gateway.config.model import Config
from gateway.config.problems import Invalid
from gateway.config.reader import Document, read
from gateway.sdk.section import Place


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Config:
    """Read, fill in, check.

    Raises:
        Unreadable: there is no such file (an `Invalid` too).
        Invalid: everything that is wrong with it.
    """
    document = read(Path(path), os.environ if environ is None else environ)
    value = {} if document.value is None else document.value
    try:
        config = _validate(document, value)
    except ValidationError as error:
        _collect(document, value, error)
    if document.problems:
        problems = sorted(document.problems, key=lambda problem: problem.line or 0)
        raise Invalid(document.file, problems)
    return config


def _validate(document: Document, value: object) -> Config:
    return Config.model_validate(value, context={"folder": document.folder})


def _collect(document: Document, value: object, error: ValidationError) -> None:
    """Add the error's problems to the document's.

    Sections are checked against each other only when each is fine by itself, so look
    again without the keys that are not.
    """
    found = dict(explain(error, value))
    gone = [_key_of(place) for place in found]
    try:
        _validate(document, without(value, gone))
    except ValidationError as second:
        known = {*found, *gone}
        found = {**{p: m for p, m in explain(second, value) if p not in known}, **found}
    reported = {problem.place for problem in document.problems}
    for place, message in found.items():
        if place not in reported:
            document.object_to(place, message)


def _key_of(place: Place) -> Place:
    """The key that a place is of: of an entry of a list, that of the list."""
    while place and isinstance(place[-1], int):
        place = place[:-1]
    return place
