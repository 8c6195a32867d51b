"""Compare tables of runs, workload by workload, and return a `Comparison`.

Tables have the columns of `Store.runs`. This module selects the valid runs, assigns them to rows,
arms and blocks, and warns of differences between them; `benchkit.analysis.effects` computes
the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.headline import BUSY_SHARE, WORK_METRICS
from benchkit.analysis.effects import compare as compare_arrays
from benchkit.analysis.metric_limits import metric_limits, newest_definitions, quality_warnings
from benchkit.analysis.metric_names import check_metrics, define_own_metrics
from benchkit.analysis.run.baseline import SAME_MEMORY, is_simulated
from benchkit.analysis.stats.equal_load import at_equal_load
from benchkit.analysis.stats.verdicts import Effects
from benchkit.analysis.stats.welch import mean_difference
from benchkit.errors import NotEnoughRuns, UsageError, did_you_mean
from benchkit.formatting import counted
from benchkit.store.filters import pair_workloads
from benchkit.store.schema import METRICS

#: Metrics that have a cause, see `benchkit.analysis.compare.explain.with_causes`.
EXPLAINED_METRICS = ("duration", "memory_mean", "memory_peak")
DEFAULT_METRICS = (*EXPLAINED_METRICS, *WORK_METRICS)
#: Smallest share of a process in the CPU seconds of a workload with which its work is judged: a
#: change by a tenth of a smaller part is less than .5 % of the work.
MIN_WORK_SHARE = 0.05
NULL_ARM = "null"
#: Metric of the load: what other programs left of the machine.
WAIT_SHARE = "processor_wait_share"
#: Smallest log likelihood ratio of a change with which a metric supports the others.
SUPPORTS = 1.0
#: Verdict -> position in the table; changes come first.
_ORDER = {"noise": 1, "undecided": 2, "same": 3}
#: Outcomes that say nothing about the workload.
_NOT_ATTEMPTED = ("skipped", "infrastructure")
#: Columns that make two sets of runs incomparable when they differ -> name in a warning.
_MACHINE_COLUMNS = {
    "host": "machine",
    "n_threads": "number of threads",
    "memory_limit": "memory limit",
}


class _Row(NamedTuple):
    """The runs of a workload in two arms, and their values of one metric."""

    contender: str
    workload: str
    metric: str
    unit: str
    better: str
    n_failed_baseline: int  # n_failed, n_attempts: With those of the null arm
    n_attempts_baseline: int
    n_failed_contender: int
    n_attempts_contender: int
    n_timeouts: int
    n_disturbed: int  # Runs in which other programs disturbed the metric
    points: dict[str, np.ndarray]  # points, ids: Values and run ids by arm
    ids: dict[str, np.ndarray]
    # Values that are tested: CPU seconds of disturbed runs are compared at equal load.
    tested: Mapping[str, np.ndarray]


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
    sets = dict(contender) if isinstance(contender, Mapping) else {names[1]: contender}
    define_own_metrics(baseline, *sets.values())
    chosen = check_metrics(metrics)
    _check_sets(names[0], baseline, sets)
    repeated: list[str] = []
    if null is None:
        baseline, null = _without_null_arm(baseline)
        for other, runs in sets.items():
            sets[other], more = _without_null_arm(runs)
            if more is not None:  # a null arm of another baseline
                text = f"{counted(len(more), 'run')} of {other} left out: the null arm repeats it"
                repeated.append(text)
    tables = [baseline, *sets.values(), *([null] if null is not None else [])]
    tables, limits = newest_definitions(tables, chosen)
    if blocked is None:
        blocked = _is_interleaved(tables)
    n_blocks = None
    simulated = bool(is_simulated(baseline).all())
    if blocked:
        if any(table["block"].isna().any() for table in tables):
            raise UsageError("blocked=True: not all runs have a block; see `benchkit.interleave`")
        tables, n_blocks = _number_blocks(tables)
    baseline, sets = tables[0], dict(zip(sets, tables[1:], strict=False))
    null = None if null is None else tables[-1]
    limits += quality_warnings({names[0]: baseline, **sets}, chosen)
    refused = {
        **_skipped(names[0], baseline, sets),
        **_without_tasks(names[0], baseline, sets),
    }
    rows = _build_rows(baseline, sets, null, chosen, n_blocks, refused)
    if not rows:
        reasons = list(refused.values())
        raise NotEnoughRuns("; ".join(reasons) or _why_no_rows(names[0], baseline, sets, null))
    effects = compare_arrays(
        stack([row.tested["baseline"] for row in rows]),
        stack([row.tested["contender"] for row in rows]),
        null=None if null is None else stack([row.tested["null"] for row in rows]),
        blocked=blocked,
        paired=blocked and simulated,
        family=[row.metric for row in rows],
        workload=[f"{row.contender}\n{row.workload}" for row in rows],
        level=level,
        same=same,
    )
    frame = _frame(rows, effects, names[0])
    warnings = [text for text in effects.warnings if "have no value" not in text]
    if simulated:  # draws have no noise: an experiment with one of them has a verdict
        warnings = []
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
            *refused.values(),
            *repeated,
            *_warnings(baseline, sets, null, name=names[0], blocked=blocked),
        ),
        level=level,
        same=same,
        _points={index: row.points for index, row in enumerate(rows)},
        _ids={index: row.ids for index, row in enumerate(rows)},
    )


def _without_null_arm(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the runs of a set without those of a null arm, and these."""
    # A selection by parameters contains both arms that measured the baseline of an experiment.
    is_null = runs["arm"] == NULL_ARM if "arm" in runs else pd.Series(False, runs.index)
    if not is_null.any() or is_null.all():
        return runs, None
    return runs[~is_null], runs[is_null]


def _why_no_rows(
    name: str, baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame], null: pd.DataFrame | None
) -> str:
    """Return why no workload can be compared: none in common, or none that ended ok."""
    arms = f"{name} and {', '.join(sets)}"
    measured = set(baseline["workload"])
    if not any(measured & set(runs["workload"]) for runs in sets.values()):
        return f"{arms} have no workload in common"
    reasons = _warnings(baseline, sets, null, name=name, blocked=True)
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
        if _valid_runs(table).duplicated(["workload", "experiment", "block"]).any():
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


def _valid_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that the statistics use."""
    runs = _comparable(runs)
    return runs if runs.empty else runs[runs["outcome"] == "ok"]


def _without_tasks(
    name: str, baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame]
) -> dict[tuple[str, str], str]:
    """Return the contenders and workloads of which one side has no task in any run, and why."""
    refused = {}
    for contender, runs in sets.items():
        sides = {name: baseline, contender: runs}
        if not all("n_tasks" in side for side in sides.values()):
            continue
        tasks = {arm: _valid_runs(side).groupby("workload")["n_tasks"].max()
                 for arm, side in sides.items()}  # fmt: skip
        for arm, other in ((name, contender), (contender, name)):
            empty = tasks[arm].index[(tasks[arm] == 0).to_numpy(bool)]
            for workload in empty.intersection(tasks[other].index[tasks[other].gt(0)]):
                refused[contender, str(workload)] = (
                    f"{workload} is not compared: no task of {arm} was captured: it did not use "
                    "this cluster, or its results were there before"
                )
    return refused


def _skipped(
    name: str, baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame]
) -> dict[tuple[str, str], str]:
    """Return the contenders and workloads that only one side skipped in every run, and why."""
    refused = {}
    for contender, runs in sets.items():
        sides = [(name, _by_workload(baseline)), (contender, _by_workload(runs))]
        for (arm, own), (_, other) in (sides, sides[::-1]):
            for workload in own.keys() & other.keys():
                if set(own[workload]["outcome"]) == {"skipped"} != set(other[workload]["outcome"]):
                    reasons = own[workload].get("error", pd.Series(dtype=str)).dropna()
                    reason = f": {reasons.iloc[0]}" if len(reasons) else ""
                    refused[contender, workload] = f"{workload}: {arm} skipped it{reason}"
    return dict(sorted(refused.items()))


def _build_rows(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    metrics: Sequence[str],
    n_blocks: int | None,
    refused: Container[tuple[str, str]],
) -> list[_Row]:
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
            if (name, workload) in refused:
                continue
            arm_runs = {arm: runs.get(workload, empty) for arm, runs in arms.items()}
            counts = _outcome_counts(arm_runs)
            disturbed = [metric_limits(runs, "disturbed") for runs in arm_runs.values()]
            n_runs = sum(map(len, arm_runs.values()))
            is_busy = sum(notes["duration"] for notes in disturbed) >= max(BUSY_SHARE * n_runs, 1)
            wait_shares = {
                arm: _values(runs[runs["outcome"] == "ok"], WAIT_SHARE, n_blocks)[0]
                for arm, runs in arm_runs.items()
            }
            for metric in _judged(metrics, arm_runs):
                sides = {
                    arm: _values(_measured(runs, metric), metric, n_blocks)
                    for arm, runs in arm_runs.items()
                }
                compared = (sides["baseline"], sides["contender"])
                if not any(np.isfinite(values).any() for values, _ in compared):
                    continue
                points = {arm: values for arm, (values, _) in sides.items()}
                tested: Mapping[str, np.ndarray] = points
                if metric in WORK_METRICS and n_blocks is not None and is_busy:
                    tested = at_equal_load(points, wait_shares)
                rows.append(
                    _Row(
                        contender=name,
                        workload=workload,
                        metric=metric,
                        unit=METRICS[metric].units,
                        better=METRICS[metric].better,
                        **counts,
                        n_timeouts=_n_timeouts(arm_runs, metric),
                        n_disturbed=sum(notes[metric] for notes in disturbed),
                        points=points,
                        ids={arm: ids for arm, (_, ids) in sides.items()},
                        tested=tested,
                    )
                )
    return rows


def _judged(metrics: Sequence[str], arm_runs: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the metrics without those of work that a side lacks, or that are a small part of it.

    Only if all metrics of work are compared: a user who asks for one gets it.
    """
    if not set(WORK_METRICS) <= set(metrics):
        return list(metrics)
    ok = [arm_runs[arm] for arm in ("baseline", "contender")]
    ok = [runs[runs["outcome"] == "ok"].reindex(columns=list(WORK_METRICS)) for runs in ok]
    means = pd.DataFrame([runs.astype(float).mean() for runs in ok])
    small = means.max() < MIN_WORK_SHARE * means.sum(axis=1).max()
    left_out = small | means.isna().any()
    return [name for name in metrics if name not in WORK_METRICS or not left_out[name]]


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


def _n_timeouts(arm_runs: Mapping[str, pd.DataFrame], metric: str) -> int:
    if metric != "duration":
        return 0
    return int(sum(_timed_out(runs).sum() for runs in arm_runs.values()))


def _outcome_counts(arm_runs: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return the numbers of failed and of all attempted runs by side."""
    counts = {}
    for side, arms in (("baseline", ("baseline", "null")), ("contender", ("contender",))):
        outcomes = pd.concat([arm_runs[arm]["outcome"] for arm in arms if arm in arm_runs])
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


def _frame(rows: Sequence[_Row], effects: Effects, baseline: str) -> pd.DataFrame:
    """Return the table of a comparison, changed rows first."""
    frame = pd.DataFrame(rows).drop(columns=["points", "ids", "tested"])
    frame["row"] = range(len(rows))
    levels = [
        _levels(row.points, float(ratio)) for row, ratio in zip(rows, effects.ratio, strict=True)
    ]
    frame[["baseline", "contender_value"]] = levels
    for name in (
        *("own_q", "ratio", "low", "high", "p", "q", "needed", "selected_low", "selected_high"),
        *("hodges_lehmann", "null_moved", "n_baseline", "n_contender"),
    ):
        frame[name] = getattr(effects, name)
    null_columns = ["null_ratio", "null_low", "null_high"]
    frame[null_columns] = [_null_interval(row.points) for row in rows]
    frame["noise"] = [_noise(row.points) for row in rows]
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


def _row_notes(row: _Row, fails_more: bool, supported_by: str, baseline: str) -> list[str]:
    """Return notes about failed runs, runs that reached their deadline, and supporting metrics."""
    notes = []
    if fails_more:
        notes.append(
            f"{row.contender} fails more often: {row.n_failed_contender} of "
            f"{row.n_attempts_contender} runs, {baseline} {row.n_failed_baseline} of "
            f"{row.n_attempts_baseline}"
        )
    if row.n_timeouts:
        runs = counted(row.n_timeouts, "run")
        notes.append(f"{runs} reached the deadline, which counts as the least duration")
    if row.tested is not row.points:
        notes.append("at equal load: runs that wait for a processor use more CPU seconds")
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


def _warnings(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    *,
    name: str,
    blocked: bool,
) -> list[str]:
    """Return warnings about the runs of a comparison."""
    nulls = {} if null is None else {NULL_ARM: null}
    warnings = []
    for arm, runs in {name: baseline, **sets, **nulls}.items():
        if runs.empty:
            continue
        failed = runs.loc[runs["outcome"] != "ok", "outcome"].value_counts()
        if len(failed):
            counts = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in failed.items())
            warnings.append(
                f"{failed.sum()} of {len(runs)} runs of {arm} left out: {counts}"
                + ("; the duration of a timeout counts as its deadline" * ("timeout" in failed))
            )
    if not blocked:
        warnings.append(
            "these runs were not interleaved: on a machine whose speed changes, up to a third of "
            "the unchanged rows are called changed; `benchkit ab` interleaves the arms"
        )
    for contender, runs in sets.items():
        measured = {name: set(baseline["workload"]), contender: set(runs["workload"])}
        for arm, other in ((name, contender), (contender, name)):
            only = sorted(measured[arm] - measured[other])
            if only:
                workloads = ", ".join(only[:3]) + (", ..." if len(only) > 3 else "")
                count = counted(len(only), "workload")
                warnings.append(f"{count} measured in {arm} only, not compared: {workloads}")
        for column, label in _MACHINE_COLUMNS.items():
            if column not in baseline or column not in runs:
                continue
            sides = [set(table[column].dropna()) for table in (baseline, runs)]
            values = sides[0] | sides[1]
            if column == "memory_limit" and values:
                if max(values) <= (1 + SAME_MEMORY) * min(values):
                    continue
            if all(sides) and sides[0] != sides[1]:
                texts = [", ".join(sorted(map(str, side))[:3]) for side in sides]
                warnings.append(f"{label}: {texts[0]} for {name}, {texts[1]} for {contender}")
    return warnings
