"""A memory budget of so many bytes, and who let go of what they held of it."""

from dataclasses import dataclass, field

import pytest

from gateway.net.memory import Account, MemoryBudget
from gateway.sdk.interfaces import Connection, Refusal


@dataclass(eq=False)
class Holder:
    """A connection that notes why it had to let go."""

    name: str
    why: Refusal | None = None

    def let_go(self, why: Refusal) -> None:
        self.why = why


@dataclass
class Budget:
    """A budget of so many bytes, and who let go of what they held of it."""

    most: int
    held: int = 0
    holders: list[Holder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = MemoryBudget(self._reserve, left=lambda: self.most - self.held)

    def _reserve(self, change: int) -> bool:
        self.held += change
        return self.held <= self.most

    def account(self, name: str, host: str) -> Account:
        self.holders.append(Holder(name))
        return self.budget.account(self.holders[-1], host)

    @property
    def gone(self) -> list[str]:
        return [one.name for one in self.holders if one.why is not None]


def keep(connection: Connection, data: bytes) -> None:
    """A server whose peer only ever begins messages."""
    held = getattr(connection, "held", None)
    connection.hold((held.unfinished if held else 0) + len(data))


@pytest.fixture
def budget() -> Budget:
    return Budget(100)
