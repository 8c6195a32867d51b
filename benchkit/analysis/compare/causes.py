"""Split a difference in duration by cause: what the runs of each arm waited for.

Takes runs of two arms with task graphs; returns seconds by cause, whose sum is the whole
difference, and lower bounds. The parts by task group and activity are in
`benchkit.analysis.compare.explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchkit.analysis.insight.limits import CAUSES_SHORT, Limits, run_limits
from benchkit.analysis.stats.welch import mean_difference
from benchkit.formatting import format_quantity, short_group, signed_parts
from benchkit.store.run import Run

__all__ = ["CauseChanges", "cause_changes", "difference_table"]

#: Largest number of causes in the sentence.
CAUSES_NAMED = 3
#: Smallest share of the whole difference for a cause, or a lower bound, in the sentence.
MIN_SHARE = 0.1
#: Smallest share of a cause's difference for a task group to be named with the cause.
MAIN_SHARE = 0.5


@dataclass(frozen=True, repr=False)
class CauseChanges:
    """The difference in duration of two arms by cause, and the lower bounds of both."""

    # A row per cause of `benchkit.analysis.insight.blame.CAUSES`, the largest difference first:
    # `seconds`, contender minus baseline, with the interval `low` to `high` over the repeats,
    # `baseline_s`, `contender_s`, and `group`: the task group with most of the difference, or "".
    # The sum of `seconds` is the difference of the mean durations.
    causes: pd.DataFrame
    # Lower bounds of the duration in s by name, means of each arm: `baseline_s`, `contender_s`.
    bounds: pd.DataFrame

    @property
    def total_s(self) -> float:
        """Difference of the mean durations in s."""
        return float(self.causes["seconds"].sum())

    @property
    def sentence(self) -> str:
        """The causes that moved, and the lower bound that moved, as one sentence."""
        large = self.causes["seconds"].abs() > MIN_SHARE * abs(self.total_s)
        named = [
            (row.seconds, CAUSES_SHORT[row.cause] + (f" ({row.group})" if row.group else ""))
            for row in self.causes[large].head(CAUSES_NAMED).itertuples()
        ]
        _, parts = signed_parts(self.total_s, named, "other causes")
        text = ", ".join(f"{seconds} {name}" for seconds, name in parts)
        return f"{text}{self._moved_bound()}."

    def _moved_bound(self) -> str:
        before, after = (self.bounds[name].idxmax() for name in ("baseline_s", "contender_s"))
        old = format_quantity(float(self.bounds["baseline_s"].max()), "s")
        new = format_quantity(float(self.bounds["contender_s"].max()), "s")
        if before != after:
            return f"; the largest lower bound is {after} ({new}), it was {before} ({old})"
        change = float(self.bounds.loc[after, "contender_s"] - self.bounds.loc[after, "baseline_s"])
        if abs(change) <= MIN_SHARE * abs(self.total_s) or old == new:
            return ""
        return f"; the largest lower bound, {after}, went from {old} to {new}"

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.causes.round(3).to_string(index=False)}"


def cause_changes(
    baseline: Sequence[Run],
    contender: Sequence[Run],
    *,
    blocked: bool = False,
    level: float = 0.95,
) -> CauseChanges:
    """Split the difference in duration of two arms by cause."""
    sides = [[run_limits(run) for run in side] for side in (baseline, contender)]
    names = list(CAUSES_SHORT)
    values = [np.array([_seconds(limits, names) for limits in side]) for side in sides]
    causes = difference_table(values, blocked=blocked, level=level)
    causes.insert(0, "cause", names)
    causes["group"] = _main_groups(sides, causes)
    causes = causes[(causes["baseline_s"] != 0) | (causes["contender_s"] != 0)]
    bounds = [pd.DataFrame([limits.bounds for limits in side]).mean() for side in sides]
    return CauseChanges(
        causes=causes.sort_values(
            "seconds", key=np.abs, ascending=False, kind="stable", ignore_index=True
        ),
        bounds=pd.DataFrame({"baseline_s": bounds[0], "contender_s": bounds[1]}),
    )


def difference_table(
    values: Sequence[np.ndarray], *, blocked: bool, level: float, value: str = "seconds"
) -> pd.DataFrame:
    """Return the mean difference of each column of two arrays with its interval, and both means."""
    # values: (runs, columns), of the baseline and of the contender.
    baseline, contender = values
    difference, half = mean_difference(baseline, contender, paired=blocked, level=level)
    suffix = "_s" if value == "seconds" else ""
    return pd.DataFrame(
        {
            value: difference,
            "low": difference - half,
            "high": difference + half,
            f"baseline{suffix}": baseline.mean(axis=0),
            f"contender{suffix}": contender.mean(axis=0),
        }
    )


def _seconds(limits: Limits, names: Sequence[str]) -> list[float]:
    seconds = limits.causes["seconds"]
    return [float(seconds.get(name, 0.0)) for name in names]


def _main_groups(sides: Sequence[Sequence[Limits]], causes: pd.DataFrame) -> list[str]:
    """Return for each cause the task group with most of its difference, or ""."""
    means = [_by_group(side) for side in sides]
    difference = means[1].sub(means[0], fill_value=0.0)
    names = []
    for row in causes.itertuples():
        name = ""
        if row.cause in difference.index and row.seconds:
            share = difference[row.cause] / row.seconds
            if share.idxmax() and share.max() >= MAIN_SHARE:
                name = str(share.idxmax())
        names.append(name)
    return names


def _by_group(side: Sequence[Limits]) -> pd.Series:
    """Return the mean seconds by cause and name of task group without Dask's hash."""
    tables = [limits.groups["seconds"].reset_index() for limits in side]
    frame = pd.concat(tables, ignore_index=True)
    frame["group"] = frame["group"].map(short_group)
    return frame.groupby(["cause", "group"])["seconds"].sum() / len(side)
