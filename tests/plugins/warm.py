"""`twistd gateway` and `gateway …` by fork, from a process that has imported all of it.

Nine tenths of what a start costs are imports: a second of CPU for the daemon, and tests
start hundreds.  Here one process for each of pytest's (`nursery`) imports everything, and
whoever is to be started is a fork of it, which from then on is a process like any other: a child of
the test's, with arguments, environment, descriptors, folder and session of its own, with
no thread and no reactor before it makes them, and Python's usual end.

Not for tests that look at memory, at `/proc/PID/cmdline` or at what is imported: those
start a fresh interpreter, as does whatever is not one of these two programs, or has other
settings of Python's in its environment.  A test's own program, given to `script`, is a fork
as well.
"""

import contextlib
import ctypes
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nursery
import script
from gateway_testkit.daemon import environment

__all__ = ["adopting", "is_fork", "start"]

_TWISTD = str(Path(sys.executable).parent / "twistd")
_COMMANDS = ("gateway", "gateway.cli")
_OF_ITS_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "ARROW_")
"""Whoever has other variables that begin so has to have them when Python starts."""
_TAKEN = {"cwd", "start_new_session", "stderr", "stdin", "stdout", "text"}
"""The options of `Popen` that a fork can heed."""

_PR_SET_CHILD_SUBREAPER = 36


def start(
    words: Sequence[object], env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """A process that runs these words: a fork, if it may be one, as `Popen` has it."""
    plain, env = [*map(str, words)], env or environment()
    may = _may_be_forked(plain, env) and options.keys() <= _TAKEN
    kind: Any = _Forked if may else subprocess.Popen
    process: subprocess.Popen[Any] = kind(plain, env=env, **options)
    return process


def is_fork(process: subprocess.Popen[Any]) -> bool:
    """It started with what others have imported."""
    return isinstance(process, _Forked)


def _may_be_forked(words: Sequence[str], env: Mapping[str, str]) -> bool:
    python, *options = words[:3]
    ours = python == _TWISTD or (
        python == sys.executable
        and (
            options in (["-m", command] for command in _COMMANDS)
            or options[:1] == [script.__file__]
        )
    )
    return sys.platform == "linux" and ours and _fixed(env) == _fixed(environment())


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name.startswith(_OF_ITS_START)
    }


class _Forked(subprocess.Popen[Any]):
    """A child that came by fork: all but its start is `Popen`'s."""

    def _execute_child(
        self,
        args: list[str],
        executable: None,
        preexec_fn: None,
        close_fds: bool,
        pass_fds: tuple[()],
        cwd: Path | None,
        env: Mapping[str, str],
        startupinfo: None,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: None,
        gids: None,
        uid: None,
        umask: int,
        start_new_session: bool,
        *_: object,
    ) -> None:
        theirs = [p2cread, c2pwrite, errwrite]
        try:
            self.pid = _nursery().fork(
                {
                    "words": args,
                    "env": {**env},
                    "cwd": str(cwd or Path.cwd()),
                    "session": start_new_session,
                },
                [number if one == -1 else one for number, one in enumerate(theirs)],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
            )  # type: ignore[attr-defined]


class _Nursery:
    """The process that forks, as its parent sees it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Its streams are pipes: of those no fork believes that it knows the position.
            self._process = subprocess.Popen(
                [sys.executable, nursery.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Start what is ordered; the number of the process, whose parent we are."""
        said = json.dumps(order).encode()
        assert len(said) <= nursery.MOST_BYTES, (
            f"{len(said)} bytes of arguments and environment"
        )
        with self._turn, adopting():
            number = b""
            with contextlib.suppress(OSError):
                socket.send_fds(self._channel, [said], descriptors)
                number = self._channel.recv(64)
        assert number, f"nothing to fork from: {self._process.communicate()[0]}"
        return int(number)


_made: list[_Nursery] = []
_making = threading.Lock()


def _nursery() -> _Nursery:
    """This process's, which ends when this one does."""
    with _making:
        if not _made:
            _made.append(_Nursery())
    return _made[0]


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile this process becomes the parent of descendants that have lost theirs."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
