"""`gateway completion`: what a shell needs to complete commands, options and files.

Made from the commands' own argument parsers by shtab, those of plug-ins included, so
that nothing is listed twice.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from gateway.cli import commands

HELP = """\
Print a script that lets your shell complete commands, options, choices and file names.
Print it again after an upgrade or when a plug-in brings commands.

Example:
  gateway completion bash >~/.local/share/bash-completion/completions/gateway
  gateway completion zsh  >~/.zfunc/_gateway       with fpath+=(~/.zfunc) in .zshrc
  gateway completion fish >~/.config/fish/completions/gateway.fish
"""

_SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS)


def run(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(parser(), shell=args.shell))
    return 0


def parser() -> argparse.ArgumentParser:
    """One parser of all commands; of those that lack a package only the names."""
    whole = argparse.ArgumentParser(prog="gateway")
    whole.add_argument("--version", action="store_true", help="show the version")
    under = whole.add_subparsers(dest="command")
    for name, command in commands().items():
        one = under.add_parser(name, help=command.help, description=command.help)
        try:
            module = importlib.import_module(command.module)
        except ModuleNotFoundError:
            continue
        module.add_arguments(one)
        _complete_files(one)
    return whole


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Arguments that name files and folders say so by their type or their metavar."""
    import shtab

    for action in parser._actions:  # noqa: SLF001 - argparse shows them no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for one in action.choices.values():
                _complete_files(one)
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.type is Path or action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
