"""The gateway's work for each event of Lumberjack, RS.io, Pravega and Pomelo, in C.

`gateway.sdk.native` takes this package where it is installed.  Each function here does
what one in Python does, and both stand under the same tests.  docs/adr/0040-a-kernel.md
says what it spares.
"""

from gateway_native.kernel import (
    INTERFACE,
    messages,
    pieces,
    receive,
    rows,
    run,
    scan,
    send,
    sums,
    walk,
)

__all__ = [
    "INTERFACE",
    "messages",
    "pieces",
    "receive",
    "rows",
    "run",
    "scan",
    "send",
    "sums",
    "walk",
]
