"""Deadlines of waits, of programs and of whole tests, which a busy machine can not miss.

They count fair seconds: those in which no thread of this process or of its children
was ready to run and waited for a CPU.  Linux adds such waiting up for each thread, in
/proc/PID/task/TID/schedstat; elsewhere every second counts.
"""

import contextlib
import faulthandler
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import hypothesis
import pytest
import pytest_timeout

import warm
from gateway_testkit.daemon import environment

__all__ = [
    "PATIENCE",
    "ROOT",
    "Deadline",
    "environment",
    "eventually",
    "excerpt",
    "finish",
    "next_line",
    "rest",
    "run",
]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Fair seconds that anything may take before it counts as hung."""

_SAMPLE_SECONDS = 0.5
_SELDOM = 200
"""A look at all threads, of which a Java has hundreds, takes no more than one of so many
seconds."""
_SLOWEST = 5
"""However busy the machine, so many times the fair seconds are enough."""
_MOST_SAID_BYTES = 64 << 20
"""Who says more is in a loop that says so."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.25
"""Between two looks."""
_SHOWN = 8 << 10
"""So much is shown of the beginning of what a program said, and of its end."""
_DUMP_SECONDS = 1.0

T = TypeVar("T")
Text = TypeVar("Text", str, bytes)


class FairClock(threading.Thread):
    """Counts the seconds that were lost in waiting for a CPU."""

    def __init__(self) -> None:
        super().__init__(name="fair clock", daemon=True)
        self._lost = 0.0
        self._at = time.monotonic()
        self._waits = _waits()
        self.last: Deadline | None = None
        """When this process ends, whether its test has heeded its limit or not."""
        self.errors: IO[str] = sys.stderr
        self.start()

    def run(self) -> None:
        took = 0.0
        while True:
            time.sleep(max(_SAMPLE_SECONDS, _SELDOM * took))
            self._end_what_does_not_end()
            at, begun = time.monotonic(), time.thread_time()
            waits = _waits()
            took = time.thread_time() - begun
            waited = sum(
                max(0, nanoseconds - self._waits.get(thread, 0))
                for thread, nanoseconds in waits.items()
            )
            self._lost += min(waited / 1e9, at - self._at)
            self._at, self._waits = at, waits

    def _end_what_does_not_end(self) -> None:
        """End this process when its test goes on long after its limit.

        The limit is an exception in the main thread.  It does not end what catches it,
        nor what hangs while a fixture is taken down, nor what waits outside Python.
        """
        last = self.last
        if last is not None and last.left() <= 0 and not pytest_timeout.is_debugging():
            faulthandler.dump_traceback(self.errors)
            os._exit(1)

    def now(self) -> float:
        """Fair seconds since some moment."""
        return time.monotonic() - self._lost


def _waits() -> dict[int, int]:
    """Nanoseconds that each thread of ours has waited for a CPU, by thread id."""
    found: dict[int, int] = {}
    for task in _tasks(os.getpid()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (task / "schedstat").read_text()
            found[int(task.name)] = int(text.split()[1])
    return found


def _tasks(process: int) -> Iterator[Path]:
    """The directories of all threads of a process and of its descendants."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            yield task
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    yield from _tasks(int(child))


_clock = FairClock()


class Deadline:
    """So many fair seconds from now."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.seconds = seconds
        self._fair_end = _clock.now() + seconds
        self._end = time.monotonic() + seconds * _SLOWEST

    def left(self) -> float:
        """Fair seconds; 0 or less when it is over."""
        return min(self._fair_end - _clock.now(), self._end - time.monotonic())


def eventually(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """The first true answer of *look*; fails when there is none in time."""
    deadline = Deadline(seconds)
    begun = time.monotonic()
    while not (found := look()):
        if deadline.left() <= 0:
            pytest.fail(f"in {seconds:g} s not seen: {what}")
        # What it costs somebody to answer is time of the CPU that all wait for.
        took = time.monotonic() - begun
        time.sleep(min(max(_PAUSE_SECONDS, 4 * took), _LONGEST_PAUSE_SECONDS))
        begun = time.monotonic()
    return found


def rest(seconds: float) -> None:
    """Let so many fair seconds pass, for what must not happen by itself."""
    deadline = Deadline(seconds)
    while deadline.left() > 0:
        time.sleep(0.05)


def finish(
    process: subprocess.Popen[Text], seconds: float = PATIENCE, log: Path | None = None
) -> tuple[Text, Text]:
    """The rest of a program's output and errors, once it has ended by itself.

    *log* is the file that its errors go to, if they do.
    """
    deadline = Deadline(seconds)
    while True:
        try:
            return process.communicate(timeout=1.0)
        except subprocess.TimeoutExpired as waiting:
            said = len(waiting.output or b"") + len(waiting.stderr or b"")
        _end_what_hangs(process, deadline, said, log)


def next_line(
    process: subprocess.Popen[Text], seconds: float = PATIENCE, log: Path | None = None
) -> str:
    """The next line that a program says, with its end; "" once it says no more."""
    assert process.stdout is not None
    deadline, line = Deadline(seconds), b""
    awaited = select.poll()
    awaited.register(process.stdout, select.POLLIN)
    while not line.endswith(b"\n"):
        _end_what_hangs(process, deadline, len(line), log)
        if awaited.poll(1000):
            # Not a byte more is taken: what follows is for `finish`.
            taken = os.read(process.stdout.fileno(), 1)
            if not taken:
                break
            line += taken
    return line.decode()


def _end_what_hangs(
    process: subprocess.Popen[Any], deadline: Deadline, said: int, log: Path | None
) -> None:
    """End a program that took too long or says too much, and fail with what it said."""
    said += log.stat().st_size if log is not None else 0
    if deadline.left() > 0 and said <= _MOST_SAID_BYTES:
        return
    process.send_signal(signal.SIGQUIT)  # Java and Go say what their threads do
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DUMP_SECONDS)
    process.kill()
    texts = [each for each in (*process.communicate(), log) if each is not None]
    why = f"{deadline.seconds:g} s" if said <= _MOST_SAID_BYTES else f"{said} bytes"
    shown = "\n".join(map(excerpt, texts))
    pytest.fail(f"after {why} not done: {process.args}\n{shown}")


def excerpt(said: str | bytes | Path) -> str:
    """The beginning and the end of what was said, be it in a file."""
    if isinstance(said, Path):
        with said.open("rb") as file:
            left = os.fstat(file.fileno()).st_size - 2 * _SHOWN
            begin = file.read(_SHOWN)
            file.seek(max(left, 0), os.SEEK_CUR)
            end = file.read()
    else:
        data = said.encode() if isinstance(said, str) else said
        left, begin, end = (
            len(data) - 2 * _SHOWN,
            data[:_SHOWN],
            data[_SHOWN:][-_SHOWN:],
        )
    between = f"\n... {left} bytes ...\n" if left > 0 else ""
    return begin.decode(errors="replace") + between + end.decode(errors="replace")


def run(
    *words: object,
    stdin: str = "",
    seconds: float = 4 * PATIENCE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with tempfile.TemporaryFile("w+") as source:
        source.write(stdin)
        source.seek(0)
        process = warm.start(
            words,
            env,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
    try:
        output, errors = finish(process, seconds)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


# -- of whole tests --------------------------------------------------------------------


END_AFTER = PATIENCE
"""Fair seconds after its limit that a test has to end."""


def pytest_configure() -> None:
    """Keep where errors go to, before pytest takes it away."""
    _clock.errors = os.fdopen(os.dup(2), "w")


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """The time limit of a test is in fair seconds, too."""
    if settings.method != "signal":
        return None
    deadline = Deadline(settings.timeout)
    _clock.last = Deadline(settings.timeout + END_AFTER)

    def look(*_: object) -> None:
        if (left := deadline.left()) > 0:
            signal.setitimer(signal.ITIMER_REAL, max(left, 1.0))
        else:
            pytest_timeout.timeout_sigalrm(item, settings)

    def cancel() -> None:
        _clock.last = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined] - as the plugin does
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


# Examples may take as long as they need.
hypothesis.settings.register_profile(
    "gateway",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("gateway")


# -- for tests -------------------------------------------------------------------------


@pytest.fixture
def gateway_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `gateway …` to its end."""
    return lambda *words, **more: run(sys.executable, "-m", "gateway", *words, **more)


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually
