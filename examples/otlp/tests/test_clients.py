"""The published exporter of OpenTelemetry's SDK.

The tests need the plug-in and that package to be installed: `pip install -e .[test]`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from gateway.plugins import installed
from gateway_testkit.daemon import Daemon, listener

pytestmark = pytest.mark.skipif(
    "otlp" not in installed().protocols, reason="gateway-otlp is not installed"
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    tokens = {"tokens": {"shop": "s3cret"}}
    listeners = [listener("otlp", "otlp", options=tokens), listener("open", "otlp")]
    with Daemon(tmp_path_factory.mktemp("otlp"), {"listeners": listeners}) as daemon:
        yield daemon


@pytest.mark.parametrize("compression", ["NoCompression", "Gzip", "Deflate"])
def test_python(compression: str, daemon: Daemon) -> None:
    """The SDK's handler and its exporter for OTLP/HTTP, with a token."""
    exporters = pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http._log_exporter"
    )
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    before = daemon.status()["journal"]["durable_lsn"]
    host, port = daemon.address("otlp")
    exporter = exporters.OTLPLogExporter(
        f"http://{host}:{port}/v1/logs",
        headers={"Authorization": "Bearer s3cret"},
        compression=getattr(Compression, compression),
    )
    resource = Resource.create({"service.name": "shop", "host.name": "web1"})
    provider = LoggerProvider(resource=resource)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    log = logging.getLogger(f"otlp.{compression}")
    log.setLevel(logging.INFO)
    log.addHandler(LoggingHandler(logger_provider=provider))
    for number in range(1000):
        log.warning("it is late: %d", number)
    provider.shutdown()
    daemon.settled(before + 1000)
    rows = daemon.rows()[before:]
    assert {(row["flaw"], row["channel"], row["principal"]) for row in rows} == {
        (None, "shop", "shop")
    }
    events = [json.loads(row["payload"]) for row in rows]
    assert [event["message"] for event in events] == [
        f"it is late: {n}" for n in range(1000)
    ]
    assert {(event["host"], event["severity"].lower()[:4]) for event in events} == {
        ("web1", "warn")
    }
