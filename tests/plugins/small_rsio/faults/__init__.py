"""Servers that break one rule each, and the tests of the kit that must say so.

A fault is a connection, or a server, of `small_rsio.server` with a method replaced; its
docstring is what shows on the wire.
"""

from small_rsio.faults import (  # noqa: F401 - they fill the table
    extensions,
    greeting,
    ingest,
    instances,
    limits,
    octets,
    publishing,
    subscribing,
)
from small_rsio.faults.table import FAULTS, Fault

__all__ = ["FAULTS", "Fault"]
