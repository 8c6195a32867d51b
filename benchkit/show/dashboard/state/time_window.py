"""Time window and task group selected on a run page; every panel shows this selection.

The window is one Bokeh range that all figures over time share, so that they move together in the
browser. Tables and images need the server and are updated when the range stops changing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import panel as pn
from bokeh.models import BoxZoomTool, CrosshairTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard.state.url import Debounced, write_address
from benchkit.show.pages.pair import PairData
from benchkit.show.plots.base import INK
from benchkit.show.plots.thread_activity import whole_time
from benchkit.store.run import Run

#: Borders left and right of every plot over time, in pixels: equal times are aligned vertically,
#: independent of the axis numbers and the legend.
LEFT_BORDER = 70
RIGHT_BORDER = 150
#: Smallest time in ms between two updates: one turn of the mouse wheel changes the range dozens of
#: times.
UPDATE_MS = 60
#: Further keys of the address, for single parts of the page: worker whose memory is shown; order,
#: name filter and page of the table of groups; prefix, search text and range of call stacks; value
#: of the transfer matrix; divisor of the seconds, and call stacks that are shown, of two runs.
OPTIONS = ("worker", "sort", "holds", "page", "prefix", "find", "frames", "cells", "per", "calls")
#: A window that differs from the whole run by at most this share of it counts as the whole run.
WHOLE_TOLERANCE = 1e-3


class Window:
    """Selection on the page of a run: time window, task group, tab, and values of filters."""

    #: Name of the view whose address contains the state.
    VIEW = "run"

    def __init__(
        self,
        run: Run,
        timeline: TaskTimeline,
        state: Mapping[str, str],
        *,
        whole: tuple[float, float] | None = None,
    ) -> None:
        self.run, self.timeline = run, timeline
        self.whole = whole or whole_time(run.tree, timeline)
        left, right = self._initial_ends(state)
        margin = 0.01 * (self.whole[1] - self.whole[0])
        self._full = (self.whole[0] - margin, self.whole[1] + margin)
        if (left, right) == self.whole:
            left, right = self._full
        self.range = Range1d(
            start=left,
            end=right,
            bounds=self._full,
            reset_start=self._full[0],
            reset_end=self._full[1],
        )
        self._cursor = Span(dimension="height", line_color=INK, line_alpha=0.7, line_dash="dotted")
        self.group = state.get("group", "") if state.get("group") in timeline.groups else ""
        self.tab = state.get("tab", "")
        self.options = {name: state.get(name, "") for name in OPTIONS}
        #: Tab -> callbacks; tab "" for those of every tab.
        self._callbacks: dict[str, list[Callable[[], object]]] = {"": []}
        self._outdated_tabs: set[str] = set()
        self._tab_in_creation = ""
        self._update_pending = False
        self._updated_at = 0.0
        self._write_later = Debounced(self.write, lambda: self.range)
        self.range.on_change("start", self._range_changed)
        self.range.on_change("end", self._range_changed)

    def _initial_ends(self, state: Mapping[str, str]) -> tuple[float, float]:
        """Return the window in the address if it is valid, else the whole run."""
        try:
            left, right = (float(state[name]) for name in ("from", "to"))
        except (KeyError, ValueError):
            return self.whole
        left, right = max(left, self.whole[0]), min(right, self.whole[1])
        return (left, right) if math.isfinite(right - left) and right > left else self.whole

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the window, in s."""
        left, right = self.axis_ends
        return max(left, self.whole[0]), min(right, self.whole[1])

    @property
    def axis_ends(self) -> tuple[float, float]:
        """The ends of the axes, in s; they include a margin around the whole run."""
        start: Any = self.range.start
        end: Any = self.range.end
        return float(start), float(end)

    @property
    def part(self) -> tuple[float, float] | None:
        """The ends of the window, or None if it contains the whole run."""
        left, right = self.ends
        tolerance = WHOLE_TOLERANCE * (self.whole[1] - self.whole[0])
        is_whole = left <= self.whole[0] + tolerance and right >= self.whole[1] - tolerance
        return None if is_whole or not right > left else (left, right)

    @property
    def description(self) -> str:
        """The window as text."""
        length = self.whole[1] - self.whole[0]
        if self.part is None:
            return f"The whole run, {_seconds(length)}"
        left, right = self.part
        share = f"{_seconds(right - left)} of {_seconds(length)}"
        return f"{share}: {left:.3f} to {right:.3f} s"

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address."""
        part = self.part
        ends = ("", "")
        if part is not None:
            # Three digits after the leading digit of the length: a link must show the same window.
            digits = int(np.clip(3 - math.floor(math.log10(part[1] - part[0])), 0, 9))
            ends = (f"{part[0]:.{digits}f}", f"{part[1]:.{digits}f}")
        return {
            "id": self.run.id,
            "tab": self.tab,
            "from": ends[0],
            "to": ends[1],
            "group": self.group,
            **self.options,
            **changed,
        }

    def subscribe(self, callback: Callable[[], object], *, now: bool = False) -> None:
        """Call a function after each change of the window or the group."""
        if now:
            callback()
        self._callbacks.setdefault(self._tab_in_creation, []).append(callback)

    @contextmanager
    def tab_callbacks(self, tab: str) -> Iterator[None]:
        """Assign functions subscribed in this context to a tab."""
        previous, self._tab_in_creation = self._tab_in_creation, tab
        try:
            yield
        finally:
            self._tab_in_creation = previous

    def show_tab(self, tab: str) -> None:
        """Select a tab and update it if it is out of date."""
        self.tab = tab
        if tab in self._outdated_tabs:
            self._outdated_tabs.discard(tab)
            for callback in self._callbacks[tab]:
                callback()

    def share(self, *plots: figure) -> None:
        """Make figures over time show and set the window.

        All figures mark the time at the mouse position.
        """
        for plot in plots:
            if not plot.axis or not plot.axis[0].visible:  # message instead of a plot
                continue
            plot.x_range = self.range
            align(plot)
            plot.add_tools(CrosshairTool(overlay=self._cursor, visible=False))
            boxes = [tool for tool in plot.toolbar.tools if isinstance(tool, BoxZoomTool)]
            if boxes:
                plot.toolbar.active_drag = boxes[0]

    def reset(self, *events: Any) -> None:
        """Select the whole run."""
        self._run_locked(lambda: self.range.update(start=self._full[0], end=self._full[1]))

    def zoom(self, left: float, right: float) -> bool:
        """Select a time window."""
        left, right = max(left, self.whole[0]), min(right, self.whole[1])
        if right > left:
            self._run_locked(lambda: self.range.update(start=left, end=right))
        return right > left

    def select_group(self, group: str) -> None:
        """Select a task group."""
        if group != self.group:
            self.group = group
            # The call stacks were those of the previous group.
            self.options |= {"prefix": "", "frames": ""}
            self._run_locked(self._group_changed)

    def toggle_group(self, group: str) -> None:
        """Select a task group, or all groups if it is the selected group."""
        self.select_group("" if group == self.group else group)

    def set_options(self, **options: str) -> None:
        """Store keys of the address that no callback depends on."""
        if not options.items() <= self.options.items():
            self.options |= options
            self.write()

    def write(self) -> None:
        """Write the selection into the address."""
        write_address(self.VIEW, self.state())

    def _group_changed(self) -> None:
        self._notify()
        self.write()

    def _run_locked(self, action: Callable[[], Any]) -> None:
        """Run an action with the lock of the document; click callbacks do not hold it."""
        document = self.range.document
        if document is None or document.session_context is None:
            action()
        else:
            document.add_next_tick_callback(action)

    def _range_changed(self, attr: str, old: Any, new: Any) -> None:
        document = pn.state.curdoc or self.range.document
        if document is None:  # in a notebook without a server
            self._notify()
            return
        if not self._update_pending:
            self._update_pending = True
            # Delay: the two ends of the range arrive as two consecutive changes in one message.
            delay_ms = UPDATE_MS - 1e3 * (time.monotonic() - self._updated_at)
            document.add_timeout_callback(self._update, max(1, int(delay_ms)))
        self._write_later()

    def _update(self) -> None:
        self._update_pending = False
        self._notify()
        self._updated_at = time.monotonic()

    def _notify(self) -> None:
        self._outdated_tabs = set(self._callbacks) - {"", self.tab}
        shown = ("", self.tab) if self.tab else ("",)
        for callback in [function for tab in shown for function in self._callbacks.get(tab, ())]:
            callback()


def align(plot: figure) -> None:
    """Set the left and right border that all figures over time have."""
    plot.min_border_left, plot.min_border_right = LEFT_BORDER, RIGHT_BORDER


def _seconds(length: float) -> str:
    return f"{length:.3g} s" if length < 999 else f"{length:.0f} s"


class PairWindow(Window):
    """Selection on the page of two runs; groups are named without Dask's hash."""

    VIEW = "pair"

    def __init__(self, data: PairData, state: Mapping[str, str]) -> None:
        self.data, self.ids = data, {"a": data.a.run.id, "b": data.b.run.id}
        super().__init__(data.b.run, data.b.timeline, state, whole=data.whole)
        self.group = state.get("group", "") if state.get("group") in data.groups else ""

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address."""
        state = super().state()
        names = ("from", "to", "group", "sort", "holds", "page", "per", "cells", "calls")
        return {**self.ids, **{name: state[name] for name in names}, **changed}
