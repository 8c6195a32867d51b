"""Page of one run: its sections in tabs, of one time window and task group.

The selected window and task group apply to the whole page; see
`benchkit.show.dashboard.state.time_window`. A tab is created when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import panel as pn
from panel.viewable import Viewable

from benchkit.errors import BenchkitError
from benchkit.formatting import ROWS_SHOWN, format_bytes, short_names
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.mark_form import mark_run
from benchkit.show.dashboard.components.widgets import FilterBar, window_controls
from benchkit.show.dashboard.run.task_groups import GroupTable, choose_group
from benchkit.show.dashboard.state.cache import load_run, open_store
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.state.url import Debounced, address, history_address, href
from benchkit.show.dashboard.web.template import TABS_STYLES
from benchkit.show.grafana import grafana_link
from benchkit.show.pages.page import Content, Figure, Filter, LiveFigure, Section, Table
from benchkit.show.pages.run import RunData, page, sections
from benchkit.show.plots.base import has
from benchkit.show.render import panel as ui
from benchkit.show.render.html import content_markup
from benchkit.store.run import Run

TITLE = "Run"
#: Largest size of a file in bytes for download; of larger files the page shows the path.
MAX_BYTES = 200 * 2**20
#: Returns the sections of a page for the keys of its address.
Sections: TypeAlias = Callable[[Mapping[str, str]], Sequence[Section]]


def view(state: dict[str, str]) -> Viewable:
    """Return the page of a run."""
    try:
        data = load_run(state.get("id") or "latest")
    except BenchkitError as error:
        return ui.message("This run cannot be shown", str(error), back=True)
    run, window = data.run, Window(data.run, data.timeline, state)
    return ui.column(
        ui.guard(lambda: ui.head(page(data, {}))),
        *ui.guard_parts(lambda: _links(run)),
        *ui.guard_parts(lambda: _controls(window)),
        _tabs(window, data, {"facts": lambda: _downloads(_files(run.id))}),
        *ui.guard_parts(lambda: mark_run(run)),
    )


def live_page(data: RunData, window: Window) -> pn.Column:
    """Return the parts of the page that need no store, for notebooks."""
    return ui.column(ui.head(page(data, {})), *_controls(window), _tabs(window, data))


def _links(run: Run) -> list[Viewable]:
    """Return links from a run to other runs and, if configured, to Grafana."""
    links = {
        address("runs", workload=run.workload, pick=run.id): "compare with another run",
        history_address(run.record): "history of the workload",
        address("workloads", name=run.workload): "description, noise and source of the workload",
        address("environments", name=run.tree.attrs.get("environment")): "its environment",
    }
    try:
        board = grafana_link(run)
    except BenchkitError as error:
        return [ui.link_line("See also", links), ui.paragraph(str(error), kind="bad")]
    if board:
        links[board] = "Grafana at that time"
    return [ui.link_line("See also", links)]


def _controls(window: Window) -> list[Viewable]:
    """Return the widgets above all tabs that show and set the window and the group."""
    if not has(window.run.tree, "scheduler", "time") and not window.timeline.n_tasks:
        return []
    links = ui.column(margin=0)

    def show() -> None:
        # Links contain the window; update them in place: creating them again takes 10x the time.
        new = [_group_links(window)] if window.group else []
        if new and len(links):
            links.objects[0].param.update(object=new[0].object)
        elif new or len(links):
            links[:] = new

    window.subscribe(show, now=True)
    return [*window_controls(window, choose_group(window), button="Whole run"), links]


def _group_links(window: Window) -> pn.pane.HTML:
    """Return links from the selected group to its tasks, call stacks and transfers."""
    titles = {"tasks": "its tasks", "stacks": "its call stacks", "transfers": "its transfers"}
    links = {address("run", **window.state(tab=tab)): title for tab, title in titles.items()}
    links[address("run", **window.state(group=""))] = "all groups"
    return ui.link_line(short_names(window.timeline.groups)[window.group], links)


def _tabs(
    window: Window, data: RunData, more: dict[str, Callable[[], list[Viewable]]] | None = None
) -> pn.Tabs:
    """Return the tabs of the page, with more below some; each is created when it is opened."""
    every = sections(data, window.state())
    titles = dict(section.choice for section in every if section.choice)
    # Create empty columns first (no `dynamic=True`): content that is added to a column while
    # the browser still builds this column is lost, and the tab stays blank.
    names = list(titles)
    pages = [ui.column() for _ in names]
    window.tab = window.tab if window.tab in names else names[0]

    def fill(index: int) -> None:
        name = names[index]
        if not len(pages[index]):
            keys = [each.key for each in every if each.choice and each.choice[0] == name]
            with window.tab_callbacks(name):
                parts = live_views(window, partial(sections, data), keys)
            pages[index][:] = [*parts, *ui.guard_parts((more or {}).get(name, list))]

    def open_tab(event: Any) -> None:
        window.show_tab(names[event.new])
        fill(event.new)
        window.write()

    fill(names.index(window.tab))
    tabs = pn.Tabs(
        *zip(titles.values(), pages, strict=True),
        sizing_mode="stretch_width",
        active=names.index(window.tab),
        stylesheets=[TABS_STYLES],
    )
    tabs.param.watch(open_tab, "active")
    return tabs


def live_views(window: Window, make: Sections, keys: Iterable[str]) -> list[Viewable]:
    """Return sections that show the selected window and group, or messages in their places."""
    return [ui.guard(partial(_live_view, window, make, key)) for key in keys]


def _live_view(window: Window, make: Sections, key: str) -> Viewable:
    return LiveSection(window, make, key).view


class LiveSection:
    """A section of the page that shows the selected window and group, with its filters."""

    def __init__(self, window: Window, make: Sections, key: str) -> None:
        self._window, self._make, self._key = window, make, key
        self._live: list[LiveFigure] = []
        self._table: GroupTable | None = None
        self._group = window.group
        self._place = ui.column(margin=0)
        section = self._section()
        self._follows = bool(section.follows)
        self._filters = FilterBar(section.filters(), self._change)
        if getattr(section.content, "is_slow", False):
            self._place[:] = [ui.deferred(lambda: self._parts(section), section.title)]
        else:
            self._draw()
        # Reading the keys of 1 M tasks takes some 0.1 s: update after a drag, not at each step.
        self._draw_later = Debounced(self._draw, lambda: window.range)
        window.subscribe(self._update)
        filters: list[Viewable] = []
        if self._filters:
            filters = [ui.heading(section.title, section.note), self._filters.view]
        self.view = ui.column(*filters, self._place)

    def _section(self) -> Section:
        every = self._make(self._window.state())
        return next(section for section in every if section.key == self._key)

    def _draw(self) -> None:
        section = self._section()
        self._group = self._window.group
        self._filters.show(section.filters())
        self._place[:] = ui.guard_parts(lambda: self._parts(section), section.title)

    def _parts(self, section: Section) -> list[Viewable]:
        self._live, self._table = [], None
        contents = section.contents()
        if not contents:
            return []
        # With filters, the heading is above them.
        heading = [] if self._filters else [ui.heading(section.title, section.note)]
        return [*heading, *(self._part(content) for content in contents)]

    def _part(self, content: Content) -> Viewable:
        if isinstance(content, Figure):
            return self._figure(content)
        if isinstance(content, Table) and content.picks and content.rows:
            self._table = GroupTable(self._window, content)
            return self._table.view
        if isinstance(content, Table) and len(content.rows) > tables.MAX_HTML_ROWS:
            return tables.paged_table(content)
        return ui.html_pane(content_markup(content, href))

    def _figure(self, content: Figure) -> Viewable:
        made = content.make()
        plot = made.figure if isinstance(made, LiveFigure) else made
        if content.times is not None:
            self._window.share(plot)
        if isinstance(made, LiveFigure):
            made.show(self._window.part, self._window.group)
            self._live.append(made)
        if content.zoom:
            keep = Debounced(lambda: self._keep_zoom(content.zoom, plot.x_range), lambda: plot)
            for end in ("start", "end"):
                plot.x_range.on_change(end, lambda attr, old, new: keep())
        return ui.figure(plot)

    def _keep_zoom(self, key: str, ends: Any) -> None:
        """Write the shown part of a figure into the address."""
        is_whole = ends.bounds in (None, (ends.start, ends.end))
        text = "" if is_whole else f"{ends.start:.1f}-{ends.end:.1f}"
        self._window.set_options(**{key: text})
        self._filters.show(self._section().filters())

    def _update(self) -> None:
        for live in self._live:
            live.show(self._window.part, self._window.group)
        if not self._follows:
            return
        if self._table is not None:
            table = next(each for each in self._section().contents() if isinstance(each, Table))
            self._table.update(table)
        elif self._group != self._window.group:
            self._draw()
        else:
            self._draw_later()

    def _change(self, choice: Filter, text: str) -> None:
        self._window.set_options(**dict.fromkeys(choice.resets, ""), **{choice.key: text})
        self._draw()


def _files(run_id: str) -> list[Path]:
    store = open_store()
    return [store.file(run_id), *store.extras(run_id)]


def _downloads(files: Sequence[Path]) -> list[Viewable]:
    """Return download buttons for the stored files; no file name comes from the address."""
    files = [path for path in files if path.exists()]  # deleted by pruning after the page opened
    if not files:
        return []
    content: list[Viewable] = [
        ui.heading(
            "Which files are there?",
            "The run as NetCDF; if requested: performance report, cluster dump, memray profiles.",
        )
    ]
    for path in files[:ROWS_SHOWN]:
        size = path.stat().st_size
        if size > MAX_BYTES:
            content.append(ui.paragraph(f"{path.name} ({format_bytes(size)}): {path}"))
        else:
            label = f"{path.name} ({format_bytes(size)})"
            content.append(tables.download_button(path.name, partial(path.open, "rb"), label))
    if len(files) > ROWS_SHOWN:
        content.append(ui.paragraph(f"{len(files) - ROWS_SHOWN} more in {files[0].parent}"))
    return content
