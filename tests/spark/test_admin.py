"""The job's own health and metrics, where no gateway sees what it says."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deadlines import eventually
from gateway.config import Invalid, load
from gateway.spark.run.admin import Admin, serving
from gateway.spark.run.health import Health
from gateway.store.readers.audited import Audited
from gateway.store.readers.lake import health_path

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(tmp_path) -> Iterator[Ask]:
    """Asks the job of this lake."""
    with started(tmp_path / "data", token="secret") as admin:

        def get(
            path: str, token: str | None = None, host: str | None = None
        ) -> tuple[int, str]:
            port = admin.server_address[1]
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
            if host is not None:
                request.add_header("Host", host)
            if token is not None:
                request.add_header("Authorization", f"Bearer {token}")
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as why:
                return why.code, why.read().decode()

        yield get


def started(data: Path, *, listen: str = "tcp:127.0.0.1:0", token: str = "") -> Any:
    path = data.with_name("gateway.yaml")
    settings: dict[str, Any] = {
        "node": "gw",
        "data_dir": str(data),
        "listeners": [
            {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
        ],
        "spark": {"admin": {"listen": listen}},
    }
    if token:
        settings["admin"] = {"token": token}
    path.write_text(json.dumps(settings))
    return serving(load(path))


def metrics(text: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_says_how_the_job_is(ask, tmp_path):
    """Before it begins, while it starts, while it runs, and when it hangs."""
    lake = tmp_path / "data" / "lake"
    assert ask("/healthz")[0] == 503
    health = Health(lake)
    health.say(doing="starting Java")
    assert ask("/healthz")[0] == 200
    assert ask("/readyz") == (503, "starting: starting Java\n")
    found = metrics(ask("/metrics", "secret")[1])
    assert (found["gateway_spark_up"], found["gateway_spark_ready"]) == (1, 0)
    health.say(
        state="running",
        oldest_file={"name": "events-…", "at": time.time() - 100},
        committed_by={"gw": {"a": 7, "b": 3}},
        clock_ahead_seconds=40,
        expiry_problem="no room",
        expired_days={"events": 31},
        expired_events=5,
        deleted_events=6,
        deletions_unfinished=1,
    )
    assert ask("/readyz")[0] == 200
    found = metrics(ask("/metrics", "secret")[1])
    assert (found["gateway_spark_up"], found["gateway_spark_ready"]) == (1, 1)
    assert found["gateway_spark_waiting_seconds"] >= 100
    assert found["gateway_lake_committed_lsn"] == 7
    assert found["gateway_spark_clock_ahead_seconds"] == 40
    assert found["gateway_spark_expiry_failed"] == 1
    assert found["gateway_lake_expired_days_total"] == 31
    assert found["gateway_lake_expired_events_total"] == 5
    assert found["gateway_lake_deleted_events_total"] == 6
    assert found["gateway_lake_deletions_unfinished"] == 1
    assert json.loads(ask("/api/status", "secret")[1])["state"] == "running"
    hung = Health(lake, clock=lambda: time.time() - 40)
    hung.say(state="running")
    assert ask("/healthz")[0] == ask("/readyz")[0] == 503
    assert metrics(ask("/metrics", "secret")[1])["gateway_spark_up"] == 0
    set_back = Health(lake, clock=lambda: time.time() + 3 * 3600)
    set_back.say(state="running")
    assert ask("/healthz")[0] == ask("/readyz")[0] == 503


def test_it_says_what_the_last_audit_found(ask, tmp_path):
    """Also where no gateway sees the tables; and since when the job runs."""
    found = metrics(ask("/metrics", "secret")[1])
    assert not [name for name in found if "audit" in name]
    assert found["process_start_time_seconds"] > 0
    now = time.time()
    Audited(since=1.0, every=60.0, at=now, missing=7, complete=False).write(
        tmp_path / "data" / "lake"
    )
    found = metrics(ask("/metrics", "secret")[1])
    assert found["gateway_audit_missing_events"] == 7
    assert found["gateway_audit_complete"] == 0
    assert found["gateway_audit_last_timestamp_seconds"] == now


def test_only_health_needs_no_token(ask):
    """`admin.token` is one for gateway and job."""
    for path in ("/metrics", "/api/status"):
        assert ask(path)[0] == ask(path, "wrong")[0] == 401
        assert ask(path, "secret")[0] == 200
    assert ask("/healthz")[0] != 401
    assert ask("/etc/passwd")[0] == 404


def test_on_loopback_it_answers_to_no_other_name(ask):
    """A page elsewhere that has its own name resolve to 127.0.0.1 reads nothing."""
    assert ask("/metrics", "secret", host="evil.example")[0] == 403
    assert ask("/healthz", host="evil.example:8081")[0] == 403
    assert ask("/metrics", "secret", host="localhost:8081")[0] == 200


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_whatever_the_file_holds(ask, tmp_path, text):
    """It answers, and says that it knows of no job."""
    path = health_path(tmp_path / "data" / "lake")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert ask("/readyz")[0] == 503
    assert metrics(ask("/metrics", "secret")[1])["gateway_spark_up"] == 0


def test_who_says_nothing_keeps_nobody_waiting(tmp_path):
    """So many connections are held and no more; the port answers again once they go."""
    with started(tmp_path / "data") as admin:
        assert isinstance(admin, Admin)
        address = ("127.0.0.1", admin.server_address[1])
        crowd = [socket.create_connection(address) for _ in range(40)]
        closed = [one for one in crowd if one.recv(1) == b""]
        assert len(closed) == 40, "in the end each is hung up on"

        def answered() -> bool:
            with socket.create_connection(address) as one:
                one.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return one.recv(12).endswith(b"503")

        eventually(answered, "an answer")


def test_a_port_that_is_taken_costs_no_batch(tmp_path, caplog):
    """It is said, with its key."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"tcp:127.0.0.1:{other.getsockname()[1]}"
        with (
            caplog.at_level("WARNING"),
            started(tmp_path / "data", listen=listen) as none,
        ):
            assert none is None
    assert "spark.admin.listen" in caplog.text


def test_the_gateway_comes_before_the_port_that_nobody_chose(tmp_path, caplog):
    """A gateway may have that port since before there was this one: it starts, and a job
    that comes first leaves it free.  Two that somebody chose must differ."""
    text = (
        "listeners: [{name: b, protocol: lumberjack, listen: 'tcp:8081'}]\n"
        f"data_dir: {tmp_path / 'data'}\n"
    )
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with caplog.at_level("WARNING"), serving(load(path)) as none:
        assert none is None
    assert "spark.admin.listen: tcp:127.0.0.1:8081 is the gateway's" in caplog.text
    path.write_text(f"{text}spark: {{admin: {{listen: 'tcp:127.0.0.1:8081'}}}}\n")
    with pytest.raises(
        Invalid, match=r"spark\.admin\.listen: .* is taken by listeners"
    ):
        load(path)


def test_it_is_a_tcp_port(tmp_path):
    """Prometheus knows no other."""
    with pytest.raises(Invalid, match=r"spark\.admin\.listen: must be tcp"):
        started(tmp_path / "data", listen="unix:/run/x")
