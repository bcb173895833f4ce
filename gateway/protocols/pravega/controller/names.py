"""Names of segments and internal streams, made by the rules that all clients know.

A segment is `scope/stream/<number>.#epoch.<epoch>`, and its id `epoch << 32 | number`: of a
stream that was never scaled, the number.
"""

from __future__ import annotations

import re

#: Prefix of the controller's own tables, which no client may read or write.
SYSTEM = "_system/"

#: Prefix of the stream with the state of a Java reader group.
READER_GROUP = "_RG"

#: Prefix of the stream with the watermarks of a stream.
MARK = "_MARK"

#: Prefixes of streams that clients make for themselves.
OF_CLIENTS = (READER_GROUP, MARK)

#: What a key-value table's name ends with in the names of its segments.
TABLE = "_kvtable"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


def usable(name: str) -> bool:
    """Whether this may be the name of a scope or stream."""
    return _NAME.fullmatch(name) is not None and f"{name}/" != SYSTEM


def segment(scope: str, stream: str, id_: int) -> str:
    return f"{scope}/{stream}/{id_ & 0xFFFF_FFFF}.#epoch.{id_ >> 32}"


def transaction(parent: str, high: int, low: int) -> str:
    """The name of a transaction's segment, to be merged into *parent*."""
    mask = (1 << 64) - 1
    return f"{parent}#transaction.{high & mask:016x}{low & mask:016x}"
