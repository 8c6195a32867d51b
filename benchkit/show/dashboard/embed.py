"""Parts of a run page without the app, for notebooks and for HTML pages of notebooks.

A saved notebook contains one HTML frame with figures that share a time window in the browser; it
needs no kernel and no network. `pn.panel` of the same object returns the live page.
"""

from __future__ import annotations

from typing import Any

import panel as pn
from bokeh.embed import components
from bokeh.layouts import column
from bokeh.models.plots import Plot
from bokeh.resources import Resources

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard.run.page import live_figures
from benchkit.show.dashboard.state.time_window import Window, align
from benchkit.show.plots.base import has
from benchkit.show.plots.flame import flame_graph
from benchkit.show.plots.run_metrics import (
    memory_by_kind,
    memory_by_worker,
    scheduler_load,
    task_group_bars,
    worker_load,
)
from benchkit.show.plots.thread_activity import BusyThreads, TaskStream, mark_events, window_strip
from benchkit.show.plots.transfers import transfer_matrix
from benchkit.show.templates import render_template, silent
from benchkit.store.run import Run
from benchkit.text import escape

#: Height of the toolbar above a figure, in pixels.
TOOLBAR_HEIGHT = 10
#: Height of a figure that sets none, in pixels.
FIGURE_HEIGHT = 260


class RunPanel(pn.viewable.Viewer):
    """Figures of a run that share a time window.

    Parameters
    ----------
    run : Run
        The run.

    Examples
    --------
    >>> run.panel()  # doctest: +SKIP
    >>> pn.Column(run.panel()).servable()  # doctest: +SKIP
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def __panel__(self) -> pn.Column:
        """Return the live page: tables update with the window, a click selects a group."""
        pn.extension("tabulator", notifications=False)
        return live_figures(Window(self._run, TaskTimeline(self._run.tree), {}))

    def figures(self) -> list[Plot]:
        """Return new figures of the run; figures over time share one range.

        Returns
        -------
        list of bokeh.models.Plot
            The figures.
        """
        run, timeline = self._run, TaskTimeline(self._run.tree)
        window = Window(run, timeline, {})
        strip = window_strip(run.tree, window.whole, window.range)
        align(strip)
        memory = memory_by_kind(run.tree)
        timed = [memory, memory_by_worker(run.tree)]
        if timeline.n_tasks:
            timed += [BusyThreads(run.tree, timeline).figure, TaskStream(run.tree, timeline).figure]
        timed += [*worker_load(run.tree), *scheduler_load(run.tree)]
        window.share(*timed)
        if has(run.tree, "scheduler", "time"):
            mark_events(memory, run)
        others = [task_group_bars(run.tree), transfer_matrix(run.tree)]
        if has(run.tree, "profile", "frame"):
            others.append(flame_graph(run.tree))
        return [strip, *timed, *others]

    def to_html(self) -> str:
        """Return the figures as one HTML page that needs no network.

        Returns
        -------
        str
            The page.
        """
        return self._page(self.figures())

    def _page(self, figures: list[Plot]) -> str:
        script, place = components(column(*figures, sizing_mode="stretch_width"))
        parts = {"title": self._run.workload, "place": place, "script": script}
        scripts = Resources(mode="inline", components=["bokeh"]).js_raw
        return silent(render_template("dashboard/embed.html", **parts, scripts=scripts))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        figures = self.figures()
        height = sum((plot.height or FIGURE_HEIGHT) + TOOLBAR_HEIGHT for plot in figures)
        frame = (
            f"<iframe srcdoc='{escape(self._page(figures))}' title='{escape(self._run.workload)}' "
            f"style='width: 100%; height: {height}px; border: 0; color-scheme: light dark;'>"
            "</iframe>"
        )
        return {"text/plain": repr(self._run), "text/html": f"{self._run._repr_html_()}{frame}"}
