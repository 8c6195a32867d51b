"""Compare a run with earlier comparable runs, and decide whether it is unusual.

Takes tables and returns numbers. Runs are comparable if they measured the same variant on the same
machine and cluster. Their packages may differ: a history shows the effect of packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchkit.analysis.metric_limits import same_definitions
from benchkit.analysis.options import VERDICTS
from benchkit.formatting import format_change, format_quantity
from benchkit.store.schema import METRICS, SERIES_FIELDS

#: Fields that must be equal for runs of a series to be comparable -> label.
COMPARABLE_FIELDS = {
    "version": "version",
    "source_hash": "source",
    "cluster": "cluster",
    "n_workers": "workers",
    "n_threads": "threads",
    "memory_limit": "memory limit",
}
#: Largest relative difference of memory limits that is no difference: the memory of a machine
#: differs by some pages between boots, and limits are often a share of it.
SAME_MEMORY = 0.02
#: Largest number of earlier runs to use. Older runs predict little: machines and packages change.
MAX_RUNS = 30


@dataclass(frozen=True)
class Previous:
    """A value of a run relative to the values of earlier runs."""

    n_runs: int  # Number of earlier runs used
    ratio: float  # Of the value to the geometric mean of the earlier values
    # low, high: Limits of the ratio in 95 % of cases by chance; NaN with fewer than three earlier
    # runs.
    low: float
    high: float

    @property
    def unusual(self) -> bool | None:
        """Whether the ratio is outside the limits; None with fewer than three earlier runs."""
        if np.isnan(self.low):
            return None
        return not self.low <= self.ratio <= self.high


def as_requested(runs: pd.DataFrame) -> pd.DataFrame:
    """Describe the clusters of runs by what was asked for, as far as runs record it."""
    runs = runs.copy()
    if "cluster" in runs:
        runs["cluster"] = runs["cluster"].mask(
            runs["cluster"].astype("string").str.contains("://").fillna(False).astype(bool),
            "address",
        )
    if "workers_requested" not in runs or "n_workers" not in runs:
        return runs
    factor = runs["workers_requested"].astype(float) / runs["n_workers"].astype(float)
    factor = factor.where(np.isfinite(factor) & (factor > 0), 1.0)
    for name in ("n_workers", "n_threads", "memory_limit"):
        if name in runs:
            runs[name] = runs[name].where(factor == 1.0, (runs[name].astype(float) * factor))
    return runs


def is_different(name: str, now: pd.Series, before: Any) -> pd.Series:
    """Return where values of a comparable field differ, with a tolerance for memory limits."""
    if name == "memory_limit":
        before = before.astype(float) if isinstance(before, pd.Series) else float(before)
        different = (now.astype(float) - before).abs() > SAME_MEMORY * abs(before)
    else:
        different = now.ne(before)
    known = now.notna() & (before.notna() if isinstance(before, pd.Series) else True)
    return different.fillna(False).astype(bool) & known


def comparable(runs: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the earlier runs with outcome ok that are comparable with a run."""
    # returned: Runs equal in `SERIES_FIELDS` and `COMPARABLE_FIELDS`: the 30 newest, oldest first.
    # Values of metrics whose definition differs are NaN.
    if runs.empty:
        return runs
    started = pd.Timestamp(record["started"])
    keep = is_simulated(runs) == bool(record.get("simulated"))
    keep &= (runs["outcome"] == "ok") & (runs["id"] != record["id"]) & (runs["started"] < started)
    if "comparable" in runs:  # a mark may exclude runs
        keep &= runs["comparable"].astype(bool)
    own = as_requested(pd.DataFrame([record])).iloc[0]
    requested = as_requested(runs)
    for name in (*SERIES_FIELDS, *COMPARABLE_FIELDS):
        if name in runs and record.get(name) is not None:
            keep &= requested[name].notna() & ~is_different(name, requested[name], own[name])
    return same_definitions(runs[keep].tail(MAX_RUNS), record, list(METRICS))


def is_simulated(runs: pd.DataFrame) -> pd.Series:
    """Return which runs a virtual cluster made."""
    if "simulated" not in runs:
        return pd.Series(False, index=runs.index)
    return runs["simulated"].notna()


def against_previous(
    runs: pd.DataFrame, record: Mapping[str, Any], metric: str = "duration"
) -> Previous | None:
    """Compare one metric of a run with earlier comparable runs.

    Notes
    -----
    The limits are those of a prediction interval for another value, by Student's t on
    logarithms: ``t(n - 1) s sqrt(1 + 1 / n)`` around the mean [1]_. They are not a verdict: runs of
    different nights differ more than runs of the same night, which the regression detector
    accounts for.

    References
    ----------
    .. [1] G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley 1991, section 4.7.
    """
    # Other commands import this module, too, and need no special functions.
    from scipy.special import stdtrit

    value = record.get(metric)
    earlier = comparable(runs, record)
    if value is None or not value > 0 or metric not in earlier:
        return None
    values = earlier[metric].dropna().to_numpy(float)
    logs = np.log(values[values > 0])
    if not len(logs):
        return None
    change = float(np.log(value) - logs.mean())
    low = high = float("nan")
    if len(logs) >= 3:
        spread = logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs))
        half = float(stdtrit(len(logs) - 1, (1 + VERDICTS.level) / 2) * spread)
        low, high = float(np.exp(-half)), float(np.exp(half))
    return Previous(len(logs), float(np.exp(change)), low, high)


def metrics_against_previous(runs: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table of all metrics of a run and their median in earlier comparable runs."""
    earlier = comparable(runs, record)
    rows = {}
    for name, metric in METRICS.items():
        value = record.get(name)
        if value is None:
            continue
        values = earlier[name].dropna() if name in earlier else pd.Series(dtype=float)
        median = float(values.median()) if len(values) else None
        rows[metric.long_name] = (
            format_quantity(value, metric.units),
            format_quantity(median, metric.units),
            format_change(value / median if median else None),
            len(values),
        )
    columns = ["this run", "median before", "change", "runs before"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)
