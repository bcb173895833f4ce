"""What `gateway send pravega` does beside what all protocols do."""

import pytest

from gateway import cli


@pytest.mark.parametrize("dialect", ["seed", "v17"])
def test_segment_and_size(listen, send, dialect):
    """All events are in the segment that was asked for, of the size asked for."""
    store = listen("pravega")
    run = send(
        "pravega", store.address, "--dialect", dialect, "--generate", 500,
        "--segment", "a/b/0.#epoch.0", "--size", 300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert {rows.channel for rows in store.rows if rows.count} == {"a/b/0.#epoch.0"}
    assert [len(payload) for payload in store.payloads] == [300] * 500


def test_not_over_websocket(capsys):
    """Pravega has none, so there is no such option."""
    assert cli.main(["send", "pravega", "gw:1", "--websocket", "/"]) == 2
    assert "--websocket" in capsys.readouterr().err
