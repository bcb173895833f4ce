"""The tests themselves, by what they look at."""

from __future__ import annotations

from importlib import import_module

__all__ = ["load"]

_MODULES = (
    "hello", "octets", "limits", "goodbye", "extensions", "compression", "publisher",
    "demand", "resume", "subscriber", "credit", "parts", "ingest", "instances",
)  # fmt: skip


def load() -> None:
    """Register all tests, in the order in which they run."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
