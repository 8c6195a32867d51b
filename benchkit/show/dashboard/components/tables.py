"""Tables of values, and buttons that save them as files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.show.dashboard.state.table_state import scripted_table
from benchkit.show.dashboard.state.url import href
from benchkit.show.dashboard.web.template import TABLE_STYLES, WIDGET_STYLES
from benchkit.show.pages.page import Bar, Table
from benchkit.show.render import html
from benchkit.show.render import panel as ui
from benchkit.store.schema import METRICS
from benchkit.table import columns_of_numbers

#: Milliseconds after a download until its content is removed from memory.
RELEASE_MS = 1000
#: Rows of a page of a long table, and of the longest table that is not in pages.
PAGE_SIZE, MAX_HTML_ROWS = 30, 60
#: Width of a column of numbers, in pixels.
NUMBER_WIDTH = 85


def html_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, tight: bool = False
) -> pn.pane.HTML:
    """Return a table whose cells may contain links."""
    return ui.html_pane(html.html_table(titles, rows, tight=tight))


def text_frame(table: Table) -> pd.DataFrame:
    """Return a table as texts; numbers with equal decimals are ordered as texts, too."""
    if not table.rows:
        return pd.DataFrame(columns=list(table.columns), dtype=object)
    bars = [i for i, cell in enumerate(table.rows[0].cells) if isinstance(cell, Bar)]
    columns = [
        [str(html.cell_markup(cell, href)) if i in bars else str(cell) for cell in cells]
        for i, cells in enumerate(zip(*(row.cells for row in table.rows), strict=True))
    ]
    for cells, is_number in zip(
        columns, columns_of_numbers(list(zip(*columns, strict=True))), strict=True
    ):
        width = max(map(len, cells))
        cells[:] = [cell.rjust(width) if is_number else cell for cell in cells]
    return pd.DataFrame(dict(zip(table.columns, columns, strict=True)), dtype=object)


def paged_table(table: Table) -> Viewable:
    """Return a long table in pages; its last column has the longest texts."""
    frame = text_frame(table)
    numbers = columns_of_numbers([[cell.strip() for cell in row] for row in frame.to_numpy()])
    paged = scripted_table(
        frame,
        stylesheets=TABLE_STYLES,
        layout="fit_data_stretch",
        sizing_mode="stretch_width",
        formatters={table.columns[-1]: {"type": "textarea"}},
        pagination="remote",
        page_size=PAGE_SIZE,
        text_align={
            name: "right" for name, is_number in zip(frame, numbers, strict=True) if is_number
        },
    )
    terms = [ui.glossary(table.terms, table.terms_title)] if table.terms else []
    return ui.column(paged, *terms, margin=0)


def download_button(
    name: str, make: Callable[[], pd.DataFrame | IO[Any]], label: str = "", width: int = 380
) -> pn.widgets.FileDownload:
    """Return a button that saves a file; a click creates the content."""

    def content() -> IO[Any]:
        made = make()
        return io.StringIO(_as_csv(made)) if isinstance(made, pd.DataFrame) else made

    # Download only, never displayed: a performance report may contain foreign scripts.
    widget = pn.widgets.FileDownload(
        callback=content,
        filename=name,
        label=label or name,
        stylesheets=[WIDGET_STYLES],
        width=width,
        margin=(2, 0),
    )

    def release() -> None:
        widget.param.update(data="")

    def release_later(event: Any) -> None:
        # Server and browser would keep the file content while the page is open.
        if event.new and pn.state.curdoc is not None:
            pn.state.curdoc.add_timeout_callback(release, RELEASE_MS)

    widget.param.watch(release_later, "data")
    return widget


def _as_csv(frame: pd.DataFrame) -> str:
    """Return CSV in which spreadsheets do not read text as a formula."""
    names = frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz"]).columns
    return frame.assign(**{name: frame[name].map(_no_formula) for name in names}).to_csv(
        index=False
    )


def _no_formula(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def measured_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics that at least one run has, in the order of the metrics table."""
    return [name for name in METRICS if name in runs and runs[name].notna().any()]
