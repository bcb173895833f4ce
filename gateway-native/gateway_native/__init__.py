"""What the gateway does for each event of Lumberjack, RS.io, Pravega and Pomelo, in C.

`gateway.sdk.native` takes it where it is installed.  It has no answer of its own: each
function here does what one in Python does, which is taken where this package is not, and
both stand under the same tests.  docs/adr/0040-a-kernel.md says what it spares.
"""

from gateway_native.kernel import (
    INTERFACE,
    messages,
    pieces,
    rows,
    run,
    scan,
    sums,
    walk,
)

__all__ = ["INTERFACE", "messages", "pieces", "rows", "run", "scan", "sums", "walk"]
