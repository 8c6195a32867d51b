"""Compare tables of runs, workload by workload, and return a `Comparison`.

Tables have the columns of `Store.runs`. This module selects the valid runs and assigns them to
blocks; `benchkit.analysis.effects` computes the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.rows import build_rows, stack, valid_runs
from benchkit.analysis.compare.run_warnings import comparison_warnings
from benchkit.analysis.effects import Effects
from benchkit.analysis.effects import compare as compare_arrays
from benchkit.analysis.metric_limits import newest_definitions, quality_warnings
from benchkit.analysis.metric_names import check_metrics
from benchkit.analysis.run.baseline import is_simulated
from benchkit.analysis.stats.welch import mean_difference
from benchkit.errors import NotEnoughRuns, UsageError, did_you_mean
from benchkit.formatting import counted
from benchkit.store.selector import pair_workloads

__all__ = ["DEFAULT_METRICS", "compare", "compare_experiment"]

DEFAULT_METRICS = ("duration", "memory_mean", "memory_peak")
NULL_ARM = "null"
#: Smallest log likelihood ratio of a change with which a metric supports the others.
SUPPORTS = 1.0
#: Verdict -> position in the table; changes come first.
_ORDER = {"noise": 1, "undecided": 2, "same": 3}


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
        Runs as returned by `Store.runs`. The statistics use runs with outcome ok that no mark
        excludes, and of runs that reached their deadline the deadline as least duration; the
        others are counted. A contender that fails more often than the baseline is never better:
        its rows that are not worse have the verdict ``failed``.
    contender : DataFrame or mapping of str to DataFrame
        Runs to compare with the baseline; several sets by their names.
    null : DataFrame, optional
        Runs of the null arm. They add power, and show the differences that noise causes.
    metrics : sequence of str
        Metrics to compare; ``["all"]`` is every metric that has a better direction.
    blocked : bool, optional
        Whether to compare runs within blocks; by default if all arms are from the same experiments.
    level, same : float
        See `benchkit.analysis.effects.compare`.
    names : tuple of str
        Names of baseline and contender in messages.

    Returns
    -------
    Comparison
        A row per contender, workload and metric.

    Raises
    ------
    NotEnoughRuns
        A set is empty, or baseline and contenders have no workload in common that has a value of
        a metric.
    UsageError
        A metric is unknown, or a contender has the same runs as the baseline.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> benchkit.compare(store.runs(variant="A"), store.runs(variant="B"))  # doctest: +SKIP
    """
    chosen = check_metrics(metrics)
    sets = dict(contender) if isinstance(contender, Mapping) else {names[1]: contender}
    _check_sets(names[0], baseline, sets)
    tables = [baseline, *sets.values(), *([null] if null is not None else [])]
    tables, limits = newest_definitions(tables, chosen)
    if blocked is None:
        blocked = _is_interleaved(tables)
    n_blocks = None
    if blocked:
        if any(table["block"].isna().any() for table in tables):
            raise UsageError("blocked=True: not all runs have a block; see `benchkit.interleave`")
        tables, n_blocks = _number_blocks(tables)
    baseline, sets = tables[0], dict(zip(sets, tables[1:], strict=False))
    null = None if null is None else tables[-1]
    limits += quality_warnings({names[0]: baseline, **sets}, chosen)
    rows = build_rows(baseline, sets, null, chosen, n_blocks)
    if not rows:
        raise NotEnoughRuns(_why_no_rows(names[0], baseline, sets, null))
    effects = compare_arrays(
        stack([row["points"]["baseline"] for row in rows]),
        stack([row["points"]["contender"] for row in rows]),
        null=None if null is None else stack([row["points"]["null"] for row in rows]),
        blocked=blocked,
        family=[row["metric"] for row in rows],
        workload=[f"{row['contender']}\n{row['workload']}" for row in rows],
        level=level,
        same=same,
    )
    frame = _frame(rows, effects, names[0])
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
            *limits,
            *comparison_warnings(
                baseline, sets, null, name=names[0], null_name=NULL_ARM, blocked=blocked
            ),
        ),
        level=level,
        same=same,
        _points={index: row["points"] for index, row in enumerate(rows)},
        _ids={index: row["ids"] for index, row in enumerate(rows)},
    )


def _why_no_rows(
    name: str, baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame], null: pd.DataFrame | None
) -> str:
    """Return why no workload can be compared: none in common, or none that ended ok."""
    arms = f"{name} and {', '.join(sets)}"
    measured = set(baseline["workload"])
    if not any(measured & set(runs["workload"]) for runs in sets.values()):
        return f"{arms} have no workload in common"
    reasons = comparison_warnings(baseline, sets, null, name=name, null_name=NULL_ARM, blocked=True)
    failed = [text for text in reasons if " left out: " in text]
    return "; ".join([f"{arms} have no workload in common that ended ok", *failed])


def _check_sets(name: str, baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame]) -> None:
    """Raise if a set is empty, or if a contender is the same runs as the baseline."""
    for other, runs in [(name, baseline), *sets.items()]:
        if not isinstance(runs, pd.DataFrame):
            raise UsageError(
                f"{other}: must be a table of runs, as Store.runs returns, not {runs!r}"
            )
        if runs.empty:
            raise NotEnoughRuns(f"{other}: no runs are selected")
    if len({*chain(*(is_simulated(runs) for runs in (baseline, *sets.values())))}) > 1:
        raise UsageError(
            "some of these runs are simulated, the others measured: they are not compared; "
            "select runs of one experiment"
        )
    for other, runs in sets.items():
        if "id" in runs and set(runs["id"]) == set(baseline["id"]):
            raise UsageError(
                f"{name} and {other} are the same {len(runs)} runs: select two different sets"
            )


def compare_experiment(
    runs: pd.DataFrame, experiment: str, *, baseline: str | None = None, **options: Any
) -> Comparison:
    """Compare the arms of an experiment."""
    if len(runs):
        runs = runs[runs["experiment"].fillna("").str.startswith(experiment)]
    if runs.empty:
        raise NotEnoughRuns(f"experiment {experiment!r} has no runs yet")
    runs = pair_workloads(runs)
    ids = sorted(set(runs["experiment"]))
    if len(ids) > 1:
        raise UsageError(
            f"{experiment!r} matches {len(ids)} experiments: use more characters of "
            f"{' or '.join(ids[:2])}"
        )
    arms = list(dict.fromkeys(runs.sort_values("order")["arm"]))
    if baseline is not None and baseline not in arms:
        hint = did_you_mean(baseline, arms, f"it has {', '.join(arms)}")
        raise UsageError(f"experiment {experiment!r} has no arm named {baseline!r}: {hint}")
    first = baseline or next((arm for arm in arms if arm != NULL_ARM), arms[0])
    others = [arm for arm in arms if arm not in (first, NULL_ARM)]
    sets = {arm: runs[runs["arm"] == arm] for arm in others}
    null = runs[runs["arm"] == NULL_ARM]
    if not sets and len(null):  # only the baseline and its null arm
        sets, null = {NULL_ARM: null}, null.iloc[:0]
    if not sets:
        raise NotEnoughRuns(f"experiment {experiment!r} has only the arm {first!r} so far")
    return compare(
        runs[runs["arm"] == first],
        sets,
        null=null if len(null) else None,
        names=(first, "contender"),
        **options,
    )


def _is_interleaved(tables: Sequence[pd.DataFrame]) -> bool:
    """Return whether all arms are from the same experiments, a run per workload and block."""
    experiments: set[frozenset[str]] = set()
    for table in tables:
        if table.empty:
            continue
        if "experiment" not in table or table["block"].isna().any():
            return False
        if valid_runs(table).duplicated(["workload", "experiment", "block"]).any():
            return False  # several runs in a block, such as those of the null arm
        experiments.add(frozenset(table["experiment"].fillna("")))
    return len(experiments) == 1 and "" not in next(iter(experiments))


def _number_blocks(tables: Sequence[pd.DataFrame]) -> tuple[list[pd.DataFrame], int]:
    """Return tables with blocks numbered through all experiments, and the number of blocks."""
    keys = []
    for table in tables:
        experiments = table["experiment"] if "experiment" in table else pd.Series("", table.index)
        names, blocks = experiments.fillna("").astype(str), table["block"].astype(int)
        keys.append(pd.DataFrame({"experiment": names, "block": blocks}))
    n_blocks = pd.concat(keys).groupby("experiment")["block"].max() + 1
    first = n_blocks.cumsum() - n_blocks
    numbered = [
        table.assign(block=first.reindex(key["experiment"]).to_numpy() + key["block"])
        for table, key in zip(tables, keys, strict=True)
    ]
    return numbered, int(n_blocks.sum())


def _frame(rows: Sequence[dict[str, Any]], effects: Effects, baseline: str) -> pd.DataFrame:
    """Return the table of a comparison, changed rows first."""
    frame = pd.DataFrame(
        [{k: v for k, v in row.items() if k not in ("points", "ids")} for row in rows]
    )
    frame["row"] = range(len(rows))
    levels = [
        _levels(row["points"], float(ratio)) for row, ratio in zip(rows, effects.ratio, strict=True)
    ]
    frame[["baseline", "contender_value"]] = levels
    for name in (
        *("own_q", "ratio", "low", "high", "p", "q", "needed", "selected_low", "selected_high"),
        *("hodges_lehmann", "null_moved", "n_baseline", "n_contender"),
    ):
        frame[name] = getattr(effects, name)
    null_columns = ["null_ratio", "null_low", "null_high"]
    frame[null_columns] = [_null_interval(row["points"]) for row in rows]
    frame["noise"] = [_noise(row["points"]) for row in rows]
    verdict = np.array(effects.verdict, dtype=object)
    is_time = (frame["metric"] == "duration").to_numpy()
    verdict[is_time & (verdict == effects.labels[0])] = "faster"
    verdict[is_time & (verdict == effects.labels[1])] = "slower"
    more = effects.ratio > 1
    lower, higher = frame["better"] == "lower", frame["better"] == "higher"
    worse = effects.changed & ((more & lower) | (~more & higher))
    fails_more = _fails_more(frame)
    # A deadline is a lower bound, so that equal deadlines of both arms do not show equal times.
    verdict[(frame["n_timeouts"] > 0) & (verdict == "same")] = "undecided"
    verdict[fails_more & ~worse] = "failed"
    frame["verdict"] = verdict.astype(str)
    frame["supported_by"] = _supporting_metrics(frame, effects)
    frame["changed"] = effects.changed & (frame["verdict"] != "failed")
    frame["worse"] = worse | fails_more
    frame["note"] = [
        "; ".join(filter(None, [*_row_notes(row, fails, supported_by, baseline), note]))
        for row, fails, supported_by, note in zip(
            rows, fails_more, frame["supported_by"], effects.notes, strict=True
        )
    ]
    frame["cause"] = ""
    rank = frame["verdict"].map(_ORDER).fillna(0)
    size = -np.abs(np.log(frame["ratio"].where(frame["ratio"] > 0)))
    order = pd.DataFrame({"rank": rank, "worse": ~frame["worse"], "size": size})
    return frame.loc[order.sort_values(["rank", "worse", "size"], kind="stable").index].reset_index(
        drop=True
    )


def _fails_more(frame: pd.DataFrame) -> pd.Series:
    """Return which contenders fail in a larger share of their runs than the baseline."""
    shares = [
        frame[f"n_failed_{side}"] / frame[f"n_attempts_{side}"].clip(lower=1)
        for side in ("baseline", "contender")
    ]
    return shares[1] > shares[0]


def _row_notes(
    row: Mapping[str, Any], fails_more: bool, supported_by: str, baseline: str
) -> list[str]:
    """Return notes about failed runs, runs that reached their deadline, and supporting metrics."""
    notes = []
    if fails_more:
        notes.append(
            f"{row['contender']} fails more often: {row['n_failed_contender']} of "
            f"{row['n_attempts_contender']} runs, {baseline} {row['n_failed_baseline']} of "
            f"{row['n_attempts_baseline']}"
        )
    if row["n_timeouts"]:
        runs = counted(row["n_timeouts"], "run")
        notes.append(f"{runs} reached the deadline, which counts as the least duration")
    if supported_by:
        notes.append(f"supported by {supported_by}")
    return notes


def _supporting_metrics(frame: pd.DataFrame, effects: Effects) -> list[str]:
    """Return for each row that is listed for joint evidence the metrics that support it."""
    supporting = [""] * len(frame)
    if effects.joint is None:
        return supporting
    evidence = effects.joint.log_evidence
    places = frame.groupby(["contender", "workload"]).indices
    listed = effects.changed & (effects.own_q > 1 - effects.level)
    for row in np.flatnonzero(listed).tolist():
        members = places[frame["contender"][row], frame["workload"][row]]
        others = [place for place in members if place != row and evidence[place] > SUPPORTS]
        others.sort(key=lambda place: -evidence[place])
        supporting[row] = ", ".join(frame["metric"][place] for place in others)
    return supporting


def _levels(points: Mapping[str, np.ndarray], ratio: float) -> tuple[float, float]:
    """Return the levels of baseline and contender whose quotient is the ratio of the statistics.

    Medians would contradict the ratio in sign if arms are noisy or the null arm differs. A ratio
    of means (runs with values of 0) is that of arithmetic means; without a ratio both are means.
    """
    arms = [points["baseline"], points.get("null", np.zeros(0))]
    sides = [np.concatenate(arms), points["contender"]]
    sides = [values[np.isfinite(values)] for values in sides]
    if (np.concatenate(sides) > 0).all():
        means = [float(np.exp(np.log(side).mean())) if len(side) else math.nan for side in sides]
    else:
        means = [float(side.mean()) if len(side) else math.nan for side in sides]
    return means[0], means[0] * ratio if means[0] and math.isfinite(ratio) else means[1]


def _noise(points: Mapping[str, np.ndarray]) -> float:
    """Return the coefficient of variation of a run, pooled over arms; NaN for too few runs."""
    squares, df = 0.0, 0
    for values in points.values():
        positive = values[np.isfinite(values) & (values > 0)]
        if len(positive) > 1:
            squares += float(np.log(positive).var(ddof=1)) * (len(positive) - 1)
            df += len(positive) - 1
    return math.sqrt(math.expm1(squares / df)) if df > 1 else math.nan


def _null_interval(points: Mapping[str, np.ndarray]) -> tuple[float, float, float]:
    """Return the ratio of null arm to baseline and its interval: Welch's t on logarithms."""
    sides = [points.get(arm, np.zeros(0)) for arm in ("baseline", "null")]
    sides = [values[np.isfinite(values)] for values in sides]
    if any(len(side) < 2 or (side <= 0).any() for side in sides):
        return math.nan, math.nan, math.nan
    change, half = (float(x) for x in mean_difference(np.log(sides[0]), np.log(sides[1])))
    return math.exp(change), math.exp(change - half), math.exp(change + half)
