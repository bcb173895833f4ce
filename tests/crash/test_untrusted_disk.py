"""A disk that does not take what it was given ends the daemon, whatever its log does."""

import os
from pathlib import Path

import pytest
from pylogbeat import ConnectionException, PyLogBeatClient

from daemons import Daemon

_SITE = """
import errno, os

real = os.fdatasync

def fdatasync(fd):
    if os.path.exists({failing!r}):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real(fd)

os.fdatasync = fdatasync
"""


class OnABadDisk(Daemon):
    """Its syncs fail while there is a file *failing*; what it logs goes to *log*."""

    def __init__(self, home: Path, log: Path | None) -> None:
        super().__init__(home, {"spool": {"publishers": 0}})
        self.failing = home / "failing"
        self._written_to = log
        site = home / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE.format(failing=str(self.failing)))

    @property
    def environment(self) -> dict[str, str]:
        ours = super().environment
        path = os.pathsep.join((str(self._home / "site"), ours["PYTHONPATH"]))
        return {**ours, "PYTHONPATH": path}

    @property
    def command(self) -> list[str]:
        if self._written_to is None:
            return super().command
        line = f'exec "$0" "$@" 2>{self._written_to}'
        return ["sh", "-c", line, *super().command]


@pytest.mark.parametrize(
    "log", [pytest.param(None, marks=pytest.mark.long), Path("/dev/full")]
)
def test_two_syncs_that_fail_in_a_row_end_the_daemon(tmp_path, log):
    """With status 74, though nobody can write that down; the next start goes on."""
    daemon = OnABadDisk(tmp_path / "gateway", log)
    with daemon:
        with PyLogBeatClient(*daemon.address()) as client:
            client.send([{"number": 1}])
        daemon.settled()
        daemon.failing.touch()
        unheard = PyLogBeatClient(*daemon.address(), timeout=60.0)
        with pytest.raises((OSError, ConnectionException)):  # however it ends
            unheard.send([{"number": 2}])
        process = daemon.process
        assert process is not None
        daemon.eventually(lambda: process.poll() is not None, "the daemon has ended")
        assert process.returncode == 74
        if log is None:
            assert "the journal is lost: " in daemon.log
        daemon.failing.unlink()
        daemon.start()
        with PyLogBeatClient(*daemon.address()) as client:
            client.send([{"number": 3}])
        daemon.settled()
        numbers = [row["payload"] for row in daemon.rows()]
        assert b'"number": 1' in numbers[0]
        assert b'"number": 3' in numbers[-1]
