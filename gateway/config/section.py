"""What every mapping of the configuration has in common."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, model_validator

from gateway.config.problems import Place

__all__ = ["Misfits", "Section"]


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
