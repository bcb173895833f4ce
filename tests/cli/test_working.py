"""A word for what takes longer than a second."""

import argparse
import os
import pty
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from gateway.cli._working import working
from gateway.protocols.rsio.commands import tap
from gateway.sdk import command


@pytest.fixture
def terminal(monkeypatch) -> Iterator[Callable[[], int]]:
    """Makes standard error one: the descriptor to read from what it shows.

    A test calls it: before it begins, pytest replaces standard error.
    """
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    shown = os.fdopen(theirs, "w")

    def use() -> int:
        monkeypatch.setattr(sys, "stderr", shown)
        return ours

    yield use
    shown.close()
    os.close(ours)


def test_on_a_terminal(terminal):
    """It says what is being done."""
    screen, said = terminal(), b""
    with working("counting sheep", seconds=0):
        while b"counting sheep" not in said:
            said += os.read(screen, 1000)


def test_what_is_quick_needs_none(terminal):
    """Nothing flickers."""
    screen = terminal()
    with working("counting sheep", seconds=60):
        pass
    os.set_blocking(screen, False)
    with pytest.raises(BlockingIOError):
        os.read(screen, 1000)


def test_elsewhere(capsys):
    """Programs are told nothing."""
    with working("counting sheep", seconds=0):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "opened", "says"),
    [
        ([], False, "connecting to gw:7400"),
        ([], True, "connected to gw:7400, waiting for the first event"),
        (
            ["--protocol", "pomelo", "--channel", "a.b", "--from", "7"],
            True,
            "waiting for the first event of protocol pomelo, channel a.b, from 7 on",
        ),
        (["--publisher", "tap?kind=data"], True, "waiting for tap?kind=data"),
    ],
)
def test_what_tap_waits_for(words, opened, says):
    """Whom it calls, or which event."""
    parser = argparse.ArgumentParser()
    tap.add_arguments(parser)
    args = parser.parse_args(["gw:7400", *words])
    assert isinstance(args.target, command.Target)
    assert tap.waiting_for(args, opened=opened).endswith(says)
