"""Table of the thread-seconds of task groups in two runs, and of their differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.run.timeline import group_differences
from benchkit.show.dashboard.components import ui
from benchkit.show.dashboard.components.widgets import select
from benchkit.show.dashboard.run.task_groups import (
    BAR_HEIGHT,
    BAR_WIDTH,
    CLICKABLE,
    COUNT,
    SECONDS,
    group_tabulator,
)
from benchkit.show.dashboard.state.time_window import NAMES, PairWindow
from benchkit.show.theme import BETTER, UNCHANGED, WORSE

__all__ = ["about_groups", "group_table"]

#: Divisor of thread-seconds -> unit of the values, and factor from seconds to this unit.
UNITS = {"": ("s", 1.0), "task": ("ms per task", 1e3), "GiB": ("s per GiB", 1.0)}
_DIVISORS = {"of all threads": "", "for each task": "task", "for each GiB of results": "GiB"}


def about_groups(window: PairWindow) -> str:
    """Return text that explains the table of groups."""
    where = "within the window" if window.has_times else "of the whole runs, for any window"
    text = (
        f"Thread-seconds {where}, B − A, largest difference first. One run per side shows a "
        "difference but proves none."
    )
    for name, timeline in zip(NAMES, window.timelines, strict=True):
        if not timeline.n_tasks:
            text += f" Task times of {name} were not recorded."
        elif timeline.n_unseen:
            text += f" {timeline.n_unseen} tasks of {name} were not recorded (too many)."
    return text


def group_table(window: PairWindow) -> pn.Column:
    """Return the table, below a select for the divisor of its seconds."""
    divisor = select("Thread-seconds", _DIVISORS, window.options["per"], width=220)
    place = ui.column(margin=0)
    update: Callable[[], object]

    def draw() -> None:
        nonlocal update
        table, update = _table(window, str(divisor.value))
        place[:] = [table]

    def change_divisor(event: Any) -> None:
        # Reset order and page: they belong to the previous values.
        window.set_options(per=event.new, sort="", page="")
        draw()

    draw()
    divisor.param.watch(change_divisor, "value")
    window.subscribe(lambda: update())
    return ui.column(divisor, place)


def _table(window: PairWindow, per: str) -> tuple[pn.widgets.Tabulator, Callable[[], object]]:
    """Return the table in one unit, and a function that updates it to window and group."""
    unit, scale = UNITS[per]
    names: list[str] = []
    a, b = window.timelines

    def rows() -> pd.DataFrame:
        table = group_differences(a, b, window.task_part, per)
        names[:] = [str(name) for name in table.index]
        table[["a", "b", "difference"]] *= scale
        largest = float(table["difference"].abs().max()) if len(table) else 0.0
        shown = {
            "task group": [f"● {name}" if name == window.group else name for name in names],
            "less · more": [_bar(value, largest, unit) for value in table["difference"]],
        }
        titles = {
            "a": f"A ({unit})",
            "b": f"B ({unit})",
            "difference": f"B − A ({unit})",
            "tasks_a": "tasks of A",
            "tasks_b": "tasks of B",
        }
        table = table.reset_index(drop=True).rename(columns=titles)
        return pd.concat([pd.DataFrame(shown, dtype=object), table], axis=1)

    frame = rows()
    table = group_tabulator(
        frame,
        window,
        stylesheets=[CLICKABLE],
        layout="fit_data_table",
        formatters={
            "less · more": {"type": "html"},
            **{name: SECONDS for name in frame if name.endswith(f"({unit})")},
            **{name: COUNT for name in frame if name.startswith("tasks of")},
        },
        widths={"task group": 260, "less · more": BAR_WIDTH + 16},
    )

    table.on_click(lambda event: window.toggle_group(names[event.row]))
    return table, lambda: table.param.update(value=rows())


def _bar(value: float, largest: float, unit: str) -> str:
    """Return a difference as an HTML bar from the centre: left is less, right is more."""
    if not math.isfinite(value):
        return ""
    half = BAR_WIDTH / 2
    width = half * abs(value) / largest if largest else 0.0
    left = half if value > 0 else half - width
    colour = WORSE if value > 0 else BETTER
    label = f"{value:+.3f} {unit}"
    return (
        f"<svg width='{BAR_WIDTH}' height='{BAR_HEIGHT}' role='img' aria-label='{label}'>"
        f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' fill='{colour}'/>"
        f"<line x1='{half}' x2='{half}' y1='0' y2='{BAR_HEIGHT}' stroke='{UNCHANGED}'/></svg>"
    )
