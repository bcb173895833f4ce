"""Problems of a configuration, all of them at once, in words for its author."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.sdk.section import Place


def spell(place: Place) -> str:
    """`listeners[2].tls.certificate`; empty for the file as a whole."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    place: Place
    message: str
    line: int | None = None
    """Counted from 1, where it is known."""

    def __str__(self) -> str:
        where = f"{spell(self.place)}: " if self.place else ""
        line = f" (line {self.line})" if self.line else ""
        text = f"{where}{self.message}{line}"
        # keys and values are the file's: they must not play tricks on a terminal
        return "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
        )


class Invalid(Exception):
    """The configuration can not be used; `str()` has one line for each reason."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))
        self.file = file
        self.problems = problems


class Unreadable(Invalid):
    """There is no such file, or it can not be read."""
