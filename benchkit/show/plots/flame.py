"""Flame graphs: call stacks of tasks by prefix, and the difference of two runs.

Input: DataTrees of runs; output: a Bokeh figure. The width of a frame is its share of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from bokeh.events import DoubleTap
from bokeh.models import ColumnDataSource, CustomJS, HoverTool, Range1d, TapTool
from bokeh.plotting import figure

from benchkit.formatting import format_count, package_path
from benchkit.show.plots.base import empty_figure, has, make_figure, read_script, to_tree
from benchkit.show.theme import BETTER, OTHER, WORSE, group_colour
from benchkit.store.run import Run

#: Frames narrower than this share of the shown width are not visible and not drawn.
MIN_SHARE = 1 / 800
#: Maximum number of boxes, widest first: more are slow to draw and too narrow to read.
MAX_FRAMES = 3000
#: Height of a frame in pixels.
ROW_HEIGHT = 19
#: Width of a character of a label in pixels.
CHARACTER = 6.4
#: Colour of text on pale boxes, in light and dark themes.
_TEXT = "#1c2530"
#: Packages that get a separate colour: readers look first for the package of a frame.
_OWNERS = ("dask", "distributed", "numpy", "pandas", "pyarrow", "scipy", "xarray", "numba")
#: Seconds per sample: the default sampling interval of Dask.
SAMPLE_S = 0.01
#: Colour saturation of the largest difference, limited so that text on it is readable.
MAX_SATURATION = 0.6
#: Differences smaller than this share of the largest have no arrow.
MIN_ARROW_SHARE = 0.02


def flame_frames(profile: pd.DataFrame) -> pd.DataFrame:
    """Compute positions of frames: each frame above its caller, callees ordered widest first.

    Notes
    -----
    After B. Gregg, "The Flame Graph", Communications of the ACM 59(6), 2016.
    """
    parents = profile["parent"].to_numpy()
    counts = profile["count"].to_numpy(float)
    own = counts.copy()
    inside = parents >= 0
    np.subtract.at(own, parents[inside], counts[inside])
    left, depth = np.zeros(len(profile)), np.zeros(len(profile), int)
    order: dict[int, list[int]] = {}
    for row, parent in enumerate(parents.tolist()):
        order.setdefault(parent, []).append(row)
    # Parents precede their children, so one pass from the roots places all frames.
    ready = [-1]
    while ready:
        parent = ready.pop()
        start = 0.0 if parent < 0 else left[parent]
        for row in sorted(order.get(parent, ()), key=lambda row: -counts[row]):
            left[row], depth[row] = start, 0 if parent < 0 else depth[parent] + 1
            start += counts[row]
            ready.append(row)
    return profile.assign(left=left, right=left + counts, depth=depth, own=own)


def _shown_frames(
    tree: xr.DataTree, prefix: str | None, window: tuple[float, float] | None
) -> pd.DataFrame:
    """Return the frames of a prefix (None: of all) with samples in a window, and their places."""
    profile = Run(tree).profile(*window) if window else Run(tree).profile()
    keep = (profile["count"] > 0).to_numpy()
    if prefix is not None:
        keep = keep & (profile["prefix"] == prefix).to_numpy()
    return flame_frames(keep_frames(profile, keep))


#: Number of widest calls in a list of them.
MAX_CALLS = 60


def widest_calls(
    run: Run, prefix: str | None = None, window: tuple[float, float] | None = None
) -> dict[str, tuple[float, float]]:
    """Return the widest calls: share and name -> left and right end in samples, callers first."""
    frames = _shown_frames(run.tree, prefix, window)
    calls: dict[str, tuple[float, float]] = {}
    if frames.empty:
        return calls
    total = float(frames["right"].max())
    places = {(0.0, total)}
    for row in widest(frames).itertuples():
        place = (float(row.left), float(row.right))
        if len(calls) < MAX_CALLS and place not in places:
            label = f"{100 * row.count / total:.1f} % {_name(row)}"
            calls[label if label not in calls else f"{label} #{len(calls)}"] = place
            places.add(place)
    return calls


def flame_graph(
    run: Run | xr.DataTree,
    prefix: str | None = None,
    find: str = "",
    window: tuple[float, float] | None = None,
) -> figure:
    """Draw in which Python functions the tasks spent their time.

    Parameters
    ----------
    run : Run or DataTree
        A run with full capture.
    prefix : str, optional
        Only tasks of this prefix.
    find : str, optional
        Frames with this text in their function or file are marked, and counted in the title.
    window : tuple of float, optional
        Only samples of the cycles of Dask's profiler (1 s by default) that overlap these times, in
        s after clock on.

    Returns
    -------
    figure
        One box per frame, as wide as its share of the samples, callers below callees. A click on a
        box makes it as wide as the figure; a double click on the background shows all frames.
    """
    tree = to_tree(run)
    title = "Where did tasks spend time?"
    if not has(tree, "profile", "frame"):
        return empty_figure(title)
    frames = _shown_frames(tree, prefix, window)
    if frames.empty:
        whose = f" of {prefix}" if prefix else ""
        where = " within the window" if window else ""
        return empty_figure(f"{title} No samples{whose}{where}.")
    total = float(frames["right"].max())
    wide = widest(frames)
    details = f"{format_count(total)} samples of 10 ms{' within the window' if window else ''}"
    matches = _matches(wide, find)
    if find:  # count also frames that are too narrow to be drawn
        details += f", {find!r} in {_covered(frames[_matches(frames, find)]) / total:.1%} of them"
    share = wide["count"] / total
    columns = {
        "share": share * 100,
        "own": wide["own"] / total * 100,
        "colour": [
            pale(_colour(row)) if is_match else "#d5dae0"
            for row, is_match in zip(wide.itertuples(), matches | (not find), strict=True)
        ],
    }
    tips = [("share", "@share{0.0} %"), ("own share", "@own{0.0} %")]
    return draw_frames(f"{title} ({details})", "samples", wide, columns, tips)


def keep_frames(profile: pd.DataFrame, keep: np.ndarray) -> pd.DataFrame:
    """Return some frames of a profile, with the new rows of their callers."""
    row = np.cumsum(keep) - 1
    kept = profile[keep].reset_index(drop=True)
    parents = kept["parent"].to_numpy()
    return kept.assign(parent=np.where(parents < 0, -1, row[np.maximum(parents, 0)]))


def widest(frames: pd.DataFrame) -> pd.DataFrame:
    """Return the frames that are wide enough to be visible."""
    total = float(frames["right"].max())
    return frames[frames["count"] >= MIN_SHARE * total].nlargest(MAX_FRAMES, "count")


def draw_frames(
    title: str,
    unit: str,
    wide: pd.DataFrame,
    columns: Mapping[str, Any],
    tips: list[tuple[str, str]],
    *,
    marks: Sequence[str] = (),
) -> figure:
    """Draw frames with positions as clickable boxes."""
    total = float(wide["right"].max())
    names = [_name(row) for row in wide.itertuples()]
    if marks:
        names = [f"{mark} {name}".strip() for mark, name in zip(marks, names, strict=True)]
    fig = make_figure(
        title,
        unit,
        "calls",
        height=90 + ROW_HEIGHT * int(wide["depth"].max() + 1),
        x_range=Range1d(start=0.0, end=total, bounds=(0, total)),
        y_range=Range1d(start=-0.1, end=float(wide["depth"].max()) + 1.1),
        tools="xpan,xwheel_zoom,reset,save",
        min_border_left=40,
    )
    fig.yaxis.visible = fig.ygrid.visible = False
    source = ColumnDataSource(
        {
            "left": wide["left"],
            "right": wide["right"],
            "bottom": wide["depth"] + 0.04,
            "top": wide["depth"] + 0.96,
            "middle": wide["depth"] + 0.5,
            "name": names,
            "place": [f"{row.file}:{row.line}" if row.line else "" for row in wide.itertuples()],
            "label": [""] * len(wide),
            **columns,
        },
        name="frames",
    )
    boxes = fig.quad(
        "left", "right", "top", "bottom", source=source, color="colour",
        line_color="white", line_width=0.5, line_alpha=0.6,
        nonselection_alpha=1.0, selection_alpha=1.0,
    )  # fmt: skip
    fig.text(
        "left", "middle", "label", source=source, x_offset=3, text_baseline="middle",
        text_font_size="11px", text_color=_TEXT, text_alpha=1.0, nonselection_alpha=1.0,
    )  # fmt: skip
    tooltips = [("call", "@name"), ("in", "@place"), *tips]
    fig.add_tools(HoverTool(renderers=[boxes], tooltips=tooltips))
    args = {"source": source, "range": fig.x_range, "width": CHARACTER, "figure": fig}
    fit = CustomJS(args=args, code=read_script("fit_labels"))
    fig.x_range.js_on_change("start", fit)
    fig.x_range.js_on_change("end", fit)
    fig.js_on_change("inner_width", fit)
    zoom = CustomJS(
        args={"source": source, "range": fig.x_range}, code=read_script("zoom_to_frame")
    )
    fig.add_tools(TapTool(renderers=[boxes], callback=zoom))
    whole = CustomJS(
        args={"range": fig.x_range, "total": total}, code="range.start = 0; range.end = total"
    )
    fig.js_on_event(DoubleTap, whole)
    return fig


def _name(row: Any) -> str:
    return f"{row.function} (tasks)" if row.depth == 0 else str(row.function)


def _colour(row: Any) -> str:
    if row.depth == 0:
        return group_colour(str(row.prefix))
    parts = str(row.file).replace("\\", "/").split("/")
    owner = next((name for name in _OWNERS if name in parts), "")
    return group_colour(owner) if owner else OTHER


def pale(colour: str, share: float = 0.55) -> str:
    """Mix a colour with white, so that text on it can be read."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


def _matches(frames: pd.DataFrame, find: str) -> np.ndarray:
    if not find:
        return np.zeros(len(frames), bool)
    text = frames["function"] + " " + frames["file"]
    return text.str.contains(find, case=False, regex=False).to_numpy()


def _covered(frames: pd.DataFrame) -> float:
    """Return the number of samples below these frames; each sample counts once."""
    covered, end = 0.0, -1.0
    for row in frames.sort_values("left").itertuples():
        covered += max(0.0, row.right - max(row.left, end))
        end = max(end, row.right)
    return covered


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
