"""Call stacks of a run, for all tasks or one prefix, and the difference of two runs."""

from __future__ import annotations

from typing import Any

import panel as pn
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.show.dashboard.components.widgets import filtered
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.state.url import Debounced
from benchkit.show.plots.base import has
from benchkit.show.plots.flame import flame_difference, flame_graph
from benchkit.show.render import panel as ui
from benchkit.store.run import Run

#: Options of the selects: tasks of every prefix; the whole width; a range that is no call.
ALL = "all tasks"
EVERYTHING = "everything"
DRAGGED = "as dragged"
_ZOOM_HELP = "A click zooms to a call, a double click shows everything again."
#: Number of widest calls in the select, which works with the keyboard.
MAX_CALLS = 60


def stacks(window: Window) -> Viewable:
    """Return the flame graph with selects for prefix and call, and a search field.

    The initial selection comes from the address (``prefix``, ``find``, ``frames``), else from
    the prefix of the selected group.
    """
    run = window.run
    if not has(run.tree, "profile", "frame"):
        return ui.message(
            "No call stacks", "Only the full capture records them, and only while tasks run."
        )
    profile = run.profile()
    roots = profile[profile["parent"] < 0].sort_values("count", ascending=False)
    prefix = pn.widgets.Select(name="Tasks", options=[ALL, *map(str, roots["prefix"])], width=280)
    call = pn.widgets.Select(name="As wide as the page", options=[EVERYTHING], width=320)
    find = pn.widgets.TextInput(
        name="Find", placeholder="function or file", width=280, value=window.options["find"]
    )
    place = ui.column()
    plot: figure
    calls: dict[str, tuple[float, float]] = {}
    group_prefix = ""

    def write() -> None:
        selected = str(prefix.value)
        own = "" if selected == (window.prefix or ALL) else selected
        window.set_options(prefix=own, find=str(find.value or "").strip(), frames=_range(plot))
        update_call()

    write_later = Debounced(write, lambda: plot)

    def update_call() -> None:
        """Set the select of calls to the range of the figure."""
        ends = (float(_x_range(plot).start), float(_x_range(plot).end))
        name = next((name for name, place in calls.items() if place == ends), DRAGGED)
        options = [*calls, DRAGGED] if name == DRAGGED else [*calls]
        call.param.update(options=options, value=name)

    def draw(*events: Any) -> None:
        nonlocal plot, calls
        selected = None if prefix.value == ALL else prefix.value
        plot = flame_graph(run.tree, selected, str(find.value or "").strip())
        calls = _calls(plot)
        if not events:
            _zoom(plot, window.options["frames"])
        update_call()
        for end in ("start", "end"):
            _x_range(plot).on_change(end, lambda attr, old, new: write_later())
        place[:] = [ui.figure(plot)]
        if events:
            write_later()

    def zoom_to_call(event: Any) -> None:
        if event.new in calls:
            left, right = calls[event.new]
            _x_range(plot).update(start=left, end=right)

    def select_group_prefix() -> None:
        nonlocal group_prefix
        if window.prefix != group_prefix:  # keep the user's prefix if only the time changes
            group_prefix = window.prefix
            prefix.value = group_prefix if group_prefix in prefix.options else ALL

    select_group_prefix()
    if window.options["prefix"] in prefix.options:
        prefix.value = window.options["prefix"]
    window.subscribe(select_group_prefix)
    draw()
    for widget in (prefix, find):
        widget.param.watch(draw, "value")
    call.param.watch(zoom_to_call, "value")
    note = ui.paragraph(f"{_ZOOM_HELP} The graph is of the whole run, for any window.")
    return ui.column(pn.Row(prefix, find, call), place, note)


def stack_difference(a: Run, b: Run) -> pn.Column:
    """Return a flame graph of the differences in time per call between two runs."""

    def draw(values: dict[str, str]) -> list[Viewable]:
        plot = flame_difference(a.tree, b.tree, show_removed=bool(values["only_a"]))
        return [ui.figure(plot)]

    only_a = pn.widgets.Checkbox(name="Show calls that only A has", value=False)
    note = f"Widths are those of B; ▲ and red: more than in A, ▼ and blue: less. {_ZOOM_HELP}"
    return ui.column(filtered("", {"only_a": only_a}, draw), ui.paragraph(note))


def _calls(plot: figure) -> dict[str, tuple[float, float]]:
    """Return the widest calls: label -> left and right end in samples, callers first."""
    source: Any = plot.select_one({"name": "frames"})
    whole = (0.0, float(_x_range(plot).end))
    if source is None:
        return {EVERYTHING: whole}
    data = source.data
    ends = {EVERYTHING: whole}
    for name, share, left, right in zip(
        data["name"], data["share"], data["left"], data["right"], strict=True
    ):
        place, label = (float(left), float(right)), f"{share:.1f} % {name}"
        if len(ends) > MAX_CALLS:
            break
        if place not in ends.values():
            ends[label if label not in ends else f"{label} #{len(ends)}"] = place
    return ends


def _x_range(plot: figure) -> Any:
    """Return the Range1d of a flame graph; Bokeh declares the type of any range."""
    return plot.x_range


def _range(plot: figure) -> str:
    """Return the shown range of samples in address format; "" for all samples."""
    left, right, whole = _x_range(plot).start, _x_range(plot).end, _x_range(plot).bounds
    return "" if whole in (None, (left, right)) else f"{left:.1f}-{right:.1f}"


def _zoom(plot: figure, text: str) -> None:
    """Show a range of samples if it is valid."""
    try:
        left, right = (float(end) for end in text.split("-"))
    except ValueError:
        return
    bounds = _x_range(plot).bounds
    if bounds and 0 <= left < min(right, bounds[1]):
        _x_range(plot).update(start=left, end=min(right, bounds[1]))
