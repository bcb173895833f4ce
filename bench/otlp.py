"""OTLP/HTTP and Elasticsearch's _bulk through one gateway process: CPU per event, rate.

    python bench/otlp.py                      all cases
    python bench/otlp.py --case json,bulk     some
    python bench/otlp.py --events 50          smaller requests

It needs examples/otlp and examples/bulk to be installed.  fsync is on and Parquet is
written meanwhile; four connections post one request after the other.  Cases:

protobuf, protobuf-gzip   log records as OpenTelemetry's exporters send them
json, json-gzip           the same in JSON
bulk, bulk-gzip           documents with ids, at /_bulk
collector-CASE            CASE of the first four, sent to the OpenTelemetry Collector, which
                          writes JSON lines to a file, and syncs nothing; if there is Go

CPU per event   user and system time of all threads and processes of the gateway over the
                measured interval ÷ events acknowledged in it.  Whole run: the same
                from the first byte to the last row in Parquet, start-up excluded.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from _collector import Collector
from _daemon import Consumer, Gateway, Phased, listener
from _machine import machine
from _report import Lacking, Report, arguments, main, workplace

from gateway.plugins import installed
from gateway.sdk.varint import varint

_OTLP = ("protobuf", "protobuf-gzip", "json", "json-gzip")
_PEER = "collector-"
CASES = (*_OTLP, "bulk", "bulk-gzip", *(_PEER + case for case in _OTLP))
_TIME = 1_700_000_000_000_000_000


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _text(text: str) -> bytes:
    return _field(1, text.encode())


def _pair(key: str, text: str) -> bytes:
    return _text(key) + _field(2, _text(text))


def _message(number: int) -> str:
    return f"GET /cart/{number} HTTP/1.1 200 {number * 7919 % 100_000} bytes in {number % 97} ms"


_RESOURCE = {"service.name": "shop", "host.name": "web1", "k8s.pod.name": "shop-7d9"}


def _protobuf(events: int) -> bytes:
    records = b"".join(
        _field(
            2,
            b"\x09" + (_TIME + number).to_bytes(8, "little") + b"\x10\x09"
            + _field(3, b"INFO")
            + _field(5, _text(_message(number)))
            + _field(6, _pair("http.request.method", "GET"))
            + _field(6, _pair("url.path", f"/cart/{number}"))
            + _field(9, number.to_bytes(16, "big"))
            + _field(10, number.to_bytes(8, "big")),
        )
        for number in range(events)
    )  # fmt: skip
    resource = b"".join(_field(1, _pair(*pair)) for pair in _RESOURCE.items())
    scope = _field(1, _text("shop.cart"))
    return _field(1, _field(1, resource) + _field(2, scope + records))


def _pairs(pairs: dict[str, str]) -> list[Any]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in pairs.items()]


def _json(events: int) -> bytes:
    records = [
        {
            "timeUnixNano": str(_TIME + number),
            "severityNumber": 9,
            "severityText": "INFO",
            "body": {"stringValue": _message(number)},
            "attributes": _pairs(
                {"http.request.method": "GET", "url.path": f"/cart/{number}"}
            ),
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
        }
        for number in range(events)
    ]
    scopes = [{"scope": {"name": "shop.cart"}, "logRecords": records}]
    resource = {"attributes": _pairs(_RESOURCE)}
    return json.dumps(
        {"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}
    ).encode()


def _bulk(events: int) -> bytes:
    lines: list[Any] = []
    for number in range(events):
        lines += [
            {"create": {"_index": "shop", "_id": f"{number:020x}"}},
            {
                "@timestamp": "2023-11-14T22:13:20.123Z",
                "message": _message(number),
                "host": {"name": "web1"},
                "log": {"level": "info"},
                "http": {"request": {"method": "GET"}},
                "url": {"path": f"/cart/{number}"},
            },
        ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


_MADE = {
    "protobuf": (_protobuf, "/v1/logs", "application/x-protobuf"),
    "json": (_json, "/v1/logs", "application/json"),
    "bulk": (_bulk, "/_bulk", "application/x-ndjson"),
}


def _request(case: str, events: int) -> bytes:
    kind, _, coding = case.partition("-")
    make, path, content = _MADE[kind]
    body = make(events)
    fields = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Type: {content}"]
    if coding:
        body = gzip.compress(body, 6)
        fields.append("Content-Encoding: gzip")
    fields.append(f"Content-Length: {len(body)}")
    return "\r\n".join(fields).encode() + b"\r\n\r\n" + body


def _run(report: Report, home: Path, case: str, events: int, seconds: float) -> None:
    (file := home / "request").write_bytes(_request(case, events))
    settings = {
        "listeners": [listener("http", "bulk" if case.startswith("bulk") else "otlp")]
    }
    with Gateway(home / case, settings) as gateway, Consumer(gateway):
        first = gateway.usage()
        total = _measure(
            report, case, gateway, gateway.address("http"), file, events, seconds
        )
        gateway.wait_published()
        whole = gateway.usage().cpu - first.cpu
    report.add(f"{case}: CPU per event, whole run", whole / total * 1e6, "µs")


def _run_peer(
    report: Report, home: Path, case: str, events: int, seconds: float
) -> None:
    (file := home / "request").write_bytes(_request(case.removeprefix(_PEER), events))
    with Collector(home / case) as peer:
        _measure(report, case, peer, peer.address, file, events, seconds)


def _measure(
    report: Report,
    case: str,
    server: Gateway | Collector,
    address: str,
    request: Path,
    events: int,
    seconds: float,
) -> int:
    """How many events were acknowledged in all."""
    with _posts(address, request, seconds) as posts:
        posts.until("measuring")
        before = server.usage()
        measured = posts.until("measured")
        after = server.usage()
        total: int = posts.until("drained")["requests"] * events
    count = measured["requests"] * events
    size = request.stat().st_size / events
    report.add(f"{case}: bytes of an event on the line", size, "B")
    report.add(f"{case}: rate", count / measured["seconds"], "events/s")
    report.add(f"{case}: CPU per event", (after.cpu - before.cpu) / count * 1e6, "µs")
    used, busiest = after.since(before)
    report.add(f"{case}: cores, and of the busiest thread", f"{used:.2f} {busiest:.2f}")
    return total


def _posts(address: str, request: Path, seconds: float) -> Phased:
    script = str(Path(__file__).with_name("_posts.py"))
    words = [address, str(request), "--seconds", str(seconds)]
    return Phased(sys.executable, script, *words)


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES), help="some of the cases")
    parser.add_argument("--events", type=int, default=512, help="in a request")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    options = parser.parse_args()
    if missing := {"otlp", "bulk"} - set(installed().protocols):
        raise Lacking(f"pip install -e examples/{missing.pop()}")
    with workplace(options) as home:
        report = Report("OTLP/HTTP and _bulk", machine(home))
        for case in options.case.split(","):
            run = _run_peer if case.startswith(_PEER) else _run
            try:
                run(report, home, case, options.events, options.seconds)
            except Lacking as why:
                report.notes.append(f"not measured, {case}: {why}")
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
