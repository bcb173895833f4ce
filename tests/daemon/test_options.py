"""`twistd gateway`'s command line."""

import sys
from pathlib import Path

import pytest
from twisted.scripts.twistd import ServerOptions

from deadlines import run


@pytest.mark.parametrize(
    ("words", "pid_file"),
    [
        (["-n"], ""),
        ([], "twistd.pid"),
        (["-n", "--pidfile=/run/gw.pid"], "/run/gw.pid"),
    ],
)
def test_the_foreground_leaves_no_pid_file(tmp_path, words, pid_file):
    """twistd would leave one in whatever folder one is; who names one gets it."""
    file = tmp_path / "gateway.yaml"
    file.write_text(
        "listeners: [{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]"
    )
    options = ServerOptions()
    options.parseOptions([*words, "gateway", "--config", str(file)])
    assert options["pidfile"] == (pid_file and str(Path(pid_file).absolute()))


@pytest.mark.parametrize("words", [["--uid", "1"], ["--gid", "1"], ["--chroot", "/"]])
def test_nobody_becomes_somebody_else(tmp_path, capsys, words):
    """twistd would after the start, whose files would not be the daemon's to write."""
    options = ServerOptions()
    with pytest.raises(SystemExit):
        options.parseOptions(["-n", *words, "gateway", "--config", str(tmp_path)])
    assert "start it as the user that it is to be" in capsys.readouterr().err


def test_the_disk_reads_while_the_daemon_is_imported():
    """What takes long to import is not needed before the configuration was read."""
    code = "import sys, gateway.daemon.start; print(*sys.modules)"
    loaded = run(sys.executable, "-c", code).stdout.split()
    late = {"gateway.daemon.service", "pyarrow", "twisted.internet.reactor"}
    assert "gateway.config" in loaded
    assert not late.intersection(loaded)
