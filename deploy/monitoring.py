"""Writes what watches gateways, from the tables in `gateway.figures` and those of protocols:

    conf/alerts.yml                         rules for Prometheus
    deploy/prometheus-operator/rules.yaml   the same, for its operator
    conf/dashboard.json                     for Grafana
    docs/metrics.md                         all figures and alerts, for people

    python deploy/monitoring.py

Tests say so when one of the files is not what this writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import yaml

from gateway.figures import CONDITIONS, QUESTIONS, SECTIONS
from gateway.figures.kinds import Condition, Panel, Question
from gateway.protocols.forward.figures import ARRIVALS
from gateway.protocols.lumberjack.figures import WINDOWS
from gateway.protocols.pomelo.figures import PUSHES
from gateway.protocols.pravega.figures import SEGMENTS
from gateway.protocols.rsio.figures import SENDERS
from gateway.sdk.figures import Figure

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "conf" / "alerts.yml"
OPERATOR = ROOT / "deploy" / "prometheus-operator" / "rules.yaml"
DASHBOARD = ROOT / "conf" / "dashboard.json"
METRICS = ROOT / "docs" / "metrics.md"

_MEAN = (
    "sum(rate(gateway_pomelo_backend_seconds_total[$__rate_interval])) / sum(rate("
    'gateway_pomelo_backend_answers_total{outcome="answered"}[$__rate_interval]))'
)
_OF_PROTOCOLS = (WINDOWS, SEGMENTS, SENDERS, PUSHES, ARRIVALS)
_PROTOCOLS = Question(
    "What do protocols do?",
    [figure for each in _OF_PROTOCOLS for figure in each.figures],
    [
        Panel(
            "A backend's answer",
            "The mean, from when the request was stored.",
            [(_MEAN, "mean")],
            "s",
        )
    ],
)
ALL = (*QUESTIONS, _PROTOCOLS)
_ONLY = {one.name: one.only for one in (*SECTIONS.values(), *_OF_PROTOCOLS)}

_HEAD = """\
# Alerts for gateways, written by deploy/monitoring.py from gateway/figures: change
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
_PAGE = """\
# Metrics and alerts

<!-- Written by deploy/monitoring.py from gateway/figures: change them there. -->

What `/metrics` of the admin port has, and the alerts that look at it, by the question that they answer. [Operations](operations.md#metrics) says how to scrape it, and [symptoms](symptoms.md) what to do at night.

Counters start at 0 with the process; lsns, files and bytes on disk survive it. Beside these are the usual `process_*` metrics: CPU, memory, file descriptors, start time. An alert of severity `page` wakes somebody up, `morning` can wait.
"""
_FIGURES = "\n| name | type | meaning | look at it when |\n|---|---|---|---|\n"
_ALERTS = "\n| alert | severity | after | says | do |\n|---|---|---|---|---|\n"


# -- rules ------------------------------------------------------------------------


def alerts() -> str:
    """conf/alerts.yml."""
    return f"{_HEAD}\n{_groups()}"


def operator() -> str:
    """The rules as an object of Kubernetes."""
    return f"{_HEAD}#\n{_OPERATOR}{indent(_groups(), '  ')}"


def _groups() -> str:
    rules = "\n".join(indent(_rule(one), "      ") for one in CONDITIONS.values())
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


# -- the page ---------------------------------------------------------------------


def page() -> str:
    """docs/metrics.md."""
    return _PAGE + "".join(map(_answered, ALL))


def _answered(question: Question) -> str:
    figures = [_row(one) for one in question.figures if one.metric]
    alerts = [_alert(one) for one in question.conditions]
    return (
        f"\n## {question.title}\n{_FIGURES}{''.join(figures)}"
        + f"{_ALERTS}{''.join(alerts)}" * bool(alerts)
    )


def _row(figure: Figure) -> str:
    only = _ONLY.get(figure.key.partition(".")[0], "")
    meaning = f"{figure.text}; only {only}" if only else figure.text
    alerts = [f"`{one.name}`" for one in _looking_at({figure.name})]
    look = "; ".join(filter(None, [figure.look, ", ".join(alerts)]))
    return f"| `{figure.metric}` | {figure.kind} | {meaning} | {look} |\n"


def _alert(one: Condition) -> str:
    where = one.runbook.removeprefix("docs/")
    return (
        f"| `{one.name}` | {one.severity} | {one.after or 'at once'} | "
        f"{one.summary.removesuffix('.')} | "
        f"{one.action.removesuffix('.')}: [more]({where}) |\n"
    )


def _looking_at(metrics: set[str]) -> list[Condition]:
    return [
        one
        for one in CONDITIONS.values()
        if metrics & names_in(one.expr.split("unless")[0])
    ]


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
        "description": "A row for each question: " + " ".join(one.title for one in ALL),
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
    for question in ALL:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": question.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS_WIDE, "h": 1},
            "panels": [],
        }
        top += 1
        for row in _rows([*question.panels, *_of_figures(question.figures)]):
            wide = _COLUMNS_WIDE // len(row) if row[0].kind == "stat" else _WIDE
            high = _STAT_HIGH if row[0].kind == "stat" else _HIGH
            for index, panel in enumerate(row):
                number += 1
                at = {"x": index * wide, "y": top, "w": wide, "h": high}
                yield {"id": number, **_panel(panel), "gridPos": at}
            top += high


def _of_figures(figures: Iterable[Figure]) -> Iterator[Panel]:
    """Panels of figures as they are, those together that name the same."""
    shown: dict[str, list[Figure]] = {}
    for one in figures:
        if one.panel:
            shown.setdefault(one.panel, []).append(one)
    for title, together in shown.items():
        text = " ".join(
            one.help.partition(";")[0].rstrip(".") + "." for one in together
        )
        queries = [each for one in together for each in _queries(one)]
        yield Panel(title, text, queries, _unit(together[0]))


def _queries(figure: Figure) -> Iterator[tuple[str, str]]:
    name, labels = figure.name, figure.labels
    named = figure.legend or " ".join(f"{{{{{label}}}}}" for label in labels)
    legend = f"{{{{instance}}}} {named}".strip()
    if figure.kind == "histogram":
        rate = f"sum by (le, instance) (rate({name}_bucket[$__rate_interval]))"
        for part, said in ((0.5, "p50"), (0.99, "p99")):
            yield f"histogram_quantile({part}, {rate})", f"{legend} {said}"
    elif figure.counter:
        grown = "increase" if figure.rare else "rate"
        by = ", ".join(["instance", *labels])
        yield f"sum by ({by}) ({grown}({name}[$__rate_interval]))", legend
    elif figure.unit == "time":
        yield f"time() - {name}", legend
    else:
        yield name, legend


def _unit(figure: Figure) -> str:
    if figure.counter and not figure.rare:
        return "Bps" if figure.unit == "bytes" else "ops"
    return {"bytes": "bytes", "seconds": "s", "time": "s", "": "short"}[figure.unit]


def _rows(panels: list[Panel]) -> Iterator[list[Panel]]:
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
    if found := [f"{one.name} ({one.severity})" for one in _looking_at(shown)]:
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
        METRICS: page(),
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, "utf-8")
