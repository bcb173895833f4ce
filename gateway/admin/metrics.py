"""The daemon's numbers, for Prometheus.

Two kinds, both cheap:

- *Read at the scrape*: what a `Probe` knows already (connections, events, bytes,
  lsns, files) costs nothing between scrapes.
- *Observed*: latencies and failures, once per commit or batch, never per event
  (an observation costs ~1.5 us; 0.2 where one thread makes all, `BulkHistogram`).
  The journal and the spool observe on their own threads.

Names: base units, counters end in `_total`, labels with few values only: a value
past `_MOST_LABELS` becomes "other", so that no peer can grow the registry.
docs/operations.md lists them with what to alert on.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.admin.freshness import Holder
from gateway.admin.histogram import BulkHistogram
from gateway.admin.status import ListenerStatus, Probe, Status
from gateway.sdk.protocol import Statistic, Statistics

# One more gauge beside every counter, for a start time that nobody here asks for.
prometheus_client.disable_created_metrics()

_MOST_LABELS = 50
_REASONS = ("disk", "commit", "stall", "memory", "spool")
_NONE = "none"

#: Seconds.  fdatasync takes 0.2-5 ms on a healthy disk; ten seconds is a stall.
_COMMIT = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1, 2.5, 5, 10),
)
_FILE = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAG = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_EVENTS = (1, 10, 50, 100, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000)
_BYTES = tuple(1024 * 4**n for n in range(9))  # 1 KiB .. 64 MiB


_OF_EACH = {
    "commit_seconds": ("gateway_journal_commit_seconds",
                       "One group commit of the journal: write and fdatasync.", _COMMIT),
    "commit_events": ("gateway_journal_commit_events", "Events in one group commit.",
                      _EVENTS),
    "commit_bytes": ("gateway_journal_commit_bytes", "Bytes in one group commit.", _BYTES),
    "ack_seconds": ("gateway_ack_seconds",
                    "From a batch's last byte to durable: what a sender waits for its ack.",
                    _COMMIT),
}  # fmt: skip
"""Histograms of what one thread observes, often."""
_OF_FILES = {
    "publish": ("gateway_spool_publish_seconds",
                "Decode, write, fsync and rename one Parquet file."),
    "upload": ("gateway_bucket_upload_seconds",
               "Put one Parquet file into the bucket, when that went well."),
}  # fmt: skip
_OF_FEW = {
    "flaw": ("gateway_flawed_events_total",
             "Events stored with a flaw (invalid-json, oversized, ...)."),
    "key": ("gateway_refusals_total",
            "Connections closed for what they sent, by the limit's configuration key."),
    "listener": ("gateway_wrong_credentials_total",
                 "Wrong tokens and passwords; at the admin port too."),
    "protocol": ("gateway_protocol_failures_total",
                 "Calls of the daemon to a protocol's plug-in that raised."),
}  # fmt: skip
"""Counters by their one label."""


class Metrics:
    """The registry of one daemon and the ways to observe into it."""

    def __init__(self, probe: Probe) -> None:
        self.registry = registry = CollectorRegistry()
        registry.register(_Probed(probe))
        ProcessCollector(registry=registry)
        self._each = {
            name: BulkHistogram(*about, registry=registry)
            for name, about in _OF_EACH.items()
        }
        self._files = {
            name: Histogram(*about, buckets=_FILE, registry=registry)
            for name, about in _OF_FILES.items()
        }
        self._few = {
            label: _Few(registry, *about, label) for label, about in _OF_FEW.items()
        }
        self._lag = Histogram(
            "gateway_reactor_lag_seconds",
            "How late a call that the reactor owed every second came.",
            buckets=_LAG,
            registry=registry,
        )
        self._corrupt = Counter(
            "gateway_journal_corrupt_records_total",
            "Journal records whose checksum did not match.",
            registry=registry,
        )
        self._failures = Counter(
            "gateway_journal_failures_total",
            "Writes and syncs of the journal that failed, but for a full disk.",
            ["operation"],
            registry=registry,
        )
        for operation in ("write", "sync"):  # `increase` does not see a first value
            self._failures.labels(operation)

    def committed(self, seconds: float, events: int, size: int) -> None:
        """One group commit: how long write and fdatasync took for *size* bytes."""
        self._each["commit_seconds"].observe((seconds,))
        self._each["commit_events"].observe((events,))
        self._each["commit_bytes"].observe((size,))

    def acknowledged(self, seconds: Iterable[float]) -> None:
        """Batches became durable so many *seconds* after their last bytes came."""
        self._each["ack_seconds"].observe(seconds)

    @property
    def acknowledgements(self) -> tuple[Sequence[float], Sequence[int]]:
        """Of `gateway_ack_seconds`: bounds of buckets, and how many batches each has."""
        return self._each["ack_seconds"].bounds, self._each["ack_seconds"].counts

    def published(self, seconds: float, flaws: Mapping[str, int] | None = None) -> None:
        """One Parquet file reached the spool; so many of its events have each flaw."""
        self._files["publish"].observe(seconds)
        for flaw, events in (flaws or {}).items():
            self.flawed(flaw, events)

    def uploaded(self, seconds: float) -> None:
        """One Parquet file reached the bucket; any thread may call."""
        self._files["upload"].observe(seconds)

    def corrupt_records(self, count: int = 1) -> None:
        """Journal records that recovery or the spool found broken."""
        self._corrupt.inc(count)

    def flawed(self, flaw: str, count: int = 1) -> None:
        """Events stored with this `flaw`."""
        self._few["flaw"].inc(flaw, count)

    def refused(self, key: str | None) -> None:
        """A connection was closed by a `Refusal` with this `key`."""
        self._few["key"].inc(key or _NONE)

    def wrong_credentials(self, listener: str) -> None:
        """Somebody gave a wrong token or password."""
        self._few["listener"].inc(listener)

    def journal_failed(self, operation: str) -> None:
        """`write` or `sync` of the journal raised OSError, and the disk is not full."""
        self._failures.labels(operation).inc()

    def protocol_failed(self, protocol: str) -> None:
        """A call of the daemon to this protocol's plug-in raised."""
        self._few["protocol"].inc(protocol)

    def reactor_lag(self, clock: IReactorTime) -> ReactorLag:
        """What feeds `gateway_reactor_lag_seconds` while it is started."""
        return ReactorLag(clock, self._lag)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, as the `Accept` field asks for it."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class ReactorLag:
    """A call every second, and how late each one came.

    A histogram, because one number per scrape would miss most stalls: the mean of
    the last minutes is `rate(sum) / rate(count)`, a stall raises both tails.
    """

    interval: ClassVar[float] = 1.0

    def __init__(self, clock: IReactorTime, lag: Histogram) -> None:
        self._clock = clock
        self._lag = lag
        self._due = 0.0
        self._next: IDelayedCall | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._due = self._clock.seconds() + self.interval
        self._next = self._clock.callLater(self.interval, self._tick)

    def stop(self) -> None:
        """Leave no call behind."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _tick(self) -> None:
        self._lag.observe(max(0.0, self._clock.seconds() - self._due))
        self.start()


class _Few:
    """A counter with one label of few values, its children bound on first use."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, label: str
    ) -> None:
        self._counter = Counter(name, text, [label], registry=registry)
        self._children: dict[str, Counter] = {}

    def inc(self, value: str, count: int = 1) -> None:
        child = self._children.get(value)
        if child is None:
            known = value if len(self._children) < _MOST_LABELS else "other"
            child = self._counter.labels(known)
            if known is value:
                self._children[value] = child
        child.inc(count)


class _Probed(Collector):
    """What the probe says, at the moment of the scrape."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def collect(self) -> Iterator[Metric]:
        status = self._probe()
        taken: set[str] = set()
        for metric in _families(status):
            if metric.name not in taken:  # a protocol may not hide the gateway's own
                taken.add(metric.name)
                yield metric


def _families(status: Status) -> Iterator[Metric]:
    yield _build(status)
    yield _gauge("gateway_uptime_seconds", "Since start.", status.uptime_seconds)
    yield _gauge("gateway_ready", "1 while events are taken.", status.ready)
    yield from _listeners(status.listeners)
    yield from _stores(status)
    yield from _freshness(status)
    yield from _statistics(status.more)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _build(status: Status) -> Metric:
    labels = {
        "version": status.version,
        "node": status.node,
        "python": platform.python_version(),
    }
    build = GaugeMetricFamily(
        "gateway_build_info", "Always 1; what is running.", labels=list(labels)
    )
    build.add_metric(list(labels.values()), 1)
    return build


def _listeners(listeners: Iterable[ListenerStatus]) -> Iterator[Metric]:
    labels = ["listener", "protocol"]
    connections = GaugeMetricFamily("gateway_connections", "Open now.", labels=labels)
    most = GaugeMetricFamily(
        "gateway_connections_limit", "limits.connections.", labels=labels
    )
    events = CounterMetricFamily(
        "gateway_events_total", "Events made durable.", labels=labels
    )
    received = CounterMetricFamily(
        "gateway_received_bytes_total", "Bytes read from peers.", labels=labels
    )
    rejected = CounterMetricFamily(
        "gateway_rejected_connections_total",
        "Connections rejected before their protocol began.",
        labels=[*labels, "reason"],
    )
    for one in listeners:
        which = [one.name, one.protocol]
        connections.add_metric(which, one.connections)
        if one.connections_limit is not None:
            most.add_metric(which, one.connections_limit)
        events.add_metric(which, one.events)
        received.add_metric(which, one.bytes)
        for reason, count in one.rejected.items():
            rejected.add_metric([*which, reason], count)
    yield from (connections, most, events, received, rejected)


def _stores(status: Status) -> Iterator[Metric]:
    journal, spool, archive = status.journal, status.spool, status.archive
    for name, text, value in (
        ("gateway_journal_durable_lsn", "The newest event that survives a power cut.",
         journal.durable_lsn),
        ("gateway_journal_bytes", "Journal on disk.", journal.bytes),
        ("gateway_journal_full", "1 while it takes no more and senders are held back.",
         journal.why_full is not None),
        ("gateway_journal_oldest_wait_seconds",
         "How long the oldest batch has waited to be acknowledged.",
         journal.oldest_wait_seconds),
        ("gateway_spool_published_lsn", "The newest event in a Parquet file.",
         spool.published_lsn),
        ("gateway_spool_files", "Files waiting for Spark.", spool.files),
        ("gateway_spool_bytes", "Bytes waiting for Spark.", spool.bytes),
        ("gateway_spool_limit_bytes", "spool.max_bytes: where senders are held back.",
         spool.limit_bytes),
        ("gateway_archive_files", "Files that Spark has committed.", archive.files),
        ("gateway_archive_bytes", "Bytes that Spark has committed.", archive.bytes),
    ):  # fmt: skip
        if value is not None:
            yield _gauge(name, text, value)


def _freshness(status: Status) -> Iterator[Metric]:
    fresh = status.freshness
    if fresh is None:
        return
    if fresh.age_seconds is not None:
        yield _gauges(
            "gateway_freshness_seconds",
            "Age of the oldest event that is in no table, stored or not.",
            "node",
            {status.node: fresh.age_seconds},
        )
    yield _gauges(
        "gateway_listener_freshness_seconds",
        "The same, of the events of one listener.",
        "listener",
        {name: age for name, age in fresh.listeners.items() if age is not None},
    )
    yield _gauges(
        "gateway_freshness_held",
        "1 for what has to act next for the oldest event.",
        "by",
        {by: by == fresh.held_by for by in get_args(Holder)},
    )
    yield _gauges(
        "gateway_held_back",
        "1 for what holds senders back.",
        "reason",
        {reason: reason in fresh.reasons for reason in _REASONS},
    )
    if fresh.certificates:
        yield _gauges(
            "gateway_certificate_valid_seconds",
            "Until the certificate ends; below 0 if it has.",
            "listener",
            fresh.certificates,
        )
    if fresh.crls:
        family = GaugeMetricFamily(
            "gateway_client_crl_valid_seconds",
            "Until the CRL for client certificates ends; below 0 if it has.",
            labels=["listener", "expired"],
        )
        for name, crl in fresh.crls.items():
            expired = "refuse" if crl.refuses else "accept"
            family.add_metric([name, expired], crl.seconds)
        yield family
    if fresh.room_seconds is not None:
        yield _gauge(
            "gateway_spool_room_seconds",
            "Until senders are held back, at the rate of the last minute.",
            fresh.room_seconds,
        )


def _statistics(sections: Iterable[Statistics]) -> Iterator[Metric]:
    for section in sections:
        for one in section.values:
            if one.metric and one.value is not None:
                yield _statistic(one, one.value)


def _statistic(one: Statistic, value: float | Mapping[str, float]) -> Metric:
    family = CounterMetricFamily if one.counter else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return family(one.metric, one.text, value=value)
    return _each(family(one.metric, one.text, labels=[one.label]), value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _each(GaugeMetricFamily(name, text, labels=[label]), values)


def _each(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]
) -> Metric:
    for key, value in values.items():
        family.add_metric([key], value)
    return family
