"""Sort order, filters and page of a table, stored in the address of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import panel as pn

__all__ = ["Debounced", "first_filters", "page_of", "remember_table", "sorters_of"]

#: Milliseconds without input before the browser's history gets an entry.
REST_MS = 600
#: Filter that matches every row: with it Tabulator reports its filters once it is built.
_BUILT = {"field": "not a column", "type": "!=", "value": "anything"}


class Debounced:
    """Callable that runs an action once, after calls have stopped for `REST_MS`.

    Parameters
    ----------
    act : callable
        Action.
    model : callable, optional
        Returns a model of the page; needed if called outside of Panel's callbacks.
    """

    def __init__(self, act: Callable[[], Any], model: Callable[[], Any] = lambda: None) -> None:
        self._act, self._model = act, model
        self._asked = self._seen = 0

    def __call__(self, *events: Any) -> None:
        """Request the action."""
        self._asked += 1
        document = pn.state.curdoc or getattr(self._model(), "document", None)
        if document is None or document.session_context is None:  # in a notebook
            self._act()
        elif self._asked == 1:

            def look() -> None:
                if self._seen != self._asked:  # called again meanwhile
                    self._seen = self._asked
                    document.add_timeout_callback(look, REST_MS)
                    return
                self._asked = self._seen = 0
                self._act()

            self._seen = 1
            document.add_timeout_callback(look, REST_MS)


def sorters_of(order: str, columns: Any) -> list[dict[str, str]]:
    """Return Tabulator's sorters.

    Parameters
    ----------
    order : str
        Column name; a leading minus sorts in descending order.
    columns : container of str
        Columns of the table.

    Returns
    -------
    list of dict
        Sorters; empty for an unknown column.
    """
    name = order.removeprefix("-")
    return [{"field": name, "dir": "desc" if order != name else "asc"}] if name in columns else []


def first_filters(held: Mapping[str, str], page: str) -> dict[str, Any]:
    """Return the Tabulator configuration for initial filters and page.

    Parameters
    ----------
    held : mapping of str to str
        Filter text by column.
    page : str
        Page number, or empty.

    Returns
    -------
    dict
        Configuration.
    """
    typed = [{"field": name, "value": value} for name, value in held.items() if value]
    return {
        **({"initialHeaderFilter": typed} if typed else {}),
        **({"initialFilter": [_BUILT]} if page else {}),
    }


def page_of(word: str, n_rows: int, page_size: int) -> int:
    """Return the existing page nearest to the page number of an address.

    Parameters
    ----------
    word : str
        Text of the address.
    n_rows, page_size : int
        Rows of the table, and rows per page.

    Returns
    -------
    int
        Page number, from 1.
    """
    last = max(1, -(-n_rows // page_size))
    if not (word.isascii() and word.isdigit()):
        return 1
    # int() rejects more than 4300 digits; a valid page has at most the digits of the last page.
    digits = word.lstrip("0")
    return last if len(digits) > len(str(last)) else min(max(1, int(digits or 0)), last)


def remember_table(
    table: pn.widgets.Tabulator,
    held: Mapping[str, str],
    note: Callable[[str, Mapping[str, str], str], Any],
) -> None:
    """Call ``note(order, held, page)`` after the user sorts, filters or changes the page.

    The call is debounced; page 1 is passed as "". `held` contains the initial filters, as for
    `first_filters`. A new filter resets the table to page 1.

    Tabulator in the browser ignores the initial page: the page is set after the browser has built
    the table, which the first filter event reports (see `first_filters`).
    """
    begins, table.page = table.page, 1
    typed = {name: value for name, value in held.items() if value}

    def built(event: Any) -> None:
        nonlocal begins
        if begins > 1:
            table.page, begins = begins, 1

    def begin_anew(event: Any) -> None:
        nonlocal typed
        before, typed = typed, _held(table)
        if typed != before:  # the first event repeats the initial filters
            table.page = 1

    def tell() -> None:
        note(_order(table), _held(table), str(table.page) if table.page > 1 else "")

    table.param.watch(begin_anew, "filters")
    table.param.watch(built, "filters")
    table.param.watch(Debounced(tell), ["sorters", "filters", "page"])


def _order(table: pn.widgets.Tabulator) -> str:
    """Return the first sort column in the format of `sorters_of`."""
    if not table.sorters:
        return ""
    first = table.sorters[0]
    return ("-" if first.get("dir") == "desc" else "") + str(first["field"])


def _held(table: pn.widgets.Tabulator) -> dict[str, str]:
    """Return the header filters of a table, by column."""
    return {
        str(one["field"]): str(one["value"])
        for one in table.filters
        if one.get("value") and one["field"] != _BUILT["field"]
    }
