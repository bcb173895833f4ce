"""`gateway COMMAND …`: one module for each command, imported when it is asked for.

`gateway.sdk.command` says what a command's module has; each of the gateway's own has a
line in `COMMANDS`, and installed protocols bring more (`Protocol.commands`).  Nothing heavy is imported here: `gateway --help` answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from gateway import __version__
from gateway.plugins import installed
from gateway.sdk.command import INTERRUPTED, PIPE_CLOSED, WrongUse
from gateway.sdk.protocol import Command
from gateway.standard import hold_descriptors

__all__ = ["COMMANDS", "commands", "main", "parser"]

#: The gateway's own.
COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        "gateway_demo.command",
        "the whole path on this machine, and the proof",
        package="gateway-demo",
    ),
    "run": Command("gateway.cli.run", "the daemon and the Spark job, in one command"),
    "init": Command("gateway.cli.init", "write a configuration to begin with"),
    "check": Command("gateway.cli.check", "validate a configuration"),
    "test": Command("gateway.cli.test", "test a configuration: input to rows"),
    "doctor": Command(
        "gateway.cli.doctor",
        "look at machine and data directory before something fails",
    ),
    "reload": Command(
        "gateway.cli.reload", "have the daemon read its configuration again"
    ),
    "schema": Command("gateway.cli.schema", "print the configuration's JSON Schema"),
    "status": Command(
        "gateway.cli.status", "how a running gateway is, in one sentence"
    ),
    "top": Command("gateway.cli.top", "watch a running gateway"),
    "send": Command("gateway.cli.send", "send events, as a real client of a protocol"),
    "spool": Command("gateway.cli.spool", "look into the spool: ls, cat, verify"),
    "audit": Command(
        "gateway.cli.audit", "prove that every event is there exactly once"
    ),
    "restore": Command(
        "gateway.cli.restore", "look at a directory that was put back from a copy"
    ),
    "decommission": Command(
        "gateway.cli.decommission", "say that a node's gateway comes back no more"
    ),
    "spark": Command(
        "gateway.cli.spark",
        "run the Spark job: spool to tables",
        package="gateway[spark]",
    ),
    "table": Command("gateway.cli.table", "show a table's newest rows"),
    "completion": Command("gateway.cli.completion", "completion for bash, zsh, fish"),
}


def commands() -> dict[str, Command]:
    """All commands by name: the gateway's own, and those of the installed protocols."""
    return {**installed().commands(), **COMMANDS}


FINE, WRONG_USE = 0, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.  Neither ^C nor `| head` shows a trace."""
    hold_descriptors()
    _spell_what_can_not_be_encoded()
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would try to flush once more on its way out, and complain.
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _spell_what_can_not_be_encoded() -> None:
    """Where the locale is not UTF-8, an ellipsis is to be no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(argv: Sequence[str]) -> int:
    try:
        return _command(argv)
    except SystemExit as leave:  # argparse's way
        return leave.code if isinstance(leave.code, int) else FINE
    except Exception as why:
        if isinstance(why, WrongUse) or _is_invalid(why):
            print(f"gateway: {why}", file=sys.stderr)
            return WRONG_USE
        raise


def _is_invalid(why: Exception) -> bool:
    """Whether this is an invalid file's exception, which only its own module could raise."""
    return any(
        module in sys.modules and isinstance(why, getattr(sys.modules[module], name))
        for module, name in (
            ("gateway.config", "Invalid"),
            ("gateway.sdk.summed", "OtherForm"),
        )
    )


def _command(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-"):
        top = _top()
        top.parse_args(argv)  # --help and --version end here, all else is wrong
        top.print_help(sys.stderr)
        return WRONG_USE
    name, *rest = argv
    module = _module(name)
    return int(module.run(parser(name).parse_args(rest)))


def parser(name: str) -> argparse.ArgumentParser:
    module = _module(name)
    made = argparse.ArgumentParser(
        prog=f"gateway {name}",
        description=module.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(made)
    return made


def _module(name: str) -> ModuleType:
    known = commands()
    if name not in known:
        _unknown(name)
    try:
        return importlib.import_module(known[name].module)
    except ModuleNotFoundError as why:
        raise WrongUse(_missing(name, known[name], why)) from why


def _top() -> argparse.ArgumentParser:
    known = commands()
    width = max(map(len, known)) + 2
    lines = [f"  {name:<{width}}{each.help}" for name, each in known.items()]
    top = argparse.ArgumentParser(
        prog="gateway",
        usage="gateway [--version] COMMAND [...]",
        description="Events in by their own protocols, Parquet out, exactly once.",
        epilog="commands:\n"
        + "\n".join(lines)
        + "\n\n`gateway COMMAND --help` has the options and an example.\n"
        "The daemon alone: twistd -n gateway --config FILE",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"gateway {__version__}")
    return top


_BESIDE = Path(__file__).parents[2] / "packages"
"""The folder of the packages beside the daemon, in a clone."""


def _unknown(name: str) -> NoReturn:
    known = commands()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there is: {', '.join(known)}"
    raise WrongUse(f"no command {name!r}; {hint}")


def _missing(name: str, command: Command, why: ModuleNotFoundError) -> str:
    needs = f"{name!r} needs the Python package {why.name!r}"
    if not command.package:
        return needs
    if command.package.startswith("gateway["):
        return f"{needs}: pip install '{command.package}'"
    beside = _BESIDE / command.package
    if beside.is_dir():
        return f"{needs}: pip install {beside}"
    return f"{needs}: pip install the folder packages/{command.package} of the gateway's source"
