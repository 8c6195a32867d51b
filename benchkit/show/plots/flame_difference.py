"""Differential flame graph: the difference in time between two runs for each call.

Input: two DataTrees; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from bokeh.plotting import figure

from benchkit.formatting import package_path
from benchkit.show.plots.base import empty_figure, has, to_tree
from benchkit.show.plots.flame import draw_frames, flame_frames, keep_frames, pale, widest
from benchkit.show.theme import BETTER, WORSE
from benchkit.store.run import Run

__all__ = ["flame_difference", "merged_frames"]

#: Seconds per sample: the default sampling interval of Dask.
SAMPLE_S = 0.01
#: Colour saturation of the largest difference, limited so that text on it is readable.
MAX_SATURATION = 0.6
#: Differences smaller than this share of the largest have no arrow.
MIN_ARROW_SHARE = 0.02


def flame_difference(
    a: Run | xr.DataTree,
    b: Run | xr.DataTree,
    *,
    show_removed: bool = False,
    names: Sequence[str] = ("A", "B"),
) -> figure:
    """Draw in which calls tasks of B spent more or less time than tasks of A.

    Parameters
    ----------
    a, b : Run or DataTree
        Runs with full capture.
    show_removed : bool, default False
        Whether to draw calls that only A has; otherwise the title counts them.
    names : sequence of str, default ("A", "B")
        Names of the runs.

    Returns
    -------
    figure
        One box per call, callers below callees; the width is the thread-seconds in B, or in A for
        calls that only A has. Red is more than in A, blue is less; an arrow also shows the
        direction.

    Notes
    -----
    After B. Gregg, "Differential Flame Graphs", 2014. A call is the same in both if it has the same
    callers, function and file, wherever packages are installed and whatever its line.
    """
    first, second = names
    a, b = to_tree(a), to_tree(b)
    title = f"Where did tasks of {second} spend more or less than those of {first}?"
    for tree, name in ((a, first), (b, second)):
        if not has(tree, "profile", "frame"):
            return empty_figure(title, f"No call stacks were recorded for {name}.")
    merged = merged_frames(Run(a).profile(), Run(b).profile())
    removed = merged["b"] == 0
    roots = merged["parent"] < 0
    details = [
        f"{name} {merged.loc[roots, side].sum():.3g} s sampled"
        for name, side in zip(names, "ab", strict=True)
    ]
    below_removed = removed.to_numpy()[np.maximum(merged["parent"], 0)] & ~roots
    removed_s = float(merged.loc[removed & ~below_removed, "a"].sum())
    if not show_removed:
        merged = keep_frames(merged, ~removed.to_numpy())
        if removed_s:
            details.append(f"calls only in {first} not shown: {removed_s:.3g} s")
    if merged.empty:
        return empty_figure(title, f"{second} has no calls in common with {first}.")
    wide = widest(flame_frames(merged.assign(count=_widths(merged))))
    change = wide["b"] - wide["a"]
    most = float(change.abs().max()) or 1.0
    columns = {
        "a": wide["a"],
        "b": wide["b"],
        "change": change,
        "colour": [
            pale(WORSE if value > 0 else BETTER, 0.06 + (MAX_SATURATION - 0.06) * abs(value) / most)
            for value in change
        ],
    }
    tips = [
        (first, "@a{0.00} s"),
        (second, "@b{0.00} s"),
        (f"{second} − {first}", "@change{+0.00} s"),
    ]
    marks = [_mark(row, most) for row in wide.itertuples()]
    unit = f"thread-seconds in {second} (s)"
    return draw_frames(f"{title} ({', '.join(details)})", unit, wide, columns, tips, marks=marks)


def merged_frames(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Merge the call stacks of two runs."""
    row_of: dict[tuple[int, str, str], int] = {}
    rows: list[dict[str, Any]] = []
    for side, profile in (("a", a), ("b", b)):
        places: list[int] = []
        for frame in profile.to_dict("records"):
            parent = places[frame["parent"]] if frame["parent"] >= 0 else -1
            key = (parent, str(frame["function"]), package_path(str(frame["file"])))
            if key not in row_of:
                row_of[key] = len(rows)
                fields = {name: frame[name] for name in ("prefix", "function", "file", "line")}
                rows.append({"parent": parent, **fields, "a": 0.0, "b": 0.0})
            places.append(row_of[key])
            rows[row_of[key]][side] += SAMPLE_S * frame["count"]
    return pd.DataFrame(rows)


def _widths(merged: pd.DataFrame) -> np.ndarray:
    """Return the width of each frame: from B, or from A if only A has it; callers contain both."""
    b, a = merged["b"].to_numpy(), merged["a"].to_numpy()
    widths = np.where(b > 0, b, a)
    parents = merged["parent"].to_numpy()
    for row in reversed(range(len(merged))):  # frames that only A has widen their callers
        if parents[row] >= 0 and b[row] == 0 and b[parents[row]] > 0:
            above = parents[row]
            while above >= 0:
                widths[above] += a[row]
                above = parents[above]
    return widths


def _mark(row: Any, most: float) -> str:
    change = row.b - row.a
    if not row.b:
        return "gone:"
    if not row.a:
        return "new:"
    return "" if abs(change) < MIN_ARROW_SHARE * most else "▲" if change > 0 else "▼"
