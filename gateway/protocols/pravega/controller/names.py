"""Names and numbers of segments, as every client makes them up by itself.

A segment is `scope/stream/<number>.#epoch.<epoch>`, and its id `epoch << 32 | number`.
Streams are never scaled here: the epoch is 0, and the id is the number.
"""

from __future__ import annotations

import re

__all__ = ["MARK", "READER_GROUP", "SYSTEM", "segment", "transaction", "usable"]

#: What the tables of the controller itself begin with: no client's business.
SYSTEM = "_system/"

#: The stream with the state of a Java reader group begins like this.
READER_GROUP = "_RG"

#: The stream of a stream's watermarks does.
MARK = "_MARK"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


def usable(name: str) -> bool:
    """Whether a scope or stream may be called that."""
    return _NAME.fullmatch(name) is not None and f"{name}/" != SYSTEM


def segment(scope: str, stream: str, number: int) -> str:
    """The segment's name."""
    return f"{scope}/{stream}/{number}.#epoch.0"


def transaction(parent: str, high: int, low: int) -> str:
    """Where a transaction's events for *parent* wait."""
    mask = (1 << 64) - 1
    return f"{parent}#transaction.{high & mask:016x}{low & mask:016x}"
