"""Call stacks of a run, for all tasks or one prefix, and the difference of two runs."""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.table_state import Debounced
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.plots.base import has
from benchkit.show.plots.flame import flame_graph
from benchkit.show.plots.flame_difference import flame_difference
from benchkit.store.run import Run

__all__ = ["stack_difference", "stacks"]

ALL, EVERYTHING, DRAGGED = "all tasks", "everything", "as dragged"
#: Number of widest calls in the select, which works with the keyboard.
MOST_CALLS = 60


def stacks(window: Window) -> Any:
    """Return the flame graph with selects for prefix and call, and a search field.

    The initial selection comes from the address (``prefix``, ``find``, ``frames``), else from
    the prefix of the selected group.
    """
    run = window.run
    if not has(run.tree, "profile", "frame"):
        return parts.message(
            "No call stacks", "Capture in full takes them; this run had less, or none was taken."
        )
    profile = run.profile()
    roots = profile[profile["parent"] < 0].sort_values("count", ascending=False)
    prefix = pn.widgets.Select(name="Tasks", options=[ALL, *map(str, roots["prefix"])], width=280)
    call = pn.widgets.Select(name="As wide as the page", options=[EVERYTHING], width=320)
    find = pn.widgets.TextInput(
        name="Find", placeholder="function or file", width=280, value=window.words["find"]
    )
    shown = pn.Column(sizing_mode="stretch_width")
    figures: list[Any] = []

    def note() -> None:
        chosen = str(prefix.value)
        own = "" if chosen == (window.prefix or ALL) else chosen
        window.note(prefix=own, find=str(find.value or "").strip(), frames=_part(figures[0]))
        tell()

    rested = Debounced(note, lambda: figures[0])
    calls: dict[str, tuple[float, float]] = {}

    def tell() -> None:
        """Set the select of calls to the range of the figure."""
        ends = (float(figures[0].x_range.start), float(figures[0].x_range.end))
        name = next((name for name, place in calls.items() if place == ends), DRAGGED)
        options = [*calls, DRAGGED] if name == DRAGGED else [*calls]
        call.param.update(options=options, value=name)

    def moved(attr: str, old: Any, new: Any) -> None:
        rested()

    def draw(*events: Any) -> None:
        nonlocal calls
        chosen = None if prefix.value == ALL else prefix.value
        drawn = flame_graph(run.tree, chosen, str(find.value or "").strip())
        figures[:] = [drawn]
        calls = _calls(drawn)
        if not events:
            _look(drawn, window.words["frames"])
        tell()
        for end in ("start", "end"):
            drawn.x_range.on_change(end, moved)
        shown[:] = [parts.figure(drawn)]
        if events:
            rested()

    def widen(event: Any) -> None:
        if event.new in calls:
            left, right = calls[event.new]
            figures[0].x_range.update(start=left, end=right)

    pointed = [""]

    def point() -> None:
        wanted = window.prefix
        if wanted != pointed[0]:  # keep the user's prefix if only the time changes
            pointed[0] = wanted
            prefix.value = wanted if wanted in prefix.options else ALL

    point()
    if window.words["prefix"] in prefix.options:
        prefix.value = window.words["prefix"]
    window.follow(point)
    draw()
    for widget in (prefix, find):
        widget.param.watch(draw, "value")
    call.param.watch(widen, "value")
    return pn.Column(
        pn.Row(prefix, find, call),
        shown,
        parts.words(
            "A click makes a call as wide as the page, two clicks show everything again. The graph "
            "is of the whole run, whatever the window."
        ),
        sizing_mode="stretch_width",
    )


def stack_difference(a: Run, b: Run) -> Any:
    """Return a flame graph of the differences in time per call between two runs."""
    gone = pn.widgets.Checkbox(name="Show what only A has", value=False)
    shown = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        shown[:] = [parts.figure(flame_difference(a.tree, b.tree, show_removed=bool(gone.value)))]

    draw()
    gone.param.watch(draw, "value")
    return pn.Column(
        gone,
        shown,
        parts.words(
            "As wide as in B; ▲ and red: more than in A, ▼ and blue: less. A click makes a call as "
            "wide as the page, two clicks show everything again."
        ),
        sizing_mode="stretch_width",
    )


def _calls(figure: Any) -> dict[str, tuple[float, float]]:
    """Return the widest calls: label -> left and right end in samples, callers first."""
    source = figure.select_one({"name": "frames"})
    whole = (0.0, float(figure.x_range.end))
    if source is None:
        return {EVERYTHING: whole}
    data = source.data
    ends = {EVERYTHING: whole}
    for name, share, left, right in zip(
        data["name"], data["share"], data["left"], data["right"], strict=True
    ):
        place, told = (float(left), float(right)), f"{share:.1f} % {name}"
        if len(ends) > MOST_CALLS:
            break
        if place not in ends.values():
            ends[told if told not in ends else f"{told} #{len(ends)}"] = place
    return ends


def _part(figure: Any) -> str:
    """Return the shown range of samples in address format; "" for all samples."""
    left, right = figure.x_range.start, figure.x_range.end
    whole = figure.x_range.bounds
    return "" if whole in (None, (left, right)) else f"{left:.1f}-{right:.1f}"


def _look(figure: Any, part: str) -> None:
    """Show a range of samples if it is valid."""
    try:
        left, right = (float(end) for end in part.split("-"))
    except ValueError:
        return
    if figure.x_range.bounds and 0 <= left < min(right, figure.x_range.bounds[1]):
        figure.x_range.update(start=left, end=min(right, figure.x_range.bounds[1]))
