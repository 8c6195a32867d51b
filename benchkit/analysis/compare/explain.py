"""Split a difference into parts: seconds by task group and activity, bytes by kind of memory.

Takes runs of two arms; returns a table that sums to the whole difference, without a verdict:
`benchkit.analysis.compare.compare_runs` decides whether there is a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import stdtrit

from benchkit.errors import NotEnoughRuns
from benchkit.formatting import short_group

__all__ = ["GROUPS_READ", "IDLE", "UNEXPLAINED", "Explanation", "explain"]

#: Groups of a run that `explain` reads, besides the root; callers need to open only these.
GROUPS_READ = ("task_groups", "scheduler")

IDLE, UNEXPLAINED = "idle", "unexplained"
_KINDS = ("managed", "unmanaged_old", "unmanaged_recent", "spilled")
#: Parts that are named in the sentence.
NAMED = 2
#: Parts below this share of the whole are not named.
LEAST = 0.05


@dataclass(frozen=True, repr=False)
class Explanation:
    """The difference between two arms, in parts.

    Parameters
    ----------
    parts : DataFrame
        A row per task group and activity, the largest first: ``seconds`` of wall time (thread-
        seconds over the number of threads) that the contender takes more, with its interval
        ``low`` to ``high`` over the repeats, the values of both arms, and the share of the whole.
        Then ``idle`` (threads without work) and ``unexplained``; all sum to `total_s`.
    memory : DataFrame
        A row per kind of memory at the cluster's peak: ``bytes`` more, with interval.
    total_s : float
        Difference of the mean durations, in s.
    n_baseline, n_contender : int
        Number of runs used.
    """

    parts: pd.DataFrame
    memory: pd.DataFrame
    total_s: float
    n_baseline: int
    n_contender: int

    @property
    def sentence(self) -> str:
        """The largest parts in words; idle is last, because it follows from the other parts."""
        same_way = np.sign(self.parts["seconds"]) == np.sign(self.total_s)
        signed = self.parts[same_way & (self.parts["seconds"].abs() > LEAST * abs(self.total_s))]
        rest = signed["group"].isin([IDLE, UNEXPLAINED])
        told = pd.concat([signed[~rest].head(NAMED), signed[rest]])
        named = [
            f"{_signed(row.seconds)} is {_words(row.group, row.activity)}"
            for row in told.itertuples()
        ]
        return f"Of {_signed(self.total_s)}, {', '.join(named) or 'nothing stands out'}."

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.parts.round(3).to_string(index=False)}"


def explain(
    baseline: Sequence[Any],
    contender: Sequence[Any],
    *,
    blocked: bool = False,
    level: float = 0.95,
) -> Explanation:
    """Split the difference in duration of two arms by task group and activity.

    Parameters
    ----------
    baseline, contender : sequence of DataTree or Run
        Runs of one workload that ended ok.
    blocked : bool, default False
        Element i of both is from block i: intervals are those of the differences within blocks.
    level : float, default 0.95
        Confidence of the intervals.

    Returns
    -------
    Explanation

    Raises
    ------
    NotEnoughRuns
        An arm has no run.

    Notes
    -----
    A run of T seconds on n threads has n T thread-seconds. Those of task groups are recorded by
    activity; the rest is idle. So a part is thread-seconds / n, and parts and idle sum to the
    duration. Data are fetched while threads compute, so the sum over groups can exceed the
    threads' time; the excess is the part called unexplained (never above 0, and 0 when threads
    never do two things at once). Intervals are Welch's t, or the paired t in blocks; with one run
    a side there are none.

    Groups are matched by name without Dask's hash; groups of equal names are one part.
    """
    trees = [[getattr(run, "tree", run) for run in runs] for runs in (baseline, contender)]
    sides = [[_account(tree) for tree in side] for side in trees]
    if not all(sides):
        which = "baseline" if not sides[0] else "contender"
        raise NotEnoughRuns(f"explanation: the {which} has no run that ended ok")
    keys = sorted({key for side in sides for parts, _ in side for key in parts})
    values = [
        np.array([[parts.get(key, 0.0) for key in keys] for parts, _ in side]) for side in sides
    ]
    total = float(
        np.mean([duration for _, duration in sides[1]])
        - np.mean([duration for _, duration in sides[0]])
    )
    frame = _differences(values, blocked, level)
    frame.insert(0, "group", [group for group, _ in keys])
    frame.insert(1, "activity", [activity for _, activity in keys])
    frame = frame.rename(columns={"more": "seconds", "a": "baseline_s", "b": "contender_s"})
    frame["share"] = frame["seconds"] / total if total else np.nan
    frame = frame[(frame["baseline_s"] != 0) | (frame["contender_s"] != 0)]
    last = frame["group"].isin([IDLE, UNEXPLAINED])
    order = frame["seconds"].abs().mul(-1).where(~last | (frame["group"] == IDLE), np.inf)
    frame = frame.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
    return Explanation(
        parts=frame,
        memory=_memory(trees, blocked, level),
        total_s=total,
        n_baseline=len(sides[0]),
        n_contender=len(sides[1]),
    )


def _account(tree: xr.DataTree) -> tuple[dict[tuple[str, str], float], float]:
    """Return wall seconds by group and activity, idle and unexplained included, and duration."""
    duration = float(tree["duration"])
    n_threads = max(int(tree.attrs.get("n_threads") or 1), 1)
    parts: dict[tuple[str, str], float] = {}
    if "task_groups" in tree.children:
        node: Any = tree["task_groups"]
        data = node.to_dataset()
        seconds = np.nan_to_num(data["seconds"].transpose("task_group", "action").values)
        for row, group in zip(seconds, data["task_group"].values, strict=True):
            name = short_group(str(group))
            for value, action in zip(row, data["action"].values, strict=True):
                if value:
                    key = name, str(action)
                    parts[key] = parts.get(key, 0.0) + float(value) / n_threads
    rest = duration - sum(parts.values())
    parts[IDLE, IDLE] = max(rest, 0.0)
    parts[UNEXPLAINED, UNEXPLAINED] = min(rest, 0.0)
    return parts, duration


def _differences(values: list[np.ndarray], blocked: bool, level: float) -> pd.DataFrame:
    """Return mean differences of columns with intervals."""
    left, right = values
    more = right.mean(axis=0) - left.mean(axis=0)
    half = np.full(len(more), np.nan)
    if blocked and len(left) == len(right) >= 2:
        error = (right - left).std(axis=0, ddof=1) / np.sqrt(len(left))
        half = stdtrit(len(left) - 1, (1 + level) / 2) * error
    elif min(len(left), len(right)) >= 2:
        a, b = (side.var(axis=0, ddof=1) / len(side) for side in values)
        with np.errstate(invalid="ignore", divide="ignore"):
            df = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1))
        half = stdtrit(np.where(np.isfinite(df), df, 1), (1 + level) / 2) * np.sqrt(a + b)
    return pd.DataFrame(
        {
            "more": more,
            "low": more - half,
            "high": more + half,
            "a": left.mean(axis=0),
            "b": right.mean(axis=0),
        }
    )


def _memory(sides: list[list[xr.DataTree]], blocked: bool, level: float) -> pd.DataFrame:
    columns = ["kind", "bytes", "low", "high", "baseline", "contender"]
    known = [[_at_peak(tree) for tree in side] for side in sides]
    kept = [np.array([row for row in side if row is not None]) for side in known]
    if not all(len(side) for side in kept):
        return pd.DataFrame(columns=columns)
    frame = _differences(kept, blocked and len(kept[0]) == len(kept[1]), level)
    frame.insert(0, "kind", _KINDS)
    frame = frame.rename(columns={"more": "bytes", "a": "baseline", "b": "contender"})
    order = frame["bytes"].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order, columns].reset_index(drop=True)


def _at_peak(tree: xr.DataTree) -> list[float] | None:
    """Return memory by kind in B, at the peak of the cluster's process memory."""
    if "scheduler" not in tree.children or not tree["scheduler"].sizes.get("time"):
        return None
    node: Any = tree["scheduler"]
    data = node.to_dataset()
    peak = int(np.nanargmax(np.nan_to_num(data["process"].values)))
    return [float(np.nan_to_num(data[kind].values[peak])) for kind in _KINDS]


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '−'}{abs(seconds):.3g} s"


def _words(group: str, activity: str) -> str:
    if group in (IDLE, UNEXPLAINED):
        return group
    return f"{activity} in {group}"
