"""How much a test with many repetitions looks at: `make test` some, `make long` all.

    KILLS = some_of(20, 8)

What is looked at in either is the same, as is what must be true of it.
"""

import os

__all__ = ["ALL", "some_of"]

ALL = os.environ.get("STATES") == "all"
"""Nothing is left to another run."""


def some_of(most: int, few: int) -> int:
    """*most*, or *few* where others look at the rest."""
    return most if ALL else few
