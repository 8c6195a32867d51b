"""Compare tables of runs, workload by workload, and return a `Comparison`.

Tables have the columns of `Store.runs`. This module selects the runs that count and assigns them to
blocks; `benchkit.analysis.stats.effects` computes the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from benchkit.analysis.compare.comparison import Comparison, comparison_warnings
from benchkit.analysis.stats.effects import Effects
from benchkit.analysis.stats.effects import compare as compare_arrays
from benchkit.errors import NotEnoughRuns, UsageError, did_you_mean
from benchkit.store.schema import METRICS

__all__ = [
    "DEFAULT_METRICS",
    "check_metrics",
    "compare",
    "compare_experiment",
]

DEFAULT_METRICS = ("duration", "memory_mean", "memory_peak")
NULL_ARM = "null"
_ORDER = {"changed": 0, "noise": 1, "undecided": 2, "same": 3, "failed": 0}


def check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return names of metrics; ``all`` stands for every metric that has a better direction.

    Raises
    ------
    UsageError
        A metric is unknown.
    """
    if list(metrics) == ["all"]:
        return tuple(name for name, metric in METRICS.items() if metric.better)
    for name in metrics:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS, "see `benchkit list metrics`")
            raise UsageError(f"no metric named {name!r}: {hint}")
    return tuple(dict.fromkeys(metrics))


def compare(
    baseline: pd.DataFrame,
    contender: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    null: pd.DataFrame | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    blocked: bool | None = None,
    level: float = 0.95,
    same: float = 0.05,
    names: tuple[str, str] = ("baseline", "contender"),
) -> Comparison:
    """Compare runs with the runs of a baseline, workload by workload.

    Parameters
    ----------
    baseline : DataFrame
        Runs as returned by `Store.runs`. The statistics use only runs with outcome ok that no mark
        excludes; the others are counted.
    contender : DataFrame or mapping of str to DataFrame
        Runs to compare with the baseline; several sets by their names.
    null : DataFrame, optional
        Runs of the null arm. They add power, and show the differences that noise alone causes.
    metrics : sequence of str
        Metrics to compare; ``["all"]`` is every metric that has a better direction.
    blocked : bool, optional
        Whether to compare runs within blocks; by default if all come from one experiment.
    level, same : float
        See `benchkit.analysis.stats.effects.compare`.
    names : tuple of str
        Names of baseline and contender in messages.

    Returns
    -------
    Comparison

    Raises
    ------
    NotEnoughRuns
        Baseline and contenders have no workload in common that has a value of a metric.
    UsageError
        A metric is unknown.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> benchkit.compare(store.runs(variant="A"), store.runs(variant="B"))  # doctest: +SKIP
    """
    chosen = check_metrics(metrics)
    sets = dict(contender) if isinstance(contender, Mapping) else {names[1]: contender}
    everything = [baseline, *sets.values(), *([null] if null is not None else [])]
    if blocked is None:
        blocked = _one_experiment(everything)
    rows = _rows(baseline, sets, null, chosen, blocked)
    if not rows:
        raise NotEnoughRuns(
            f"{names[0]} and {', '.join(sets)} have no workload in common that was measured"
        )
    effects = compare_arrays(
        _stack([row["points"]["baseline"] for row in rows]),
        _stack([row["points"]["contender"] for row in rows]),
        null=None if null is None else _stack([row["points"]["null"] for row in rows]),
        blocked=blocked,
        family=[row["metric"] for row in rows],
        level=level,
        same=same,
    )
    frame = _frame(rows, effects)
    warnings = [text for text in effects.warnings if "have no value" not in text]
    return Comparison(
        frame=frame,
        effects=effects,
        baseline=names[0],
        contenders=tuple(sets),
        metrics=chosen,
        blocked=blocked,
        warnings=(
            *warnings,
            *comparison_warnings(
                baseline, sets, null, name=names[0], null_name=NULL_ARM, blocked=blocked
            ),
        ),
        level=level,
        same=same,
        _points={index: row["points"] for index, row in enumerate(rows)},
        _ids={index: row["ids"] for index, row in enumerate(rows)},
    )


def compare_experiment(
    runs: pd.DataFrame, experiment: str, *, baseline: str | None = None, **options: Any
) -> Comparison:
    """Compare the arms of an experiment.

    Parameters
    ----------
    runs : DataFrame
        Runs of a store; runs of other experiments are ignored.
    experiment : str
        Id of the experiment, or the beginning of it.
    baseline : str, optional
        Name of the arm that the others are compared with; by default the first arm that ran.
    **options
        Passed to `compare`.

    Raises
    ------
    NotEnoughRuns
        The experiment has no runs, or only one arm.
    UsageError
        The experiment has no arm of that name, or several ids begin with `experiment`.
    """
    mine = runs[runs["experiment"].fillna("").str.startswith(experiment)] if len(runs) else runs
    if mine.empty:
        raise NotEnoughRuns(f"experiment {experiment!r} has no runs yet")
    ids = sorted(set(mine["experiment"]))
    if len(ids) > 1:
        raise UsageError(
            f"{experiment!r} is the beginning of {len(ids)} experiments: give more of "
            f"{' or '.join(ids[:2])}"
        )
    arms = list(dict.fromkeys(mine.sort_values("order")["arm"]))
    if baseline is not None and baseline not in arms:
        hint = did_you_mean(baseline, arms, f"it has {', '.join(arms)}")
        raise UsageError(f"experiment {experiment!r} has no arm named {baseline!r}: {hint}")
    first = baseline or next((arm for arm in arms if arm != NULL_ARM), arms[0])
    others = [arm for arm in arms if arm not in (first, NULL_ARM)]
    sets = {arm: mine[mine["arm"] == arm] for arm in others}
    null = mine[mine["arm"] == NULL_ARM]
    if not sets and len(null):  # only the baseline and its null arm
        sets, null = {NULL_ARM: null}, null.iloc[:0]
    if not sets:
        raise NotEnoughRuns(f"experiment {experiment!r} has only the arm {first!r} so far")
    return compare(
        mine[mine["arm"] == first],
        sets,
        null=null if len(null) else None,
        names=(first, "contender"),
        **options,
    )


def _counts(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that the statistics use."""
    if runs.empty:
        return runs
    keep = runs["outcome"] == "ok"
    if "comparable" in runs:
        keep &= runs["comparable"].astype(bool)
    return runs[keep]


def _one_experiment(tables: Sequence[pd.DataFrame]) -> bool:
    """Return whether all runs come from one experiment and have a block."""
    seen: set[Any] = set()
    for table in tables:
        if table.empty:
            continue
        if "experiment" not in table or table["block"].isna().any():
            return False
        if _counts(table).duplicated(["workload", "block"]).any():
            return False  # several runs in a block, such as those of the null arm
        seen |= set(table["experiment"].fillna(""))
    return len(seen) == 1 and "" not in seen


def _values(runs: pd.DataFrame, metric: str, n_blocks: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return values of a workload and metric, by block or in order of time, and their run ids.

    A block without a run has NaN and "".
    """
    placed = np.full(n_blocks or 0, np.nan), np.full(n_blocks or 0, "", dtype=object)
    if runs.empty or metric not in runs:
        return placed
    values = runs[metric].astype(float).to_numpy()
    ids = runs["id"].to_numpy(dtype=object) if "id" in runs else np.full(len(runs), "", object)
    if n_blocks is None:
        known = np.isfinite(values)
        return values[known], ids[known]
    blocks = runs["block"].astype(int).to_numpy()
    placed[0][blocks], placed[1][blocks] = values, ids
    return placed


def _rows(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    metrics: Sequence[str],
    blocked: bool,
) -> list[dict[str, Any]]:
    rows = []
    tables = [baseline, *sets.values(), *([null] if null is not None else [])]
    n_blocks = None
    if blocked:
        n_blocks = 1 + int(max(table["block"].max() for table in tables if len(table)))
    left = _by_workload(_counts(baseline))
    middle = _by_workload(_counts(null)) if null is not None else {}
    nothing = baseline.iloc[:0]
    for name, table in sets.items():
        right = _by_workload(_counts(table))
        tried = set(baseline["workload"]) & set(table["workload"])
        for workload in sorted(tried):
            for metric in metrics:
                sides = {
                    "baseline": _values(left.get(workload, nothing), metric, n_blocks),
                    "contender": _values(right.get(workload, nothing), metric, n_blocks),
                }
                if not any(np.isfinite(values).any() for values, _ in sides.values()):
                    continue
                if null is not None:
                    sides["null"] = _values(middle.get(workload, nothing), metric, n_blocks)
                rows.append(
                    {
                        "contender": name,
                        "workload": workload,
                        "metric": metric,
                        "unit": METRICS[metric].units,
                        "better": METRICS[metric].better,
                        "n_failed_baseline": _n_failed(baseline, workload),
                        "n_failed_contender": _n_failed(table, workload),
                        "points": {arm: values for arm, (values, _) in sides.items()},
                        "ids": {arm: ids for arm, (_, ids) in sides.items()},
                    }
                )
    return rows


def _by_workload(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if runs.empty:
        return {}
    return {str(name): group for name, group in runs.groupby("workload", sort=False)}


def _n_failed(runs: pd.DataFrame, workload: str) -> int:
    mine = runs[runs["workload"] == workload]
    return int((~mine["outcome"].isin(["ok", "skipped", "infrastructure"])).sum())


def _stack(rows: Sequence[np.ndarray]) -> np.ndarray:
    width = max((len(row) for row in rows), default=0)
    stacked = np.full((len(rows), max(width, 1)), np.nan)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def _frame(rows: Sequence[dict[str, Any]], effects: Effects) -> pd.DataFrame:
    frame = pd.DataFrame(
        [{k: v for k, v in row.items() if k not in ("points", "ids")} for row in rows]
    )
    frame["row"] = range(len(rows))
    frame["baseline"] = [_median(row["points"]["baseline"]) for row in rows]
    frame["contender_value"] = [_median(row["points"]["contender"]) for row in rows]
    for name in ("ratio", "low", "high", "p", "q", "needed", "selected_low", "selected_high"):
        frame[name] = getattr(effects, name)
    for name in ("hodges_lehmann", "null_moved", "n_baseline", "n_contender"):
        frame[name] = getattr(effects, name)
    nulls = [_null_interval(row["points"]) for row in rows]
    for index, name in enumerate(("null_ratio", "null_low", "null_high")):
        frame[name] = [interval[index] for interval in nulls]
    frame["noise"] = [_noise(row["points"]) for row in rows]
    frame["changed"] = effects.changed
    more = effects.ratio > 1
    lower, higher = frame["better"] == "lower", frame["better"] == "higher"
    frame["worse"] = frame["changed"] & ((more & lower) | (~more & higher))
    is_time = (frame["metric"] == "duration").to_numpy()
    verdict = np.array(effects.verdict, dtype=object)
    verdict[is_time & (verdict == effects.labels[0])] = "faster"
    verdict[is_time & (verdict == effects.labels[1])] = "slower"
    frame["verdict"] = verdict.astype(str)
    frame["note"] = effects.notes
    rank = frame["verdict"].map(_ORDER).fillna(0)
    size = -np.abs(np.log(frame["ratio"].where(frame["ratio"] > 0)))
    order = pd.DataFrame({"rank": rank, "worse": ~frame["worse"], "size": size})
    return frame.loc[order.sort_values(["rank", "worse", "size"], kind="stable").index].reset_index(
        drop=True
    )


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def _noise(points: Mapping[str, np.ndarray]) -> float:
    """Return the coefficient of variation of one run, pooled over arms; NaN for too few runs."""
    squares, degrees = 0.0, 0
    for values in points.values():
        known = values[np.isfinite(values) & (values > 0)]
        if len(known) > 1:
            squares += float(np.log(known).var(ddof=1)) * (len(known) - 1)
            degrees += len(known) - 1
    return math.sqrt(math.expm1(squares / degrees)) if degrees > 1 else math.nan


def _null_interval(points: Mapping[str, np.ndarray]) -> tuple[float, float, float]:
    """Return the ratio null arm / baseline and its interval: Welch's t on logarithms."""
    nothing = math.nan, math.nan, math.nan
    if "null" not in points:
        return nothing
    sides = [values[np.isfinite(values)] for values in (points["null"], points["baseline"])]
    if any(len(side) < 2 or (side <= 0).any() for side in sides):
        return nothing
    first, second = (np.log(side) for side in sides)
    change = float(first.mean() - second.mean())
    a, b = (float(side.var(ddof=1)) / len(side) for side in (first, second))
    if not a + b > 0:
        return math.exp(change), math.exp(change), math.exp(change)
    df = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    half = float(stdtrit(df, 0.975)) * math.sqrt(a + b)
    return math.exp(change), math.exp(change - half), math.exp(change + half)
