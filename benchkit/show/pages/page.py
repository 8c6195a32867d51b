"""Parts of a page: sections of tables and lines, whose texts are complete."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.formatting import MISSING
from benchkit.store.schema import METRICS
from benchkit.table import Table as TextTable

#: Key in the metadata of an output of a notebook: the line that stands in place of a part.
MISSING_PART = "benchkit missing part"
#: Label of a period before the last night -> number of days in an address.
PERIODS = {"all nights": "", "7 days": "7", "30 days": "30", "90 days": "90", "365 days": "365"}


@dataclass(frozen=True)
class Target:
    """A page that a text leads to; each renderer has its own address for it, or none."""

    view: str
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """A text of one line, and how important it is."""

    text: str
    tone: str = ""  # "bad", "good" or "soft"
    target: Target | str | None = None  # str: an address of another site
    title: str = ""  # Shown while the pointer is on the text
    small: str = ""  # Follows the text, less important
    order: float | None = None  # Position when a column is sorted; None: by the text


@dataclass(frozen=True)
class Spark:
    """A series as a small figure."""

    values: NDArray[np.float64]  # By night; NaN if not measured
    changes: Sequence[tuple[int, int]]  # Night and direction of each change of level
    worse: int  # The direction that is worse
    failed: Sequence[int]  # Nights without a result
    label: str  # For screen readers


@dataclass(frozen=True)
class Interval:
    """A change with its interval as a small figure, on an axis that all rows of a table share."""

    value: float  # Places on the axis, from 0 to 1: value, ends of the interval
    low: float
    high: float
    noise: tuple[float, float]  # Places between which a change is none
    zero: float  # Place of no change
    tone: str  # "bad", "good" or "", as of `Text`
    label: str  # For screen readers


@dataclass(frozen=True)
class Bar:
    """Parts of an amount as a small figure; the largest amount of a column is 1."""

    parts: Sequence[tuple[float, str]]  # Length and colour of each part
    label: str  # For screen readers, and while the pointer is on the bar


Cell: TypeAlias = str | Text | Spark | Bar | Interval | Sequence[Text]


@dataclass(frozen=True)
class Row:
    """Cells of a table, and what the filters of the page compare."""

    cells: Sequence[Cell]
    words: str = ""  # Text in which words are found; the value of a choice
    size: float = np.inf  # Size of the change, as a share
    is_quiet: bool = False  # Whether the row needs no attention
    since: str = ""  # First night of the change; empty: in every period

    def matches(self, state: Mapping[str, str]) -> bool:
        """Return whether a row matches the values of the filters: find, size in %, show, since."""
        return (
            (state.get("show") != "news" or not self.is_quiet)
            and self.size >= float(state.get("size") or 0) / 100
            and (not self.since or self.since >= state.get("since", ""))
            and has_words(self.words, state.get("find", ""))
        )


@dataclass(frozen=True)
class Table:
    """Rows with the titles of their columns."""

    columns: Sequence[str]
    rows: Sequence[Row]
    empty: str = ""  # Shown in place of a table without rows
    terms: Mapping[str, str] = field(default_factory=dict)  # What columns mean
    terms_title: str = "What the columns mean"
    is_filtered: bool = False  # Whether the filters of the page apply
    visible_rows: int = 0  # Rows on a screen at a time; 0: all
    picks: str = ""  # Key of the page's state that a click on a row sets; "": none

    def filtered(self, state: Mapping[str, str]) -> Table:
        """Return the table with the rows that match the filters."""
        return replace(self, rows=[row for row in self.rows if row.matches(state)])


@dataclass(frozen=True)
class LiveFigure:
    """A figure of Bokeh that shows another part of its data on request."""

    figure: Any
    show: Callable[[tuple[float, float] | None, str], object]  # Time in s (None: all), and group


@dataclass(frozen=True)
class Figure:
    """A figure, which is drawn when it is shown."""

    make: Callable[[], Any]  # Returns a figure of Bokeh, or a `LiveFigure`
    # First and last time in s of figures below each other whose x axis is time.
    times: tuple[float, float] | None = None
    zoom: str = ""  # Key of the page's state with the ends of the x axis; "": not kept


Content: TypeAlias = Table | Figure | Sequence[Text]


@dataclass(frozen=True)
class Later:
    """Contents that are computed when they are shown."""

    make: Callable[[], Sequence[Content]]
    is_slow: bool = False  # Whether a screen shows the rest of the page before


@dataclass(frozen=True)
class Filter:
    """A choice of the reader, which is a key of the page's state."""

    key: str
    name: str
    value: str
    options: Mapping[str, str] | None = None  # Name of an option -> value; None: any text
    placeholder: str = ""
    resets: Sequence[str] = ()  # Keys of filters that a new value makes void


def select_filter(
    state: Mapping[str, str],
    key: str,
    name: str,
    options: Mapping[str, str],
    *,
    default: str | None = None,
) -> Filter:
    """Return a choice of options; its value is that of the state, if it is one of them."""
    value = state.get(key, "")
    if value not in options.values():
        value = next(iter(options.values())) if default is None else default
    return Filter(key, name, value, options)


def metric_filter(state: Mapping[str, str], metrics: Iterable[str]) -> Filter:
    """Return a choice of metrics by their long names."""
    return select_filter(state, "metric", "Metric", {METRICS[n].long_name: n for n in metrics})


def find_filter(state: Mapping[str, str], placeholder: str = "part of a name") -> Filter:
    """Return a field for words to find."""
    return Filter("find", "Find", state.get("find", ""), None, placeholder)


#: Name of a smallest change -> value in the state, in percent.
_SIZES = {"of any size": "", "1 % or more": "1", "5 % or more": "5", "10 % or more": "10"}
_SHOWN = {"everything": "all", "what needs attention": "news"}


def row_filters(state: Mapping[str, str], *, show: str = "all") -> list[Filter]:
    """Return the filters that `Row.matches` reads; `show` is the value without one in the state."""
    return [
        find_filter(state, "workload, environment, owner"),
        select_filter(state, "size", "Size of change", _SIZES),
        select_filter(state, "show", "Show", _SHOWN, default=show),
    ]


@dataclass(frozen=True)
class Section:
    """An answer: its title is the question."""

    title: str
    content: Content | Later
    note: str = ""
    # Key and name among the sections of which a screen shows one; others are below each other.
    choice: tuple[str, str] | None = None
    key: str = ""  # Name of the section in its page
    filters: Callable[[], Sequence[Filter]] = tuple
    follows: Collection[str] = ()  # Keys of the page's state that change what it contains

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show."""
        if isinstance(self.content, Table):
            return bool(self.content.rows or self.content.empty)
        return isinstance(self.content, Figure | Later) or bool(self.content)

    def contents(self) -> Sequence[Content]:
        """Return what the section contains; computes it if that is still to do."""
        return self.content.make() if isinstance(self.content, Later) else [self.content]


@dataclass(frozen=True)
class KeyFigure:
    """A number at the top of a page."""

    name: str
    value: str
    usual: str = ""  # What it is compared with


@dataclass(frozen=True)
class Page:
    """What a page says."""

    title: str
    lines: Sequence[str]
    sections: Sequence[Section]
    state: Text = Text("")  # Of the subject, such as its outcome
    error: str = ""
    figures: Sequence[KeyFigure] = ()

    def __getitem__(self, key: str) -> Section:
        """Return the section with a key."""
        return next(section for section in self.sections if section.key == key)


@dataclass(frozen=True)
class Column:
    """A column of a table of things."""

    title: str
    cell: Callable[[Any], Cell]
    term: str = ""  # What the column means


def make_table(
    columns: Sequence[Column],
    things: Sequence[Any],
    row: Callable[[Any, list[Cell]], Row] = lambda _, cells: Row(cells),
    **more: Any,
) -> Table:
    """Return a table of things, without the columns that are empty in every row."""
    cells = [[column.cell(thing) for column in columns] for thing in things]
    used = [i for i in range(len(columns)) if not cells or any(line[i] for line in cells)]
    return Table(
        [columns[i].title for i in used],
        [row(thing, [line[i] for i in used]) for thing, line in zip(things, cells, strict=True)],
        terms={columns[i].title: columns[i].term for i in used if columns[i].term},
        **more,
    )


def cells_table(
    rows: Sequence[Mapping[str, Cell]], terms: Mapping[str, str] | None = None, **more: Any
) -> Table:
    """Return a table of rows that map the titles of columns to cells."""
    titles = list(rows[0]) if rows else []
    columns = [Column(title, itemgetter(title), (terms or {}).get(title, "")) for title in titles]
    return make_table(columns, rows, **more)


def text_table(table: TextTable, **more: Any) -> Table:
    """Return a table whose cells are texts."""
    return Table(table.names, [Row(cells) for cells in table.cells], **more)


#: Unit in the metrics table -> words.
_UNITS = {"s": "seconds", "B": "bytes", "%": "per cent", "1": "a number", "USD": "US dollars"}
_BETTER = {"lower": "less is better", "higher": "more is better"}


def metric_term(name: str) -> str:
    """Return long name, unit, source and better direction of a metric as text.

    Examples
    --------
    >>> metric_term("memory_mean")
    'cluster process memory, mean over time; bytes, from process samples; less is better'
    """
    return f"{METRICS[name].long_name}; {_explanation(name)}"


def metric_terms(names: Iterable[str]) -> dict[str, str]:
    """Return the explanations of metrics for a glossary."""
    return {METRICS[name].long_name: _explanation(name) for name in names if name in METRICS}


def _explanation(name: str) -> str:
    metric = METRICS[name]
    text = f"{_UNITS.get(metric.units, metric.units)}, from {metric.source}"
    return f"{text}; {_BETTER[metric.better]}" if metric.better in _BETTER else text


def run_text(run: Mapping[str, Any]) -> Text:
    """Return the start time of a run, which leads to its page."""
    target = Target("run", {"id": run["id"]})
    return Text(str(run["started"])[:16], "whole", target=target)


def minute(night: str) -> str:
    """Return the name of a night without seconds."""
    return night[:16].replace("T", " ")


def text_or_missing(value: Any) -> str:
    """Return a scalar as text; `MISSING` for None, NaN and empty text."""
    return MISSING if value is None or pd.isna(value) or value == "" else str(value)


def has_words(name: str, find: str) -> bool:
    """Return whether a name contains every word of a text, ignoring case."""
    return all(word in name.lower() for word in find.lower().split())


def page_name(workload: str) -> str:
    """Return the file name of the page of a workload, without its suffix.

    Examples
    --------
    >>> page_name("array.sum[k=1]").startswith("array.sum-k-1--")
    True
    """
    stem = re.sub(r"[^\w.]+", "-", workload).strip("-.")[:80]
    return f"{stem}--{hashlib.sha256(workload.encode()).hexdigest()[:6]}"


def site_address(root: str, target: Target) -> str | None:
    """Return the address of a page below the root of a site; runs have no page there."""
    if target.view == "history":
        metric = target.keys.get("metric")
        end = f"#metric={metric}" if metric else ""
        return f"{root}w/{quote(page_name(str(target.keys['workload'])))}.html{end}"
    if target.view == "regression":
        return f"{root}regressions/{quote(str(target.keys['id']))}.html"
    return None
