"""`gateway doctor`: is this machine fit to run the gateway, and its data directory sound?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import default_config
from gateway.cli._config import add_config
from gateway.sdk.command import printable

if TYPE_CHECKING:
    from gateway.doctor import Look

HELP = """\
Look at a machine and a data directory before something fails.

One line for each look: ok, warn or fail, what was looked at, what was found and what to do.
Looked at are the data directory and its file system, room, clocks, the listeners' ports and
certificates, Java and Spark, limits of the operating system, journals that nobody serves,
and files that are damaged.  Nothing is changed but for a temporary file in the data
directory, and a daemon may run meanwhile.  Run it as the user of the daemon.

Example:
  gateway doctor --config /etc/gateway/gateway.yaml
  gateway doctor --config gateway.yaml --json

Exit status: 0 nothing fails; 1 something does; 2 there is no such configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, default=Path(default_config()))
    parser.add_argument(
        "--json", action="store_true", help="an object with all looks, for programs"
    )


def run(args: argparse.Namespace) -> int:
    failed = False
    looks = []
    for look in _looks(args.config):
        failed = failed or look.state == "fail"
        looks.append(look)
        if not args.json:
            print(_line(look), flush=True)
    if args.json:
        found = {"ok": not failed, "looks": [asdict(look) for look in looks]}
        json.dump(found, sys.stdout, indent=2)
        print()
    return 1 if failed else 0


def _looks(file: Path) -> Iterable[Look]:
    from gateway import config
    from gateway.doctor import examine
    from gateway.doctor.look import fail, ok

    try:
        loaded = config.load(file)
    except config.Unreadable:
        raise
    except config.Invalid as why:
        for one in why.problems:
            text = f"{why.file}: {one}"
            yield fail("configuration", text, "mend it; all else was not looked at")
        return
    yield ok("configuration", f"{file}, node {loaded.node}")
    yield from examine(loaded)


def _line(look: Look) -> str:
    advice = f"; {look.advice}" if look.advice else ""
    return printable(f"{look.state:<4}  {look.what}  — {look.detail}{advice}")
