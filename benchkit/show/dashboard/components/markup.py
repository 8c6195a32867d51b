"""Words within a line: outcomes, names and values of metrics, links to runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from benchkit.formatting import MISSING, NO_FAILURE, OUTCOME_WORDS, format_quantity
from benchkit.show.dashboard.state.url import address
from benchkit.show.render.html import link
from benchkit.store.schema import METRICS

#: Unit in the metrics table -> words.
_UNITS = {"s": "seconds", "B": "bytes", "%": "per cent", "1": "a number", "USD": "US dollars"}
_BETTER = {"lower": "less is better", "higher": "more is better"}


def run_link(run: Mapping[str, Any]) -> Markup:
    """Return the start time of a run as a link to its page."""
    return link(str(run["started"])[:16], address("run", id=run["id"]))


def outcome_text(outcome: Any) -> str:
    """Return the symbol and the words of an outcome."""
    symbol, words = OUTCOME_WORDS.get(str(outcome), ("?", str(outcome)))
    return f"{symbol} {words}"


def tone_of_outcome(outcome: Any) -> str:
    """Return the CSS class of an outcome."""
    return "soft" if outcome in NO_FAILURE else "bad"


def text_or_missing(value: Any) -> str:
    """Return a scalar as text."""
    # value: Scalar; may be None or NaN.
    # returned: The text; `MISSING` for None, NaN and empty text.
    return MISSING if value is None or pd.isna(value) or value == "" else str(value)


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
