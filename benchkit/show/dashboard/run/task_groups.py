"""Task groups of the window: a select, and a table with order, filter and page in the address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd
import panel as pn

from benchkit.formatting import ROWS_SHOWN, short_names
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import select
from benchkit.show.dashboard.state.table_state import stateful_table
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.web.template import WRAPPED_TITLES_STYLES
from benchkit.show.pages.page import Table
from benchkit.show.render.html import BAR_WIDTH

#: Pixels of the table that fit on a screen of a laptop.
TABLE_WIDTH = 1200
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
    """Table of task groups; a click on a row selects its group."""

    def __init__(self, window: Window, table: Table) -> None:
        self._window = window
        frame = self._frame(table)
        name, bar, *numbers = frame.columns

        def write(order: str, filters: dict[str, str], page: str) -> None:
            window.set_options(sort=order, holds=filters.get(name, ""), page=page)

        self.view = stateful_table(
            frame,
            {**window.options, name: window.options["holds"]},
            write,
            filters=[name],
            page_size=ROWS_SHOWN,
            text_align=dict.fromkeys(numbers, "right"),
            stylesheets=[WRAPPED_TITLES_STYLES, CLICKABLE],
            layout="fit_data",
            sizing_mode="stretch_width",
            formatters={bar: {"type": "html"}},
            widths={
                name: _name_width(frame[name], n_numbers=len(numbers)),
                bar: BAR_WIDTH + 16,
                **dict.fromkeys(numbers, tables.NUMBER_WIDTH),
            },
        )
        self.view.on_click(lambda event: window.toggle_group(self._groups[event.row]))

    def update(self, table: Table) -> None:
        """Show another table with the same columns."""
        self.view.param.update(value=self._frame(table))

    def _frame(self, table: Table) -> pd.DataFrame:
        self._groups = [row.words for row in table.rows]
        return tables.text_frame(table)


def _name_width(names: Iterable[str], n_numbers: int) -> int:
    """Return the pixels of the column of names: all of the longest one if the table has room."""
    room = TABLE_WIDTH - BAR_WIDTH - 16 - n_numbers * tables.NUMBER_WIDTH
    return max(205, min(room, 20 + 8 * max(map(len, names), default=0)))
