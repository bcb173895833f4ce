"""The base of every mapping in the configuration: strict keys, and what a reload does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = [
    "AT_ONCE",
    "NEW_CONNECTIONS",
    "Misfits",
    "Place",
    "Reload",
    "Section",
    "restart",
]


#: Keys and list positions from the top of the file: `("listeners", 2, "tls")`.
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Reload:
    """The effect of a reload on a key that was changed."""

    when: Literal["yes", "new connections", "restart", "job"]
    """The time of effect: at once, for connections that come, or when daemon or job start again."""
    why: str = ""
    """The reason for a restart: `needs a restart, because WHY`."""


AT_ONCE = Reload("yes")
NEW_CONNECTIONS = Reload("new connections")


def restart(why: str) -> Reload:
    """A key that stays as it is until the daemon starts again: *why*, as half a sentence."""
    return Reload("restart", why)


class Misfits(ValueError):
    """Values that are fine one by one and do not go together."""

    def __init__(self, found: list[tuple[Place, str]]) -> None:
        super().__init__("; ".join(message for _, message in found))
        self.found = found


class Section(BaseModel):
    """A mapping in the file: strict, frozen, and no other keys than its own."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True
    )

    reload: ClassVar[Reload | None] = None
    """The effect of a reload on its keys; None: that of the section around it, and a restart for a
    protocol's options."""
    reloads: ClassVar[Mapping[str, Reload]] = {}
    """The effect on some keys, and all below them, where it is another one."""

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_defaults(cls, value: object) -> object:
        return {} if value is None else value

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Places below this section, and what does not fit there."""
        yield from ()

    @model_validator(mode="after")
    def _no_misfits(self) -> Section:
        if found := list(self.misfits()):
            raise Misfits(found)
        return self
