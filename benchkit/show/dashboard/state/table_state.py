"""Sort order, filters and page of a table, stored in the address of the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd
import panel as pn

from benchkit.show.dashboard.state.url import Debounced
from benchkit.show.dashboard.web.template import TABLE_STYLES

#: Filter that matches every row: with it Tabulator reports its filters once it is built.
_MATCH_ALL = {"field": "not a column", "type": "!=", "value": "anything"}
#: Tabulator options of a filter field below the title of a column.
_FILTER = {"type": "input", "func": "like", "placeholder": "filter"}


def scripted_table(frame: pd.DataFrame, **options: Any) -> pn.widgets.Tabulator:
    """Return a table of Panel; the page of the session gets the scripts that it needs."""
    pn.extension("tabulator", notifications=False)
    if "text_align" in options:
        options["header_align"] = options["text_align"]
    return pn.widgets.Tabulator(frame, show_index=False, disabled=True, theme="simple", **options)


def stateful_table(
    frame: pd.DataFrame,
    state: Mapping[str, str],
    write: Callable[[str, dict[str, str], str], Any],
    *,
    filters: Sequence[str],
    page_size: int,
    is_paged: bool = True,
    stylesheets: Sequence[str] = (),
    configuration: Mapping[str, Any] | None = None,
    **options: Any,
) -> pn.widgets.Tabulator:
    """Return a table whose order, filters and page are those of the address.

    Tabulator in the browser ignores the initial page: the page is set after the browser has built
    the table, which the first filter event reports. A new filter resets the table to page 1.
    """
    texts = {name: state[name] for name in filters if state.get(name)}
    browser: dict[str, Any] = dict(configuration or {})
    if texts:
        browser["initialHeaderFilter"] = [{"field": n, "value": text} for n, text in texts.items()]
    if state.get("page"):
        browser["initialFilter"] = [_MATCH_ALL]
    table = scripted_table(
        frame,
        sorters=_sorters(state.get("sort", ""), frame.columns),
        configuration=browser,
        stylesheets=[*TABLE_STYLES, *stylesheets],
        pagination="remote" if is_paged else None,
        page_size=page_size,
        header_filters={name: _FILTER for name in filters},
        **options,
    )
    first_page = page_of(state.get("page", ""), len(frame), page_size)

    def show_first_page(event: Any) -> None:
        nonlocal first_page
        if first_page > 1:
            table.page, first_page = first_page, 1

    def reset_page(event: Any) -> None:
        nonlocal texts
        previous, texts = texts, _filters(table)
        if texts != previous:  # the first event repeats the initial filters
            table.page = 1

    def report() -> None:
        write(_order(table), _filters(table), str(table.page) if table.page > 1 else "")

    table.param.watch(reset_page, "filters")
    table.param.watch(show_first_page, "filters")
    table.param.watch(Debounced(report), ["sorters", "filters", "page"])
    return table


def _sorters(order: str, columns: Collection[str]) -> list[dict[str, str]]:
    """Return Tabulator's sorters for a column name; a leading minus means descending order."""
    name = order.removeprefix("-")
    return [{"field": name, "dir": "desc" if order != name else "asc"}] if name in columns else []


def page_of(text: str, n_rows: int, page_size: int) -> int:
    """Return the existing page nearest to the page number of an address."""
    last = max(1, -(-n_rows // page_size))
    if not (text.isascii() and text.isdigit()):
        return 1
    # int() rejects more than 4300 digits; a valid page has at most the digits of the last page.
    digits = text.lstrip("0")
    return last if len(digits) > len(str(last)) else min(max(1, int(digits or 0)), last)


def _order(table: pn.widgets.Tabulator) -> str:
    """Return the first sort column in the format of `_sorters`."""
    if not table.sorters:
        return ""
    first = table.sorters[0]
    return ("-" if first.get("dir") == "desc" else "") + str(first["field"])


def _filters(table: pn.widgets.Tabulator) -> dict[str, str]:
    """Return the header filters of a table, by column."""
    return {
        str(entry["field"]): str(entry["value"])
        for entry in table.filters
        if entry.get("value") and entry["field"] != _MATCH_ALL["field"]
    }
