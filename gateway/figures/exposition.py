"""Figures with their values, as prometheus_client takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.figures import figure
from gateway.sdk.protocol import Statistics

Value = float | Mapping[Any, float] | None
"""A mapping has a number for each value of the label, or tuple of the values of all."""


def families(values: Mapping[str, Value]) -> Iterator[Metric]:
    """The figures of these names in /metrics; None and an empty mapping say nothing."""
    for name, value in values.items():
        if value is not None and value != {}:
            about = figure(name)
            yield _family(name, about.help, about.labels, value, counter=about.counter)


def of_sections(sections: Iterable[Statistics]) -> Iterator[Metric]:
    """All that sections of /api/status have for /metrics."""
    for section in sections:
        for one in section.values:
            if one.metric and one.value is not None:
                labels = [one.label] if isinstance(one.value, Mapping) else []
                yield _family(
                    one.metric, one.text, labels, one.value, counter=one.counter
                )


def _family(
    name: str,
    text: str,
    labels: list[str],
    value: float | Mapping[Any, float],
    *,
    counter: bool,
) -> Metric:
    family = CounterMetricFamily if counter else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return family(name, text, value=value)
    found = family(name, text, labels=labels)
    for key, each in value.items():
        found.add_metric([key] if isinstance(key, str) else list(key), each)
    return found
