"""conf/alerts.yml, judged by promtool: what breaks is told in time, and nothing else is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import monitoring  # noqa: E402

sys.path.remove(str(ROOT / "deploy"))

CONF = ROOT / "conf"
RULES: dict[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load((CONF / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool (Debian's package prometheus has it)"
)
_MINUTE = 4  # samples
_HEALTHY = 12 * _MINUTE
"""Samples before something breaks."""
_LONG = 60
"""What takes more minutes to be told is looked at each third minute."""

HEALTHY: dict[str, str | tuple[float, float]] = {
    'up{job="gateway"}': (1, 0),
    "gateway_ready": (1, 0),
    "gateway_journal_full": (0, 0),
    'gateway_held_back{reason="disk"}': (0, 0),
    'gateway_held_back{reason="spool"}': (0, 0),
    'gateway_held_back{reason="commit"}': (0, 0),
    'gateway_held_back{reason="memory"}': (0, 0),
    'gateway_held_back{reason="stall"}': (0, 0),
    "gateway_journal_oldest_wait_seconds": (0, 0),
    'gateway_journal_failures_total{operation="sync"}': (0, 0),
    "gateway_journal_corrupt_records_total": (0, 0),
    "gateway_spark_up": (1, 0),
    "gateway_spark_failures": (0, 0),
    'up{job="gateway-spark"}': (1, 0),
    'process_start_time_seconds{job="gateway"}': (1000, 0),
    'process_start_time_seconds{job="gateway-spark"}': (1000, 0),
    'process_open_fds{job="gateway"}': (50, 0),
    'process_max_fds{job="gateway"}': (1000, 0),
    'gateway_connections{listener="beats"}': (40, 0),
    'gateway_connections_limit{listener="beats"}': (1000, 0),
    "gateway_disk_room_bytes": (5e11, 0),
    "gateway_disk_free_bytes": (1e11, -1e6),
    "gateway_retained_bytes": (1e9, 1e6),
    "gateway_pravega_retained_bytes": (1e9, 0),
    "gateway_pravega_retained_limit_bytes": (1e10, 0),
    'gateway_freshness_seconds{node="gw-1"}': (2, 0),
    'gateway_freshness_held{by="spool"}': (0, 0),
    "gateway_bucket_stuck_files": (0, 0),
    'gateway_consumer_held_files{consumer="mine"}': (0, 0),
    'gateway_consumer_missed_files_total{consumer="mine"}': (0, 0),
    "gateway_audit_missing_events": (0, 0),
    "gateway_audit_unknown_ends": (0, 0),
    "gateway_audit_complete": (1, 0),
    "gateway_audit_age_seconds": (3600, 15),
    "gateway_audit_every_seconds": (86400, 0),
    "gateway_spark_waiting_seconds": (2, 0),
    "gateway_spark_holes": (0, 0),
    "gateway_clock_ahead_seconds": (0, 0),
    "gateway_spark_clock_ahead_seconds": (0, 0),
    "gateway_spark_expiry_failed": (0, 0),
    "gateway_lake_deletions_unfinished": (0, 0),
    'gateway_lake_lag_seconds{node="gw-1"}': (2, 0),
    "gateway_spool_bytes": (1e6, 0),
    "gateway_spool_limit_bytes": (2e10, 0),
    'gateway_certificate_valid_seconds{listener="beats"}': (60 * 86400, -15),
    'gateway_client_crl_valid_seconds{listener="beats",expired="refuse"}': (
        20 * 86400,
        -15,
    ),
    'gateway_client_crl_valid_seconds{listener="lax",expired="accept"}': (
        20 * 86400,
        -15,
    ),
    "gateway_config_last_reload_successful": (1, 0),
    "gateway_bucket_away": (0, 0),
    "gateway_forward_connected": (1, 0),
    "gateway_forward_refused": (0, 0),
    "gateway_forward_hub_place": (1, 0),
    'gateway_ack_seconds_bucket{le="0.01"}': (0, 1000),
    'gateway_ack_seconds_bucket{le="1"}': (0, 1000),
    'gateway_ack_seconds_bucket{le="+Inf"}': (0, 1000),
    'gateway_state_saves_total{outcome="failed"}': (0, 0),
    "gateway_reactor_lag_seconds_sum": (0, 0.015),
    "gateway_reactor_lag_seconds_count": (0, 15),
    'gateway_rejected_connections_total{reason="tls"}': (0, 0),
    'gateway_wrong_credentials_total{listener="admin"}': (0, 0),
    'gateway_flawed_events_total{flaw="invalid-json"}': (0, 0),
}
"""Each series' first value, and what is added every 15 s."""


class Fault(NamedTuple):
    """What changes when something breaks, and who says so by when."""

    alert: str
    minutes: float
    series: dict[str, tuple[float, float]]
    silent: float = 0.0
    """So many minutes after it nothing is said yet."""


def stalled(reason: str) -> dict[str, tuple[float, float]]:
    """Nothing is taken any more, and why."""
    return {
        "gateway_ready": (0, 0),
        "gateway_journal_full": (1, 0),
        f'gateway_held_back{{reason="{reason}"}}': (1, 0),
    }


def lagging(seconds: float) -> dict[str, tuple[float, float]]:
    """Nothing gets into the tables any more, since so long."""
    return {'gateway_lake_lag_seconds{node="gw-1"}': (seconds, 15)}


def certificate(seconds: float) -> dict[str, tuple[float, float]]:
    """It is valid for so long."""
    return {'gateway_certificate_valid_seconds{listener="beats"}': (seconds, -15)}


def crl(seconds: float, expired: str = "refuse") -> dict[str, tuple[float, float]]:
    """It is valid for so long."""
    listener = "beats" if expired == "refuse" else "lax"
    labels = f'listener="{listener}",expired="{expired}"'
    return {f"gateway_client_crl_valid_seconds{{{labels}}}": (seconds, -15)}


WAITING = {"gateway_journal_oldest_wait_seconds": (15.0, 15.0)}
FAULTS = {
    "gone": Fault("GatewayDown", 3, {'up{job="gateway"}': (0, 0)}, 1.5),
    "start that hangs": Fault("GatewayNotReady", 6, {"gateway_ready": (0, 0)}, 4.5),
    "full disk": Fault(
        "GatewayDiskFull", 2, stalled("disk") | WAITING | lagging(15), 0.5
    ),
    "hung disk": Fault(
        "GatewayDiskHangs", 1.5, stalled("stall") | WAITING | lagging(15)
    ),
    "hung disk under load": Fault("GatewayDiskHangs", 1.5, stalled("memory") | WAITING),
    "failed sync": Fault(
        "GatewayDiskFails",
        1,
        {'gateway_journal_failures_total{operation="sync"}': (1, 0)},
    ),
    "damaged record": Fault(
        "GatewayDiskFails", 1, {"gateway_journal_corrupt_records_total": (1, 0)}
    ),
    "full spool": Fault(
        "GatewaySpoolFull",
        2,
        stalled("spool")
        | {"gateway_spark_up": (0, 0), "gateway_spool_bytes": (2e10, 1)}
        | lagging(86400),
        0.5,
    ),
    "slow disk": Fault("GatewayHoldsBack", 6, stalled("memory"), 4.5),
    "dead job": Fault(
        "GatewaySparkDown",
        1,
        {"gateway_spark_up": (0, 0), "gateway_spool_bytes": (1e6, 1e6)} | lagging(30),
    ),
    "job elsewhere that is gone": Fault(
        "GatewaySparkGone", 3, {'up{job="gateway-spark"}': (0, 0)}, 1.5
    ),
    "job elsewhere that lags": Fault(
        "GatewayLakeLags", 6, {"gateway_spark_waiting_seconds": (61, 1)}, 4.5
    ),
    "job that fails at each start": Fault(
        "GatewaySparkFails",
        2,
        {"gateway_spark_up": (0, 0), "gateway_spark_failures": (2, 0)} | lagging(90),
        0.5,
    ),
    "job that fails and leaves word of a start": Fault(
        "GatewaySparkFails", 2, {"gateway_spark_failures": (3, 0)} | lagging(90)
    ),
    "spool files that are not written": Fault(
        "GatewayFilesLate",
        6.5,
        {
            'gateway_freshness_seconds{node="gw-1"}': (61, 15),
            'gateway_freshness_held{by="spool"}': (1, 0),
        }
        | lagging(61),
        4.5,
    ),
    "hole that the audit found": Fault(
        "GatewayMissing",
        1,
        {"gateway_audit_missing_events": (12, 0), "gateway_audit_complete": (0, 0)},
    ),
    "lost disk whose end nobody knows": Fault(
        "GatewayMissing",
        1,
        {"gateway_audit_unknown_ends": (1, 0), "gateway_audit_complete": (0, 0)},
    ),
    "events that are there twice": Fault(
        "GatewayAuditDoubts", 1, {"gateway_audit_complete": (0, 0)}
    ),
    "audits that do not come to their end": Fault(
        "GatewayAuditLate", 12, {"gateway_audit_age_seconds": (172801, 15)}, 8
    ),
    "file that the bucket refuses": Fault(
        "GatewayBucketStuck", 12, {"gateway_bucket_stuck_files": (1, 0)}, 9
    ),
    "consumer that never comes": Fault(
        "GatewayConsumerBehind",
        12,
        {'gateway_consumer_held_files{consumer="mine"}': (3, 1)},
        9,
    ),
    "consumer for which there was no room": Fault(
        "GatewayConsumerMissed",
        1,
        {'gateway_consumer_missed_files_total{consumer="mine"}': (1, 0)},
    ),
    "disk that is full within the hour": Fault(
        "GatewayDiskFillsSoon", 18, {"gateway_disk_room_bytes": (5e11, -5e9)}, 9
    ),
    "disk that is full within the day": Fault(
        "GatewayDiskFills", 80, {"gateway_disk_room_bytes": (5e11, -1.5e8)}, 55
    ),
    "streams that keep what they may": Fault(
        "GatewayRetainedGrows", 32, {"gateway_pravega_retained_bytes": (8.1e9, 0)}, 28
    ),
    "streams that keep more than there is room for": Fault(
        "GatewayRetainedGrows", 32, {"gateway_retained_bytes": (6e11, 1e6)}, 28
    ),
    "listener that is nearly full": Fault(
        "GatewayConnectionsNearLimit",
        6,
        {'gateway_connections{listener="beats"}': (950, 0)},
        4.5,
    ),
    "descriptors that are nearly used up": Fault(
        "GatewayConnectionsNearLimit",
        6,
        {'process_open_fds{job="gateway"}': (950, 0)},
        4.5,
    ),
    "gateway that starts again and again": Fault(
        "GatewayRestarts",
        1,
        {'process_start_time_seconds{job="gateway"}': (2000, 15)},
    ),
    "job elsewhere that starts again and again": Fault(
        "GatewayRestarts",
        1,
        {'process_start_time_seconds{job="gateway-spark"}': (2000, 15)},
    ),
    "lagging node": Fault(
        "GatewayLakeLags", 6, {'gateway_lake_lag_seconds{node="gw-1"}': (61, 1)}, 4.5
    ),
    "unreadable file": Fault(
        "GatewaySparkMovedFiles", 1, {"gateway_spark_holes": (1, 0)}
    ),
    "clock that is a year ahead": Fault(
        "GatewayClockAhead", 11, {"gateway_clock_ahead_seconds": (365 * 86400, 0)}, 9
    ),
    "clock of the job's machine": Fault(
        "GatewayClockAhead",
        11,
        {"gateway_spark_clock_ahead_seconds": (4 * 86400, 0)},
        9,
    ),
    "days that stay": Fault(
        "GatewayNotExpired", 61, {"gateway_spark_expiry_failed": (1, 0)}, 59
    ),
    "deletion that does not end": Fault(
        "GatewayDeletionUnfinished",
        24 * 60 + 1,
        {"gateway_lake_deletions_unfinished": (1, 0)},
        24 * 60 - 1,
    ),
    "slow job": Fault(
        "GatewaySpoolFills", 12, {"gateway_spool_bytes": (1.1e10, 1e6)}, 8
    ),
    "certificate that ends tomorrow": Fault(
        "GatewayCertificateEnded", 6, certificate(86399), 4.5
    ),
    "certificate that ended": Fault("GatewayCertificateEnded", 6, certificate(-1)),
    "certificate that ends soon": Fault(
        "GatewayCertificateEnds", 62, certificate(13 * 86400), 55
    ),
    "CRL that ends tonight": Fault("GatewayCrlEnded", 6, crl(4 * 3600 - 1), 4.5),
    "CRL that ended": Fault("GatewayCrlEnded", 6, crl(-1)),
    "CRL that ends soon": Fault("GatewayCrlEnds", 62, crl(6 * 86400), 55),
    "CRL that ended and is accepted": Fault(
        "GatewayCrlEnds", 62, crl(-1, "accept"), 55
    ),
    "bucket that is away": Fault(
        "GatewayBucketAway", 3, {"gateway_bucket_away": (1, 0)}, 1.5
    ),
    "hub that is away": Fault(
        "GatewayHubAway", 16, {"gateway_forward_connected": (0, 0)}, 14
    ),
    "first hub that is away": Fault(
        "GatewayOtherHub", 31, {"gateway_forward_hub_place": (2, 0)}, 29
    ),
    "hub that refuses": Fault(
        "GatewayHubRefuses",
        3,
        {"gateway_forward_connected": (0, 0), "gateway_forward_refused": (1, 0)},
        1.5,
    ),
    "broken configuration": Fault(
        "GatewayReloadFailed", 6, {"gateway_config_last_reload_successful": (0, 0)}, 4.5
    ),
    "slow acknowledgements": Fault(
        "GatewaySlowAcks", 16, {'gateway_ack_seconds_bucket{le="0.01"}': (0, 0)}, 8
    ),
    "state that is not saved": Fault(
        "GatewayStateNotSaved",
        20,
        {'gateway_state_saves_total{outcome="failed"}': (0, 1)},
        9,
    ),
    "busy event loop": Fault(
        "GatewayEventLoopBusy", 16, {"gateway_reactor_lag_seconds_sum": (0, 7.5)}, 8
    ),
    "clients without TLS": Fault(
        "GatewayTurnsAway",
        42,
        {'gateway_rejected_connections_total{reason="tls"}': (0, 10)},
        25,
    ),
    "guesses": Fault(
        "GatewayGuessing",
        22,
        {'gateway_wrong_credentials_total{listener="admin"}': (0, 10)},
        8,
    ),
    "broken events": Fault(
        "GatewayFlawedEvents",
        70,
        {'gateway_flawed_events_total{flaw="invalid-json"}': (0, 1)},
        55,
    ),
}


def _named(series: str) -> str:
    """With the instance that each has."""
    name, _, labels = series.partition("{")
    return f'{name}{{instance="gw-1:8080"{"," + labels if labels else "}"}'


JOB_ELSEWHERE = 'instance="gateway-job:8081",job="gateway-spark"'


def flat(value: float, minutes: float) -> str:
    """It stays so."""
    return f"{value}+0x{round(minutes * _MINUTE) - 1}"


def healthy_but(**series: str) -> dict[str, str]:
    """All is well for two hours, but for these, by the names of the metrics."""
    found = {}
    for name, (start, step) in HEALTHY.items():
        metric = name.partition("{")[0]
        values = f"{start}+{step}x{2 * 60 * _MINUTE}".replace("+-", "-")
        found[_named(name)] = series.get(metric, values)
    return found


def restarted() -> dict[str, str]:
    """A gateway is away for a minute and a half, as in a deployment, and counts anew."""
    found = {}
    for name, (start, step) in HEALTHY.items():
        before = f"{start}+{step}x47".replace("+-", "-")
        if name == 'up{job="gateway"}':
            found[_named(name)] = f"{before} 0+0x5 1+0x400"
        elif "gateway-spark" in name:
            found[_named(name)] = f"{start}+{step}x460"
        elif name == 'process_start_time_seconds{job="gateway"}':
            found[_named(name)] = f"{before} _x6 {start + 800}+0x400"
        elif step and "_valid_seconds" not in name:
            found[_named(name)] = f"{before} _x6 0+{step}x400".replace("+-", "-")
        else:
            found[_named(name)] = f"{before} _x6 {start}+{step}x400".replace("+-", "-")
    return found


SILENCE: dict[str, dict[str, str]] = {
    "job that starts for two minutes, over what waited": healthy_but(
        gateway_spark_up=f"{flat(1, 5)} 0 {flat(1, 60)}",
        gateway_lake_lag_seconds=f"{flat(2, 5)} 2+15x15 {flat(2, 60)}",
        gateway_freshness_seconds=f"{flat(2, 5)} 2+15x15 {flat(2, 60)}",
    ),
    "job elsewhere that starts, before a day's files": {
        f"up{{{JOB_ELSEWHERE}}}": flat(1, 60),
        f"gateway_spark_up{{{JOB_ELSEWHERE}}}": flat(1, 60),
        f"gateway_spark_ready{{{JOB_ELSEWHERE}}}": f"{flat(0, 2)} {flat(1, 58)}",
        f"gateway_spark_failures{{{JOB_ELSEWHERE}}}": flat(0, 60),
        f"gateway_spark_waiting_seconds{{{JOB_ELSEWHERE}}}": f"86400+15x15 {flat(2, 56)}",
        f"process_start_time_seconds{{{JOB_ELSEWHERE}}}": flat(1000, 60),
    },
    "gateway that is stopped and started again": restarted(),
    "gateway that was taken out of service": {
        _named(name): f"{start}+{step}x47 stale".replace("+-", "-")
        for name, (start, step) in HEALTHY.items()
    },
    "gateways without a job of their own": {
        _named(name): f"{start}+{step}x400".replace("+-", "-")
        for name, (start, step) in HEALTHY.items()
        if "spark" not in name and "lake" not in name
    },
    "idle night": healthy_but(
        gateway_ack_seconds_bucket=flat(48000, 120),
        gateway_retained_bytes=flat(1e9, 120),
        gateway_freshness_seconds=flat(0, 120),
        gateway_lake_lag_seconds=flat(0, 120),
    ),
    "night in which the archive takes the disk": healthy_but(
        gateway_disk_free_bytes="4e11-6e8x480"
    ),
    "spool that fills and is emptied again": healthy_but(
        gateway_disk_room_bytes=" ".join(["5e11-1e9x19 4.81e11+1e9x19"] * 12)
    ),
}
"""What happens by day and night, and is nobody's to hear of."""


def _values(series: str, fault: Fault) -> str:
    start, step = HEALTHY[series]
    healthy = f"{start}+{step}x{_HEALTHY - 1}".replace("+-", "-")
    begun, more = fault.series.get(series, (start, step))
    if "_total" in series or "_bucket" in series or series.endswith(("_sum", "_count")):
        begun += start + step * _HEALTHY  # counters go on
    elif series not in fault.series:
        begun = start + step * _HEALTHY
    return f"{healthy} {begun}+{more}x{round(fault.minutes + 1) * _MINUTE}".replace(
        "+-", "-"
    )


def _told(minutes: float, alerts: list[str]) -> dict[str, Any]:
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]
    seconds = _HEALTHY * 15 + round(minutes * 60)
    return {"expr": firing, "eval_time": f"{seconds}s", "exp_samples": samples}


def _case(fault: Fault) -> dict[str, Any]:
    series = [
        {"series": _named(name), "values": _values(name, fault)} for name in HEALTHY
    ]
    told = [_told(-1, []), _told(fault.minutes, [fault.alert])]
    if fault.silent:
        told.append(_told(fault.silent, []))
    return {"interval": "15s", "input_series": series, "promql_expr_test": told}


def _judge(tests: list[dict[str, Any]], path: Path, every: str) -> None:
    """Promtool does, with rules that are evaluated so often."""
    written = {
        "rule_files": [str(CONF / "alerts.yml")],
        "evaluation_interval": every,
        "tests": tests,
    }
    path.write_text(yaml.safe_dump(written))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOGC": "400"},  # a quarter of its time was collecting
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(("long", "every"), [(False, "1m"), (True, "3m")])
def test_each_fault_has_its_alert_and_no_other(
    tmp_path: Path, long: bool, every: str
) -> None:
    """After minutes of health it fires, not at once where it has time, and alone."""
    assert {fault.alert for fault in FAULTS.values()} == set(RULES)
    assert all(set(fault.series) <= set(HEALTHY) for fault in FAULTS.values())
    cases = [
        {"name": name, **_case(fault)}
        for name, fault in FAULTS.items()
        if (fault.minutes > _LONG) is long
    ]
    _judge(cases, tmp_path / "alerts_test.yml", every)


@needs_promtool
@pytest.mark.parametrize("name", SILENCE)
def test_nobody_hears_of_what_is_no_fault(name: str, tmp_path: Path) -> None:
    """A job that starts, a gateway that was stopped, an idle night: not one alert fires,
    at any time of it.
    """
    heard = {
        "expr": 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[3h]))',
        "eval_time": "2h",
        "exp_samples": [],
    }
    series = [
        {"series": series, "values": values} for series, values in SILENCE[name].items()
    ]
    _judge(
        [{"interval": "15s", "input_series": series, "promql_expr_test": [heard]}],
        tmp_path / "silence_test.yml",
        "30s",
    )


@needs_promtool
@pytest.mark.parametrize("file", ["prometheus.yml"])
def test_prometheus_takes_its_configuration(file: str) -> None:
    """With the alerts that it names."""
    subprocess.run([str(PROMTOOL), "check", "config", str(CONF / file)], check=True)


@needs_promtool
def test_the_dashboard_asks_in_promql(tmp_path: Path) -> None:
    """Each query can be read, with the variables that Grafana fills in."""
    panels = json.loads(monitoring.dashboard())["panels"]
    exprs = [one["expr"] for panel in panels for one in panel.get("targets", [])]
    assert len(exprs) > 60
    rules = [
        {
            "record": f"query_{number}",
            "expr": expr.replace("$__rate_interval", "1m"),
        }
        for number, expr in enumerate(exprs)
    ]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", "--lint=none", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_says_what_is_wrong_and_what_to_do() -> None:
    """In a sentence each, and where there is more."""
    for name, rule in RULES.items():
        said = rule["annotations"]
        assert set(said) == {"summary", "action", "runbook"}, name
        assert all(said[key].endswith(".") for key in ("summary", "action")), name
        assert rule["labels"]["severity"] in {"page", "morning"}
        page, anchor = said["runbook"].split("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        kept = {
            re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings
        }
        assert anchor in kept, name


@pytest.mark.parametrize("path", [*monitoring.written()], ids=lambda path: path.name)
def test_what_watches_is_what_the_table_gives(path: Path) -> None:
    """`python deploy/monitoring.py` would change nothing."""
    assert path.read_text("utf-8") == monitoring.written()[path]


def test_the_operator_has_the_same_rules() -> None:
    """As one object, which kubectl applies."""
    found = yaml.safe_load(monitoring.OPERATOR.read_text())
    assert (found["kind"], found["apiVersion"]) == (
        "PrometheusRule",
        "monitoring.coreos.com/v1",
    )
    assert found["spec"] == yaml.safe_load((CONF / "alerts.yml").read_text())


def test_the_first_sentence_speaks_of_conditions_that_there_are() -> None:
    """By their names in the one table; and so the page and `status` name its sections."""
    source = (ROOT / "gateway" / "admin" / "freshness.py").read_text()
    named = set(re.findall(r'"(Gateway\w+)"', source))
    named |= set(re.findall(r"advice\(['\"](\w+)", source))
    assert len(named) > 12
    assert named <= set(RULES)


def test_the_manual_lists_them() -> None:
    """docs/metrics.md has a row for each, and for no other."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(
        r"^\| `(Gateway\w+)` \| (page|morning) \| ([^|]+) \|", text, re.MULTILINE
    )
    assert rows == [
        (name, rule["labels"]["severity"], rule.get("for", "at once"))
        for name, rule in RULES.items()
    ]
