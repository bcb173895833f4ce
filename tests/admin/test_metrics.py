"""The metrics: their names, their values, their bounds."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.task import Clock

from gateway.admin.freshness import Crl, Facts, Job, judge
from gateway.admin.histogram import BulkHistogram
from gateway.admin.metrics import Metrics
from gateway.daemon import statistics
from gateway.daemon.lake import LakeWatch
from gateway.daemon.reload import Reloads
from gateway.figures.reported import Reported
from gateway.forward import HubState
from gateway.net import MemoryBudget
from gateway.plugins import installed
from gateway.protocols import forward
from gateway.sdk.figures import Figure, StatusSection
from gateway.spark.run.admin import Numbers, Told
from gateway.store.readers.audited import Audited
from gateway.store.readers.consumers import Behind
from gateway.store.readers.lake import health_path
from gateway.testing.plugins import lend
from gateway_testkit.settings import settings

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import monitoring  # noqa: E402

sys.path.remove(str(ROOT / "deploy"))

DASHBOARD = ROOT / "conf" / "dashboard.json"
ALERTS = ROOT / "conf" / "alerts.yml"
FIGURES = [one for each in monitoring.ALL for one in each.figures if one.metric]

PROMTOOL = shutil.which("promtool")
VARIABLES = {"$__rate_interval": "2m", "$job": "gateway", "$instance": ".*"}
ALERTS_FIRING = 'ALERTS{alertname=~"Gateway.*",alertstate="firing"}'
UNITS = ("_seconds", "_bytes", "_files", "_events", "_connections", "_lsn", "_info")
NOT_BASE = re.compile(
    r"_(ms|millis\w*|micros\w*|minutes|hours|kb|mb|kib|mib|percent)\b"
)


FRESHNESS = judge(
    Facts(
        durable_lsn=9,
        uncommitted=12.5,
        job=Job(up=True, state="running"),
        listeners={"beats": 12.5, "games": None},
        waiting_bytes=100,
        limit_bytes=1100,
        growth=10.0,
        reasons={"disk": "it is full"},
        certificates={"beats": 86400.0},
        crls={"beats": Crl(7200.0, refuses=False)},
    )
)


@pytest.fixture
def metrics(daemon) -> Metrics:
    return Metrics(daemon.probe)


@pytest.fixture
def everything(daemon, tmp_path) -> None:
    """The statistics that a daemon with all built-in protocols has."""
    built_in = [
        section
        for name in ("lumberjack", "pomelo", "pravega", "rsio", "forward")
        for protocol in [installed().protocols.get(name, forward.protocol)]
        for limits in [{"retained_bytes": 99} if name == "pravega" else {}]
        for listener in [settings(protocol.options(), **limits)]
        for service in [protocol.service(lend(protocol, tmp_path, [listener]))]
        for _ in service.ports(listener)
        for section in service.statistics()
    ]
    checkpoint: Any = SimpleNamespace(
        names=["x"],
        reserved_bytes=11,
        kept_bytes=12,
        saved=13,
        failed=14,
        saved_at=15.5,
    )
    unused: Any = None
    reloads = Reloads(unused, unused, unused)
    room: Any = SimpleNamespace(reserved_bytes=5)
    levels: Any = SimpleNamespace(
        free_bytes=50, archive=SimpleNamespace(files=1, bytes=15)
    )
    spool: Any = SimpleNamespace(
        levels=levels, uploads=None, room=room, clock_ahead_seconds=0.0
    )
    storage: Any = SimpleNamespace(spool=spool)
    retained: Any = SimpleNamespace(needed={"pravega": int}, files=31, bytes=32)
    live: Any = SimpleNamespace(subscribers=21, skipped=23)
    replay: Any = SimpleNamespace(subscribers=22)
    health = health_path(tmp_path / "lake")
    health.parent.mkdir(parents=True)
    told = {
        "last_batch_at": 1.5,
        "last_batch_seconds": 2.5,
        "rows": 3,
        "misfits": 4,
        "failures": 0,
        "clock_ahead_seconds": 0,
        "expired_days": {"events": 31},
        "complete_through": 1.5,
        "complete_unknown_since": 2.5,
        "days_taken_back": 1,
        "expired_events": 5,
        "deleted_events": 6,
        "deletions_unfinished": 0,
    }
    health.write_text(json.dumps(told))
    Audited(since=1.0, every=2.0, at=3.0).write(tmp_path / "lake")
    watch = LakeWatch(
        "gw", tmp_path / "lake", tmp_path / "spool", is_ours=lambda _: True
    )
    uploads: Any = SimpleNamespace(
        uploaded=1, failed=2, bytes=3, why=None, conflicts={}, stuck={}
    )
    hub = HubState("http://hub:1", connected=False, seconds=9.5, why="", refused=401)
    forwarder: Any = SimpleNamespace(
        hub=hub, sent_files=1, sent_bytes=2, sent_events=3, connections=4, set_aside=5,
        files=6, arrived_lsn=7, node="hub", nodes={},
    )  # fmt: skip
    daemon.change(
        more=[
            *built_in,
            *statistics.of_forwarder(forwarder),
            *reloads.statistics(),
            statistics.of_disk(storage, "archive"),
            statistics.of_memory(MemoryBudget(lambda _: True)),
            *statistics.of_retained(retained),
            *statistics.of_consumers({"mine": Behind(1, 2, 3.0, 1, 2, 4)}),
            *statistics.of_state(checkpoint),
            *statistics.of_uploads(uploads),
            statistics.of_feeds(live, replay),
            *watch.statistics(),
        ],
        freshness=FRESHNESS,
    )


def scrape(metrics: Metrics) -> dict[str, Metric]:
    """Families by name, as Prometheus would read them; counters without `_total`."""
    text = metrics.render("")[0].decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def exercise(metrics: Metrics) -> None:
    """Observe everything once, so that labelled families have samples."""
    metrics.committed(0.003, 2048, 700_000)
    metrics.acknowledged([0.004])
    metrics.published(0.25)
    metrics.corrupt_records()
    metrics.flawed("invalid-json")
    metrics.wrong_credentials("beats")
    metrics.refused("limits.message_bytes")
    metrics.journal_failed("sync")
    metrics.protocol_failed("syslog")


def test_names_follow_the_conventions(metrics, everything):
    """Snake case under one prefix, base units, `_total` on counters and only there; and
    nothing is declared that never has a value.
    """
    exercise(metrics)
    families = scrape(metrics)
    assert len(families) > 25
    for name, family in families.items():
        assert re.fullmatch(r"(gateway|process)_[a-z0-9]+(_[a-z0-9]+)*", name), name
        assert not NOT_BASE.search(name), name
        assert family.documentation, name
        assert family.type in {"gauge", "counter", "histogram"}, name
        samples = {sample.name for sample in family.samples}
        assert samples, name
        if family.type == "counter":
            assert samples == {f"{name}_total"}, name
        else:
            assert not name.endswith(("_total", "_count", "_sum", "_bucket")), name
        if family.type == "histogram":
            assert name.endswith(UNITS), name


def test_the_probe_is_read_at_the_scrape(metrics, daemon):
    """Values are the daemon's at this moment, and no scrape means no probe."""
    assert daemon.asked == 0
    which = {"listener": "beats", "protocol": "lumberjack"}
    expected = {
        "gateway_ready": 1,
        "gateway_uptime_seconds": 61.5,
        "gateway_journal_durable_lsn": 4096,
        "gateway_journal_bytes": 500_000,
        "gateway_journal_full": 0,
        "gateway_spool_published_lsn": 4000,
        "gateway_spool_files": 2,
        "gateway_spool_bytes": 900,
        "gateway_spool_limit_bytes": 9000,
        "gateway_archive_files": 7,
        "gateway_archive_bytes": 7000,
    }
    assert {name: value(metrics, name) for name in expected} == expected
    assert value(metrics, "gateway_connections", **which) == 3
    assert value(metrics, "gateway_events_total", **which) == 4096
    assert value(metrics, "gateway_received_bytes_total", **which) == 1_000_000
    rejected = "gateway_rejected_connections_total"
    assert value(metrics, rejected, **which, reason="limits.connections") == 2
    daemon.change(not_ready_reason="stopping")
    assert value(metrics, "gateway_ready") == 0


def test_statistics_of_protocols(metrics, daemon):
    """Gauges and counters, by label where there is one; what is not known is not said."""
    assert value(metrics, "gateway_wires_cut") == 16
    assert value(metrics, "gateway_wires_bytes") == 2048
    assert value(metrics, "gateway_wires_total", outcome="good") == 5
    assert value(metrics, "gateway_wires_total", outcome="bad") == 1
    assert value(metrics, "gateway_plain") == 3
    there = scrape(metrics)
    assert there["gateway_wires"].type == "counter"
    assert "gateway_wires_timestamp" not in there
    daemon.change(more=[])
    assert not [name for name in scrape(metrics) if "wires" in name]


@pytest.mark.parametrize(
    ("value", "metric", "why"),
    [
        ("many", "gateway_wires", "is no number: 'many'"),
        ({"a": None}, "gateway_wires", "is no number"),
        (1, "no name!", "'no name!' is no metric's name"),
    ],
)
def test_what_no_scraper_could_read(value, metric, why):
    """It fails where the protocol makes it, and takes no other metric with it."""

    def made() -> object:
        figure = Figure("wires.cut", metric, "wires that were cut")
        return StatusSection("wires", "", [figure]).of({"cut": value})

    with pytest.raises((TypeError, ValueError), match=why):
        made()


def test_no_protocol_hides_a_metric(metrics, daemon):
    """Of two families of one name, the gateway's own is the one that is said."""
    mine = Figure("x.n", "gateway_uptime_seconds", "mine")
    daemon.change(more=[StatusSection("x", "", [mine]).of({"n": 7})])
    assert value(metrics, "gateway_uptime_seconds") == 61.5
    exposition = metrics.render("text/plain")[0].decode()
    assert exposition.count("# TYPE gateway_uptime_seconds ") == 1


def test_freshness(metrics, daemon):
    """Of the node and of each listener of which it is known, and what holds it."""
    daemon.change(freshness=FRESHNESS)
    assert value(metrics, "gateway_freshness_seconds", node="gw-1") == 12.5
    name = "gateway_listener_freshness_seconds"
    assert value(metrics, name, listener="beats") == 12.5
    assert value(metrics, name, listener="games") is None
    assert value(metrics, "gateway_freshness_held", by="spark") == 1
    assert value(metrics, "gateway_freshness_held", by="journal") == 0
    assert value(metrics, "gateway_spool_room_seconds") == 100
    assert value(metrics, "gateway_held_back", reason="disk") == 1
    assert value(metrics, "gateway_held_back", reason="spool") == 0
    assert (
        value(metrics, "gateway_certificate_valid_seconds", listener="beats") == 86400
    )
    name = "gateway_client_crl_valid_seconds"
    assert value(metrics, name, listener="beats", expired="accept") == 7200
    daemon.change(freshness=None)
    assert value(metrics, "gateway_freshness_seconds", node="gw-1") is None


def test_build_info(metrics):
    """What runs where is a label on a constant."""
    [sample] = scrape(metrics)["gateway_build_info"].samples
    assert sample.value == 1
    assert sample.labels.keys() == {"version", "node", "python"}
    assert (sample.labels["version"], sample.labels["node"]) == ("1.2.3", "gw-1")


def test_process_metrics(metrics):
    """Memory, CPU and descriptors of the process are there."""
    names = {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"}
    assert names <= scrape(metrics).keys()


def test_a_commit(metrics):
    """One commit is one observation of its time, its events and its bytes."""
    metrics.committed(0.003, 2048, 700_000)
    metrics.committed(0.001, 2, 300)
    for name, total in [("seconds", 0.004), ("events", 2050), ("bytes", 700_300)]:
        family = f"gateway_journal_commit_{name}"
        assert value(metrics, f"{family}_count") == 2
        assert value(metrics, f"{family}_sum") == pytest.approx(total)


def test_latencies(metrics):
    """Ack and publish times land in their own histograms and buckets."""
    metrics.acknowledged([0.004])
    metrics.published(0.2)
    assert value(metrics, "gateway_ack_seconds_bucket", le="0.002") == 0
    assert value(metrics, "gateway_ack_seconds_bucket", le="0.005") == 1
    assert value(metrics, "gateway_spool_publish_seconds_bucket", le="0.1") == 0
    assert value(metrics, "gateway_spool_publish_seconds_bucket", le="0.25") == 1


def test_counts(metrics):
    """What goes wrong is counted by its kind."""
    metrics.corrupt_records(3)
    metrics.flawed("invalid-json", 5)
    metrics.flawed("oversized")
    metrics.refused("limits.message_bytes")
    metrics.refused(None)
    metrics.wrong_credentials("admin")
    metrics.wrong_credentials("admin")
    metrics.journal_failed("sync")
    metrics.protocol_failed("syslog")
    assert value(metrics, "gateway_journal_corrupt_records_total") == 3
    assert value(metrics, "gateway_flawed_events_total", flaw="invalid-json") == 5
    assert value(metrics, "gateway_flawed_events_total", flaw="oversized") == 1
    assert value(metrics, "gateway_refusals_total", key="limits.message_bytes") == 1
    assert value(metrics, "gateway_refusals_total", key="none") == 1
    assert value(metrics, "gateway_wrong_credentials_total", listener="admin") == 2
    assert value(metrics, "gateway_journal_failures_total", operation="sync") == 1
    assert value(metrics, "gateway_protocol_failures_total", protocol="syslog") == 1


def test_failures_are_there_before_the_first(metrics):
    """The alert asks by how much they have grown."""
    for operation in ("write", "sync"):
        name = "gateway_journal_failures_total"
        assert value(metrics, name, operation=operation) == 0


def test_labels_stay_few(metrics):
    """However many values come, the registry stays small and no count is lost."""
    for number in range(1000):
        metrics.flawed(f"flaw-{number}")
    metrics.flawed("flaw-0")
    samples = scrape(metrics)["gateway_flawed_events"].samples
    assert len(samples) == 51
    assert sum(sample.value for sample in samples) == 1001
    assert value(metrics, "gateway_flawed_events_total", flaw="flaw-0") == 2
    assert value(metrics, "gateway_flawed_events_total", flaw="other") == 950


def test_two_daemons_in_one_process(daemon):
    """Registries are their owner's: nothing is shared, nothing collides."""
    one, two = Metrics(daemon.probe), Metrics(daemon.probe)
    one.corrupt_records()
    assert value(two, "gateway_journal_corrupt_records_total") == 0


def test_reactor_lag(metrics):
    """A reactor that was busy for three seconds shows as a call that came late."""
    clock = Clock()
    lag = metrics.reactor_lag(clock)
    lag.start()
    clock.advance(1)
    assert value(metrics, "gateway_reactor_lag_seconds_sum") == 0
    clock.advance(4)
    assert value(metrics, "gateway_reactor_lag_seconds_sum") == 3
    assert value(metrics, "gateway_reactor_lag_seconds_count") == 2
    lag.stop()
    assert clock.getDelayedCalls() == []


def test_a_clock_set_back_is_no_lag(metrics):
    clock = Clock()
    metrics.reactor_lag(clock).start()
    [call] = clock.getDelayedCalls()
    clock.rightNow = -3600
    call.func()
    assert value(metrics, "gateway_reactor_lag_seconds_sum") == 0


def queries(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        for target in panel.get("targets", []):
            yield target["expr"]
        yield from queries(panel.get("panels", []))


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:gateway|process)_[a-z0-9_]+\b", text))


def exported(metrics: Metrics) -> set[str]:
    exercise(metrics)
    families = scrape(metrics).values()
    return {sample.name for family in families for sample in family.samples}


def test_the_dashboard_shows_all_that_there_is_and_nothing_else(metrics, everything):
    """Each figure is on it, or has a reason why not; and each metric that it asks for
    exists under that name.
    """
    dashboard = json.loads(DASHBOARD.read_text())
    asked = set().union(*(names_in(query) for query in queries(dashboard["panels"])))
    assert asked <= exported(metrics) | {*of_job()}
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in asked} | asked
    unseen = {one.name for one in FIGURES if one.unseen}
    assert {one.name for one in FIGURES} - families == unseen


def series(text: bytes, job: str) -> dict[str, float]:
    """Of a scrape, each named as Prometheus stores it."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            labels = {"job": job, "instance": f"{job}:1", **one.labels}
            named = ",".join(f"{key}={json.dumps(of)}" for key, of in labels.items())
            found[f"{one.name}{{{named}}}"] = one.value
    return found


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool (Debian's prometheus has it)")
def test_each_query_of_the_dashboard_has_an_answer(metrics, everything, tmp_path):
    """Over two scrapes of a gateway and of a job, by Prometheus' own evaluation: labels
    match, histograms have their buckets, and variables are what they are filled with.
    """
    job = CollectorRegistry()
    job.register(of_a_job())
    scrapes = []
    for _ in range(2):
        exercise(metrics)
        scrapes.append(
            series(metrics.render("")[0], "gateway")
            | series(generate_latest(job), "gateway-spark")
        )
    first, second = scrapes
    told = [
        {"series": name, "values": f"{first.get(name, 0):f} {second[name]:f}x9"}
        for name in second
    ]
    asked = set(queries(json.loads(DASHBOARD.read_text())["panels"]))
    tests = []
    for query in asked - {ALERTS_FIRING}:
        filled = re.sub(" (==|>) [01]", "", query)  # what is only there in trouble
        for name, value in VARIABLES.items():
            filled = filled.replace(name, value)
        tests.append(
            {
                "expr": f"count({filled}) > bool 0",
                "eval_time": "5m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        )
    path = tmp_path / "answers.yml"
    case = {"interval": "1m", "input_series": told, "promql_expr_test": tests}
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_laid_out(metrics):
    """Panels have their own ids, lie within the grid and cover no other."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def of_a_job() -> Numbers:
    words = {
        "last_batch_at": 1.0,
        "last_batch_seconds": 2.0,
        "spool_files": 3,
        "failures": 4,
        "committed_by": {"gw": {"a": 4, "b": 5}},
        "rows": 6,
        "misfits": 7,
        "expired_days": {"events": 8},
        "expired_events": 9,
        "deleted_events": 10,
    }
    told = Told(Reported(words), 0.0)
    return Numbers(lambda: told)


def of_job() -> dict[str, str]:
    """What a Spark job shows by itself, and its type."""
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: one.type
        for one in of_a_job().collect()
    }


def test_each_figure_is_what_its_declaration_says(metrics, everything):
    """Gateway and job show the metrics that are declared, with that type and those labels,
    and no others.
    """
    exercise(metrics)
    there = {
        f"{name}_total" if family.type == "counter" else name: family
        for name, family in scrape(metrics).items()
        if name.startswith("gateway_")
    }
    types = {name: family.type for name, family in there.items()} | of_job()
    assert {one.name: one.kind for one in FIGURES} == types
    for one in FIGURES:
        for sample in there[one.name].samples if one.name in there else ():
            labels = sample.labels.keys() - {"le"}
            assert labels <= {*one.labels}, one.name
            assert labels == {*one.labels} or one.key == "lake.committed_lsn"


def test_alerts_are_on_what_there_is(metrics, everything):
    """Every expression in conf/alerts.yml uses series that exist."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    assert len(group["rules"]) > 15
    asked = set().union(*(names_in(rule["expr"]) for rule in group["rules"]))
    assert asked <= exported(metrics) | {*of_job()}


BOUNDS = (0.25, 1, 2.5)


@given(st.lists(st.lists(st.floats(-1, 4) | st.sampled_from(BOUNDS))))
def test_it_says_what_the_library_says(groups):
    """Letter for letter, values at the edge of a bucket included."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bulk = BulkHistogram("a_seconds", "Text.", BOUNDS)
    ours.register(bulk)
    histogram = Histogram("a_seconds", "Text.", buckets=BOUNDS, registry=theirs)
    for group in groups:
        values = [round(one, 3) for one in group]
        bulk.observe(values)
        for one in values:
            histogram.observe(one)
    mine, other = (generate_latest(each).decode() for each in (ours, theirs))
    assert _without_sum(mine) == _without_sum(other)


def _without_sum(text: str) -> list[str]:
    # Additions in another order end in another last digit.
    return [line for line in text.splitlines() if not line.startswith("a_seconds_sum")]


def test_the_sum():
    """… of all values there were."""
    bulk = BulkHistogram("a_seconds", "Text.", BOUNDS)
    bulk.observe([0.5, 1.5])
    bulk.observe([2.0])
    [family] = bulk.collect()
    [total] = [one.value for one in family.samples if one.name == "a_seconds_sum"]
    assert total == 4.0
