"""Figures with their values, as prometheus_client takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.figures import figure
from gateway.sdk.figures import Figure, Statistics

Value = float | Mapping[Any, float] | None
"""A mapping has a number for each value of the label, or tuple of the values of all."""


def families(values: Mapping[str, Value]) -> Iterator[Metric]:
    """The figures of these names in /metrics; None and an empty mapping say nothing."""
    for name, value in values.items():
        if value is not None and value != {}:
            yield _family(figure(name), value)


def of_sections(sections: Iterable[Statistics]) -> Iterator[Metric]:
    """All that sections of /api/status have for /metrics."""
    for section in sections:
        for one, value in section.values:
            if one.metric and value is not None:
                yield _family(one, value)


def _family(one: Figure, value: float | Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily if one.counter else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return family(one.name, one.help, value=value)
    found = family(one.name, one.help, labels=one.labels)
    for key, each in value.items():
        found.add_metric([key] if isinstance(key, str) else list(key), each)
    return found
