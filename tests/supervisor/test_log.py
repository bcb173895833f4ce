"""One log of several processes, and the line below it."""

import errno
import io
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually
from gateway.supervisor import log
from gateway.supervisor.log import Log


class Terminal(io.BytesIO):
    """Looks like one."""

    def isatty(self) -> bool:
        return True


def written(one: Log, out: io.BytesIO) -> str:
    """All that it was told."""
    eventually(lambda: one._pen.idle, "all lines")
    return out.getvalue().decode()


@pytest.fixture(autouse=True)
def narrow(monkeypatch) -> Iterator[None]:
    """Twenty columns."""
    size = os.terminal_size((20, 24))
    monkeypatch.setattr(log.shutil, "get_terminal_size", lambda *_, **__: size)
    return iter(())


def test_each_line_says_whose_it_is():
    """And plays no tricks on a terminal.  Where nobody looks there is no line of state."""
    out = io.BytesIO()
    one = Log(out, as_json=False)
    one.line("here\x1b[2J", "spark")
    one.state("all is well")
    one.line("and there")
    one.close()
    assert timeless(written(one, out)) == (
        "spark   | info  spark: here\\u001b[2J\nrun     | info  run: and there\n"
    )


def test_each_line_has_a_time_once():
    """A line that has one, and what belongs to it, stay as they are."""
    out = io.BytesIO()
    one = Log(out, as_json=False)
    one.line("2026-11-27T17:02:11.408Z warn  gateway.daemon: it broke", "gateway")
    one.line("    File x", "gateway")
    one.line("batch 0", "spark")
    one.close()
    broke, below, batch = written(one, out).splitlines()
    assert broke == "gateway | 2026-11-27T17:02:11.408Z warn  gateway.daemon: it broke"
    assert below == "gateway |     File x"
    assert re.fullmatch(r"spark   \| 20\S+Z info  spark: batch 0", batch)


def test_as_json():
    """Objects stay what they are; other lines become some."""
    out = io.BytesIO()
    one = Log(out, as_json=True)
    one.line('{"msg": "a", "level": "info"}', "gateway")
    one.line("b", "spark")
    first, second = map(json.loads, written(one, out).splitlines())
    assert first == {"of": "gateway", "msg": "a", "level": "info"}
    assert (second["of"], second["msg"]) == ("spark", "b")


def timeless(text: str) -> str:
    """Without the times that lines begin with."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z ", "", text)


def screen(text: str) -> list[str]:
    """The lines that are seen of it."""
    text = timeless(text)
    lines = [""]
    for part in text.split("\n"):
        lines[-1] += part
        lines[-1] = lines[-1].rpartition("\r\x1b[K")[2]
        lines.append("")
    return lines[:-1]


def test_on_a_terminal():
    """Below the last line stands how all are, cut to fit, as it was last said."""
    out = Terminal()
    one = Log(out, as_json=False)
    one.line("a")
    written(one, out)
    one.state("starting")
    one.line("b")
    written(one, out)
    one.state("a sentence that is too long")
    assert screen(written(one, out)) == [
        "run     | info  run: a",
        "run     | info  run: b",
        "a sentence that is…",
    ]
    one.line("c")
    one.close()
    assert screen(written(one, out)) == [
        "run     | info  run: a",
        "run     | info  run: b",
        "run     | info  run: c",
        "",
    ]


def test_a_full_disk_keeps_nobody():
    """Lines that it does not take are left out: the daemon that said them goes on."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        one = Log(full, as_json=False)
        for _ in range(3):
            one.line("takes events", "gateway")
            eventually(lambda: one._pen.idle, "a try to write it")
        one.close()


def test_a_reader_who_does_not_read():
    """`| less`, or ^S: whoever says a line goes on, some MiB of lines are kept, the others
    are counted, and the count stands where they would have been."""
    reads, writes = os.pipe()
    with os.fdopen(writes, "wb", buffering=0) as out, os.fdopen(reads, "rb") as reader:
        one = Log(out, as_json=False)
        for number in range(40):
            one.line(f"{number} {'x' * 60_000}", "spark")
        assert 0 < one._left_out < 40 - 15
        lines: list[str] = []

        def read() -> None:
            lines.extend(line.decode() for line in reader)

        late = threading.Thread(target=read)
        late.start()
        eventually(lambda: one._pen.idle, "all that was kept")
        one.line("and on", "spark")
        one.close()
        out.close()
        late.join()
    assert lines[-1].endswith(" info  spark: and on\n")
    assert "lines, which nobody read, are left out" in lines[-2]
    number = 0
    for line in lines[:-1]:
        whose, _, said = line.split(maxsplit=2)
        if whose == "run":
            number += int(said.partition("run: ")[2].split()[0])
        else:
            assert f" info  spark: {number} xxx" in said
            number += 1
    assert number == 40


def test_a_reader_who_does_not_read_what_must_not_block(monkeypatch):
    """Another program may have made the terminal so: there is no try before there is room."""

    class Full(io.BytesIO):
        tries = 0

        def write(self, data: Any) -> Any:
            self.tries += 1
            if self.tries > 2:
                raise BrokenPipeError
            return None if self.tries == 1 else super().write(data)

    out = Full()
    waits: list[Any] = []
    monkeypatch.setattr(log.select, "select", lambda *given: waits.append(given[1]))
    one = Log(out, as_json=False)
    one.line("takes events", "gateway")
    assert timeless(written(one, out)) == "gateway | info  gateway: takes events\n"
    assert waits == [(out,)]
    one.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.EPIPE])
def test_a_terminal_that_was_closed(number):
    """As if nobody read: that is a reason to stop."""

    class Gone(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(number, os.strerror(number))

    one = Log(Gone(), as_json=False)
    one.line("takes events")
    eventually(lambda: one._pen.idle, "a try to write it")
    with pytest.raises(BrokenPipeError):
        one.line("takes more")
    one.close()
