"""Page with the list of runs: filters, and a link to the page of each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from benchkit.formatting import GIB, MISSING, OUTCOME_WORDS, counted
from benchkit.measure.run_ids import is_id
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.state.cache import runs_table
from benchkit.show.dashboard.state.table_state import (
    first_filters,
    page_of,
    remember_table,
    sorters_of,
)
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.dashboard.web.template import TABLE_STYLES, WRAPPED_TITLES_STYLES
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "view"]

TITLE = "Runs"
#: Column of the index -> title with unit, divisor, digits.
_NUMBERS = {
    "duration": ("duration (s)", 1, 2),
    "memory_peak": ("peak memory (GiB)", GIB, 2),
    "spilled_peak": ("spilled (GiB)", GIB, 2),
    "network_bytes": ("network (GiB)", GIB, 2),
    "n_tasks": ("tasks", 1, 0),
}
_TEXTS = {
    "workload": "workload",
    "environment": "environment",
    "host": "host",
    "dask": "dask",
}
#: Columns that contain links; they have no filter.
LINKS = ("open", "beside")
PAGE_SIZE = 25
#: Width of a column of numbers, in pixels.
NUMBER = 78
#: Delay in ms after the last key before a filter is applied; Tabulator's default is 300 ms.
TYPING_MS = 120


def view(state: dict[str, str]) -> Any:
    """Return the list of runs; `state` contains the keys of the address, such as filters."""
    frame = runs_table()
    if frame.empty:
        return parts.message(
            "No runs yet", "Measure some, then load this page again:", "benchkit run -k tag:quick"
        )
    picked = state.get("pick", "")
    table = _table(frame, picked if is_id(picked) else "")
    columns = list(table.columns)
    typed = [n for n in columns if table[n].dtype == object and n not in LINKS]
    held = {name: state[name] for name in columns if state.get(name) and name not in LINKS}
    for name in held.keys() - set(typed):
        table = _holding(table, name, held[name])
    widget = pn.widgets.Tabulator(
        table,
        sorters=sorters_of(state.get("sort", ""), columns),
        show_index=False,
        disabled=True,
        **_paged(table, state.get("page", "")),
        sizing_mode="stretch_width",
        theme="simple",
        stylesheets=[*TABLE_STYLES, WRAPPED_TITLES_STYLES],
        hidden_columns=["id"],
        header_filters={
            name: {"type": "input", "func": "like", "placeholder": "filter"} for name in typed
        },
        formatters={
            "open": {"type": "html"},
            "beside": {"type": "html"},
            **{title: _formatter(digits) for title, _, digits in _NUMBERS.values()},
        },
        titles={"open": "run"},
        text_align={title: "right" for title, *_ in _NUMBERS.values()},
        widths={
            **{"open": 56, "beside": 66, "started": 136, "host": 80, "outcome": 118},
            **{title: NUMBER for title, *_ in _NUMBERS.values()},
        },
        layout="fit_data_stretch",
        configuration={
            "headerFilterLiveFilterDelay": TYPING_MS,
            **first_filters({name: held.get(name, "") for name in typed}, state.get("page", "")),
        },
    )
    told = pn.Column(sizing_mode="stretch_width", margin=0)

    def tell(held: Mapping[str, str]) -> None:
        shown = table
        for name, value in held.items():
            shown = _holding(shown, name, value)
        only = "".join(f" Only where {name} holds {value!r}." for name, value in held.items())
        text = f"{len(shown)} of {len(frame)} are shown.{only}"
        told[:] = [parts.way(text, {address("runs", pick=picked): "show all"})] if held else []

    begun = {name: held[name] for name in held if name in typed}
    said = (state.get("sort", ""), begun, str(widget.page) if widget.page > 1 else "")

    def note(order: str, now: Mapping[str, str], page: str) -> None:
        nonlocal said
        if said == (order, now, page):  # the address is up to date
            return
        said = order, dict(now), page
        fixed = {name: value for name, value in held.items() if name not in typed}
        tell({**fixed, **now})
        remember("runs", {"pick": picked, "sort": order, "page": page, **fixed, **now})

    tell(held)
    remember_table(widget, begun, note)

    def opened(event: Any) -> None:
        if event.column in LINKS:  # the browser follows links (Ctrl+click: new tab)
            return
        run_id = str(table["id"].iloc[event.row])
        location = pn.state.location
        if location is not None:
            location.param.update(search=f"?view=run&id={run_id}", reload=True)

    widget.on_click(opened)
    return pn.Column(
        parts.head(_count(frame), lines=[_left_out(frame)]),
        *_pick(frame, picked),
        told,
        widget,
        parts.download("runs.csv", lambda: _as_file(frame, widget), "The runs shown, as CSV", 200),
        parts.glossary({title: metric_term(name) for name, (title, *_) in _NUMBERS.items()}),
        sizing_mode="stretch_width",
    )


def _formatter(digits: int) -> NumberFormatter:
    decimals = f".{'0' * digits}" if digits else ""
    return NumberFormatter(format=f"0,0{decimals}", nan_format=MISSING)


def _paged(table: pd.DataFrame, page: str) -> dict[str, Any]:
    """Return the Tabulator options of a table with more than one page."""
    if len(table) <= PAGE_SIZE:
        return {}
    shown = page_of(page, len(table), PAGE_SIZE)
    return {"pagination": "remote", "page_size": PAGE_SIZE, "page": shown}


def _holding(table: pd.DataFrame, name: str, value: str) -> pd.DataFrame:
    """Return the rows whose column contains a text, ignoring case."""
    held = table[name].astype(str).str.lower().str.contains(value.lower(), regex=False)
    return table[held].reset_index(drop=True)


def _pick(frame: pd.DataFrame, picked: str) -> list[Any]:
    """Return a message that the first of two runs is selected."""
    found = frame[frame["id"].astype(str) == picked]
    if found.empty:
        return []
    run = found.iloc[0]
    text = f"{run['workload']} of {str(run['started'])[:16]} beside: choose the other run"
    return [parts.way(text, {address("runs"): "choose none"})]


def _table(frame: pd.DataFrame, picked: str = "") -> pd.DataFrame:
    # The store checks that ids contain only hexadecimal digits and dashes, so the link is safe.
    ids = frame["id"].astype(str)
    links = [f'<a href="?view=run&amp;id={i}" aria-label="open run {i[:13]}">open</a>' for i in ids]
    table = pd.DataFrame({"id": ids, "open": links, "beside": _beside(list(ids), picked)})
    table["started"] = frame["started"].dt.strftime("%Y-%m-%d %H:%M").fillna("–")
    for name, title in _TEXTS.items():
        if name in frame:
            table[title] = frame[name].fillna("–").astype(str).astype(object)
    outcomes = [OUTCOME_WORDS.get(str(name), ("?", str(name))) for name in frame["outcome"]]
    table["outcome"] = [f"{symbol} {text}" for symbol, text in outcomes]
    for name, (title, divisor, digits) in _NUMBERS.items():
        if name in frame and name in METRICS:
            values = frame[name].astype(float) / divisor
            table[title] = values.round(digits)
    table["tags"] = [_pairs(tags) for tags in frame["tags"]]
    return table.astype({name: object for name in ("open", "beside", "started", "outcome", "tags")})


def _beside(ids: list[str], picked: str) -> list[str]:
    """Return one link per run that selects it as the first or second of two runs."""
    if not picked:
        return [
            f'<a href="?view=runs&amp;pick={i}" aria-label="hold {i[:13]} beside another">⇄</a>'
            for i in ids
        ]
    return [
        "chosen"
        if i == picked
        else f'<a href="?view=pair&amp;a={picked}&amp;b={i}" aria-label="take {i[:13]}">⇄ this</a>'
        for i in ids
    ]


def _as_file(frame: pd.DataFrame, widget: pn.widgets.Tabulator) -> pd.DataFrame:
    """Return the index records of the shown runs, in the order shown, in the store's units."""
    shown = widget.current_view["id"]
    return frame.assign(id=frame["id"].astype(str)).set_index("id").loc[shown].reset_index()


def _pairs(tags: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in (tags or {}).items())


def _count(frame: pd.DataFrame) -> str:
    return counted(len(frame), "run")


def _left_out(frame: pd.DataFrame) -> str:
    """Return the number of runs of each outcome as text, so that failures are visible."""
    counts = frame["outcome"].value_counts()
    bad = [
        f"{count} {OUTCOME_WORDS.get(name, ('', name))[1]}"
        for name, count in counts.items()
        if name != "ok"
    ]
    return f"{counts.get('ok', 0)} ok" + (f", {', '.join(bad)}" if bad else "")
