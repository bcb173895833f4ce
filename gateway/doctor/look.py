"""A finding of the doctor: how it is, what was looked at, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Look:
    """One line of the report."""

    state: State
    what: str
    """The thing looked at, in a few words."""
    detail: str
    """The finding."""
    advice: str = ""
    """The thing to do; empty if all is well."""


def ok(what: str, detail: str) -> Look:
    return Look("ok", what, detail)


def warn(what: str, detail: str, advice: str) -> Look:
    """A finding for something that works, and may not go on so."""
    return Look("warn", what, detail, advice)


def fail(what: str, detail: str, advice: str) -> Look:
    """The gateway does not start, or loses what it promises."""
    return Look("fail", what, detail, advice)
