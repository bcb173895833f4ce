"""The table of faults: servers that break one rule each, and the tests that say so."""

from collections.abc import Callable
from dataclasses import dataclass

from small_rsio.server import Connection, Server


@dataclass(frozen=True)
class Fault:
    """A way to be wrong."""

    name: str
    wire: str
    """What it does on the wire."""
    tests: tuple[str, ...]
    """The tests that must fail."""
    server: type[Server]
    connection: type[Connection]
    token: bytes | None = None


FAULTS: dict[str, Fault] = {}


def fault(*tests: str, token: bytes | None = None) -> Callable[[type], type]:
    """A connection or a server that must fail these *tests*."""

    def register(broken: type) -> type:
        is_server = issubclass(broken, Server)
        FAULTS[broken.__name__] = Fault(
            broken.__name__,
            " ".join((broken.__doc__ or "").split()),
            tests,
            broken if is_server else Server,
            Connection if is_server else broken,
            token,
        )
        return broken

    return register
