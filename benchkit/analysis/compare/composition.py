"""Compare what runs consist of: shares, seconds, tasks and bytes of their task groups.

A group that becomes slower stands out more in its share of the thread-seconds than in the duration,
because a slow machine makes all groups slower. Takes totals of task groups; returns a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.compare.compare_runs import stack
from benchkit.analysis.compare.group_cells import (
    EXACT_RUNS,
    MIN_SHARE,
    UNITS,
    ExactChange,
    GroupCells,
    GroupRuns,
    amounts,
    exact_change,
)
from benchkit.analysis.effects import Effects, adjust
from benchkit.analysis.effects import compare as compare_arrays

__all__ = ["SHARES", "compare_groups"]

#: Largest number of groups of a workload that are found one after the other.
MAX_FOUND = 5
#: Shares that are tested, and of what they are: of thread-seconds, and of processor time, which
#: other programs on the machine change less.
SHARES = {"group_share": "seconds", "group_cpu_share": "cpu"}
Array = NDArray[np.float64]


def compare_groups(
    groups: Sequence[GroupRuns], *, blocked: bool = False, level: float = 0.95
) -> pd.DataFrame:
    """Compare the task groups of workloads in two arms.

    Notes
    -----
    Shares are tested as log-odds. Workloads are tested first, by Simes' combination of their groups
    and Benjamini-Hochberg; within the R of W found workloads, groups at level ``(1 - level) R / W``
    [1]_. Groups are found one after the other: of those that pass the test, the one whose seconds
    changed most in comparison with the median group; then shares are those of the rest, so that a
    group that grows does not make the others look smaller. Counts and bytes that have one
    value in all runs of each arm are exact: they differ or they are the same, without statistics.
    Groups are matched as in `benchkit.analysis.compare.explain.explain`.

    References
    ----------
    .. [1] Y. Benjamini, M. Bogomolov, "Selective inference on multiple families of hypotheses",
       J. R. Stat. Soc. B 76 (2014).
    """
    cells = [GroupCells.of(each) for each in groups]
    columns = ["contender", "workload", "group", "metric", "unit", "baseline", "contender_value"]
    columns += ["ratio", "low", "high", "p", "q", "exact", "verdict"]
    rows = _share_rows(cells, blocked=blocked, level=level)
    found = {(row["contender"], row["workload"], row["group"])
             for row in rows if row["verdict"] in ("more", "less")}  # fmt: skip
    rows += _amount_rows(cells, found, blocked=blocked, level=level)
    frame = pd.DataFrame(rows, columns=columns)
    changed = frame["verdict"].isin(["more", "less"])
    size = np.abs(np.log(frame["ratio"].where(frame["ratio"] > 0).astype(float)))
    measure = frame["metric"].map({name: place for place, name in enumerate(UNITS)})
    order = pd.DataFrame({"changed": ~changed, "measure": measure, "size": -size})
    order = order.sort_values(["changed", "measure", "size"], kind="stable")
    return frame.loc[order.index].reset_index(drop=True)


def _share_rows(
    cells: Sequence[GroupCells], *, blocked: bool, level: float
) -> list[dict[str, Any]]:
    """Return the rows of shares, found one after the other within each workload."""
    shares = [
        {
            metric: [
                cell.mean_shares(arm, getattr(cell, field)) for arm in ("baseline", "contender")
            ]
            for metric, field in SHARES.items()
        }
        for cell in cells
    ]
    remaining = [np.flatnonzero(np.minimum(*row["group_share"]) >= MIN_SHARE) for row in shares]
    rows: dict[tuple[int, int, str], dict[str, Any]] = {}
    alpha = np.zeros(len(cells))
    searched = set(range(len(cells)))
    for step in range(MAX_FOUND):
        keys = [
            (w, group, metric)
            for w in searched
            for group in remaining[w].tolist()
            for metric, pair in shares[w].items()
            if len(remaining[w]) > 1 and min(pair[0][group], pair[1][group]) >= MIN_SHARE
        ]
        if not keys:
            break
        effects = _compare(
            [_odds(getattr(cells[w], SHARES[m]), remaining[w], group) for w, group, m in keys],
            blocked=blocked,
            level=level,
            family=[metric for *_, metric in keys],
        )
        p = np.where(effects.verdict == "noise", np.nan, effects.p)
        places: dict[int, list[int]] = {}
        for place, (w, *_) in enumerate(keys):
            if np.isfinite(p[place]):
                places.setdefault(w, []).append(place)
        if not step:
            alpha, q = _workload_levels(p, places, len(cells), level)
        for place, (w, group, metric) in enumerate(keys):
            n_tests = len(places.get(w, []))
            own_q = min(1.0, p[place] * n_tests * (1 - level) / alpha[w]) if alpha[w] else 1.0
            rows[w, group, metric] = cells[w].row(
                cells[w].names[group],
                metric,
                **_share_values(shares[w][metric][0][group], effects, place),
                p=p[place],
                q=max(own_q, q[w]) if np.isfinite(p[place]) else np.nan,
                verdict="undecided",
            )
        for w in list(searched):
            own = places.get(w, [])
            listed = [place for place in own if p[place] * len(own) <= alpha[w]]
            if not listed:
                searched.discard(w)
                continue
            distances = {
                metric: cells[w].distances(remaining[w], getattr(cells[w], field))
                for metric, field in SHARES.items()
                if any(keys[place][2] == metric for place in listed)
            }
            first = max(listed, key=lambda place: distances[keys[place][2]][keys[place][1]])
            group = keys[first][1]
            for place in listed:
                if keys[place][1] == group:
                    rows[keys[place]]["verdict"] = _verdict(True, effects.ratio[place])
            remaining[w] = remaining[w][remaining[w] != group]
    return list(rows.values())


def _odds(
    seconds: Mapping[str, Array], remaining: NDArray[np.int64], group: int
) -> dict[str, Array]:
    """Return the odds of a group against the others that remain, by arm."""
    odds = {}
    for arm, values in seconds.items():
        rest = values[remaining].sum(axis=0) - values[group]
        positive = (rest > 0) & (values[group] > 0)
        odds[arm] = np.where(positive, values[group] / np.where(positive, rest, 1.0), np.nan)
    return odds


def _share_values(share: float, effects: Effects, place: int) -> dict[str, float]:
    """Return the shares that follow from the mean share of the baseline and the ratio of odds."""

    def after(ratio: float) -> float:
        return share * ratio / (1 - share + share * ratio)

    ratios = {
        "ratio": effects.ratio[place],
        "low": effects.selected_low[place],
        "high": effects.selected_high[place],
    }
    values = {name: after(float(ratio)) / share for name, ratio in ratios.items()}
    return {"baseline": float(share), "contender_value": share * values["ratio"], **values}


def _amount_rows(
    cells: Sequence[GroupCells],
    found: Collection[tuple[str, str, str]],
    *,
    blocked: bool,
    level: float,
) -> list[dict[str, Any]]:
    """Return the rows of seconds and bytes per task and of numbers of tasks.

    Seconds per task are tested in the groups found by their share: the speed of the machine changes
    those of all groups of a run.
    """
    rows: list[dict[str, Any]] = []
    tested: list[tuple[int, str, str, dict[str, Array]]] = []
    for w, cell in enumerate(cells):
        for group, metric, values in amounts(cell):
            exact = _exact_change(metric, values)
            if exact is None:
                tested.append((w, group, metric, values))
                continue
            numbers = dict(zip(("baseline", "contender_value", "ratio"), exact, strict=True))
            verdict = "same" if exact.ratio == 1 else _verdict(True, exact.ratio)
            rows.append(cell.row(group, metric, **numbers, exact=True, verdict=verdict))
    if not tested:
        return rows
    effects = _compare(
        [values for *_, values in tested],
        blocked=blocked,
        level=level,
        family=[metric for _, _, metric, _ in tested],
    )
    p = np.where(effects.verdict == "noise", np.nan, effects.p)
    about = [(w, group, metric, cells[w].about) for w, group, metric, _ in tested]
    q = _hierarchical_q(about, p, found, len(cells), level)
    for place, (w, group, metric, values) in enumerate(tested):
        base, ratio = float(np.nanmean(values["baseline"])), float(effects.ratio[place])
        rows.append(
            cells[w].row(
                group,
                metric,
                baseline=base,
                contender_value=base * ratio if base else float(np.nanmean(values["contender"])),
                ratio=ratio,
                low=effects.low[place],
                high=effects.high[place],
                p=p[place],
                q=q[place],
                verdict=_verdict(bool(q[place] <= 1 - level), ratio),
            )
        )
    return rows


def _exact_change(metric: str, values: Mapping[str, Array]) -> ExactChange | None:
    """Return the exact change of a number; runs of the null arm are of the baseline."""
    if metric not in EXACT_RUNS:
        return None
    before = np.concatenate([values["baseline"], values.get("null", np.zeros(0))])
    return exact_change(metric, before, values["contender"], min_runs=EXACT_RUNS[metric])


def _hierarchical_q(
    tested: Sequence[tuple[int, str, str, GroupRuns]],
    p: Array,
    found: Collection[tuple[str, str, str]],
    n_workloads: int,
    level: float,
) -> Array:
    """Return q of amounts: within found workloads; of seconds per task, within found groups."""
    q = np.full(len(tested), np.nan)
    places: dict[int, list[int]] = {}
    times, times_found = [], []
    for place, (w, group, metric, about) in enumerate(tested):
        if metric != "group_task_time":
            places.setdefault(w, []).append(place)
            continue
        times.append(place)
        if (about.contender, about.workload, group) in found:
            times_found.append(place)
    # Selected by another test: their level is that of the share of the groups that it found.
    q[times_found] = np.minimum(p[times_found] * len(times) / max(len(times_found), 1), 1.0)
    alpha, workload_q = _workload_levels(p, places, n_workloads, level)
    for w, own in places.items():
        within = adjust(p[own], "fdr_bh")
        if alpha[w]:
            within = within * (1 - level) / alpha[w]
        q[own] = np.clip(within, workload_q[w], 1.0)
    return q


def _compare(
    rows: Sequence[Mapping[str, Array]], *, blocked: bool, level: float, family: Any = None
) -> Effects:
    """Compare rows of values by arm, padded to the same number of runs."""
    has_null = all("null" in row for row in rows)
    return compare_arrays(
        stack([row["baseline"] for row in rows]),
        stack([row["contender"] for row in rows]),
        null=stack([row["null"] for row in rows]) if has_null else None,
        blocked=blocked,
        family=family,
        level=level,
    )


def _workload_levels(
    p: Array, places: Mapping[int, Sequence[int]], n_workloads: int, level: float
) -> tuple[Array, Array]:
    """Return the level of the tests within each workload (0: not found), and its own q."""
    combined = np.full(n_workloads, np.nan)
    for w, own in places.items():
        known = np.sort(p[own][np.isfinite(p[own])])
        if known.size:
            combined[w] = (known * known.size / np.arange(1, known.size + 1)).min()
    q = np.nan_to_num(adjust(combined, "fdr_bh"), nan=1.0)
    is_found = q <= 1 - level
    n_tested = max(int(np.isfinite(combined).sum()), 1)
    return np.where(is_found, (1 - level) * is_found.sum() / n_tested, 0.0), q


def _verdict(changed: bool, ratio: float) -> str:
    return ("more" if ratio > 1 else "less") if changed else "undecided"
