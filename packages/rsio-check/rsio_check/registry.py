"""The tests by name: functions of a target, and what of the target each looks at.

    @test(Role.PUBLISHER)
    def spec308_requests_add_up(target: Target) -> None:
        \"\"\"Requests add up, the first demand included.\"\"\"

The name is what `--only`, `--json` and docs/rsio-v0.md call the test; it begins with the
rule of Reactive Streams 1.0.4 if it judges one.  The docstring is what it promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rsio_check.probe import Target

Body: TypeAlias = Callable[[Target], None]


class Role(Enum):
    """The side of the target that a test looks at."""

    CONNECTION = "connection"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class Needs(Enum):
    """An option or state that a test needs; without it, it is no part of the run."""

    NOTHING = ""
    TOKEN = "--token"  # noqa: S105 - the option's name
    WEBSOCKET = "--websocket"
    NO_IDENTITY = "neither --token nor --name"


@dataclass(frozen=True)
class Test:
    """One test."""

    __test__ = False  # pytest would take the class for a test

    name: str
    role: Role
    promise: str
    body: Body
    needs: Needs


TESTS: dict[str, Test] = {}


def test(
    role: Role,
    needs: Needs = Needs.NOTHING,  # noqa: PT028 - it is no test of pytest's
) -> Callable[[Body], Body]:
    """Decorator: a function is a test under its own name, its docstring the promise."""

    def register(body: Body) -> Body:
        name = body.__name__
        assert name not in TESTS, f"two tests are called {name}"
        promise = " ".join((body.__doc__ or "").split())
        TESTS[name] = Test(name, role, promise, body, needs)
        return body

    return register
