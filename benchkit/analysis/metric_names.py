"""Check the names of metrics that a user gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchkit.errors import UsageError, did_you_mean
from benchkit.measure.arguments import list_of
from benchkit.store.schema import METRICS
from benchkit.store.store import Store


def define_own_metrics(*tables: pd.DataFrame) -> None:
    """Add the metrics that users defined for the runs of tables, as `Store.runs` returns them."""
    for table in tables:
        if "own_metrics" in table:
            for definitions in table["own_metrics"].dropna().unique():
                METRICS.define(definitions)


def check_metrics(
    metrics: Sequence[str], store: Store | str | Path | None = None
) -> tuple[str, ...]:
    """Return the names of metrics without duplicates, or raise an error.

    Those that users defined for the runs of the store are known, too.
    """
    metrics = list_of(metrics, "metrics")
    if any(name not in METRICS for name in metrics):
        opened = store if isinstance(store, Store) else Store(store)
        define_own_metrics(opened.runs(columns=["own_metrics"]))
    if metrics == ["all"]:
        known = {**METRICS, **METRICS.own}
        return tuple(name for name, metric in known.items() if metric.better)
    for name in metrics:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS, "see `benchkit list metrics`")
            raise UsageError(f"no metric named {name!r}: {hint}")
    if not metrics:
        raise UsageError("metrics: is empty: name one, such as 'duration'")
    return tuple(dict.fromkeys(metrics))
