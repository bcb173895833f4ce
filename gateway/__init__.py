"""Events in by their own protocols, Parquet out, exactly once.  See docs/design.md."""

from __future__ import annotations

import os.path

__version__ = "0.1.0"

#: Where a configuration is that nobody names: in the folder that one is in, or else the
#: machine's.
DEFAULT_CONFIGS = ("gateway.yaml", "/etc/gateway/gateway.yaml")


def default_config() -> str:
    """The first of those that is there, or else the last."""
    return next(filter(os.path.isfile, DEFAULT_CONFIGS), DEFAULT_CONFIGS[-1])
