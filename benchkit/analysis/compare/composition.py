"""Compare what runs consist of: shares, seconds, tasks and bytes of their task groups.

A group that becomes slower stands out more in its share of the thread-seconds than in the duration,
because a slow machine makes all groups slower. Takes totals of task groups; returns a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.compare.compare_runs import stack
from benchkit.analysis.compare.group_totals import GroupTotals, renamed_groups
from benchkit.analysis.effects import adjust
from benchkit.analysis.effects import compare as compare_arrays
from benchkit.analysis.stats.verdicts import Effects

#: Smallest share of the thread-seconds with which a group is tested: the time of smaller groups is
#: that of few samples of the clock.
MIN_SHARE = 0.005
#: Group of a row about the whole run.
WHOLE_RUN = ""
#: Measure -> unit.
UNITS = {
    "group_share": "1",
    "group_cpu_share": "1",
    "group_task_time": "s",
    "group_task_cpu": "s",
    "group_task_bytes": "B",
    "group_tasks": "1",
    "graph_tasks": "1",
    "graph_bytes": "B",
    "run_transfers": "1",
    "run_transfer_bytes": "B",
}
#: Smallest number of runs a side that show that a number is exact.
EXACT_RUNS = {
    "group_tasks": 2,
    "group_task_bytes": 3,
    "graph_tasks": 2,
    "graph_bytes": 3,
    # Transfers depend on the order of events: three runs often have the same number by chance.
    "run_transfers": 5,
    "run_transfer_bytes": 5,
}
#: Largest relative difference of two exact numbers that are the same: of numbers of tasks, and of
#: bytes, which Dask estimates, or which contain random names.
SAME = {metric: 0.001 if UNITS[metric] == "B" else 0.0 for metric in EXACT_RUNS}

Totals = Mapping[str, GroupTotals]


class ExactChange(NamedTuple):
    """A number of two sets of runs that has one value in each."""

    before: float
    after: float
    ratio: float  # Of after to before: 1 if they are the same, infinity from zero


@dataclass(frozen=True)
class GroupRuns:
    """Totals of the task groups of a workload, in the runs of two arms."""

    workload: str  # workload, contender: The row of the comparison
    contender: str
    # For `baseline`, `contender` and, if there is one, `null`: the totals of each run, None where a
    # run is missing. Element i is from block i if runs are compared within blocks.
    arms: Mapping[str, Sequence[Totals | None]]
    # By the same arms the amounts of the whole run, as `run_amounts` returns them; empty if
    # unknown.
    amounts: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)


class GroupChange(NamedTuple):
    """A measure of a task group, or of a whole run, in two arms: a row of the composition."""

    contender: str
    workload: str
    group: str  # `WHOLE_RUN`: of the whole run
    metric: str  # A name of `UNITS`
    unit: str
    baseline: float  # baseline, contender_value: Values of the arms
    contender_value: float
    ratio: float  # Of contender to baseline, with its interval `low` to `high`
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan  # p, q: NaN if it was not tested
    q: float = np.nan
    exact: bool = False  # Whether the value is the same in all runs of an arm
    verdict: str = "undecided"  # Or "more", "less" or "same"


@dataclass(frozen=True)
class GroupCells:
    """Values of the task groups of a workload."""

    about: GroupRuns  # The workload and its runs
    names: list[str]  # Names of the groups
    # seconds, n_tasks, nbytes, cpu: Values by arm, shape (groups, runs); NaN where a run is
    # missing.
    seconds: dict[str, Array]
    n_tasks: dict[str, Array]
    nbytes: dict[str, Array]
    cpu: dict[str, Array]

    @classmethod
    def of(cls, groups: GroupRuns) -> GroupCells:
        """Return the arrays of a workload, with groups of other names in an arm joined."""
        sides = {arm: [run for run in runs if run] for arm, runs in groups.arms.items()}
        renamed: dict[str, str] = {}
        if sides["baseline"] and sides["contender"]:
            counts = [
                {name: t.n_tasks for name, t in sides[arm][-1].items() if t.n_tasks}
                for arm in ("baseline", "contender")
            ]
            renamed = renamed_groups(*counts)
        names = sorted({renamed.get(n, n) for runs in sides.values() for run in runs for n in run})
        place = {name: index for index, name in enumerate(names)}
        arrays = {
            arm: np.full((4, len(names), len(runs)), np.nan) for arm, runs in groups.arms.items()
        }
        for arm, runs in groups.arms.items():
            for column, run in enumerate(runs):
                if run is None:
                    continue
                arrays[arm][:, :, column] = 0.0  # a group that a run lacks has no tasks
                for name, total in run.items():
                    arrays[arm][:, place[renamed.get(name, name)], column] = total
        parts = [{arm: array[i] for arm, array in arrays.items()} for i in range(4)]
        return cls(groups, names, *parts)

    def mean_shares(self, arm: str, seconds: Mapping[str, Array]) -> Array:
        """Return the mean share of each group in the seconds of its run."""
        # returned: (groups,), 0 without runs.
        values = seconds[arm][:, np.isfinite(seconds[arm]).all(axis=0)]
        total = values.sum(axis=0)
        if not values.size or not (total > 0).any():
            return np.zeros(len(self.names))
        shares: Array = (values[:, total > 0] / total[total > 0]).mean(axis=1)
        return shares

    def distances(
        self, members: NDArray[np.int64], seconds: Mapping[str, Array]
    ) -> dict[int, float]:
        """Return by how much the seconds of groups changed more than those of the median group."""
        # returned: Absolute difference of logarithms by position.
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = {arm: np.log(seconds[arm][members]) for arm in ("baseline", "contender")}
        finite = [np.ma.masked_invalid(values) for values in logs.values()]
        change = np.ma.filled(finite[1].mean(axis=1) - finite[0].mean(axis=1), np.nan)
        # Two groups are equally far from their median: the larger change comes first.
        distance = np.abs(change - np.nanmedian(change)) + 1e-6 * np.abs(change)
        return dict(zip(members.tolist(), distance.tolist(), strict=True))

    def row(
        self, group: str, metric: str, before: float, after: float, ratio: float, **more: Any
    ) -> GroupChange:
        """Return the row of the table about a group: values of both arms, their ratio, and more."""
        about = (self.about.contender, self.about.workload, group, metric, UNITS[metric])
        return GroupChange(*about, before, after, ratio, **more)


def amounts(cell: GroupCells) -> list[tuple[str, str, dict[str, Array]]]:
    """Return the amounts of a workload that are not shares."""
    shares = np.maximum(*(cell.mean_shares(arm, cell.seconds) for arm in ("baseline", "contender")))
    if not cell.names:
        return []
    result = [(WHOLE_RUN, "group_tasks", {a: n.sum(axis=0) for a, n in cell.n_tasks.items()})]
    run_amounts = cell.about.amounts
    for metric in ("graph_tasks", "graph_bytes", "run_transfers", "run_transfer_bytes"):
        values = {
            arm: np.array([run.get(metric, np.nan) for run in runs])
            for arm, runs in run_amounts.items()
        }
        result.append((WHOLE_RUN, metric, values))
    for index, name in enumerate(cell.names):
        counts = {arm: values[index] for arm, values in cell.n_tasks.items()}
        result.append((name, "group_tasks", counts))
        per_task = {
            "group_task_time": cell.seconds if shares[index] >= MIN_SHARE else {},
            "group_task_cpu": cell.cpu if shares[index] >= MIN_SHARE else {},
            "group_task_bytes": cell.nbytes,
        }
        for metric, arrays in per_task.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                values = {arm: array[index] / counts[arm] for arm, array in arrays.items()}
            values = {arm: np.where(np.isfinite(v), v, np.nan) for arm, v in values.items()}
            result.append((name, metric, values))
    return [
        (group, metric, values)
        for group, metric, values in result
        if values and all(np.isfinite(values[arm]).any() for arm in ("baseline", "contender"))
    ]


def exact_change(
    metric: str, before: Array, after: Array, *, min_runs: int, min_change: float = 0.0
) -> ExactChange | None:
    """Return the change of a number that is the same in all runs of a set, if it is one of each."""
    # min_runs: Smallest number of runs of each set; runs without a value (NaN) do not count.
    # min_change: Relative change up to which the two are the same, if larger than `SAME`.
    sides = [side[np.isfinite(side)] for side in (before, after)]
    if metric not in SAME or min(side.size for side in sides) < min_runs:
        return None
    if any(np.ptp(side) > SAME[metric] * np.abs(side).max() for side in sides):
        return None
    old, new = (float(side[0]) for side in sides)
    if abs(new - old) <= max(SAME[metric], min_change) * max(old, new):
        return ExactChange(old, new, 1.0)
    return ExactChange(old, new, new / old if old else np.inf)


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
    rows = _share_rows(cells, blocked=blocked, level=level)
    found = {(row.contender, row.workload, row.group)
             for row in rows if row.verdict in ("more", "less")}  # fmt: skip
    rows += _amount_rows(cells, found, blocked=blocked, level=level)
    frame = pd.DataFrame(rows, columns=GroupChange._fields)
    changed = frame["verdict"].isin(["more", "less"])
    size = np.abs(np.log(frame["ratio"].where(frame["ratio"] > 0).astype(float)))
    measure = frame["metric"].map({name: place for place, name in enumerate(UNITS)})
    order = pd.DataFrame({"changed": ~changed, "measure": measure, "size": -size})
    order = order.sort_values(["changed", "measure", "size"], kind="stable")
    return frame.loc[order.index].reset_index(drop=True)


class _ShareTest(NamedTuple):
    """The test of the share of one group of a workload."""

    group: int  # Position in the names of the workload
    metric: str
    p: float  # NaN: the runs cannot show a change
    ratio: float  # Ratio of the odds of the share, with its interval
    low: float
    high: float


class _Search:
    """The search for the changed groups of one workload, of which each step finds one."""

    def __init__(self, cells: GroupCells) -> None:
        self.cells = cells
        self.seconds = {metric: getattr(cells, name) for metric, name in SHARES.items()}
        self.shares = {
            metric: [cells.mean_shares(arm, seconds) for arm in ("baseline", "contender")]
            for metric, seconds in self.seconds.items()
        }
        #: The groups that are large enough and not found so far.
        self.remaining = np.flatnonzero(np.minimum(*self.shares["group_share"]) >= MIN_SHARE)
        self.rows: dict[tuple[int, str], GroupChange] = {}
        self.is_over = False
        self.alpha, self.q = 0.0, 1.0  # level of the tests of the workload, and its own q

    def candidates(self) -> list[tuple[int, str]]:
        """Return the groups and metrics that the next step tests."""
        if self.is_over or len(self.remaining) < 2:
            return []
        return [
            (group, metric)
            for group in self.remaining.tolist()
            for metric, (before, after) in self.shares.items()
            if min(before[group], after[group]) >= MIN_SHARE
        ]

    def odds(self, group: int, metric: str) -> dict[str, Array]:
        """Return the odds of a group against the others that remain, by arm."""
        return _odds(self.seconds[metric], self.remaining, group)

    def take(self, tests: Sequence[_ShareTest], level: float) -> None:
        """Write the rows of the tests of a step; the group that is found leaves the others."""
        known = [test for test in tests if np.isfinite(test.p)]
        for test in tests:
            q = np.nan
            if np.isfinite(test.p):
                own = test.p * len(known) * (1 - level) / self.alpha if self.alpha else 1.0
                q = max(min(1.0, own), self.q)
            share = float(self.shares[test.metric][0][test.group])
            ratio, low, high = (
                _share_after(share, odds) / share for odds in (test.ratio, test.low, test.high)
            )
            self.rows[test.group, test.metric] = self.cells.row(
                self.cells.names[test.group], test.metric, share, share * ratio, ratio,
                low=low, high=high, p=test.p, q=q,
            )  # fmt: skip
        listed = [test for test in known if test.p * len(known) <= self.alpha]
        if not listed:
            self.is_over = True
            return
        distances = {
            metric: self.cells.distances(self.remaining, self.seconds[metric])
            for metric in {test.metric for test in listed}
        }
        found = max(listed, key=lambda test: distances[test.metric][test.group]).group
        for test in listed:
            if test.group == found:
                row = self.rows[found, test.metric]
                self.rows[found, test.metric] = row._replace(verdict=_verdict(True, test.ratio))
        self.remaining = self.remaining[self.remaining != found]


def _share_rows(cells: Sequence[GroupCells], *, blocked: bool, level: float) -> list[GroupChange]:
    """Return the rows of shares, found one after the other within each workload."""
    searches = [_Search(each) for each in cells]
    for step in range(MAX_FOUND):
        tested = [(search, *test) for search in searches for test in search.candidates()]
        if not tested:
            break
        effects = _compare(
            [search.odds(group, metric) for search, group, metric in tested],
            blocked=blocked,
            level=level,
            family=[metric for *_, metric in tested],
        )
        columns = (_p(effects), effects.ratio, effects.selected_low, effects.selected_high)
        tests: dict[_Search, list[_ShareTest]] = {search: [] for search in searches}
        for (search, group, metric), *values in zip(tested, *columns, strict=True):
            tests[search].append(_ShareTest(group, metric, *map(float, values)))
        if not step:
            p = [np.array([test.p for test in own]) for own in tests.values()]
            for search, alpha, q in zip(searches, *_workload_levels(p, level), strict=True):
                search.alpha, search.q = float(alpha), float(q)
        for search, own in tests.items():
            search.take(own, level)
    return [row for search in searches for row in search.rows.values()]


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


def _share_after(share: float, ratio: float) -> float:
    """Return the share after a change of its odds by a ratio."""
    return share * ratio / (1 - share + share * ratio)


class _Amount(NamedTuple):
    """Values by arm of an amount that is not the same in all runs of an arm."""

    workload: int  # Position of its workload
    cells: GroupCells
    group: str
    metric: str
    values: dict[str, Array]


def _amount_rows(
    cells: Sequence[GroupCells],
    found: Collection[tuple[str, str, str]],
    *,
    blocked: bool,
    level: float,
) -> list[GroupChange]:
    """Return the rows of seconds and bytes per task and of numbers of tasks.

    Seconds per task are tested in the groups found by their share: the speed of the machine changes
    those of all groups of a run. The same holds for CPU seconds.
    """
    rows: list[GroupChange] = []
    tested: list[_Amount] = []
    for number, cell in enumerate(cells):
        for group, metric, values in amounts(cell):
            exact = _exact_change(metric, values)
            if exact is None:
                tested.append(_Amount(number, cell, group, metric, values))
                continue
            verdict = "same" if exact.ratio == 1 else _verdict(True, exact.ratio)
            rows.append(cell.row(group, metric, *exact, exact=True, verdict=verdict))
    if not tested:
        return rows
    effects = _compare(
        [amount.values for amount in tested],
        blocked=blocked,
        level=level,
        family=[amount.metric for amount in tested],
    )
    p = _p(effects)
    q = _hierarchical_q(tested, p, found, len(cells), level)
    for place, (_, cell, group, metric, values) in enumerate(tested):
        base, ratio = float(np.nanmean(values["baseline"])), float(effects.ratio[place])
        after = base * ratio if base else float(np.nanmean(values["contender"]))
        rows.append(
            cell.row(
                group, metric, base, after, ratio,
                low=effects.low[place], high=effects.high[place], p=p[place], q=q[place],
                verdict=_verdict(bool(q[place] <= 1 - level), ratio),
            )
        )  # fmt: skip
    return rows


def _exact_change(metric: str, values: Mapping[str, Array]) -> ExactChange | None:
    """Return the exact change of a number; runs of the null arm are of the baseline."""
    if metric not in EXACT_RUNS:
        return None
    before = np.concatenate([values["baseline"], values.get("null", np.zeros(0))])
    return exact_change(metric, before, values["contender"], min_runs=EXACT_RUNS[metric])


def _hierarchical_q(
    tested: Sequence[_Amount],
    p: Array,
    found: Collection[tuple[str, str, str]],
    n_workloads: int,
    level: float,
) -> Array:
    """Return q of amounts: within found workloads; of seconds per task, within found groups."""
    q = np.full(len(tested), np.nan)
    places: list[list[int]] = [[] for _ in range(n_workloads)]
    times: dict[str, list[int]] = {"group_task_time": [], "group_task_cpu": []}
    for place, amount in enumerate(tested):
        times.get(amount.metric, places[amount.workload]).append(place)
    for own in times.values():
        about = [tested[place].cells.about for place in own]
        is_found = [
            (each.contender, each.workload, tested[place].group) in found
            for place, each in zip(own, about, strict=True)
        ]
        times_found = np.array(own, int)[is_found]
        # Selected by another test: their level is that of the share of the groups that it found.
        q[times_found] = np.minimum(p[times_found] * len(own) / max(len(times_found), 1), 1.0)
    alphas, own_qs = _workload_levels([p[own] for own in places], level)
    for own, alpha, own_q in zip(places, alphas, own_qs, strict=True):
        within = adjust(p[own])
        if alpha:
            within = within * (1 - level) / alpha
        q[own] = np.clip(within, own_q, 1.0)
    return q


def _p(effects: Effects) -> Array:
    """Return the p of effects; NaN where the runs cannot show a change."""
    p: Array = np.where(effects.verdict == "noise", np.nan, effects.p)
    return p


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


def _workload_levels(tests: Sequence[Array], level: float) -> tuple[Array, Array]:
    """Return the level of the tests within each workload (0: not found), and its own q."""
    # tests: p of the tests of each workload.
    combined = np.full(len(tests), np.nan)
    for number, p in enumerate(tests):
        known = np.sort(p[np.isfinite(p)])
        if known.size:
            combined[number] = (known * known.size / np.arange(1, known.size + 1)).min()
    q = np.nan_to_num(adjust(combined), nan=1.0)
    is_found = q <= 1 - level
    n_tested = max(int(np.isfinite(combined).sum()), 1)
    return np.where(is_found, (1 - level) * is_found.sum() / n_tested, 0.0), q


def _verdict(changed: bool, ratio: float) -> str:
    return ("more" if ratio > 1 else "less") if changed else "undecided"
