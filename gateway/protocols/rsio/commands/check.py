"""`gateway rsio-check`: the command of the package `rsio_check`, if that is installed.

The kit is a distribution of its own (`packages/rsio-check/`), so that it shares no code with what
it tests, and runs where there is no gateway.
"""

from __future__ import annotations

import argparse

from gateway.sdk.command import WrongUse
from rsio_check import command

HELP = command.HELP
add_arguments = command.add_arguments


def run(args: argparse.Namespace) -> int:
    try:
        return command.check(args)
    except command.WrongUse as why:
        raise WrongUse(str(why)) from None
