"""One log of several processes, and the line below it."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.supervisor import log
from gateway.supervisor.log import Log


class Terminal(io.StringIO):
    """Looks like one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Twenty columns."""
    size = os.terminal_size((20, 24))
    monkeypatch.setattr(log.shutil, "get_terminal_size", lambda: size)
    return iter(())


def test_each_line_says_whose_it_is() -> None:
    """And plays no tricks on a terminal.  Where nobody looks there is no line of state."""
    out = io.StringIO()
    one = Log(out, as_json=False)
    one.line("here\x1b[2J", "spark")
    one.state("all is well")
    one.line("and there")
    one.close()
    assert out.getvalue() == "spark   | here\\u001b[2J\nrun     | and there\n"


def test_as_json() -> None:
    """Objects stay what they are; other lines become some."""
    out = io.StringIO()
    one = Log(out, as_json=True)
    one.line('{"msg": "a", "level": "info"}', "gateway")
    one.line("b", "spark")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {"of": "gateway", "msg": "a", "level": "info"}
    assert (second["of"], second["msg"]) == ("spark", "b")


def screen(written: str) -> list[str]:
    """The lines that are seen of it."""
    lines = [""]
    for part in written.split("\n"):
        lines[-1] += part
        lines[-1] = lines[-1].rpartition("\r\x1b[K")[2]
        lines.append("")
    return lines[:-1]


def test_on_a_terminal() -> None:
    """Below the last line stands how all are, cut to fit, as it was last said."""
    out = Terminal()
    one = Log(out, as_json=False)
    one.line("a")
    one.state("starting")
    one.line("b")
    one.state("a sentence that is too long")
    assert screen(out.getvalue()) == [
        "run     | a",
        "run     | b",
        "a sentence that is…",
    ]
    one.line("c")
    one.close()
    assert screen(out.getvalue()) == ["run     | a", "run     | b", "run     | c", ""]


def test_a_full_disk_keeps_nobody() -> None:
    """Lines that it does not take are left out: the daemon that said them goes on."""
    lines = 0
    with suppress(OSError), Path("/dev/full").open("w") as full:  # it ends so, too
        one = Log(full, as_json=False)
        while lines < 10_000:
            one.line("takes events", "gateway")
            lines += 1
    assert lines == 10_000


def test_a_terminal_that_was_closed() -> None:
    """As if nobody read: that is a reason to stop."""

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(BrokenPipeError):
        Log(Gone(), as_json=False).line("takes events")
