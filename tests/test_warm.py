"""What starts by fork can not be told from what a fresh interpreter runs."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import script
import warm
from daemons import send
from deadlines import environment, finish

GATEWAY = (sys.executable, "-m", "gateway")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nothing starts by fork"
)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def opened(pid: int) -> set[str]:
    found = set()
    for number in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was for this loop
            found.add(str(number.readlink()))
    return found


@pytest.mark.parametrize("words", ["--version", "check nowhere.yaml", "nonsense", ""])
def test_a_command_says_and_returns_the_same(words, tmp_path):
    """Its output, what it complains of in which folder, and its status."""
    (tmp_path / "nowhere.yaml").symlink_to("either")
    said = []
    for start in (warm.start, subprocess.Popen):
        start_any: Any = start
        process = start_any(
            [*GATEWAY, *words.split()],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert warm.is_fork(process) == (start is warm.start)
        said.append((*finish(process), process.returncode))
    assert said[0] == said[1]
    assert any(said[0][:2])


def test_a_daemon_is_a_child_with_a_session_of_its_own(prepare):
    """It has no descriptor of the test's, and stops and dies by signals as any."""
    daemon = prepare()
    with (daemon.config.with_name("log")).open("wb") as log:
        process = daemon.process = warm.start(
            daemon.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert warm.is_fork(process)
    daemon.eventually(daemon._ready, "it is ready")
    assert parent(process.pid) == os.getpid()
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    ours = {one for one in opened(os.getpid()) if one.startswith(("pipe:", "socket:"))}
    assert not ours & opened(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    assert process.returncode == -signal.SIGKILL


def test_who_loses_its_parent_is_not_ours(start):
    """A publisher process whose daemon was killed becomes no child of the test's."""
    daemon = start()
    assert warm.is_fork(daemon.process)
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
    publishers = [int(one) for one in children.read_text().split()]
    assert publishers
    daemon.kill()
    ours = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not {*map(str, publishers)} & {*ours}


def test_a_publisher_process_is_a_fork_without_its_daemons_files(start):
    """Neither journal nor lock nor socket stay open in it; it writes the spool's files."""
    daemon = start()
    [publisher] = (
        Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    )
    command = Path(f"/proc/{publisher}/cmdline").read_bytes()
    assert command == Path(f"/proc/{daemon.pid}/cmdline").read_bytes(), "it is no fork"
    log = str(daemon._log)
    assert opened(daemon.pid) & opened(int(publisher)) <= {log, "/dev/null"}
    send(daemon, b'{"a": 1}')
    daemon.settled(1)
    assert len(daemon.rows()) == 1


def test_a_program_of_a_tests_own_is_a_fork(tmp_path):
    """The gateway is there, and no reactor yet: it makes its own."""
    code = """if True:
        import sys
        print("gateway.net.listen" in sys.modules, "twisted.internet.reactor" in sys.modules)
        from twisted.internet import reactor
        reactor.callWhenRunning(reactor.stop)
        reactor.run()
        sys.exit(7)
    """
    process = warm.start(
        [sys.executable, script.__file__, code], stdout=subprocess.PIPE, text=True
    )
    assert warm.is_fork(process)
    assert (finish(process)[0], process.returncode) == ("True False\n", 7)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ((sys.executable, "-c", "print()"), {}),
        ((sys.executable, "-X", "utf8", "-m", "gateway", "--version"), {}),
        ((*GATEWAY, "--version"), {"env": {**environment(), "PYTHONHASHSEED": "1"}}),
        ((*GATEWAY, "--version"), {"env": {**environment(), "MALLOC_ARENA_MAX": "1"}}),
        ((*GATEWAY, "--version"), {"preexec_fn": os.getpid}),
    ],
)
def test_what_a_fork_could_not_heed_starts_fresh(words, more):
    """Other programs, other options of the interpreter, of its memory or of `Popen`."""
    process = warm.start(words, stdout=subprocess.PIPE, text=True, **more)
    assert not warm.is_fork(process)
    finish(process)
    assert process.returncode == 0
