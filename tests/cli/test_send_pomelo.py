"""What `gateway send pomelo` does beside what all protocols do."""

import json

import pytest


@pytest.mark.parametrize("extra", [[], ["--notify"]])
def test_requests(listen, send, extra):
    """Every event is one; with --notify only one in a while, to hear that all is well."""
    server = listen("pomelo")
    run = send("pomelo", server.address, "--generate", 500, *extra)
    assert run.returncode == 0, run.stderr
    requests = sum(
        rows.kinds.get(number, rows.kind) == "request"
        for rows in server.rows
        for number in range(rows.count)
    )
    assert 0 < requests < 50 if extra else requests == 500


def test_standard_input_and_a_token(listen, send):
    """Lines that are objects are sent as they are."""
    server = listen("pomelo", token="t0k")
    words = ["--stdin", "--token", "t0k"]
    run = send("pomelo", server.address, *words, stdin='{"a":1}\nplain\n')
    assert run.returncode == 0, run.stderr
    assert server.payloads[0] == b'{"a":1}'
    assert json.loads(server.payloads[1])["message"] == "plain"


def test_who_is_not_admitted(listen, send_until):
    """The server's reason is told, while it is tried again."""
    server = listen("pomelo", token="t0k")
    reason = "handshake refused: wrong token, trying again"
    send_until(reason, "pomelo", server.address, "--token", "no")
