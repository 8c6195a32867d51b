"""One run against earlier ones: which ones it may be held against, and whether it is unusual.

Tables in, numbers out. Runs are comparable when what they measured and what they ran on agree;
what differs on purpose (the packages) is what a history is about, so it may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from benchkit.formatting import format_change, format_quantity
from benchkit.store.schema import METRICS

__all__ = ["AGREE", "Previous", "against_previous", "beside_previous", "comparable"]

#: Fields of the record in which comparable runs agree.
AGREE = (
    "workload",
    "version",
    "source_hash",
    "environment",
    "scale",
    "capture",
    "host",
    "cluster",
    "n_workers",
    "n_threads",
    "memory_limit",
)
#: Older runs say little about tonight: machines age and releases move.
MOST_RUNS = 30
LEVEL = 0.95


@dataclass(frozen=True)
class Previous:
    """One value against those of earlier runs.

    Attributes
    ----------
    n_runs : int
        Earlier runs that count.
    ratio : float
        Value / geometric mean of the earlier ones.
    low, high : float
        Where such a ratio lies by chance in 95 % of the cases; NaN with fewer than three.
    """

    n_runs: int
    ratio: float
    low: float
    high: float

    @property
    def unusual(self) -> bool | None:
        """Whether the ratio lies outside; None if there are too few runs to tell."""
        if np.isnan(self.low):
            return None
        return not self.low <= self.ratio <= self.high


def comparable(runs: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the runs that ended ok before this one and measured the same on the same.

    Parameters
    ----------
    runs : DataFrame
        As `Store.runs` gives it.
    record : mapping
        The record of a run.

    Returns
    -------
    DataFrame
        The newest 30 at most, oldest first.
    """
    if runs.empty:
        return runs
    started = pd.Timestamp(record["started"])
    keep = (runs["outcome"] == "ok") & (runs["id"] != record["id"]) & (runs["started"] < started)
    if "comparable" in runs:  # a mark may have set runs aside
        keep &= runs["comparable"].astype(bool)
    for name in AGREE:
        if name in runs and record.get(name) is not None:
            keep &= (runs[name] == record[name]).fillna(False).astype(bool)
    return runs[keep].tail(MOST_RUNS)


def against_previous(
    runs: pd.DataFrame, record: Mapping[str, Any], metric: str = "duration"
) -> Previous | None:
    """Hold one metric of a run against earlier comparable runs.

    Parameters
    ----------
    runs : DataFrame
        As `Store.runs` gives it.
    record : mapping
        The record of the run.
    metric : str, default "duration"
        Which number.

    Returns
    -------
    Previous or None
        None if the run or every earlier one lacks the metric.

    Notes
    -----
    The limits are those of a prediction interval for one more value, by Student's t on
    logarithms: ``t(n - 1) s sqrt(1 + 1 / n)`` around the mean [1]_. They are no verdict: nights
    differ by more than runs of one night do; that is what the regression detector is for.

    References
    ----------
    .. [1] G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley 1991, section 4.7.
    """
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
        half = float(stdtrit(len(logs) - 1, (1 + LEVEL) / 2) * spread)
        low, high = float(np.exp(-half)), float(np.exp(half))
    return Previous(len(logs), float(np.exp(change)), low, high)


def beside_previous(runs: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return each metric of a run beside the median of earlier comparable runs, as text.

    Parameters
    ----------
    runs : DataFrame
        As `Store.runs` gives it.
    record : mapping
        The record of the run.

    Returns
    -------
    DataFrame
        A row per metric that the run has: this run, the median before, the change, and how many
        runs the median is of.
    """
    earlier = comparable(runs, record)
    rows = {}
    for name, metric in METRICS.items():
        value = record.get(name)
        if value is None:
            continue
        known = earlier[name].dropna() if name in earlier else pd.Series(dtype=float)
        usual = float(known.median()) if len(known) else None
        rows[metric.long_name] = (
            format_quantity(value, metric.units),
            format_quantity(usual, metric.units),
            format_change(value / usual if usual else None),
            len(known),
        )
    columns = ["this run", "median before", "change", "runs before"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)
