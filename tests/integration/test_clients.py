"""Published Python clients against the real daemon: what they are told was taken is
in the Parquet files, once, in their order, in the right envelope.
"""

import json
import ssl
import sys
from typing import Any

import pytest
from pylogbeat import ConnectionException, PyLogBeatClient

from daemons import listener, tls
from deadlines import eventually, run

LOGGING_PROGRAM = """
import logging, sys
from logstash_async.handler import AsynchronousLogstashHandler
from logstash_async.transport import BeatsTransport

port, records = int(sys.argv[1]), int(sys.argv[2])
transport = BeatsTransport("127.0.0.1", port, ssl_enable=False, ssl_verify=False,
    ssl_verify_flags=None, keyfile=None, certfile=None, ca_certs=None, timeout=None)
handler = AsynchronousLogstashHandler(
    "127.0.0.1", port, database_path=None, transport=transport)
log = logging.getLogger("shop")
log.setLevel(logging.INFO)
log.addHandler(handler)
for number in range(records):
    log.info("order %d taken", number, extra={"order": number})
logging.shutdown()
"""


def messages(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"@timestamp": "2026-11-21T00:00:00Z", "message": f"line {number}"}
        for number in range(first, first + count)
    ]


def payloads(rows: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(row["payload"]) for row in rows]


def test_what_pylogbeat_sends_arrives(start):
    """Window after window on one connection, whose sequence numbers never reset."""
    daemon = start()
    with PyLogBeatClient(*daemon.address()) as client:
        for window in range(5):
            client.send(messages(10, first=window * 10))
        peer = "{}:{}".format(*client._socket.getsockname())
    rows = daemon.settled_rows()
    assert payloads(rows) == messages(50)
    assert [row["seq"] for row in rows] == list(range(1, 51))
    assert {row["peer"] for row in rows} == {peer}
    assert len({row["session"] for row in rows}) == 1
    for row in rows:
        assert row["node"] == "gw-1"
        assert (row["protocol"], row["listener"]) == ("lumberjack", "beats")
        assert (row["kind"], row["content_type"]) == ("data", "application/json")
        assert row["principal"] is row["channel"] is row["flaw"] is None
        window = (row["seq"] - 1) // 10 + 1
        assert row["attributes"] == {"version": "2", "window": str(window)}
    assert daemon.listener()["events"] == 50


def test_events_that_are_no_json_are_acknowledged_and_kept(start):
    """A poison event does not make its sender loop; it is stored with its flaw."""
    sent = [b"{nope", b"", b'{"m":"\xff\xfe"}', b'{"fine":true}']
    daemon = start()
    with PyLogBeatClient(*daemon.address()) as client:
        client.send(sent)
    rows = daemon.settled_rows()
    assert [row["payload"] for row in rows] == sent
    assert [row["flaw"] for row in rows] == [
        "invalid-json", "empty", "invalid-utf8", None
    ]  # fmt: skip


def test_a_client_certificate_names_the_principal(start, authority):
    """Who proves to be web-1 is `CN=web-1` in each event; who proves nothing is out."""
    pair, ours = authority.issue("gateway.example"), authority.issue("web-1")
    mutual = tls(pair, client_auth="required", client_ca=str(authority.ca))
    daemon = start(listeners=[listener("beats", "lumberjack", tls=mutual)])
    address = daemon.address()
    options = {"ssl_enable": True, "ca_certs": str(authority.ca)}
    with PyLogBeatClient(
        *address, **options, certfile=str(ours.certificate), keyfile=str(ours.key)
    ) as client:
        client.send(messages(10))
    nobody = PyLogBeatClient(*address, **options)
    with pytest.raises((ssl.SSLError, ConnectionException, ConnectionError)):
        nobody.send(messages(1, first=10))
    nobody.close()
    rows = daemon.settled_rows()
    assert payloads(rows) == messages(10)
    assert {row["principal"] for row in rows} == {"CN=web-1"}
    eventually(lambda: "TLS handshake failed" in daemon.log, "a line about nobody")


def test_records_of_python_logging_arrive(start, tmp_path):
    """All that python-logstash-async was given is there when its program has ended.

    (Its own queue does not keep their order.)
    """
    daemon = start()
    program = tmp_path / "shop.py"
    program.write_text(LOGGING_PROGRAM)
    done = run(sys.executable, program, daemon.address()[1], 300)
    assert (done.returncode, done.stderr) == (0, "")
    rows = daemon.settled_rows()
    events = payloads(rows)
    assert sorted(event["message"] for event in events) == sorted(
        f"order {number} taken" for number in range(300)
    )
    assert {row["flaw"] for row in rows} == {None}
