"""`gateway completion`, in the shells that are here."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deadlines import run
from gateway import cli

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
