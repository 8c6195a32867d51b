"""Task groups of a run timeline the window: counts, thread-seconds by activity, selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from benchkit.formatting import MIB, MISSING, ROWS_SHOWN, short_names
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import select
from benchkit.show.dashboard.state.table_state import stateful_table
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.web.template import WRAPPED_TITLES_STYLES
from benchkit.show.theme import ACTIVITY_COLOURS, OTHER
from benchkit.text import escape

#: Size in pixels of a bar by activity.
BAR_WIDTH = 150
BAR_HEIGHT = 12
#: Pixels of the table that fit on a screen of a laptop.
TABLE_WIDTH = 1200
SECONDS = NumberFormatter(format="0,0.000", nan_format=MISSING)
COUNT = NumberFormatter(format="0,0", nan_format=MISSING)
_MIB = NumberFormatter(format="0,0.00", nan_format=MISSING)
CLICKABLE = """
.tabulator-row { cursor: pointer; } .tabulator-cell svg { vertical-align: middle; }
"""


def choose_group(window: Window, names: Mapping[str, str] | None = None) -> pn.widgets.Select:
    """Return a select for the task group, which works with the keyboard."""
    names = short_names(window.timeline.groups) if names is None else names
    options = {"all task groups": "", **{short: group for group, short in names.items()}}
    widget = select("Task group", options, window.group, width=300)
    widget.margin = (5, 10, 5, 0)
    widget.param.watch(lambda event: window.select_group(event.new), "value")
    window.subscribe(lambda: widget.param.update(value=window.group))
    return widget


class GroupTable:
    """Table of task groups, updated with the window; a click on a row selects its group."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._names = short_names(window.timeline.groups)
        whole = window.timeline.group_seconds()
        recorded = window.timeline.activities
        self._activities = [  # defined activities only: titles are HTML
            name
            for name in ACTIVITY_COLOURS
            if name in recorded or (name in whole and whole[name].any())
        ]
        self._constants = self._constant_columns()
        self._groups: list[str] = []
        frame = self._frame()
        self.view = group_tabulator(
            frame,
            window,
            stylesheets=[WRAPPED_TITLES_STYLES, CLICKABLE],
            layout="fit_data",
            sizing_mode="stretch_width",
            formatters={
                "by activity": {"type": "html"},
                **{name: COUNT for name in ("tasks", "raised", "retried")},
                **{name: SECONDS for name in frame if name.endswith("(s)")},
                **{name: _MIB for name in frame if name.endswith("(MiB)")},
            },
            widths={
                "task group": _name_width(frame["task group"], n_numbers=len(frame.columns) - 2),
                "by activity": BAR_WIDTH + 16,
                **dict.fromkeys(frame.columns[2:], tables.NUMBER_WIDTH),
            },
        )
        self.view.on_click(self._select)
        window.subscribe(lambda: self.view.param.update(value=self._frame()))

    def _constant_columns(self) -> pd.DataFrame:
        """Return columns that exist only for the whole run: results, errors, retries."""
        table = self._window.run.task_groups()
        names = {"result (B)": "results (MiB)", "n_erred": "raised", "n_retried": "retried"}
        columns = {
            new: table[old] / (MIB if old == "result (B)" else 1)
            for old, new in names.items()
            if old in table and table[old].fillna(0).any()
        }
        return pd.DataFrame(columns)

    def _frame(self) -> pd.DataFrame:
        table = self._window.timeline.group_seconds(self._window.task_part)
        self._groups = [str(name) for name in table.index]
        for name in self._activities:
            if name not in table:
                table[name] = np.nan
        longest = float(table["total"].max()) if len(table) else 0.0
        names = [
            ("● " if group == self._window.group else "") + self._names.get(group, group)
            for group in self._groups
        ]
        bars = [_bar(row, longest) for row in table[self._activities].to_dict("records")]
        shown: dict[str, Any] = {
            # Text columns have the same dtype, also when empty.
            "task group": np.array(names, dtype=object),
            "by activity": np.array(bars, dtype=object),
            "tasks": table["tasks"].to_numpy(),
            "total (s)": table["total"].to_numpy(),
            **{f"{name} (s)": table[name].to_numpy() for name in self._activities},
        }
        rows = self._constants.index.get_indexer(self._groups)
        for column, values in self._constants.items():
            cells = values.to_numpy()[rows]
            shown[str(column)] = cells if (rows >= 0).all() else np.where(rows < 0, np.nan, cells)
        return pd.DataFrame(shown)

    def _select(self, event: Any) -> None:
        self._window.toggle_group(self._groups[event.row])


def group_tabulator(frame: pd.DataFrame, window: Window, **options: Any) -> pn.widgets.Tabulator:
    """Return a table of task groups whose order, name filter and page are in the address."""

    def write(order: str, filters: dict[str, str], page: str) -> None:
        window.set_options(sort=order, holds=filters.get("task group", ""), page=page)

    state = {**window.options, "task group": window.options["holds"]}
    return stateful_table(
        frame,
        state,
        write,
        filters=["task group"],
        page_size=ROWS_SHOWN,
        text_align={name: "right" for name in frame.columns[2:]},
        **options,
    )


def _name_width(names: Iterable[str], n_numbers: int) -> int:
    """Return the pixels of the column of names: all of the longest one if the table has room."""
    room = TABLE_WIDTH - BAR_WIDTH - 16 - n_numbers * tables.NUMBER_WIDTH
    return max(205, min(room, 20 + 8 * max(map(len, names), default=0)))


def _bar(seconds: Mapping[str, float], longest: float) -> str:
    """Return thread-seconds by activity as a stacked HTML bar, without text from runs."""
    left, boxes, texts = 0.0, "", []
    for name, value in seconds.items():
        if longest and value > 0:  # False for NaN
            width = BAR_WIDTH * value / longest
            colour = ACTIVITY_COLOURS.get(name, OTHER)
            boxes += f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' "
            boxes += f"fill='{colour}'/>"
            texts.append(f"{name} {value:.3f} s")
            left += width
    label = escape(", ".join(texts))
    return (
        f"<svg width='{BAR_WIDTH}' height='{BAR_HEIGHT}' role='img' aria-label='{label}'>"
        f"<title>{label}</title>{boxes}</svg>"
    )
