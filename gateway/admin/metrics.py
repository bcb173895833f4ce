"""The daemon's numbers, for Prometheus.

Two kinds, both cheap:

- *Read at the scrape*: what a `Probe` knows already (connections, events, bytes,
  lsns, files) costs nothing between scrapes.
- *Observed*: latencies and failures, once per commit or batch, never per event
  (an observation costs ~1.5 us; 0.2 where one thread makes all, `BulkHistogram`).
  The journal and the spool observe on their own threads.

Names: base units, counters end in `_total`, labels with few values only: a value
past `_MOST_LABELS` becomes "other", so that no peer can grow the registry.
What they are called and mean is declared in `gateway.figures`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.admin.freshness import Holder
from gateway.admin.histogram import BulkHistogram
from gateway.admin.status import Probe, Status, value_of
from gateway.figures import OF_STATUS, figure
from gateway.figures.exposition import Value, families, of_sections

# One more gauge beside every counter, for a start time that nobody here asks for.
prometheus_client.disable_created_metrics()

_MOST_LABELS = 50
_REASONS = ("disk", "commit", "stall", "memory", "spool")
_NONE = "none"

_OF_EACH = (
    "gateway_journal_commit_seconds",
    "gateway_journal_commit_events",
    "gateway_journal_commit_bytes",
    "gateway_ack_seconds",
)
"""Histograms of what one thread observes, often."""
_OF_SOME = (
    "gateway_spool_publish_seconds",
    "gateway_bucket_upload_seconds",
    "gateway_reactor_lag_seconds",
)
"""Other histograms."""
_OF_FEW = (
    "gateway_flawed_events_total",
    "gateway_refusals_total",
    "gateway_wrong_credentials_total",
    "gateway_protocol_failures_total",
)
"""Counters by one label of few values."""


class Metrics:
    """The registry of one daemon and the ways to observe into it."""

    def __init__(self, probe: Probe) -> None:
        self.registry = registry = CollectorRegistry()
        registry.register(_Probed(probe))
        ProcessCollector(registry=registry)
        self._each = {
            one.name: BulkHistogram(one.name, one.help, one.buckets, registry=registry)
            for one in map(figure, _OF_EACH)
        }
        self._some = {
            one.name: Histogram(
                one.name, one.help, buckets=one.buckets, registry=registry
            )
            for one in map(figure, _OF_SOME)
        }
        self._few = {name: _Few(registry, name) for name in _OF_FEW}
        self._corrupt = _counter(registry, "gateway_journal_corrupt_records_total")
        self._failures = _counter(registry, "gateway_journal_failures_total")
        for operation in ("write", "sync"):  # `increase` does not see a first value
            self._failures.labels(operation)

    def committed(self, seconds: float, events: int, size: int) -> None:
        """One group commit: how long write and fdatasync took for *size* bytes."""
        self._each["gateway_journal_commit_seconds"].observe((seconds,))
        self._each["gateway_journal_commit_events"].observe((events,))
        self._each["gateway_journal_commit_bytes"].observe((size,))

    def acknowledged(self, seconds: Iterable[float]) -> None:
        """Batches became durable so many *seconds* after their last bytes came."""
        self._each["gateway_ack_seconds"].observe(seconds)

    @property
    def acknowledgements(self) -> tuple[Sequence[float], Sequence[int]]:
        """Bounds of `gateway_ack_seconds`, and how many batches each bucket has."""
        acks = self._each["gateway_ack_seconds"]
        return acks.bounds, acks.counts

    def published(self, seconds: float, flaws: Mapping[str, int] | None = None) -> None:
        """One Parquet file reached the spool; so many of its events have each flaw."""
        self._some["gateway_spool_publish_seconds"].observe(seconds)
        for flaw, events in (flaws or {}).items():
            self.flawed(flaw, events)

    def uploaded(self, seconds: float) -> None:
        """One Parquet file reached the bucket; any thread may call."""
        self._some["gateway_bucket_upload_seconds"].observe(seconds)

    def corrupt_records(self, count: int = 1) -> None:
        """Journal records that recovery or the spool found broken."""
        self._corrupt.inc(count)

    def flawed(self, flaw: str, count: int = 1) -> None:
        """Events stored with this `flaw`."""
        self._few["gateway_flawed_events_total"].inc(flaw, count)

    def refused(self, key: str | None) -> None:
        """A connection was closed by a `Refusal` with this `key`."""
        self._few["gateway_refusals_total"].inc(key or _NONE)

    def wrong_credentials(self, listener: str) -> None:
        """A client gave a wrong token or password."""
        self._few["gateway_wrong_credentials_total"].inc(listener)

    def journal_failed(self, operation: str) -> None:
        """`write` or `sync` of the journal raised OSError, and the disk is not full."""
        self._failures.labels(operation).inc()

    def protocol_failed(self, protocol: str) -> None:
        """A call of the daemon to this protocol's plug-in raised."""
        self._few["gateway_protocol_failures_total"].inc(protocol)

    def reactor_lag(self, clock: IReactorTime) -> ReactorLag:
        """The calls that feed `gateway_reactor_lag_seconds` while it is started."""
        return ReactorLag(clock, self._some["gateway_reactor_lag_seconds"])

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

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self._counter = _counter(registry, name)
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
    """The probe's answer, at the moment of the scrape."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def collect(self) -> Iterator[Metric]:
        status = self._probe()
        taken: set[str] = set()
        for metric in _families(status):
            if metric.name not in taken:  # a protocol may not hide the gateway's own
                taken.add(metric.name)
                yield metric


def _counter(registry: CollectorRegistry, name: str) -> Counter:
    about = figure(name)
    return Counter(name, about.help, about.labels, registry=registry)


def _families(status: Status) -> Iterator[Metric]:
    build = status.version, status.node, platform.python_version()
    values: dict[str, Value] = {
        "gateway_build_info": {build: 1},
        "gateway_journal_full": status.journal.why_full is not None,
        **{one.name: value_of(status, one.key) for one in OF_STATUS},
    }
    if (fresh := status.freshness) is not None:
        holders, age = get_args(Holder), fresh.age_seconds
        values |= {
            "gateway_freshness_seconds": None if age is None else {status.node: age},
            "gateway_freshness_held": {by: by == fresh.held_by for by in holders},
            "gateway_held_back": {why: why in fresh.reasons for why in _REASONS},
            "gateway_client_crl_valid_seconds": {
                (name, "refuse" if crl.refuses else "accept"): crl.seconds
                for name, crl in fresh.crls.items()
            },
        }
    yield from families(values)
    yield from of_sections(status.more)
