"""The option `-c`, `--config`, as all commands have it: whose configuration is meant."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Protocol

from gateway import DEFAULT_CONFIGS

__all__ = ["add_config"]


class _Parser(Protocol):
    def add_argument(self, *names: str, **how: Any) -> argparse.Action: ...


def add_config(
    parser: _Parser,
    what: str = "the gateway's configuration",
    more: str = "",
    **how: Any,
) -> None:
    """Add it to *parser*; its words of help are *what*, which file is meant where none is
    named, and *more*.
    """
    default = " or ".join(DEFAULT_CONFIGS)
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help=f"{what} (default: {default}{more})",
        **{"type": Path, **how},
    )
