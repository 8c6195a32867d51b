"""Task groups of a run within the window: counts, thread-seconds by activity, selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from benchkit.formatting import short_names
from benchkit.show.dashboard.state.table_state import (
    first_filters,
    page_of,
    remember_table,
    sorters_of,
)
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.web.template import TABLE_STYLES, WRAPPED_TITLES_STYLES
from benchkit.show.escape import escape
from benchkit.show.theme import ACTIVITY_COLOURS, OTHER

__all__ = ["GroupTable", "choose_group"]

PAGE_SIZE = 20
ALL = "all task groups"
BAR, BAR_HEIGHT, NUMBER = 150, 12, 85
_SECONDS = NumberFormatter(format="0,0.000", nan_format="–")
_COUNT = NumberFormatter(format="0,0", nan_format="–")
_MIB = NumberFormatter(format="0,0.00", nan_format="–")


def choose_group(window: Window) -> Any:
    """Return a select for the task group, which works with the keyboard."""
    names = short_names(window.within.groups)
    options = {ALL: "", **{short: group for group, short in names.items()}}
    widget = pn.widgets.Select(
        name="Task group", options=options, value=window.group, width=300, margin=(5, 10, 5, 0)
    )
    widget.param.watch(lambda event: window.choose(event.new), "value")

    def show() -> None:
        widget.value = window.group

    window.follow(show)
    return widget


class GroupTable:
    """Table of task groups, updated with the window; a click on a row selects its group.

    Parameters
    ----------
    window : Window
        Selection of the page.

    Attributes
    ----------
    view : panel object
        The table, with sorting and a filter by name.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._names = short_names(window.within.groups)
        whole = window.within.group_seconds()
        seen = window.within.activities
        self._activities = [  # defined activities only: titles are HTML
            name
            for name in ACTIVITY_COLOURS
            if name in seen or (name in whole and whole[name].any())
        ]
        self._facts = self._never_changing()
        self._group_of: list[str] = []
        frame = self._frame()
        words, held = window.words, {"task group": window.words["holds"]}
        self.view = pn.widgets.Tabulator(
            frame,
            sorters=sorters_of(words["sort"], frame.columns),
            configuration=first_filters(held, words["page"]),
            show_index=False,
            disabled=True,
            theme="simple",
            stylesheets=[*TABLE_STYLES, WRAPPED_TITLES_STYLES, _CLICKABLE],
            layout="fit_data",
            sizing_mode="stretch_width",
            pagination="remote",
            page_size=PAGE_SIZE,
            page=page_of(words["page"], len(frame), PAGE_SIZE),
            formatters={
                "by activity": {"type": "html"},
                **{name: _COUNT for name in ("tasks", "raised", "retried")},
                **{name: _SECONDS for name in frame if name.endswith("(s)")},
                **{name: _MIB for name in frame if name.endswith("(MiB)")},
            },
            text_align={name: "right" for name in frame.columns[2:]},
            header_filters={
                "task group": {"type": "input", "func": "like", "placeholder": "filter"}
            },
            widths={
                "task group": 240 if len(frame.columns) < 12 else 205,  # fit on one screen
                "by activity": BAR + 16,
                **dict.fromkeys(frame.columns[2:], NUMBER),
            },
        )
        self.view.on_click(self._clicked)
        remember_table(
            self.view,
            held,
            lambda order, held, page: window.note(
                sort=order, holds=held.get("task group", ""), page=page
            ),
        )
        window.follow(self._show)

    def _never_changing(self) -> pd.DataFrame:
        """Return columns that exist only for the whole run: results, errors, retries."""
        table = self._window.run.task_groups()
        names = {"result (B)": "results (MiB)", "n_erred": "raised", "n_retried": "retried"}
        found = {
            new: table[old] / (2**20 if old == "result (B)" else 1)
            for old, new in names.items()
            if old in table and table[old].fillna(0).any()
        }
        return pd.DataFrame(found)

    def _frame(self) -> pd.DataFrame:
        table = self._window.within.group_seconds(self._window.of_tasks)
        self._group_of = [str(name) for name in table.index]
        for name in self._activities:
            if name not in table:
                table[name] = np.nan
        most = float(table["total"].max()) if len(table) else 0.0
        bars = [
            _bar({name: row[name] for name in self._activities}, most)
            for row in table[self._activities].to_dict("records")
        ]
        marks = ["● " if name == self._window.group else "" for name in self._group_of]
        shown = {
            "task group": [
                f"{mark}{self._names.get(name, name)}"
                for mark, name in zip(marks, self._group_of, strict=True)
            ],
            "by activity": bars,
            "tasks": table["tasks"].to_numpy(),
            "total (s)": table["total"].to_numpy(),
            **{f"{name} (s)": table[name].to_numpy() for name in self._activities},
        }
        places = self._facts.index.get_indexer(self._group_of)
        for name, values in self._facts.items():
            known = values.to_numpy()[places]
            shown[name] = known if (places >= 0).all() else np.where(places < 0, np.nan, known)
        # Text columns have the same dtype, also when empty.
        return pd.DataFrame({name: _column(values) for name, values in shown.items()})

    def _show(self) -> None:
        self.view.value = self._frame()

    def _clicked(self, event: Any) -> None:
        group = self._group_of[event.row]
        self._window.choose("" if group == self._window.group else group)


def _column(values: Any) -> np.ndarray:
    return np.array(values, dtype=object) if isinstance(values, list) else values


def _bar(seconds: dict[str, float], most: float) -> str:
    """Return thread-seconds by activity as a stacked HTML bar, without text from runs."""
    left, boxes = 0.0, ""
    for name, value in seconds.items():
        if most and value == value and value > 0:
            width = BAR * value / most
            colour = ACTIVITY_COLOURS.get(name, OTHER)
            boxes += f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' "
            boxes += f"fill='{colour}'/>"
            left += width
    told = ", ".join(f"{name} {v:.3f} s" for name, v in seconds.items() if v == v and v > 0)
    return (
        f"<svg width='{BAR}' height='{BAR_HEIGHT}' role='img' "
        f"aria-label='{escape(told)}'><title>{escape(told)}</title>{boxes}</svg>"
    )


_CLICKABLE = """
.tabulator-row { cursor: pointer; } .tabulator-cell svg { vertical-align: middle; }
"""
