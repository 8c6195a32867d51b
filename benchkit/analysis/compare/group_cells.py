"""Values of the task groups of a workload as arrays: seconds, tasks and bytes, by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.compare.group_totals import GroupTotals, renamed_groups

__all__ = [
    "EXACT_RUNS",
    "SAME",
    "UNITS",
    "WHOLE_RUN",
    "ExactChange",
    "GroupCells",
    "GroupChange",
    "GroupRuns",
    "amounts",
    "exact_change",
]

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

Array = NDArray[np.float64]
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
    low: float
    high: float
    p: float  # p, q: NaN if it was not tested
    q: float
    exact: bool  # Whether the value is the same in all runs of an arm
    verdict: str  # "more", "less", "same" or "undecided"


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
        self,
        group: str,
        metric: str,
        baseline: float,
        contender_value: float,
        ratio: float,
        *,
        low: float = np.nan,
        high: float = np.nan,
        p: float = np.nan,
        q: float = np.nan,
        exact: bool = False,
        verdict: str = "undecided",
    ) -> GroupChange:
        """Return the row of the table about a group."""
        return GroupChange(
            self.about.contender, self.about.workload, group, metric, UNITS[metric],
            baseline, contender_value, ratio, low, high, p, q, exact, verdict,
        )  # fmt: skip


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
