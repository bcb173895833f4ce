"""`gateway doctor`: looks at a machine and a data directory before something fails.

    for look in examine(config):
        print(look.state, look.what, look.detail)

Each module looks at one thing; a look is one finding, with what to do about it.  Nothing is
changed but for one temporary file in the data directory, and one small object in the bucket
of the spool, and a daemon may run meanwhile.

    directories  the data directory, its file system, room
    bucket       the bucket of the spool, if it has one
    clocks       this machine's clock, and the times of files
    ports        listeners' addresses, and whether a daemon has them
    certificates TLS
    programs     Java, Spark, a function of one's own, the kernel in C
    limits       file descriptors, memory
    leftovers    journals of nodes that do not run here
    damage       files that can not be read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.config import Config
from gateway.doctor import (
    bucket,
    certificates,
    clocks,
    damage,
    directories,
    leftovers,
    limits,
    ports,
    programs,
)
from gateway.doctor.look import Look, State, fail

__all__ = ["Look", "State", "examine"]

_ALL: tuple[Callable[[Config], Iterator[Look]], ...] = (
    directories.examine,
    bucket.examine,
    clocks.examine,
    ports.examine,
    certificates.examine,
    programs.examine,
    limits.examine,
    leftovers.examine,
    damage.examine,
)

_ADVICE: dict[type[Exception], str] = {
    PermissionError: "is it another user's?  Run this as the user of the daemon, or as root",
    NotADirectoryError: "a file is where a directory belongs: move it away",
}


def examine(config: Config) -> Iterator[Look]:
    """All looks, in order.  Raises nothing: a look that can not be made has failed."""
    for part in _ALL:
        try:
            yield from part(config)
        except Exception as why:  # the other looks are to be made
            name = part.__module__.rpartition(".")[2]
            text = f"{type(why).__name__}: {why}"
            other = (
                "mend what it names"
                if isinstance(why, OSError)
                else "please report this"
            )
            advice = _ADVICE.get(type(why), other)
            yield fail(name, f"can not be looked at: {text}", advice)
