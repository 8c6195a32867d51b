"""HTML components that views share. Only this module makes HTML from text of runs, escaped.

Panel's panes for Markdown, HTML and plain strings execute scripts in the text; a test checks that
no view uses them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import panel as pn
from pandas.api.types import is_numeric_dtype

from benchkit.errors import BenchkitError
from benchkit.show.dashboard.web.template import PANE_STYLES, TABLE_STYLES, WIDGET_STYLES
from benchkit.show.escape import escape, escape_with_code
from benchkit.store.schema import METRICS

__all__ = [
    "columns",
    "download",
    "drawing",
    "facts",
    "figure",
    "folded",
    "form",
    "glossary",
    "guarded",
    "head",
    "heading",
    "links",
    "message",
    "metric_term",
    "metric_terms",
    "rows",
    "say",
    "source_text",
    "table",
    "trouble",
    "way",
    "words",
]

#: Milliseconds after a download until its content is removed from memory.
FORGET_MS = 1000
#: Approximate height of a table row.
ROW_HEIGHT_REM = 1.9
_REACHED = "tabindex='0' role='group' aria-label='table'"


def _html(markup: str, **options: Any) -> Any:
    return pn.pane.HTML(
        markup, stylesheets=[PANE_STYLES], sizing_mode="stretch_width", margin=0, **options
    )


def words(text: str, *, kind: str = "soft") -> Any:
    """Return a line of text."""
    return _html(_line(text, kind))


def say(line: Any, text: str, *, kind: str = "soft") -> None:
    """Replace the text of a line from `words`; faster than a new pane."""
    line.object = _line(text, kind)


def _line(text: str, kind: str) -> str:
    return f"<p class='{escape(kind)}'>{escape_with_code(text)}</p>"


def heading(text: str, below: str = "") -> Any:
    """Return the title of a section, with an explanatory line below."""
    line = f"<p class='soft'>{escape_with_code(below)}</p>" if below else ""
    return _html(f"<h2>{escape(text)}</h2>{line}")


def head(
    title: str, *, state: str = "", good: bool = True, lines: Sequence[str] = (), error: str = "",
    tiles: Mapping[str, str] | None = None, below: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """Return the head of a view: title, state, lines of context, key figures.

    `below` maps the label of a key figure to the text below the figure.
    """
    tone = "good" if good else "bad"
    markup = f"<h1>{escape(title)} <span class='{tone}'>{escape(state)}</span></h1>"
    if error:
        markup += f"<p class='bad'>{escape(error)}</p>"
    markup += "".join(f"<p class='soft'>{escape(line)}</p>" for line in lines if line)
    if tiles:
        below = below or {}
        inside = "".join(
            f"<div><b>{escape(value)}</b><br><small>{escape(label)}</small>"
            + (f"<br><small class='soft'>{escape(below[label])}</small>" if label in below else "")
            + "</div>"
            for label, value in tiles.items()
        )
        markup += f"<div class='tiles'>{inside}</div>"
    return _html(markup)


def facts(rows: Mapping[str, Any]) -> Any:
    """Return names and values as a table."""
    inside = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return _html(f"<table>{inside}</table>")


def rows(
    titles: Sequence[str], cells: Sequence[Sequence[str]], *, tight: bool = False, tall: int = 0
) -> Any:
    """Return a table of HTML cells; the caller must escape text from runs.

    If `tight`, only the first and the last column break lines. A table of more than `tall` rows
    scrolls within the height of `tall` rows, unless `tall` is 0.
    """
    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    kind = "tight" if tight else "loose"
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    table = f"<table class='{kind}'>{inside}</table>"
    if tall and len(cells) > tall:  # scrolling tables need keyboard focus
        style = f"max-height: {tall * ROW_HEIGHT_REM}rem"
        table = f"<div class='tall' style='{style}' {_REACHED}>{table}</div>"
    return _html(table)


def glossary(terms: Mapping[str, str], title: str = "What the columns mean") -> Any:
    """Return a collapsed list of terms and definitions."""
    inside = "".join(
        f"<dt>{escape(term)}</dt><dd>{escape(told)}</dd>" for term, told in terms.items()
    )
    return _html(f"<details><summary>{escape(title)}</summary><dl>{inside}</dl></details>")


def drawing(svg: str) -> Any:
    """Return an SVG drawing, such as a sparkline."""
    return _html(svg)


def way(what: str, targets: Mapping[str, str]) -> Any:
    """Return a line of links; `targets` maps the address of a view to the link text."""
    inside = " · ".join(
        f"<a href='{escape(address)}'>{escape(text)}</a>" for address, text in targets.items()
    )
    return _html(f"<p><b>{escape(what)}</b>: {inside}</p>")


def links(targets: Mapping[str, str]) -> Any:
    """Return links in as many columns as fit; `targets` maps addresses to link texts."""
    inside = "".join(
        f"<li><a href='{escape(address)}'>{escape(text)}</a></li>"
        for address, text in targets.items()
    )
    return _html(f"<ul style='columns: 20rem; list-style: none; padding: 0'>{inside}</ul>")


def form(view: str, fields: Mapping[str, tuple[str, str]], button: str) -> Any:
    """Return a form that opens a view; `fields` maps address keys to label and example."""
    inside = "".join(
        f"<label>{escape(label)}"
        f"<input name='{escape(key)}' placeholder='{escape(hint)}' required></label>"
        for key, (label, hint) in fields.items()
    )
    hidden = f"<input type='hidden' name='view' value='{escape(view)}'>"
    return _html(f"<form method='get'>{hidden}{inside}<button>{escape(button)}</button></form>")


def source_text(text: str) -> Any:
    """Return text without formatting, in a fixed-width font."""
    return _html(_pre(text, "text"))


def _pre(text: str, label: str) -> str:
    # Scrolling text needs keyboard focus.
    return f"<pre tabindex='0' role='group' aria-label='{escape(label)}'>{escape(text)}</pre>"


def folded(title: str, text: str) -> Any:
    """Return long text, collapsed below its title."""
    return _html(f"<details><summary>{escape(title)}</summary>{_pre(text, title)}</details>")


def columns(items: Sequence[str]) -> Any:
    """Return short items as a list in as many columns as fit."""
    inside = "".join(f"<li>{escape(item)}</li>" for item in items)
    return _html(f"<ul class='columns'>{inside}</ul>")


def message(title: str, text: str, command: str = "", *, back: bool = False) -> Any:
    """Return a message shown in place of data: what is missing and how to get it."""
    code = f"<p><code>{escape(command)}</code></p>" if command else ""
    link = "<p><a href='?view=runs'>All runs</a></p>" if back else ""
    return _html(
        f"<div class='empty'><h2>{escape(title)}</h2><p>{escape_with_code(text)}</p>"
        f"{code}{link}</div>"
    )


def guarded(make: Callable[[], Any]) -> Any:
    """Return the result of `make`, or an error message if it raises."""
    try:
        return make()
    except Exception as error:
        return message("This part cannot be shown", f"{type(error).__name__}: {error}")


def trouble(title: str, error: Exception) -> Any:
    """Return the message of an error; adds the type unless it is a BenchkitError."""
    ours = isinstance(error, BenchkitError)
    return message(title, str(error) if ours else f"{type(error).__name__}: {error}")


def download(name: str, make: Callable[[], Any], told: str = "", width: int = 380) -> Any:
    """Return a button that saves a file; a click creates the content.

    Parameters
    ----------
    name : str
        Name of the file.
    make : callable
        Returns a file to read from, or a table, which is saved as CSV.
    told : str, optional
        Label of the button, by default the name of the file.
    width : int, default 380
        Width of the button in pixels.
    """

    def content() -> Any:
        made = make()
        return io.StringIO(_as_csv(made)) if isinstance(made, pd.DataFrame) else made

    # Download only, never displayed: a performance report may contain foreign scripts.
    widget = pn.widgets.FileDownload(
        callback=content,
        filename=name,
        label=told or name,
        stylesheets=[WIDGET_STYLES],
        width=width,
        margin=(2, 0),
    )

    def forget() -> None:
        widget.param.update(data="")

    def sent(event: Any) -> None:
        # Free the file content, which server and browser would keep while the page is open.
        if event.new and pn.state.curdoc is not None:
            pn.state.curdoc.add_timeout_callback(forget, FORGET_MS)

    widget.param.watch(sent, "data")
    return widget


def _as_csv(frame: pd.DataFrame) -> str:
    """Return CSV in which spreadsheets do not read text as a formula."""
    words = frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz"]).columns
    safe = {name: frame[name].map(_no_formula) for name in words}
    return frame.assign(**safe).to_csv(index=False)


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def figure(drawn: Any) -> Any:
    """Return a Bokeh figure as a pane."""
    # Bokeh draws once into the leftmost pixels before it knows the width; a transparent background
    # would not cover these pixels later.
    return pn.pane.Bokeh(
        drawn,
        sizing_mode="stretch_width",
        margin=(0, 0, 6, 0),
        styles={"clip-path": "inset(0 0 0 6px)"},
    )


def table(
    frame: pd.DataFrame,
    index: str,
    *,
    sortable: bool = True,
    page_size: int = 30,
    long: str = "",
) -> Any:
    """Return a table; text in cells is never interpreted as HTML.

    Parameters
    ----------
    frame : DataFrame
        Table to show; its index is the first column.
    index : str
        Title of the index column.
    sortable : bool, default True
        Whether a click on a title sorts; text with units would sort alphabetically.
    page_size : int, default 30
        Rows per page.
    long : str, optional
        Name of the last column if it contains long text: the lines wrap instead of being cut.
    """
    frame = frame.rename_axis(index).reset_index()
    if not sortable and len(frame) <= page_size:  # HTML renders 40x as fast
        return _plain(frame)
    return pn.widgets.Tabulator(
        frame,
        show_index=False,
        disabled=True,
        theme="simple",
        stylesheets=TABLE_STYLES,
        layout="fit_data_stretch" if long else "fit_data_table",
        **(
            {"sizing_mode": "stretch_width", "formatters": {long: {"type": "textarea"}}}
            if long
            else {}
        ),
        sortable=sortable,
        text_align={name: "right" for name in frame.columns[1:] if is_numeric_dtype(frame[name])},
        **({"pagination": "remote", "page_size": page_size} if len(frame) > page_size else {}),
    )


def _plain(frame: pd.DataFrame) -> Any:
    numbers = [is_numeric_dtype(frame[name]) for name in frame]
    kinds = [" class='number'" if is_number else "" for is_number in numbers]
    head = "".join(
        f"<th scope='col'{kind}>{escape(str(name))}</th>"
        for name, kind in zip(frame.columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{'–' if pd.isna(cell) else escape(str(cell))}</td>"
            for cell, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in frame.itertuples(index=False, name=None)
    )
    return _html(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


_UNITS = {"s": "seconds", "B": "bytes", "%": "per cent", "1": "a number", "USD": "US dollars"}
_BETTER = {"lower": "less is better", "higher": "more is better"}


def metric_term(name: str) -> str:
    """Return long name, unit, source and better direction of a metric as text.

    Examples
    --------
    >>> metric_term("memory_mean")
    'cluster process memory, mean over time; bytes, from heartbeats; less is better'
    """
    return f"{METRICS[name].long_name}; {_told(name)}"


def _told(name: str) -> str:
    metric = METRICS[name]
    told = f"{_UNITS.get(metric.units, metric.units)}, from {metric.source}"
    return "; ".join(part for part in (told, _BETTER.get(metric.better, "")) if part)


def metric_terms(names: Iterable[str]) -> dict[str, str]:
    """Return a mapping from long name to unit, source and better direction of metrics."""
    return {METRICS[name].long_name: _told(name) for name in names if name in METRICS}
