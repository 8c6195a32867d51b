"""Names and explanations of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from benchkit.formatting import MISSING, format_quantity
from benchkit.store.schema import METRICS

__all__ = ["measured_metrics", "metric_term", "metric_terms", "metric_text"]

#: Unit in the metrics table -> words.
_UNITS = {"s": "seconds", "B": "bytes", "%": "per cent", "1": "a number", "USD": "US dollars"}
_BETTER = {"lower": "less is better", "higher": "more is better"}


def measured_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics that at least one run has."""
    # returned: Names, in the order of the metrics table.
    return [name for name in METRICS if name in runs and runs[name].notna().any()]


def metric_term(name: str) -> str:
    """Return long name, unit, source and better direction of a metric as text.

    Examples
    --------
    >>> metric_term("memory_mean")
    'cluster process memory, mean over time; bytes, from process samples; less is better'
    """
    return f"{METRICS[name].long_name}; {_explanation(name)}"


def metric_terms(names: Iterable[str]) -> dict[str, str]:
    """Return the explanations of metrics for a glossary."""
    return {METRICS[name].long_name: _explanation(name) for name in names if name in METRICS}


def _explanation(name: str) -> str:
    metric = METRICS[name]
    text = f"{_UNITS.get(metric.units, metric.units)}, from {metric.source}"
    return f"{text}; {_BETTER[metric.better]}" if metric.better in _BETTER else text


def metric_text(record: Mapping[str, Any], name: str) -> str:
    """Return the value of a metric as text."""
    value = record.get(name)
    if value is None or pd.isna(value):
        return MISSING
    return format_quantity(float(value), METRICS[name].units)
