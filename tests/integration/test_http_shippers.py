"""Published clients of the plug-ins in HTTP: OpenTelemetry's and Elasticsearch's for Node.js,
and OpenTelemetry's Collector.

The clients for Python, and rsyslog, are in the plug-ins' own tests.
"""

import contextlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from daemons import Daemon, free_port, listener
from deadlines import eventually
from gateway.plugins import installed
from programs import go_program, running

pytestmark = pytest.mark.skipif(
    not {"bulk", "otlp"} <= set(installed().protocols),
    reason="gateway-bulk and gateway-otlp are not installed",
)

EXPORTER = Path(__file__).with_name("otlp_exporter.js").read_text()
BULK = Path(__file__).with_name("elasticsearch_bulk.js").read_text()
COLLECTOR = Path(__file__).parents[2] / "bench" / "_collector"
COUNT = 1000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory) -> Iterator[Daemon]:
    options = {"tokens": {"shop": "s3cret"}}
    listeners = [listener(name, name, options=options) for name in ("bulk", "otlp")]
    with Daemon(tmp_path_factory.mktemp("http"), {"listeners": listeners}) as daemon:
        yield daemon


@pytest.fixture
def messages(daemon) -> Callable[[], list[str]]:
    """What a test has sent, once it is in the gateway's files."""
    before = daemon.status()["journal"]["durable_lsn"]

    def wait() -> list[str]:
        daemon.settled(before + COUNT)
        rows = daemon.rows()[before:]
        assert {(row["flaw"], row["principal"]) for row in rows} == {(None, "shop")}
        return [json.loads(row["payload"])["message"] for row in rows]

    return wait


LATE = [f"late: {number}" for number in range(COUNT)]


@pytest.mark.needs_npm
@pytest.mark.parametrize(
    "kind", ["http", pytest.param("proto", marks=pytest.mark.smoke)]
)
def test_opentelemetry_for_nodejs(kind, npm, daemon, messages):
    """In JSON, and in protobuf with gzip."""
    node = npm(
        "@opentelemetry/api@1.9.1", "@opentelemetry/api-logs@0.223.1",
        "@opentelemetry/sdk-logs@0.223.1",
        f"@opentelemetry/exporter-logs-otlp-{kind}@0.223.1",
    )  # fmt: skip
    host = ":".join(map(str, daemon.address("otlp")))
    assert node(EXPORTER, kind, host, COUNT) == "shut down\n"
    assert messages() == LATE


@pytest.mark.needs_npm
@pytest.mark.smoke
def test_elasticsearch_for_nodejs(npm, daemon, messages):
    """Its bulk helper, in several requests with gzip."""
    host = ":".join(map(str, daemon.address("bulk")))
    done = json.loads(npm("@elastic/elasticsearch@8.19.2")(BULK, host, COUNT))
    assert (done["total"], done["successful"], done["retry"]) == (COUNT, COUNT, 0)
    assert messages() == LATE


@pytest.mark.needs_go
@pytest.mark.timeout(900)
@pytest.mark.parametrize("encoding", ["proto", "json"])
def test_collector(encoding, tmp_path):
    """It sends again what it had no answer to, because its gateway was killed."""
    program = go_program(COLLECTOR)
    http, config = f"127.0.0.1:{free_port()}", tmp_path / "collector.yaml"
    to = f"127.0.0.1:{free_port()}"
    gateway = {
        "endpoint": f"http://{to}",
        "encoding": encoding,
        "headers": {"authorization": "Bearer s3cret"},
        "retry_on_failure": {"initial_interval": "100ms", "max_interval": "500ms"},
    }
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
    telemetry = {"metrics": {"level": "none"}}
    settings = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": http}}}},
        "exporters": {"otlp_http": gateway},
        "service": {"telemetry": telemetry, "pipelines": {"logs": pipeline}},
    }
    config.write_text(json.dumps(settings))
    options = {"tokens": {"shop": "s3cret"}}
    listeners = [listener("otlp", "otlp", listen=f"tcp:{to}", options=options)]

    def post(number: int) -> bool:
        records = [{"body": {"stringValue": f"late: {number}"}}]
        body = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
        kind = {"Content-Type": "application/json"}
        url = f"http://{http}/v1/logs"
        request = urllib.request.Request(url, json.dumps(body).encode(), kind)
        with contextlib.suppress(OSError), urllib.request.urlopen(request):
            return True
        return False

    with running() as start, Daemon(tmp_path, {"listeners": listeners}) as daemon:
        start(program, "--config", config)
        for number in range(200):
            eventually(partial(post, number), "the Collector takes it")
            if number == 100:
                daemon.kill()
        daemon.start()
        sent = {f"late: {number}" for number in range(200)}
        eventually(lambda: sent == {*_messages(daemon)}, "all of it is there")
        daemon.audit()


def _messages(daemon: Daemon) -> Iterator[str]:
    for row in daemon.rows():
        assert (row["flaw"], row["principal"]) == (None, "shop")
        yield json.loads(row["payload"])["message"]
