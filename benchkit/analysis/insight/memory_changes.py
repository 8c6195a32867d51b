"""Compare the memory of runs: by task group between two sets, and its growth from run to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchkit.errors import NotEnoughRuns, UsageError
from benchkit.formatting import format_quantity, short_group
from benchkit.store.run import Run

__all__ = ["bytes_as_text", "memory_difference", "memory_growth"]

#: Fewest runs that show growth.
MIN_RUNS = 4
#: Confidence of the interval of a growth.
LEVEL = 0.95
#: Series of the group ``scheduler`` -> place of the sample (first or last), and label.
_SERIES = {
    ("process", 0): "workers' processes at the start",
    ("process", -1): "workers' processes at the end",
    ("unmanaged_old", -1): "unmanaged, old, at the end",
    ("rss", -1): "scheduler's process at the end",
}


def memory_difference(before: Sequence[Run], after: Sequence[Run]) -> pd.DataFrame:
    """Return the bytes of results by task group at the peak of results, of two sets of runs."""
    sides = {"before (B)": before, "after (B)": after}
    means = {
        name: pd.DataFrame([_held_at_peak(run) for run in runs]).fillna(0.0).mean()
        for name, runs in sides.items()
    }
    frame = pd.DataFrame(means, columns=list(sides)).fillna(0.0)
    frame = frame[(frame != 0).any(axis=1)]
    frame = frame.assign(**{"difference (B)": frame["after (B)"] - frame["before (B)"]})
    order = frame["difference (B)"].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].rename_axis("task group")


def _held_at_peak(run: Run) -> dict[str, float]:
    """Return bytes by short name of the task group at the peak of their sum."""
    held = run.memory_by_group()
    if not held.size:
        return {}
    row = held.loc[held.sum(axis=1).idxmax()]
    return {str(name): float(size) for name, size in row.groupby(short_group).sum().items()}


def memory_growth(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how memory grows from run to run of a workload, such as by a leak.

    Notes
    -----
    Theil-Sen: one run with unusual memory does not change the slope. Clusters that are started for
    each run show growth only of what outlives them; reused clusters that of their processes.
    """
    if len(runs) < MIN_RUNS:
        raise NotEnoughRuns(f"growth of memory needs {MIN_RUNS} runs, not {len(runs)}")
    kinds = {(run.workload, str(run.tree.attrs.get("environment"))) for run in runs}
    if len(kinds) > 1:
        names = " and ".join(sorted(f"{workload} in {name}" for workload, name in kinds)[:2])
        raise UsageError(f"growth of memory: runs differ ({names}): select one workload")
    # Takes 0.5 s, which reports and the dashboard would wait at their start.
    from scipy.stats import theilslopes

    ordered = sorted(runs, key=lambda run: str(run.tree.attrs.get("started")))
    values = pd.DataFrame([_memory_of(run) for run in ordered])
    rows = {}
    for name in values:
        known = np.flatnonzero(values[name].notna())
        if len(known) >= MIN_RUNS:
            series = values[name].to_numpy(float)[known]
            slope, _, low, high = theilslopes(series, known, alpha=LEVEL)
            rows[str(name)] = [series[0], series[-1], slope, low, high]
    columns = ["first (B)", "last (B)", "growth (B per run)", "low", "high"]
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return frame.sort_values("growth (B per run)", ascending=False, kind="stable")


def _memory_of(run: Run) -> dict[str, float]:
    out = {}
    series = run.tree["scheduler"].to_dataset() if "scheduler" in run.tree.children else {}
    for (name, place), label in _SERIES.items():
        values = series[name].values if name in series else np.zeros(0)
        values = values[np.isfinite(values)]
        if len(values):
            out[label] = float(values[place])
    if "held" in run.tree.children:
        sizes = _held_at_peak(run)
        out |= {f"results of {name}": size for name, size in sizes.items()}
    return out


def bytes_as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of this module as text with units."""
    signed = ("difference (B)", "growth (B per run)", "low", "high")
    return pd.DataFrame(
        {
            name.replace(" (B)", "").replace(" (B per run)", " per run"): [
                ("+" if name in signed and size > 0 else "") + format_quantity(float(size), "B")
                for size in frame[name]
            ]
            for name in frame
        },
        index=frame.index,
    )
