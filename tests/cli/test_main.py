"""The table of commands, and what happens before and after one."""

import argparse
import importlib
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deadlines import ROOT, environment, run
from gateway import __version__, cli, config
from gateway.sdk.protocol import Command


@pytest.fixture
def command(monkeypatch) -> Iterator[SimpleNamespace]:
    """A command `probe` whose `run` a test sets."""
    module = SimpleNamespace(
        HELP="Probe.\n\nExample:\n  gateway probe 1\n",
        add_arguments=lambda parser: parser.add_argument("number", type=int),
        run=lambda args: args.number,
    )
    monkeypatch.setattr(cli, "COMMANDS", {"probe": Command("tests_probe", "probes")})
    monkeypatch.setitem(sys.modules, "tests_probe", module)
    return module


def test_status_is_the_commands(command):
    """What `run` returns is the exit status."""
    assert cli.main(["probe", "0"]) == 0
    assert cli.main(["probe", "1"]) == 1


@pytest.mark.parametrize("words", [[], ["prob"], ["probe"], ["probe", "x"], ["--no"]])
def test_wrong_use(command, words, capsys):
    """Status 2, a message on standard error, nothing on standard output."""
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "gateway" in shown.err


def test_a_near_miss(capsys):
    """A mistyped command is answered with the one that was meant."""
    assert cli.main(["chekc"]) == 2
    assert "did you mean 'check'?" in capsys.readouterr().err


def test_version(capsys):
    """`gateway --version` says which."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gateway {__version__}\n"


def test_help_of_a_command(command, capsys):
    """A command's help keeps the shape that its module gave it."""
    assert cli.main(["probe", "--help"]) == 0
    assert "\nExample:\n  gateway probe 1\n" in capsys.readouterr().out


def test_messages_without_a_trace(command, capsys):
    """A wrong use or an invalid configuration is a message and status 2."""

    def wrong(args: argparse.Namespace) -> int:
        raise cli.WrongUse("no such spool: /x")

    def invalid(args: argparse.Namespace) -> int:
        raise config.Invalid("g.yaml", [config.Problem((), "broken")])

    command.run = wrong
    assert cli.main(["probe", "1"]) == 2
    command.run = invalid
    assert cli.main(["probe", "1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gateway: no such spool: /x",
        "gateway: g.yaml: broken",
    ]


def test_a_fault_of_ours_keeps_its_trace(command):
    """Whatever else goes wrong is a bug, and is not hidden."""

    def broken(args: argparse.Namespace) -> int:
        raise ZeroDivisionError

    command.run = broken
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe", "1"])


def test_interrupted(command):
    """^C ends a command with 130, as shells have it."""

    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command.run = interrupted
    assert cli.main(["probe", "1"]) == 130


def test_a_module_that_is_not_there(monkeypatch, capsys):
    """It is said of that command; the others work, and so does the list."""
    table = {**cli.COMMANDS, "later": Command("gateway.cli.later", "not yet")}
    monkeypatch.setattr(cli, "COMMANDS", table)
    assert cli.main(["later"]) == 2
    said = capsys.readouterr().err
    assert said == "gateway: 'later' needs the Python package 'gateway.cli.later'\n"
    assert cli.main(["schema"]) == 0
    assert cli.main(["--help"]) == 0


@pytest.mark.parametrize(
    ("command", "lacks", "package"),
    [
        ("spark", "pyspark", "gateway[spark]"),
        ("demo", "gateway_demo", "gateway-demo"),
        ("rsio-check", "rsio_check", "rsio-check"),
    ],
)
def test_a_package_that_is_not_there(command, lacks, package, monkeypatch, capsys):
    """Without what a command needs beyond the gateway, it says what to install: in a clone
    a folder of that, elsewhere no package whose name anybody may register."""

    def import_module(name: str) -> object:
        raise ModuleNotFoundError(name=lacks)

    monkeypatch.setattr(importlib, "import_module", import_module)
    beside = ROOT / "packages" / package
    assert beside.is_dir() == ("[" not in package)
    said = f"gateway: '{command}' needs the Python package '{lacks}': pip install "
    assert cli.main([command]) == 2
    wanted = f"{beside}" if beside.is_dir() else f"'{package}'"
    assert capsys.readouterr().err == f"{said}{wanted}\n"
    monkeypatch.setattr(cli, "_BESIDE", Path("/none"))
    assert cli.main([command]) == 2
    ours = f"'{package}'"
    if "[" not in package:
        ours = f"the folder packages/{package} of the gateway's source"
    assert capsys.readouterr().err == f"{said}{ours}\n"


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_has_an_example(name, capsys):
    """`gateway COMMAND --help` shows command lines to try, each of which it understands."""
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    examples = re.findall(rf"^  gateway {name}\b(.*)", shown, re.MULTILINE)
    assert examples
    assert not any("PROTOCOL" in one for one in examples), "one can type them"
    for one in examples:
        parser = argparse.ArgumentParser(prog=f"gateway {name}")
        importlib.import_module(cli.commands()[name].module).add_arguments(parser)
        typed = re.split(r" [|>#]| && | {2,}", one)[0]
        parser.parse_args(shlex.split(typed.replace("5f0c…", "5f" * 32)))


def test_a_configuration_that_nobody_names(capsys):
    """Commands that need one look in the same place, the Spark job too."""
    for name in ("spark", "table", "audit", "doctor"):
        assert cli.main([name]) == 2
        assert "/etc/gateway/gateway.yaml: no such file" in capsys.readouterr().err


def test_help_is_quick():
    """It imports neither pyarrow nor Spark nor Twisted nor the configuration."""
    heavy = ["pyarrow", "pyspark", "twisted", "pydantic", "yaml", "rich"]
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([m for m in {heavy} if m in sys.modules]))\n"
        "from gateway.cli import main\n"
        "sys.exit(main(['--help']))"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0
    assert "audit" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_plugin_is_quick():
    """Every `twistd --help` on the machine imports it: it brings nothing heavy along."""
    code = (
        "import sys, runpy\n"
        "found = runpy.run_path('twisted/plugins/gateway_plugin.py')\n"
        "assert found['gateway'].tapname == 'gateway'\n"
        "heavy = ['pyarrow', 'pyspark', 'pydantic', 'gateway']\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = run(sys.executable, "-c", code, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_closed_pipe():
    """`gateway … | head -1` shows no trace, whatever is left to write."""
    code = (
        "import sys; from gateway import cli; from gateway.sdk.protocol import Command; "
        "from types import SimpleNamespace as N; "
        'sys.modules["probe"] = N(HELP="", add_arguments=lambda p: None, '
        'run=lambda a: [print("x" * 1000) for _ in range(5000)] and 0); '
        'cli.COMMANDS = {"probe": Command("probe", "")}; '
        'sys.exit(cli.main(["probe"]))'
    )
    pipe = f"set -o pipefail; {sys.executable} -c '{code}' | head -1"
    done = run("bash", "-c", pipe)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_from_the_beginning(closed):
    """Nobody reads what it says, and no file that it opens is written into."""
    code = (
        "import os, sys; from gateway import cli; "
        'status = cli.main(["schema"]); '
        'nowhere = [fd for fd in range(3) if os.readlink(f"/proc/self/fd/{fd}") '
        '== "/dev/null"]; '
        "sys.exit(status or 10 + len(nowhere))"
    )
    done = run("bash", "-c", f"{sys.executable} -c '{code}' {closed}")
    assert (done.returncode, done.stderr) == (10 + closed.count("&-"), "")


def test_a_locale_without_our_letters():
    """They are spelled; there is no trace."""
    code = 'from gateway.cli import main; main(["audit", "--help"]); print("…")'
    done = run(
        sys.executable, "-c", code, env={**environment(), "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0
    assert done.stdout.endswith("\\u2026\n")
