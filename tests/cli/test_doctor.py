"""`gateway doctor`: one line for each look, and an exit status that says if one failed."""

import json
from pathlib import Path

import pytest

from gateway.cli import main


@pytest.fixture
def config(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"node: gw-1\ndata_dir: {tmp_path}/data\nadmin: {{listen: 'tcp:127.0.0.1:0'}}\n"
        "listeners: [{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
    )
    return path


def test_all_looks(config, capsys):
    """Each is a line with its state first; nothing is left behind."""
    assert main(["doctor", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn"}
    assert lines[0] == f"ok    configuration  — {config}, node gw-1"
    assert all("  — " in line for line in lines)
    assert list((config.parent / "data").iterdir()) == []


def test_something_fails(config, capsys):
    """What to do stands behind it; the exit status is 1, in JSON too."""
    data = config.parent / "data"
    data.rmdir()
    data.write_text("")
    assert main(["doctor", "--config", str(config)]) == 1
    out = capsys.readouterr().out
    assert f"fail  data directory  — {data} is no directory; set data_dir to one" in out
    assert "directory belongs: move it away" in out
    assert "report this" not in out
    assert "dmesg" not in out
    assert main(["doctor", "--config", str(config), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    [look] = [one for one in found["looks"] if one["what"] == "data directory"]
    assert look == {
        "state": "fail",
        "what": "data directory",
        "detail": f"{data} is no directory",
        "advice": "set data_dir to one",
    }


def test_a_wrong_configuration(config, capsys):
    """Each mistake in it is a line; a file that is not there is wrong use."""
    config.write_text(config.read_text() + "node2: x\nworkers: 0\n")
    assert main(["doctor", "--config", str(config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("fail  configuration  — ") for line in lines)
    assert main(["doctor", "--config", str(config.parent / "none.yaml")]) == 2
    config.write_bytes(b"node: \xff\n")
    assert main(["doctor", "--config", str(config)]) == 1
    assert f"{config}: not UTF-8 (line 1); mend it" in capsys.readouterr().out
