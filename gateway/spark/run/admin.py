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
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.access import Access
from gateway.figures import section
from gateway.figures.exposition import of_sections
from gateway.figures.reported import SILENT, Reported
from gateway.sdk.endpoint import Tcp
from gateway.store.readers.audited import Audited
from gateway.store.readers.lake import health_path

_log = logging.getLogger("gateway.spark")

_REQUEST_SECONDS = 5.0
_MOST_REQUESTS = 16
"""The most at once; a client that comes then is hung up on."""


class Told(NamedTuple):
    """The job's last word, and how long ago it was."""

    report: Reported
    seconds: float

    @classmethod
    def of(cls, lake: Path, now: float) -> Told:
        """Read the file beside the tables."""
        report = Reported.read(health_path(lake))
        return cls(report, report.silent_seconds(now))

    @property
    def alive(self) -> bool:
        """Whether it leaves word."""
        return self.seconds < SILENT

    @property
    def why_not_ready(self) -> str | None:
        """None: it runs."""
        if not self.alive:
            return f"it said nothing for {self.seconds:.0f} s"
        state, doing = self.report.state, self.report.words.get("doing")
        if state == "running":
            return None
        return f"{state}: {doing}" if doing else state


class Numbers(Collector):
    """The job's figures, for Prometheus."""

    def __init__(
        self,
        told: Callable[[], Told],
        audited: Callable[[], Audited] = Audited,
    ) -> None:
        """*audited*: what the last audit found."""
        self._told = told
        self._audited = audited

    def collect(self) -> Iterator[Metric]:
        """The families of one scrape."""
        told, now = self._told(), time.time()
        report = told.report
        of_job = {
            **report.of_job(now, told.seconds),
            "ready": told.why_not_ready is None,
            "waiting_files": report.number("spool_files"),
        }
        of_tables = {**report.of_tables(), "committed_lsn": report.newest() or None}
        yield from of_sections(
            [
                section("spark").of(of_job),
                section("lake").of(of_tables),
                section("audit").of(self._audited().figures(now)),
            ]
        )


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
        """Answer on a thread, if there is room for one more."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next one."""
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
            self._say(200, json.dumps(told.report.words), "application/json")

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
