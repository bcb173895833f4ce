"""The table of commands, what happens before and after one, and what all of them print with."""

import argparse
import importlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import warm
from deadlines import ROOT, environment, finish, run
from gateway import __version__, cli, config
from gateway.cli._columns import table
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


def test_names_of_commands_are_a_column(capsys):
    """The longest one, too, stands apart from what it does."""
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}  " in out for name in cli.COMMANDS)


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


BASH = """\
source {script}
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()
$(complete -p gateway | sed 's/.*-F \\([^ ]*\\).*/\\1/') gateway "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = "source {script}; complete -C '{line}' | cut -f 1"


@pytest.fixture
def script(tmp_path, capsys) -> Callable[[str], Path]:
    def write(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"there is no {shell}")
        assert cli.main(["completion", shell]) == 0
        path = tmp_path / shell
        path.write_text(capsys.readouterr().out)
        return path

    return write


@pytest.mark.parametrize(("shell", "code"), [("bash", BASH), ("fish", FISH)])
def test_words_are_completed(script, shell, code):
    """Commands, those of plug-ins too; options; choices; commands within commands."""
    path = script(shell)
    for line, word in (
        ("gateway se", "send"),
        ("gateway rsio-", "rsio-check"),
        ("gateway check --e", "--effective"),
        ("gateway table qu", "quarantine"),
        ("gateway send lumberjack --pip", "--pipelining"),
    ):
        done = run(shell, "-c", code.format(script=path, line=line))
        assert done.stdout.split() == [word], (line, done.stderr)


def test_zsh_takes_it(script):
    """Its syntax is zsh's."""
    done = run("zsh", "-n", script("zsh"))
    assert (done.returncode, done.stderr) == (0, "")


CONFIG = """\
data_dir: data
admin: {listen: tcp:127.0.0.1:1}
listeners: [{name: beats, protocol: lumberjack, listen: tcp:127.0.0.1:0}]
"""
TRIAL = """\
config: gateway.yaml
tests:
  - {name: one, listener: beats, input: {events: [{message: a}]}, expect: [{}]}
  - {name: two, listener: beats, input: {events: [{message: b}]}, expect: []}
"""
#: Of each command words that have it say more than a line, or wait for something.
WORDS = {
    "demo": "--help",
    "run": "--config gateway.yaml",
    "init": "lumberjack --directory first",
    "check": "gateway.yaml",
    "test": "trial.yaml",
    "doctor": "--config gateway.yaml",
    "reload": "--config gateway.yaml",
    "schema": "",
    "status": "--config gateway.yaml",
    "top": "--config gateway.yaml",
    "send": "lumberjack 127.0.0.1:1 --patience 1",
    "spool": "ls --config gateway.yaml",
    "audit": "--config gateway.yaml",
    "restore": "--config gateway.yaml",
    "decommission": "gw-1 --config gateway.yaml",
    "spark": "--help",
    "table": "--no-wait --config gateway.yaml",
    "completion": "bash",
    "tap": "127.0.0.1:1",
    "rsio-check": "127.0.0.1:1",
    "pravega": "cut shop/orders --at 2026-01-01 --controller 127.0.0.1:1",
}


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "trial.yaml").write_text(TRIAL)
    (tmp_path / "data" / "journal" / "node").mkdir(parents=True)
    return tmp_path


def piped(home: Path, command: str, *, both: bool = False) -> str:
    """What is on standard error, if that goes elsewhere; fails if it does not end."""
    words = [sys.executable, "-m", "gateway.cli", *shlex.split(command)]
    with (home / "first").open("wb") as first:
        reader = subprocess.Popen(
            ["head", "-n", "1"], stdin=subprocess.PIPE, stdout=first
        )
    assert reader.stdin is not None
    with reader, reader.stdin as pipe, (home / "said").open("wb") as said:
        process = warm.start(
            words,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe if both else said,
            cwd=home,
        )
        pipe.close()
        finish(process, log=home / "said")
    return (home / "said").read_text()


@pytest.mark.parametrize("name", cli.commands())
def test_a_reader_that_goes(name, home):
    """Behind its first line, if it has one: no word of a pipe, no traceback."""
    said = piped(home, f"{name} {WORDS[name]}")
    assert not any(word in said for word in ("Traceback", "ipe", "ignored")), said


@pytest.mark.parametrize(
    "command",
    [
        "send lumberjack 127.0.0.1:1 --patience 1",
        "table --config gateway.yaml",
        "status --config gateway.yaml",
        "check gateway.yaml",
    ],
)
def test_a_reader_of_both_that_goes(command, home):
    """What it says of its trouble goes the same way, and it does not wait for more."""
    assert piped(home, command, both=True) == ""


HEAD = ("name", "events", "why")
ROWS = [("beats", "1,234", "a long story, " * 9), ("game", 7, "")]


def test_numbers_stand_to_the_right():
    """With their units; a dash is a number that is not known."""
    text = table(("name", "size", "age"), [("a", "9 B", "-"), ("b", "10 KiB", "2.5 s")])
    assert text == "name    size    age\na        9 B      -\nb     10 KiB  2.5 s"


def test_the_widest_column_gives_way():
    head, beats, game = table(HEAD, ROWS, 40).splitlines()
    assert beats == "beats   1,234  a long story, a long sto…"
    assert game == "game        7"
    assert head.split() == list(HEAD)


def test_what_is_expendable_goes_first():
    """As much of it as helps, in the order given."""
    assert table(HEAD, ROWS, 13, ("why", "events")) == (
        "name   events\nbeats   1,234\ngame        7"
    )


def test_wide_characters():
    """Are counted as the cells that they take; nothing plays tricks on a terminal."""
    text = table(("a", "b"), [("漢字", "x"), ("\x1b[2J", "y")])
    assert text == "a          b\n漢字       x\n\\u001b[2J  y"
    assert table(("a", "b"), [("漢字" * 9, "x")], 14).splitlines()[1] == (
        "漢字漢字漢…  x"
    )
