"""The moment up to which a gateway has told all that came, which it says again and again.

A table is whole up to a moment only if nothing earlier can come any more.  The gateway that
gives the lsns knows that, as batches wait for their sync.
"""

from __future__ import annotations

from typing import NamedTuple

EVERY_SECONDS = 10.0
"""Seconds from one to the next, at least."""


class Through(NamedTuple):
    """The events of an incarnation with `received_at` up to *at* have lsns up to *lsn*, and no
    event that it takes later is among them.
    """

    at: int
    """Microseconds since the epoch, by the clock of the gateway."""
    lsn: int
    """The last durable one then; it may be before the incarnation's first."""
