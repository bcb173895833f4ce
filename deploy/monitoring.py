"""Writes what watches gateways, from the table in `gateway/conditions.py` and the panels
beside this file:

    conf/alerts.yml                         rules for Prometheus
    deploy/prometheus-operator/rules.yaml   the same, for its operator
    conf/dashboard.json                     for Grafana
    docs/operations.md                      the list of alerts

    python deploy/monitoring.py

Tests say so when one of the files is not what this writes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

from panels import QUESTIONS, Panel  # noqa: E402 - it lies beside this file

from gateway.conditions import CONDITIONS, Condition  # noqa: E402

ALERTS = ROOT / "conf" / "alerts.yml"
OPERATOR = ROOT / "deploy" / "prometheus-operator" / "rules.yaml"
DASHBOARD = ROOT / "conf" / "dashboard.json"
OPERATIONS = ROOT / "docs" / "operations.md"

_HEAD = """\
# Alerts for gateways, written by deploy/monitoring.py from gateway/conditions.py: change
# them there.  tests/admin/test_alerts.py breaks each thing in turn (with promtool): its
# alert fires within its time, and no other does.
#
# severity: page = wake somebody, events are not taken or do not arrive;
#           morning = look at it tomorrow.
# The jobs in prometheus.yml are called gateway and gateway-spark: the second is a Spark job
# that runs where no gateway sees it (spark.admin.listen).
"""
_OPERATOR = """\
# For the Prometheus operator, beside podmonitors.yaml.  kubectl -n gateway apply -f rules.yaml
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gateway
  labels: {app.kubernetes.io/part-of: gateway}
spec:
"""
_COLUMNS = "| alert | severity | after | says | do |\n|---|---|---|---|---|\n"


# -- rules ------------------------------------------------------------------------


def alerts() -> str:
    """conf/alerts.yml."""
    return f"{_HEAD}\n{_groups()}"


def operator() -> str:
    """The rules as an object of Kubernetes."""
    return f"{_HEAD}#\n{_OPERATOR}{indent(_groups(), '  ')}"


def _groups() -> str:
    rules = "\n".join(indent(_rule(one), "      ") for one in CONDITIONS)
    return f"groups:\n  - name: gateway\n    rules:\n{rules}"


def _rule(one: Condition) -> str:
    lines = dedent(one.expr).strip().splitlines()
    expr = (
        f" {lines[0]}" if len(lines) == 1 else " |\n" + indent("\n".join(lines), "    ")
    )
    said = {"summary": one.summary, "action": one.action, "runbook": one.runbook}
    return (
        f"- alert: {one.name}\n"
        f"  expr:{expr}\n"
        + (f"  for: {one.after}\n" if one.after else "")
        + f"  labels: {{severity: {one.severity}}}\n"
        + "  annotations:\n"
        + "".join(f"    {key}: {_scalar(text)}\n" for key, text in said.items())
    )


def _scalar(text: str) -> str:
    return yaml.safe_dump(text, width=10**6).removesuffix("...\n").strip()


# -- the list ---------------------------------------------------------------------


def listed(page: str) -> str:
    """docs/operations.md, with the list of today."""
    rows = "".join(
        f"| `{one.name}` | {one.severity} | {one.after or 'at once'} | "
        f"{one.summary.removesuffix('.')} | {_linked(one)} |\n"
        for one in CONDITIONS
    )
    table = re.compile(r"\| alert \| severity \|.*\n(?:\|.*\n)+")
    assert table.search(page), "docs/operations.md has no list of alerts"
    return table.sub(lambda _: _COLUMNS + rows, page, count=1)


def _linked(one: Condition) -> str:
    page, anchor = one.runbook.removeprefix("docs/").split("#")
    where = f"#{anchor}" if page == OPERATIONS.name else f"{page}#{anchor}"
    action = one.action.removesuffix(".")
    return f"{action}: [more]({where})"


# -- the dashboard ----------------------------------------------------------------

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_METRIC = re.compile(r"\b((?:gateway|process)_[a-z0-9_]+)(\{)?")
_OF_JOB = re.compile(r"gateway_spark_|gateway_lake_(?!lag)|gateway_audit_")
_OF_GATEWAY = 'job=~"$job",instance=~"$instance"'
_OF_EITHER = 'job=~"$job|gateway-spark"'
"""What a job elsewhere shows, under its own name, is of all gateways."""
_WIDE, _HIGH = 8, 8
_STAT_HIGH = 4
_COLUMNS_WIDE = 24


def dashboard() -> str:
    """conf/dashboard.json."""
    found = {
        "title": "gateway",
        "uid": "gateway",
        "description": "A row for each question: " + " ".join(QUESTIONS),
        "tags": ["gateway"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [*_variables()]},
        "annotations": {
            "list": [
                {
                    "name": "starts",
                    "enable": True,
                    "datasource": _SOURCE,
                    "expr": _selected("changes(process_start_time_seconds[1m]) > 0"),
                    "iconColor": "purple",
                    "titleFormat": "start of {{instance}}",
                }
            ]
        },
        "links": [],
        "panels": [*_panels()],
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "data source",
        "current": {},
    }
    for name, query in (
        ("job", "label_values(gateway_ready, job)"),
        ("instance", 'label_values(gateway_ready{job=~"$job"}, instance)'),
    ):
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "sort": 1,
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for question, panels in QUESTIONS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": question,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS_WIDE, "h": 1},
            "panels": [],
        }
        top += 1
        for row in _rows(panels):
            wide = _COLUMNS_WIDE // len(row) if row[0].kind == "stat" else _WIDE
            high = _STAT_HIGH if row[0].kind == "stat" else _HIGH
            for index, panel in enumerate(row):
                number += 1
                at = {"x": index * wide, "y": top, "w": wide, "h": high}
                yield {"id": number, **_panel(panel), "gridPos": at}
            top += high


def _rows(panels: tuple[Panel, ...]) -> Iterator[list[Panel]]:
    """Figures side by side, then the rest, three in a row."""
    if stats := [one for one in panels if one.kind == "stat"]:
        yield stats
    rest = [one for one in panels if one.kind != "stat"]
    each = _COLUMNS_WIDE // _WIDE
    for begin in range(0, len(rest), each):
        yield rest[begin : begin + each]


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join([panel.text, *_watched(panel)]),
        "datasource": _SOURCE,
        "targets": [
            {
                "datasource": _SOURCE,
                "expr": _selected(expr),
                "legendFormat": legend,
                "refId": chr(ord("A") + index),
            }
            for index, (expr, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _watched(panel: Panel) -> Iterator[str]:
    """The alerts that look at what the panel shows."""
    shown = {name for expr, _ in panel.queries for name in names_in(expr)}
    found = [
        f"{one.name} ({one.severity})"
        for one in CONDITIONS
        if shown & names_in(one.expr.split("unless")[0])
    ]
    if found:
        yield f"Alerts: {', '.join(found)}."


def names_in(expr: str) -> set[str]:
    """The metrics that it asks for."""
    return {name for name, _ in _METRIC.findall(expr)}


def _selected(expr: str) -> str:
    def selectors(found: re.Match[str]) -> str:
        name, brace = found.groups()
        own = _OF_EITHER if _OF_JOB.match(name) else _OF_GATEWAY
        return f"{name}{{{own}," if brace else f"{name}{{{own}}}"

    return _METRIC.sub(selectors, expr)


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        found["min"] = 0
        found["custom"] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    if panel.red_below is not None:
        steps = [
            {"color": "red", "value": None},
            {"color": "green", "value": panel.red_below},
        ]
    if panel.kind == "stat":
        found["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.words is not None:
        texts = {str(at): {"text": word} for at, word in enumerate(panel.words)}
        found["mappings"] = [{"type": "value", "options": texts}]
    return found


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            judged = panel.red_from is not None or panel.red_below is not None
            return {
                "colorMode": "background_solid" if judged else "none",
                "graphMode": "none",
                "reduceOptions": {"calcs": ["lastNotNull"]},
                "textMode": "auto",
            }
        case "state-timeline":
            return {"showValue": "never", "legend": {"showLegend": False}}
        case _:
            return {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }


def written() -> dict[Path, str]:
    """Each file, as it is to be."""
    return {
        ALERTS: alerts(),
        OPERATOR: operator(),
        DASHBOARD: dashboard(),
        OPERATIONS: listed(OPERATIONS.read_text("utf-8")),
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, "utf-8")
