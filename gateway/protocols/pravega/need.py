"""The permission that a wire command, or a call of the controller, needs; `access`
grants it.
"""

from __future__ import annotations

from enum import StrEnum


class Need(StrEnum):
    """Permissions; the value goes into `'ann' may not TEXT 'shop/orders'`."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    ANY = "see"
    """One of those three, whichever: what there is to know about a stream."""
    USE = "use"
    """One of those, or `groups`: an address, a token, which allow nothing by themselves."""
