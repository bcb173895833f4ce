"""The deadlines of our tests: they are kept on a busy machine, and end what hangs."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import deadlines
import gateway.figures
from deadlines import Deadline, eventually, excerpt, finish, next_line, run
from fitting import misfit
from programs import running

SPIN = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def test_waiting_for_a_cpu_does_not_count():
    """With four of our processes for each CPU, a deadline is further away than time."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("needs Linux's schedstat")
    deadline, begin = Deadline(100), time.monotonic()
    spinning = [
        subprocess.Popen([sys.executable, "-c", SPIN])
        for _ in range(4 * (os.cpu_count() or 1))
    ]

    def is_further_away() -> bool:
        return 100 - deadline.left() < (time.monotonic() - begin) * 0.8

    try:
        eventually(is_further_away, "time that does not count")
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def test_sleeping_counts():
    """What waits for something else than a CPU has its deadline come nearer."""
    with pytest.raises(pytest.fail.Exception, match="not seen: rain"):
        eventually(lambda: False, "rain", 0.5)


def test_a_program_that_hangs_is_ended():
    """… and its output is shown."""
    with pytest.raises(pytest.fail.Exception, match="so far"):
        run("sh", "-c", "echo so far; exec sleep 1000", seconds=0.1)


def test_what_a_program_is_told_and_says_is_not_lost():
    """However long it takes, and however much that is."""
    code = "import sys, time; time.sleep(2.5); print(len(sys.stdin.read()))"
    assert run(sys.executable, "-c", code, stdin="x" * 200_000).stdout == "200000\n"


def test_a_word_that_does_not_come(tmp_path):
    """What its threads do is asked for, and shown with what it said, and what its log says."""
    code = """if True:
        import faulthandler, signal, time
        def waits_for_ever():
            print("begun", flush=True)
            time.sleep(1000)
        faulthandler.register(signal.SIGQUIT)
        waits_for_ever()
    """
    log = tmp_path / "log"
    with running() as start, log.open("w") as errors:
        program = start(sys.executable, "-c", code, stderr=errors)
        assert next_line(program) == "begun\n"
        with pytest.raises(pytest.fail.Exception, match="in waits_for_ever"):
            next_line(program, 0.1, log)
        assert program.returncode is not None


def test_what_follows_a_line_is_not_lost():
    """Lines that came together are given one by one; then there is no more."""
    with running() as start:
        program = start("sh", "-c", "printf '1\\n2\\n3'")
        assert next_line(program) == "1\n"
        assert next_line(program) == "2\n"
        assert finish(program)[0] == "3"
    with running() as start:
        program = start("sh", "-c", "printf 3")
        assert [next_line(program), next_line(program)] == ["3", ""]


@pytest.mark.parametrize("into_a_log", [True, False])
def test_who_says_too_much_is_ended(tmp_path, monkeypatch, *, into_a_log):
    """… long before its deadline; the beginning and the end are shown, not all of it."""
    monkeypatch.setattr(deadlines, "_MOST_SAID_BYTES", 1 << 20)
    log = tmp_path / "log"
    where = "1>&2" if into_a_log else ""
    code = f"exec {where}; echo the cause; yes | head -c 4000000; exec sleep 1000"
    with running() as start, log.open("w") as errors:
        program = start("sh", "-c", code, stderr=errors)
        with pytest.raises(pytest.fail.Exception, match="the cause") as failed:
            finish(program, 1000, log)
    assert "bytes" in str(failed.value)
    assert len(str(failed.value)) < 1 << 16


def test_an_excerpt_is_whole_or_says_what_it_leaves_out(tmp_path):
    """Of text, of bytes and of a file alike."""
    file = tmp_path / "log"
    for size in (0, 1, 8 << 10, 16 << 10, (16 << 10) + 1, 1 << 20):
        text = "".join(map(str, range(size)))[:size]
        file.write_text(text)
        shown = excerpt(text)
        assert excerpt(text.encode()) == excerpt(file) == shown
        if size <= 16 << 10:
            assert shown == text
        else:
            begin, told, end = shown.split("\n")
            assert f" {size - (16 << 10)} bytes" in told
            assert (text.startswith(begin), text.endswith(end)) == (True, True)
            assert len(begin + end) == 16 << 10


def test_the_limit_of_a_test_is_kept(tmp_path):
    """pytest-timeout ends a test that does nothing, by our clock."""
    done = run_limited(tmp_path, "def test_it():\n    __import__('time').sleep(99)")
    assert "1 failed" in done.stdout
    assert "Timeout (>1.0s)" in done.stdout


def test_who_does_not_heed_the_limit_is_ended(tmp_path):
    """… with all of its process, which shows where it was."""
    done = run_limited(
        tmp_path,
        """
        import time

        def test_it():
            try:
                time.sleep(99)
            finally:
                time.sleep(99)
        """,
        "import deadlines; deadlines.END_AFTER = 1",
    )
    assert done.returncode == 1
    assert "in test_it" in done.stderr


def run_limited(
    folder: Path, test: str, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """The outcome of a test that may take a second, once *before* was run."""
    (folder / "test_it.py").write_text(textwrap.dedent(test))
    (folder / "conftest.py").write_text(f"pytest_plugins = ['deadlines']\n{before}")
    plugins = f"pythonpath={Path(deadlines.__file__).parent}"
    words = ["-o", plugins, "--timeout=1", "-p", "no:cacheprovider"]
    return run(sys.executable, "-m", "pytest", *words, cwd=folder)


def ours(one: int, two: int = 2, *, named: int, more: int = 4) -> None:
    """As a module of ours has it."""


ours.__module__ = "gateway.figures"


@pytest.mark.parametrize(
    "double",
    [
        lambda *_, **__: None,
        lambda _, other=0, *, named, more=0: None,
        lambda one, two=0, *, more=0, **others: None,
        Mock(),
        dict,
    ],
)
def test_what_takes_it_all_fits(double):
    """Names of what is given by its place may differ."""
    assert misfit(ours, double) is None


@pytest.mark.parametrize(
    "double",
    [
        lambda one, two, *, named: None,  # a new one with a default
        lambda one, two, *, more=0: None,  # one that must be given
        lambda one, *, named, more=0: None,
        lambda one, two, three, *, named, more=0: None,  # wants what nobody gives
        lambda: None,
    ],
)
def test_what_does_not_is_named_with_its_double(double):
    """With the parameters of both, as one that mends it wants to see them."""
    said = misfit(ours, double)
    assert said is not None
    assert said.startswith("the double of gateway.figures.ours(one: int, two")
    assert ") -> None takes (" in said


class Owner:
    """What has methods of each kind."""

    def method(self, one: int) -> None:
        """Bound to what calls it."""

    @classmethod
    def of_class(cls, one: int) -> None:
        """Bound to the class."""

    @staticmethod
    def of_none(one: int) -> None:
        """Bound to nothing."""


for _each in (Owner.method, Owner.of_class.__func__, Owner.of_none):  # type: ignore[attr-defined]
    _each.__module__ = "gateway.figures"


@pytest.mark.parametrize(
    ("name", "fits", "does_not"),
    [
        ("method", lambda self, one: None, lambda self: None),
        ("of_class", classmethod(lambda cls, one: None), classmethod(lambda cls: None)),
        ("of_none", staticmethod(lambda one: None), staticmethod(lambda: None)),
    ],
)
def test_methods_as_they_are_called(monkeypatch, name, fits, does_not):
    """Each kind is bound in its way, and so is its double."""
    monkeypatch.setattr(Owner, name, fits)
    monkeypatch.undo()
    with pytest.raises(TypeError, match=rf"{name}.* takes "):
        monkeypatch.setattr(Owner, name, does_not)


def test_by_the_name_of_its_module(monkeypatch):
    """Also within a context, and through an object that has the function."""
    monkeypatch.setattr(gateway.figures, "ours", ours, raising=False)
    with monkeypatch.context() as patch, pytest.raises(TypeError, match="ours"):
        patch.setattr("gateway.figures.ours", lambda: None)
    with pytest.raises(TypeError, match="ours"):
        monkeypatch.setattr(SimpleNamespace(it=ours), "it", lambda: None)


def test_what_is_not_ours_is_left_alone(monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda: None)
    monkeypatch.setattr(gateway.figures, "number", 1, raising=False)
    monkeypatch.setattr(gateway.figures, "number", lambda: None)
