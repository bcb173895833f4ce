"""What `gateway run` says before it starts anybody; with children it is in
tests/integration/test_run.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli


def test_data_that_can_not_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that can not be made, for whatever reason, is a sentence and wrong use."""
    (tmp_path / "data").write_text("a file")
    beats = {"name": "beats", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:1"}
    settings = {
        "listeners": [beats],
        "data_dir": str(tmp_path / "data"),
        "spool": {"after": "keep"},
    }
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(settings))
    assert cli.main(["run", "--config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"gateway: {tmp_path}/data/run: Not a directory\n"
    )
