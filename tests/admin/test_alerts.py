"""conf/alerts.yml, judged by promtool: what breaks is told in time, and nothing else is."""

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

SERIES = yaml.safe_load((ROOT / "tests/vectors/alerts.yaml").read_text())
HEALTHY: dict[str, tuple[float, float]] = SERIES["healthy"]
"""Each series' first value, and what is added every 15 s."""


class Fault(NamedTuple):
    """What changes when something breaks, and who says so by when."""

    alert: str
    minutes: float
    series: dict[str, tuple[float, float]]
    silent: float = 0.0
    """So many minutes after it nothing is said yet."""


FAULTS = {name: Fault(**fault) for name, fault in SERIES["faults"].items()}


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
def test_each_fault_has_its_alert_and_no_other(tmp_path, long, every):
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
def test_nobody_hears_of_what_is_no_fault(name, tmp_path):
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
def test_prometheus_takes_its_configuration():
    """With the alerts that it names."""
    file = str(CONF / "prometheus.yml")
    subprocess.run([str(PROMTOOL), "check", "config", file], check=True)


def test_each_says_what_is_wrong_and_what_to_do():
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
def test_what_watches_is_what_the_table_gives(path):
    """`python deploy/monitoring.py` would change nothing."""
    assert path.read_text("utf-8") == monitoring.written()[path]


def test_the_operator_has_the_same_rules():
    """As one object, which kubectl applies."""
    found = yaml.safe_load(monitoring.OPERATOR.read_text())
    assert (found["kind"], found["apiVersion"]) == (
        "PrometheusRule",
        "monitoring.coreos.com/v1",
    )
    assert found["spec"] == yaml.safe_load((CONF / "alerts.yml").read_text())


def test_the_first_sentence_speaks_of_conditions_that_there_are():
    """By their names in the one table; and so the page and `status` name its sections."""
    source = (ROOT / "gateway" / "admin" / "freshness.py").read_text()
    named = set(re.findall(r'"(Gateway\w+)"', source))
    named |= set(re.findall(r"advice\(['\"](\w+)", source))
    assert len(named) > 12
    assert named <= set(RULES)
