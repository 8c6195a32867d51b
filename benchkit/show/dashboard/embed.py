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

from benchkit.show.dashboard.run.page import live_page
from benchkit.show.dashboard.state.time_window import Window, align
from benchkit.show.pages.page import Figure, LiveFigure
from benchkit.show.pages.run import RunData, read_timeline, sections
from benchkit.show.plots.thread_activity import window_strip
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
        self._data = RunData(run, *read_timeline(run.tree))

    def __panel__(self) -> pn.Column:
        """Return the live page: tables update with the window, a click selects a group."""
        pn.extension("tabulator", notifications=False)
        return live_page(self._data, Window(self._run, self._data.timeline, {}))

    def figures(self) -> list[Plot]:
        """Return new figures of the run; figures over time share one range.

        Returns
        -------
        list of bokeh.models.Plot
            The figures.
        """
        window = Window(self._run, self._data.timeline, {})
        strip = window_strip(self._run.tree, window.whole, window.range)
        align(strip)
        plots: list[Plot] = [strip]
        for section in sections(self._data, {}):
            for content in section.contents():
                if isinstance(content, Figure):
                    made = content.make()
                    plot = made.figure if isinstance(made, LiveFigure) else made
                    if content.times is not None:
                        window.share(plot)
                    plots.append(plot)
        return plots

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
