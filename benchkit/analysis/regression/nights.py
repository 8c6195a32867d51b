"""Assign runs to nights."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from benchkit.analysis.run.baseline import is_simulated
from benchkit.values import decode_json

__all__ = ["future_nights", "nightly_runs"]

#: Hours after the present from which on a night is in the future: clocks differ a little.
CLOCK_HOURS = 24
#: Largest number of future nights that are left out, and the same as a share of the past nights:
#: if most nights are in the future, the clock of this machine is wrong.
MOST_FUTURE_NIGHTS = 2
MOST_FUTURE_SHARE = 0.1

#: Tags of runs that belong to no night, as simulated runs: confirmations and bisections.
NON_NIGHTLY_TAGS = ("confirm", "bisect")


def nightly_runs(runs: pd.DataFrame, columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return the runs that belong to nights.

    Parameters
    ----------
    runs : DataFrame
        As returned by `Store.runs`.
    columns : iterable of str
        Columns to add, with missing values, where `runs` lacks them.

    Returns
    -------
    DataFrame
        With the column ``moment``: the start of the night, UTC, without a zone.
    """
    runs = runs.copy()
    for name in (*columns, "arm", "experiment"):
        if name not in runs:
            runs[name] = None
    if "comparable" not in runs:
        runs["comparable"] = True
    runs["comparable"] = runs["comparable"].astype(bool)
    tags = [decode_json(text) for text in runs["tags"]]
    tagged = np.array(["night" in t for t in tags], bool)
    excluded = np.array([any(name in t for name in NON_NIGHTLY_TAGS) for t in tags], bool)
    n_arms = runs.groupby("experiment")["arm"].transform("nunique").fillna(0).to_numpy()
    excluded |= is_simulated(runs).to_numpy()
    runs = runs[~excluded & (tagged | (n_arms <= 1))].copy()
    runs["moment"] = _night_times(runs)
    return runs.reset_index(drop=True)


def future_nights(moments: pd.Series) -> pd.Series:
    """Return which runs are of a night in the future: the clock of their machine was wrong.

    Parameters
    ----------
    moments : Series of datetime
        The column ``moment`` of `nightly_runs`.

    Returns
    -------
    Series of bool
        Such a night would be the last one for years, and no later night would be judged.
    """
    now = pd.Timestamp.now("UTC").tz_localize(None)
    future = moments > now + pd.Timedelta(hours=CLOCK_HOURS)
    n_future, n_past = moments[future].nunique(), moments[~future].nunique()
    is_exception = 0 < n_future <= max(MOST_FUTURE_NIGHTS, MOST_FUTURE_SHARE * n_past)
    return future if is_exception and n_past else future & False


def _night_times(runs: pd.DataFrame) -> pd.Series:
    """Return the night of each run: its tag ``night``, else the UTC day of its start."""
    nights = [decode_json(text).get("night") for text in runs["tags"]]
    tagged = pd.Series(nights, index=runs.index, dtype=object)
    moments = pd.to_datetime(tagged, utc=True, errors="coerce", format="ISO8601")
    return moments.fillna(runs["started"].dt.floor("D")).dt.tz_localize(None)
