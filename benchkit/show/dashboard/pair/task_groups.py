"""Table of the thread-seconds of task groups in two runs, and of their differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from benchkit.analysis.compare.run_pair import group_differences
from benchkit.show.dashboard.state.table_state import (
    first_filters,
    page_of,
    remember_table,
    sorters_of,
)
from benchkit.show.dashboard.state.time_window import NAMES, PairWindow
from benchkit.show.dashboard.web.template import TABLE_STYLES

__all__ = ["about_groups", "group_table"]

BAR, BAR_HEIGHT = 150, 12
PAGE_SIZE = 20
#: Divisor of thread-seconds -> unit of the values, and factor from seconds to this unit.
UNITS = {"": ("s", 1.0), "task": ("ms per task", 1e3), "GiB": ("s per GiB", 1.0)}
_CHOICES = {"of all threads": "", "for each task": "task", "for each GiB of results": "GiB"}


def about_groups(window: PairWindow) -> str:
    """Return text that explains the table of groups."""
    where = "within the window" if window.has_times else "of the whole runs, whatever the window"
    told = (
        f"Thread-seconds {where}, B − A, the largest difference first; one run a side is a look, "
        "not a verdict."
    )
    for name, within in zip(NAMES, window.withins, strict=True):
        if not within.n_tasks:
            told += f" Of {name} it is not known when each task computed."
        elif within.n_unseen:
            told += f" Of {name} {within.n_unseen} tasks were too many to record: parts miss them."
    return told


def group_table(window: PairWindow) -> Any:
    """Return the table, below a select for the divisor of its seconds."""
    asked = window.words["per"]
    per = pn.widgets.Select(
        name="Thread-seconds", options=_CHOICES, value=asked if asked in UNITS else "", width=220
    )
    place = pn.Column(sizing_mode="stretch_width", margin=0)
    shows: list[Callable[[], None]] = []

    def draw() -> None:
        table, show = _table(window, str(per.value))
        place[:], shows[:] = [table], [show]

    def chosen(event: Any) -> None:
        # Reset order and page: they belong to the previous values.
        window.note(per=event.new, sort="", page="")
        draw()

    draw()
    per.param.watch(chosen, "value")
    window.follow(lambda: shows[0]())
    return pn.Column(per, place, sizing_mode="stretch_width")


def _table(window: PairWindow, per: str) -> tuple[Any, Callable[[], None]]:
    """Return the table in one unit, and a function that updates it to window and group."""
    unit, scale = UNITS[per]
    numbers = NumberFormatter(format="0,0.000", nan_format="–")
    counts = NumberFormatter(format="0,0", nan_format="–")
    names: list[str] = []

    def frame() -> Any:
        found = group_differences(window.withins[0], window.withins[1], window.of_tasks, per)
        names[:] = [str(name) for name in found.index]
        found[["a", "b", "difference"]] *= scale
        most = float(found["difference"].abs().max()) if len(found) else 0.0
        bars = [_bar(value, most, unit) for value in found["difference"]]
        marked = [f"● {name}" if name == window.group else name for name in names]
        found = found.reset_index(drop=True)
        found = found.rename(
            columns={
                "a": f"A ({unit})", "b": f"B ({unit})", "difference": f"B − A ({unit})",
                "tasks_a": "tasks of A", "tasks_b": "tasks of B",
            }
        )  # fmt: skip
        found.insert(0, "less · more", bars)
        found.insert(0, "task group", marked)
        return found.astype({"task group": object, "less · more": object})

    shown, held = frame(), {"task group": window.words["holds"]}
    table = pn.widgets.Tabulator(
        shown,
        sorters=sorters_of(window.words["sort"], shown.columns),
        configuration=first_filters(held, window.words["page"]),
        show_index=False,
        disabled=True,
        theme="simple",
        stylesheets=[*TABLE_STYLES, ".tabulator-row { cursor: pointer; }"],
        layout="fit_data_table",
        pagination="remote",
        page_size=PAGE_SIZE,
        page=page_of(window.words["page"], len(shown), PAGE_SIZE),
        formatters={
            "less · more": {"type": "html"},
            **{name: numbers for name in shown if name.endswith(f"({unit})")},
            **{name: counts for name in shown if name.startswith("tasks of")},
        },
        text_align={name: "right" for name in shown.columns[2:]},
        header_filters={"task group": {"type": "input", "func": "like", "placeholder": "filter"}},
        widths={"task group": 260, "less · more": BAR + 16},
    )

    def clicked(event: Any) -> None:
        group = names[event.row]
        window.choose("" if group == window.group else group)

    def show() -> None:
        table.value = frame()

    table.on_click(clicked)
    remember_table(
        table,
        held,
        lambda order, held, page: window.note(
            sort=order, holds=held.get("task group", ""), page=page
        ),
    )
    return table, show


def _bar(value: float, most: float, unit: str) -> str:
    """Return a difference as an HTML bar from the centre: left is less, right is more."""
    if not math.isfinite(value):
        return ""
    half = BAR / 2
    width = half * abs(value) / most if most else 0.0
    left = half if value > 0 else half - width
    colour = "#b2182b" if value > 0 else "#2166ac"
    return (
        f"<svg width='{BAR}' height='{BAR_HEIGHT}' role='img' aria-label='{value:+.3f} {unit}'>"
        f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' fill='{colour}'/>"
        f"<line x1='{half}' x2='{half}' y1='0' y2='{BAR_HEIGHT}' stroke='#8a95a2'/></svg>"
    )
