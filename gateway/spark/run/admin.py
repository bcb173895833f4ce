"""The job's own health and metrics over HTTP: it may run where no gateway sees its files.

    /healthz      200 while it leaves word
    /readyz       200 while it runs, else 503 and why
    /metrics      for Prometheus
    /api/status   all that it says of itself, as JSON

It answers with what stands in `lake/.gateway/health.json`, on threads of its own, so it is
right while Java starts and when the job's loop hangs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.access import Access
from gateway.sdk.endpoint import Tcp
from gateway.store.readers.audited import Audited
from gateway.store.readers.lake import BEAT, health_path

_log = logging.getLogger("gateway.spark")

_SILENT_SECONDS = 6 * BEAT
_REQUEST_SECONDS = 5.0
_MOST_REQUESTS = 16
"""At once; whoever comes then is hung up on."""


class Told(NamedTuple):
    """What the job said last, and how long ago."""

    words: Mapping[str, Any]
    seconds: float

    @classmethod
    def of(cls, lake: Path, now: float) -> Told:
        """By the file beside the tables."""
        try:
            found = json.loads(health_path(lake).read_bytes())
        except (OSError, ValueError):
            found = {}
        words = found if isinstance(found, dict) else {}
        silent = now - float(words.get("at", 0.0))
        # Where it is of the future the clock was set back, and nothing was said since.
        return cls(words, -silent if silent < -_SILENT_SECONDS else max(0.0, silent))

    @property
    def alive(self) -> bool:
        """Whether it leaves word."""
        return self.seconds < _SILENT_SECONDS

    @property
    def up(self) -> bool:
        """Whether it runs, or comes to that."""
        return self.alive and self.words.get("state") in ("starting", "running")

    @property
    def why_not_ready(self) -> str | None:
        """None: it runs."""
        if not self.alive:
            return f"it said nothing for {self.seconds:.0f} s"
        state, doing = self.words.get("state"), self.words.get("doing")
        if state == "running":
            return None
        return f"{state}: {doing}" if doing else str(state)

    def waiting_seconds(self, now: float) -> float:
        """Of the oldest file that is in no table; 0 if there is none."""
        oldest = self.words.get("oldest_file")
        return max(0.0, now - float(oldest["at"])) if isinstance(oldest, dict) else 0.0


class Numbers(Collector):
    """For Prometheus."""

    def __init__(
        self,
        told: Callable[[], Told],
        audited: Callable[[], Audited] = Audited,
    ) -> None:
        """*audited*: what the last audit found."""
        self._told = told
        self._audited = audited

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for at each scrape."""
        told, now = self._told(), time.time()
        words = told.words
        gauges = [
            ("gateway_spark_up", "1 while the Spark job runs, or starts.", told.up),
            ("gateway_spark_ready", "1 while it takes batches.",
             told.why_not_ready is None),
            ("gateway_spark_waiting_seconds",
             "Age of the oldest file that is in no table.", told.waiting_seconds(now)),
            ("gateway_spark_waiting_files", "Files that are in no table.",
             words.get("spool_files")),
            ("gateway_spark_failures", "How often it ended, unasked, since its last batch.",
             words.get("failures")),
            ("gateway_spark_last_batch_timestamp_seconds",
             "When it committed last, since the epoch.", words.get("last_batch_at")),
            ("gateway_spark_last_batch_seconds", "How long its last batch took.",
             words.get("last_batch_seconds")),
            ("gateway_spark_holes", "Files that it could not read and moved aside.",
             len(words.get("holes") or ())),
            ("gateway_spark_clock_ahead_seconds",
             "How far the clock has leapt, while no day expires by that.",
             words.get("clock_ahead_seconds")),
            ("gateway_spark_expiry_failed",
             "1 if days that are too old could not be removed.",
             words.get("expiry_problem") is not None),
            ("gateway_lake_deletions_unfinished",
             "Deletions that have begun, and something of which is left.",
             words.get("deletions_unfinished")),
            *((one.metric, one.text, one.value) for one in self._audited().figures(now)),
        ]  # fmt: skip
        for name, text, value in gauges:
            if isinstance(value, (int, float)):
                yield GaugeMetricFamily(name, text, float(value))
        for name, text in (
            ("spark_rows", "Rows that it has committed since its start."),
            ("spark_misfits", "Rows with a value that did not fit its column, since then."),
            ("lake_expired_events", "Events of days that spark.retention has removed."),
            ("lake_deleted_events", "Events that gateway spark delete has taken out."),
        ):  # fmt: skip
            count = float(words.get(name.partition("_")[2]) or 0)
            yield CounterMetricFamily(f"gateway_{name}", text, count)
        about = "Days that spark.retention has removed from a table."
        days = CounterMetricFamily("gateway_lake_expired_days", about, labels=["table"])
        for table, count in (words.get("expired_days") or {}).items():
            days.add_metric([table], float(count))
        if days.samples:
            yield days
        about = "The newest event of a node that is in a table."
        lsns = GaugeMetricFamily("gateway_lake_committed_lsn", about, labels=["node"])
        for node, lsn in (words.get("committed_lsn") or {}).items():
            lsns.add_metric([node], float(lsn))
        yield lsns


class Admin(ThreadingHTTPServer):
    """Serves what a job with these tables says of itself.  Raises OSError."""

    daemon_threads = True

    def __init__(self, lake: Path, access: Access) -> None:
        where = access.where
        assert isinstance(where, Tcp)  # `spark.admin.listen` takes no other
        self.lake = lake
        self.access = access
        self._room = threading.BoundedSemaphore(_MOST_REQUESTS)
        self.registry = CollectorRegistry()
        self.registry.register(
            Numbers(lambda: Told.of(lake, time.time()), lambda: Audited.read(lake))
        )
        ProcessCollector(registry=self.registry)
        self.address_family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        super().__init__((where.host, where.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread, if there is room for one more."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See `process_request`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no trouble of ours."""
        _log.debug("%s: its request was not answered", client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Admin
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        told = Told.of(self.server.lake, time.time())
        access, path = self.server.access, self.path.partition("?")[0]
        if not access.knows(self.headers.get_all("Host", [])):
            self._say(403, "only localhost is answered here; this Host is another name")
        elif path == "/healthz":
            self._say(200 if told.alive else 503, "ok" if told.alive else "silent")
        elif path == "/readyz":
            why = told.why_not_ready
            self._say(200 if why is None else 503, why or "ok")
        elif path not in ("/metrics", "/api/status"):
            self._say(404, "/healthz, /readyz, /metrics and /api/status are here")
        elif not access.admits(self.headers.get_all("Authorization", [])):
            self._say(401, "admin.token is asked for: Authorization: Bearer …")
        elif path == "/metrics":
            text = generate_latest(self.server.registry).decode()
            self._say(200, text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._say(200, json.dumps(told.words), "application/json")

    def _say(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = f"{text.rstrip()}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form: str, *args: Any) -> None:
        """Nothing: Prometheus comes every few seconds."""


@contextlib.contextmanager
def serving(config: Any) -> Iterator[Admin | None]:
    """Meanwhile this job answers at `spark.admin.listen`.

    A port that is taken, or that the gateway is to have, is said, and costs no batch.
    """
    listen, token = config.job_port, config.admin.token
    if listen is None:
        if (wanted := config.spark.admin.listen) is not None:
            _log.warning(
                "spark.admin.listen: %s is the gateway's; no metrics, unless another port"
                " is named there",
                wanted,
            )
        yield None
        return
    try:
        secret = None if token is None else token.get_secret_value()
        admin = Admin(config.data_dir / "lake", Access(listen, secret))
    except OSError as why:
        _log.warning("spark.admin.listen: %s: %s; no metrics", listen, why.strerror)
        yield None
        return
    thread = threading.Thread(target=admin.serve_forever, name="gateway-admin")
    thread.start()
    try:
        yield admin
    finally:
        admin.shutdown()
        thread.join()
        admin.server_close()
