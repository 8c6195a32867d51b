"""Select the runs that a comparison uses, and assign them to rows, arms and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchkit.store.schema import METRICS

__all__ = ["build_rows", "stack", "valid_runs"]

#: Outcomes that say nothing about the workload.
_NOT_ATTEMPTED = ("skipped", "infrastructure")


def valid_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that the statistics use."""
    runs = _comparable(runs)
    return runs if runs.empty else runs[runs["outcome"] == "ok"]


def build_rows(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    metrics: Sequence[str],
    n_blocks: int | None,
) -> list[dict[str, Any]]:
    """Return a row for each contender, workload and metric with a value in an arm."""
    rows = []
    empty = baseline.iloc[:0]
    nulls = {} if null is None else {"null": null}
    for name, table in sets.items():
        arms = {
            arm: _by_workload(_comparable(runs))
            for arm, runs in {"baseline": baseline, "contender": table, **nulls}.items()
        }
        for workload in sorted(arms["baseline"].keys() & arms["contender"].keys()):
            runs_of = {arm: runs.get(workload, empty) for arm, runs in arms.items()}
            counts = _outcome_counts(runs_of)
            for metric in metrics:
                sides = {
                    arm: _values(_measured(runs, metric), metric, n_blocks)
                    for arm, runs in runs_of.items()
                }
                compared = (sides["baseline"], sides["contender"])
                if not any(np.isfinite(values).any() for values, _ in compared):
                    continue
                rows.append(
                    {
                        "contender": name,
                        "workload": workload,
                        "metric": metric,
                        "unit": METRICS[metric].units,
                        "better": METRICS[metric].better,
                        **counts,
                        "n_timeouts": _n_timeouts(runs_of, metric),
                        "points": {arm: values for arm, (values, _) in sides.items()},
                        "ids": {arm: ids for arm, (_, ids) in sides.items()},
                    }
                )
    return rows


def stack(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows of different lengths as a matrix."""
    # returned: (rows, longest row), padded with NaN.
    width = max((len(row) for row in rows), default=0)
    stacked = np.full((len(rows), max(width, 1)), np.nan)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def _comparable(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that no mark excludes."""
    if runs.empty or "comparable" not in runs:
        return runs
    return runs[runs["comparable"].astype(bool)]


def _by_workload(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if runs.empty:
        return {}
    return {str(name): group for name, group in runs.groupby("workload", sort=False)}


def _timed_out(runs: pd.DataFrame) -> pd.Series:
    """Return which runs reached a known deadline while the workload ran."""
    if "deadline_s" not in runs or runs.empty:
        return pd.Series(False, index=runs.index)
    in_workload = runs["phase"] == "workload" if "phase" in runs else True
    return (runs["outcome"] == "timeout") & runs["deadline_s"].notna() & in_workload


def _measured(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the runs with a value of a metric; of a timeout it is at least the deadline."""
    ok = runs["outcome"] == "ok"
    if metric != "duration":
        return runs[ok]
    late = _timed_out(runs)
    if not late.any():
        return runs[ok]
    runs = runs[ok | late].copy()
    least = runs["deadline_s"].where(late[ok | late])
    runs["duration"] = runs[["duration"]].assign(least=least).max(axis=1)
    return runs


def _n_timeouts(runs_of: Mapping[str, pd.DataFrame], metric: str) -> int:
    if metric != "duration":
        return 0
    return int(sum(_timed_out(runs).sum() for runs in runs_of.values()))


def _outcome_counts(runs_of: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return the numbers of failed and of all attempted runs by side."""
    counts = {}
    for side, arms in (("baseline", ("baseline", "null")), ("contender", ("contender",))):
        outcomes = pd.concat([runs_of[arm]["outcome"] for arm in arms if arm in runs_of])
        attempted = outcomes[~outcomes.isin(_NOT_ATTEMPTED)]
        counts[f"n_failed_{side}"] = int((attempted != "ok").sum())
        counts[f"n_attempts_{side}"] = len(attempted)
    return counts


def _values(runs: pd.DataFrame, metric: str, n_blocks: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return values of a workload and metric, by block or in order of time, and their run ids.

    A block without a run has NaN and "".
    """
    by_block = np.full(n_blocks or 0, np.nan), np.full(n_blocks or 0, "", dtype=object)
    if runs.empty or metric not in runs:
        return by_block
    values = runs[metric].astype(float).to_numpy()
    ids = runs["id"].to_numpy(dtype=object) if "id" in runs else np.full(len(runs), "", object)
    if n_blocks is None:
        finite = np.isfinite(values)
        return values[finite], ids[finite]
    blocks = runs["block"].astype(int).to_numpy()
    by_block[0][blocks], by_block[1][blocks] = values, ids
    return by_block
