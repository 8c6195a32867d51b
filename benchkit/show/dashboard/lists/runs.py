"""Page with the list of runs: filters, and a link to the page of each run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.run.baseline import is_simulated
from benchkit.formatting import (
    GIB,
    MISSING,
    OUTCOME_WORDS,
    ROWS_SHOWN,
    counted,
    format_outcome,
    run_limits,
)
from benchkit.measure.run_ids import is_id
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.state.cache import SHOWN_COLUMNS, open_store, runs_table
from benchkit.show.dashboard.state.table_state import page_of, stateful_table
from benchkit.show.dashboard.state.url import address, write_address
from benchkit.show.dashboard.web.template import WRAPPED_TITLES_STYLES
from benchkit.show.pages.page import metric_term
from benchkit.show.render import panel as ui
from benchkit.show.render.html import link
from benchkit.values import decode_json

TITLE = "Runs"
#: Column of the index -> title with unit, divisor, digits.
_NUMBERS = {
    "duration": ("duration (s)", 1, 2),
    "memory_peak": ("peak memory (GiB)", GIB, 2),
    "spilled_peak": ("spilled (GiB)", GIB, 2),
    "network_bytes": ("network (GiB)", GIB, 2),
    "n_tasks": ("tasks", 1, 0),
}
_TEXTS = ("workload", "environment", "host", "dask")
#: Columns of the index that the list reads.
_COLUMNS = ("id", "started", "outcome", "quality", "simulated", "tags", *_TEXTS, *_NUMBERS)
#: Columns that contain links; they have no filter.
LINKS = ("open", "compare")
#: Rows of the table: texts and links are made for all of them, although a page shows 20.
MAX_ROWS = 5_000
#: An id that stands for that of each run in `_links`.
_PATTERN_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
#: Delay in ms after the last key before a filter is applied; Tabulator's default is 300 ms.
TYPING_MS = 120


def first_page() -> Viewable:
    """Return the list of runs for the first page of a store."""
    every = runs_table(["started", "outcome", "quality"])
    if len(every) <= MAX_ROWS or pd.isna(every["started"].iloc[ROWS_SHOWN - 1]):
        return view({})
    since = every["started"].iloc[ROWS_SHOWN - 1]
    newest = open_store().runs(columns=_COLUMNS, since=since).iloc[::-1].head(ROWS_SHOWN)
    table = _table(newest).drop(columns=["id", "compare"]).astype(object)
    for title, _, digits in _NUMBERS.values():
        table[title] = [MISSING if pd.isna(n) else f"{n:,.{digits}f}" for n in table[title]]
    rows = [
        [workload, Markup(run), started, *cells]
        for run, started, workload, *cells in table.itertuples(index=False)
    ]
    note = f"The newest {len(table)} runs. The list of all runs has filters and sort orders"
    return ui.column(
        ui.page_head(counted(len(every), "run"), lines=[_outcomes(every)]),
        ui.link_line(note, {address("runs"): "all runs"}),
        tables.html_table(["workload", "run", "started", *table.columns[3:]], rows, tight=True),
        _glossary(),
    )


def _glossary() -> Viewable:
    return ui.glossary({title: metric_term(name) for name, (title, *_) in _NUMBERS.items()})


def view(state: dict[str, str]) -> Viewable:
    """Return the list of runs."""
    frame = runs_table(_COLUMNS)
    if frame.empty:
        return ui.message(
            "No runs yet", "Measure some, then load this page again:", "benchkit run -k tag:quick"
        )
    picked = state.get("pick", "")
    picked = picked if is_id(picked) else ""
    empty = _table(frame.head(0))
    columns = [str(name) for name in empty.columns if name not in LINKS]
    # Columns with a filter field, and filters of the address on other columns.
    filters = [name for name in columns if empty[name].dtype == object]
    fixed = {name: state[name] for name in columns if state.get(name) and name not in filters}
    initial = {name: state[name] for name in filters if state.get(name)}
    possible = _matching(frame, fixed)
    is_large = len(possible) > MAX_ROWS
    order = state.get("sort", "")
    shown = _in_order(frame, _matching(frame, {**fixed, **initial}), order)
    note = ui.column(margin=0)

    def show_note(texts: Mapping[str, str]) -> None:
        text = f"{len(shown)} of {len(frame)} are shown."
        for name, value in texts.items():
            text += f" Only where {name} contains {value!r}."
        links = {address("runs", pick=picked): "show all"}
        note[:] = [ui.link_line(text, links)] if texts else []
        if len(shown) > MAX_ROWS:
            which = "first" if order else "newest"
            text = f"The {which} {MAX_ROWS} of {counted(len(shown), 'run')} are listed; filters, "
            note.append(ui.paragraph(f"{text}sort order and the CSV file use all runs."))

    table = _table(frame.iloc[shown[:MAX_ROWS] if is_large else possible], picked)
    first_page = page_of(state.get("page", ""), len(table), ROWS_SHOWN)
    written = (state.get("sort", ""), initial, str(first_page) if first_page > 1 else "")

    def write(new_order: str, texts: dict[str, str], page: str) -> None:
        nonlocal written, order, shown
        if written == (new_order, texts, page):
            return
        is_changed = written[:2] != (new_order, texts)
        written, order = (new_order, texts, page), new_order
        if is_changed:
            shown = _in_order(frame, _matching(frame, {**fixed, **texts}), order)
            show_note({**fixed, **texts})
            if is_large:
                widget.value = _table(frame.iloc[shown[:MAX_ROWS]], picked)
        keys = {"pick": picked, "sort": order, "page": page, **fixed, **texts}
        write_address("runs", keys)

    def open_run(event: Any) -> None:
        if event.column in LINKS:  # the browser follows links (Ctrl+click: new tab)
            return
        location = pn.state.location
        if location is not None:
            search = address("run", id=widget.value["id"].iloc[event.row])
            location.param.update(search=search, reload=True)

    show_note({**fixed, **initial})
    widget = stateful_table(
        table,
        state,
        write,
        filters=filters,
        page_size=ROWS_SHOWN,
        is_paged=len(possible) > ROWS_SHOWN,
        stylesheets=[WRAPPED_TITLES_STYLES],
        configuration={"headerFilterLiveFilterDelay": TYPING_MS},
        sizing_mode="stretch_width",
        hidden_columns=["id"],
        formatters={
            "open": {"type": "html"},
            "compare": {"type": "html"},
            **{title: _formatter(digits) for title, _, digits in _NUMBERS.values()},
        },
        titles={"open": "run"},
        text_align={title: "right" for title, *_ in _NUMBERS.values()},
        widths={
            **{"open": 56, "compare": 78, "started": 136, "host": 80, "outcome": 118},
            **{title: tables.NUMBER_WIDTH for title, *_ in _NUMBERS.values()},
        },
        layout="fit_data_stretch",
    )
    widget.on_click(open_run)
    save = tables.download_button(
        "runs.csv", lambda: _as_file(frame["id"].iloc[shown]), "The runs shown, as CSV", 200
    )
    return ui.column(
        ui.page_head(counted(len(frame), "run"), lines=[_outcomes(frame)]),
        *_picked_run(frame, picked),
        note,
        widget,
        save,
        _glossary(),
    )


def _formatter(digits: int) -> NumberFormatter:
    decimals = f".{'0' * digits}" if digits else ""
    return NumberFormatter(format=f"0,0{decimals}", nan_format=MISSING)


def _matching(frame: pd.DataFrame, texts: Mapping[str, str]) -> np.ndarray:
    """Return the positions of the runs whose cells contain the texts, ignoring case."""
    keep = np.ones(len(frame), bool)
    for name, text in texts.items():
        keep &= _contains(_column(frame, name), text.lower())
    return np.flatnonzero(keep)


def _contains(cells: pd.Series, text: str) -> np.ndarray:
    return _each_once(cells, lambda cell: text in str(cell).lower()).to_numpy(bool)


def _in_order(frame: pd.DataFrame, positions: np.ndarray, order: str) -> np.ndarray:
    """Return positions of runs in the order of a column; a leading minus means descending."""
    name = order.removeprefix("-")
    if name not in _table(frame.head(0)):
        return positions
    runs = frame.iloc[positions]
    values = runs["started"] if name == "started" else _column(runs, name)
    if values.dtype == object:
        values = _each_once(values, str.lower)
    values = values.reset_index(drop=True)
    return positions[values.sort_values(ascending=order == name, kind="stable").index]


def _picked_run(frame: pd.DataFrame, picked: str) -> list[Viewable]:
    """Return a message that the first of two runs is selected."""
    if not picked:
        return []
    rows = frame[frame["id"].astype(str) == picked]
    if rows.empty:
        return []
    run = rows.iloc[0]
    text = f"Compare {run['workload']} of {str(run['started'])[:16]}: select the other run"
    return [ui.link_line(text, {address("runs"): "cancel"})]


def _table(frame: pd.DataFrame, picked: str = "") -> pd.DataFrame:
    """Return the rows of the table, with numbers from 0 as index."""
    # The store checks that ids contain only hexadecimal digits and dashes, so the link is safe.
    ids = _column(frame, "id")
    pairs = _links(ids, lambda run_id: _pair_link(run_id, picked))
    table = pd.DataFrame(
        {
            "id": ids,
            "open": _links(ids, _run_link),
            "compare": pairs.where(ids != picked, _pair_link(picked, picked)),
        }
    )
    numbers = [title for title, *_ in _NUMBERS.values()]
    for name in ("started", *_TEXTS, "outcome", *numbers, "tags"):
        table[name] = _column(frame, name)
    return table.reset_index(drop=True)


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of the table; of all runs, it is made only for a filter or a sort order."""
    if name == "id":
        return frame["id"].astype(str)
    if name == "started":
        texts = frame["started"].dt.strftime("%Y-%m-%d %H:%M")
        return texts.fillna(MISSING).astype(object)
    if name == "outcome":
        simulated = np.where(is_simulated(frame), ", simulated", "")
        limits = _each_once(frame["quality"], _limits_text)
        outcomes = _each_once(frame["outcome"], lambda name: format_outcome({"outcome": name}))
        return outcomes + limits + simulated
    if name == "tags":
        return _each_once(frame["tags"].fillna("{}"), _tags_text)
    for field, (title, divisor, digits) in _NUMBERS.items():
        if name == title:
            return (frame[field].astype(float) / divisor).round(digits)
    return _each_once(frame[name].fillna(MISSING), str)


def _limits_text(quality: Any) -> str:
    return "".join(f", {limit}" for limit in run_limits({"quality": quality}))


def _tags_text(text: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in decode_json(text).items())


def _each_once(values: pd.Series, make: Callable[[Any], Any]) -> pd.Series:
    """Return the result of a function for each value, which is called once for equal values."""
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    made = np.array([make(value) for value in distinct], dtype=object)
    return pd.Series(made[codes], values.index, dtype=object)


def _links(ids: pd.Series, make: Callable[[str], str]) -> pd.Series:
    """Return the link to each run, from a pattern: to make a million takes 20 s."""
    link_parts = re.split(f"({_PATTERN_ID}|{_PATTERN_ID[:13]})", make(_PATTERN_ID))
    values = {_PATTERN_ID: ids, _PATTERN_ID[:13]: ids.str[:13]}
    parts = [values.get(part, part) for part in link_parts]
    return reduce(add, parts)


def _run_link(run_id: str) -> str:
    return str(link("open", address("run", id=run_id), label=f"open run {run_id[:13]}"))


def _pair_link(run_id: str, picked: str) -> str:
    """Return a link that selects a run as the first or second of two runs."""
    if run_id == picked:
        return "selected"
    if picked:
        target = address("pair", a=picked, b=run_id)
        return str(link("⇄ this", target, label=f"compare with {run_id[:13]}"))
    label = f"compare {run_id[:13]} with another run"
    return str(link("⇄", address("runs", pick=run_id), label=label))


def _as_file(ids: pd.Series) -> pd.DataFrame:
    """Return the index records of runs, in this order and in the store's units."""
    runs = open_store().runs(columns=SHOWN_COLUMNS, id=list(ids)).set_index("id")
    return runs.loc[ids[ids.isin(runs.index)]].reset_index()  # a run may be deleted meanwhile


def _outcomes(frame: pd.DataFrame) -> str:
    """Return the number of runs of each outcome as text, so that failures are visible."""
    counts = frame["outcome"].value_counts()
    names = {name: OUTCOME_WORDS.get(name, ("", name))[1] for name in counts.index if name != "ok"}
    limits = _each_once(frame["quality"], _limits_text).value_counts()
    limited = [f"{limits[text]} {text.removeprefix(', ')}" for text in limits.index if text]
    return ", ".join(
        [
            f"{counts.get('ok', 0)} ok",
            *(f"{counts[name]} {text}" for name, text in names.items()),
            *limited,
        ]
    )
