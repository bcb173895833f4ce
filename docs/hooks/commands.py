"""The part of the page of commands that is made of the commands' own `--help`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gateway import cli
from gateway.plugins import installed

__all__ = ["COMMANDS", "options"]

_OURS = "gateway.protocols."
COMMANDS = {
    **cli.COMMANDS,
    **{
        name: command
        for name, command in installed().commands().items()
        if command.module.startswith(_OURS) or command.package == "rsio-check"
    },
}
"""The gateway's and those of its own protocols, whoever else's are installed here."""


def options() -> str:
    """Markdown: each command with its words of help and a table of its options."""
    return "\n".join(f"\n{section}" for name in COMMANDS for section in _command(name))


def _command(name: str) -> Iterator[str]:
    parser = cli.parser(name)
    yield f"## gateway {name}\n\n```text\n{parser.description}\n```\n\n{_table(parser)}"
    for each in _under(parser):
        words = each.description or ""
        about = f"```text\n{words.strip()}\n```\n\n" if words else ""
        yield f"### {each.prog}\n\n{about}{_table(each)}"


def _under(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of what follows a command's name: `send lumberjack`, `spool ls`."""
    for action in parser._actions:  # noqa: SLF001 - argparse shows them no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            for each in action.choices.values():
                yield each
                yield from _under(each)


def _table(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog)
    rows = ["| option | meaning |", "|---|---|"]
    for action in parser._actions:  # noqa: SLF001 - as above
        if action.help == argparse.SUPPRESS or isinstance(
            action,
            argparse._HelpAction | argparse._SubParsersAction,  # noqa: SLF001
        ):
            continue
        meaning = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
        rows.append(f"| `{_cell(_spelled(formatter, action))}` | {_cell(meaning)} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _spelled(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    """As it is typed."""
    default = action.dest.upper() if action.option_strings else action.dest
    value = formatter._format_args(action, default)  # noqa: SLF001 - as `--help` has it
    return " ".join([", ".join(action.option_strings), value]).strip()


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
