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

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import short_group
from benchkit.show.dashboard.state.url import remember
from benchkit.show.plots.base import INK
from benchkit.show.plots.thread_activity import whole_time
from benchkit.store.run import Run

__all__ = ["NAMES", "NO_TIMES", "PairWindow", "Window", "align", "end_fields"]

#: Borders left and right of every plot over time, in pixels: equal times are aligned vertically,
#: independent of the axis numbers and the legend.
AXIS, LEGENDS = 70, 150
#: Smallest time in ms between two updates: a turn of the mouse wheel causes dozens of range
#: changes.
APART_MS = 60
#: Time in ms without changes before the browser's history gets an entry (one per drag).
REST_MS = 500
#: Further keys of the address, for single parts of the page: order, name filter and page of the
#: table of groups; prefix, search text and range of call stacks; value of the transfer matrix;
#: divisor of the seconds of two runs.
WORDS = ("sort", "holds", "page", "prefix", "find", "frames", "cells", "per")
#: Message shown where task times are missing.
NO_TIMES = "When each task computed was not recorded: the light capture counts tasks only."
#: Names of the two runs of a pair.
NAMES = ("A", "B")
#: Tolerance, as a share of the whole run, within which a window counts as the whole run.
SAME = 1e-3


class Window:
    """Selection on the page of a run: time window, task group, worker and tab.

    Parameters
    ----------
    run : Run
        The run.
    within : TaskTimeline
        Task timeline of the run.
    state : mapping of str to str
        The address: ``from`` and ``to`` (s), ``group``, ``worker``, ``tab``, and `WORDS`.
    whole : tuple of float, optional
        Start and end of the whole time range, in s; by default of this run.

    Attributes
    ----------
    range : Range1d
        Range for figures over time.
    group : str
        Selected task group, or "".
    followers : list of callable
        Callbacks for changes, on every tab.
    """

    #: Name of the view whose address contains the state.
    VIEW = "run"

    def __init__(
        self,
        run: Run,
        within: TaskTimeline,
        state: Mapping[str, str],
        *,
        whole: tuple[float, float] | None = None,
    ) -> None:
        self.run, self.within = run, within
        self.whole = whole or whole_time(run.tree, within)
        left, right = self._asked(state)
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
        self._moment = Span(dimension="height", line_color=INK, line_alpha=0.7, line_dash="dotted")
        self.group = state.get("group", "") if state.get("group") in within.groups else ""
        self.worker = state.get("worker", "")
        self.tab = state.get("tab", "")
        self.words = {name: state.get(name, "") for name in WORDS}
        self.followers: list[Callable[[], None]] = []
        self._of_tab: dict[str, list[Callable[[], None]]] = {}
        self._stale: set[str] = set()
        self._made = ""
        self._waiting = self._resting = False
        self._told_at = 0.0
        self._then = self.shown
        self.range.on_change("start", self._moved)
        self.range.on_change("end", self._moved)

    def _asked(self, state: Mapping[str, str]) -> tuple[float, float]:
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
        left, right = self.shown
        return max(left, self.whole[0]), min(right, self.whole[1])

    @property
    def shown(self) -> tuple[float, float]:
        """The ends of the axes, in s; they include a margin around the whole run."""
        start: Any = self.range.start
        end: Any = self.range.end
        return float(start), float(end)

    @property
    def part(self) -> tuple[float, float] | None:
        """The ends of the window, or None if it contains the whole run."""
        left, right = self.ends
        near = SAME * (self.whole[1] - self.whole[0])
        held = left <= self.whole[0] + near and right >= self.whole[1] - near
        return None if held or not right > left else (left, right)

    @property
    def of_tasks(self) -> tuple[float, float] | None:
        """The window for task queries; None (the whole run) if tasks have no times."""
        return self.part if self.has_times else None

    @property
    def has_times(self) -> bool:
        """Whether the run has task times: the light capture only counts tasks."""
        return bool(self.within.n_tasks)

    @property
    def told(self) -> str:
        """The window as text."""
        length = self.whole[1] - self.whole[0]
        if self.part is None:
            return f"The whole run, {_seconds(length)}"
        left, right = self.part
        told = f"{_seconds(right - left)} of {_seconds(length)}"
        return f"{told}: {left:.3f} to {right:.3f} s"

    @property
    def prefix(self) -> str:
        """The prefix of the selected group, or ""."""
        prefixes = dict(zip(self.within.groups, self.within.prefixes, strict=False))
        return prefixes.get(self.group, "")

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address, some of them changed."""
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
            "worker": self.worker,
            **self.words,
            **changed,
        }

    def follow(self, follower: Callable[[], None]) -> None:
        """Register a callback for changes of the window or the group.

        Callbacks of a tab (see `of_tab`) are called while the tab is shown.
        """
        (self._of_tab.setdefault(self._made, []) if self._made else self.followers).append(follower)

    @contextmanager
    def of_tab(self, tab: str) -> Iterator[None]:
        """Assign callbacks registered in this context to a tab."""
        before, self._made = self._made, tab
        try:
            yield
        finally:
            self._made = before

    def turn(self, tab: str) -> None:
        """Select a tab and update it if it is out of date."""
        self.tab = tab
        if tab in self._stale:
            self._stale.discard(tab)
            for follower in self._of_tab.get(tab, ()):
                follower()

    def share(self, *figures: Any) -> None:
        """Make figures over time show and set the window.

        All figures mark the time at the mouse position.
        """
        for figure in figures:
            if not figure.axis or not figure.axis[0].visible:  # message instead of a plot
                continue
            figure.x_range = self.range
            align(figure)
            figure.add_tools(CrosshairTool(overlay=self._moment, visible=False))
            boxes = [tool for tool in figure.toolbar.tools if isinstance(tool, BoxZoomTool)]
            if boxes:
                figure.toolbar.active_drag = boxes[0]

    def reset(self, *events: Any) -> None:
        """Select the whole run."""
        self._soon(lambda: self.range.update(start=self._full[0], end=self._full[1]))

    def look(self, left: float, right: float) -> bool:
        """Select a time window in seconds, clipped to the run; return False if it is empty."""
        left, right = max(left, self.whole[0]), min(right, self.whole[1])
        if right > left:
            self._soon(lambda: self.range.update(start=left, end=right))
        return right > left

    def choose(self, group: str) -> None:
        """Select a task group, or none with ""."""
        if group != self.group:
            self.group = group
            self.words |= {"prefix": "", "frames": ""}  # of the call stacks of the previous group
            self._soon(self._chosen)

    def note(self, **words: str) -> None:
        """Store keys of the address that no callback depends on."""
        if not words.items() <= self.words.items():
            self.words |= words
            self.write()

    def write(self) -> None:
        """Write the selection into the address."""
        remember(self.VIEW, self.state())

    def _chosen(self) -> None:
        self._tell()
        self.write()

    def _soon(self, act: Callable[[], Any]) -> None:
        """Run an action with the lock of the document; click callbacks do not hold it."""
        document = self.range.document
        if document is None or document.session_context is None:
            act()
        else:
            document.add_next_tick_callback(act)

    def _moved(self, attr: str, old: Any, new: Any) -> None:
        document = pn.state.curdoc or self.range.document
        if document is None:  # in a notebook without a server
            self._tell()
            return
        if not self._waiting:
            self._waiting = True
            # Delay: the two ends of the range arrive as two consecutive changes in one message.
            wait_ms = APART_MS - 1e3 * (time.monotonic() - self._told_at)
            document.add_timeout_callback(self._settled, max(1, int(wait_ms)))
        if not self._resting:
            self._resting = True
            self._then = self.shown
            document.add_timeout_callback(self._rested, REST_MS)

    def _settled(self) -> None:
        self._waiting = False
        self._tell()
        self._told_at = time.monotonic()

    def _rested(self) -> None:
        document = pn.state.curdoc or self.range.document
        if self._then != self.shown and document is not None:  # still changing
            self._then = self.shown
            document.add_timeout_callback(self._rested, REST_MS)
            return
        self._resting = False
        self.write()

    def _tell(self) -> None:
        self._stale = set(self._of_tab) - {self.tab}
        for follower in [*self.followers, *self._of_tab.get(self.tab, ())]:
            follower()


class PairWindow(Window):
    """Selection on the page of two runs; groups are named without Dask's hash."""

    VIEW = "pair"

    def __init__(
        self, runs: list[Run], withins: list[TaskTimeline], state: Mapping[str, str]
    ) -> None:
        self.runs, self.withins = runs, withins
        self.ids = {name: run.id for name, run in zip(("a", "b"), runs, strict=True)}
        ends = [whole_time(run.tree, within) for run, within in zip(runs, withins, strict=True)]
        super().__init__(
            runs[1], withins[1], state, whole=(min(e[0] for e in ends), max(e[1] for e in ends))
        )
        self.names = list(
            dict.fromkeys(short_group(name) for within in withins for name in within.groups)
        )
        self.group = state.get("group", "") if state.get("group") in self.names else ""

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address, some of them changed."""
        kept = super().state()
        mine = ("from", "to", "group", "sort", "holds", "page", "per")
        return {**self.ids, **{name: kept[name] for name in mine}, **changed}

    @property
    def has_times(self) -> bool:
        """Whether both runs have task times."""
        return all(within.n_tasks for within in self.withins)

    def groups_of(self, within: TaskTimeline) -> list[str]:
        """Return the groups of one run that have the selected short name."""
        return [name for name in within.groups if short_group(name) == self.group]


def end_fields(window: Window) -> list[Any]:
    """Return input fields for both ends of the window, for use with the keyboard."""
    fields = [
        pn.widgets.FloatInput(
            name=name, value=None, width=112, format="0.000", margin=(5, 10, 5, 0)
        )
        for name in ("From (s)", "To (s)")
    ]

    saying = False

    def show() -> None:
        nonlocal saying
        saying = True
        for field, end in zip(fields, window.ends, strict=True):
            field.value = round(end, 6)
        saying = False

    def typed(event: Any) -> None:
        if saying:
            return
        ends = list(window.ends)
        ends[fields.index(event.obj)] = event.new
        if event.new is None or not window.look(*ends):
            show()  # restore the valid values

    show()
    window.follow(show)
    for field in fields:
        field.param.watch(typed, "value")
    return fields


def align(figure: Any) -> None:
    """Set the same left and right border on every figure over time."""
    figure.min_border_left, figure.min_border_right = AXIS, LEGENDS


def _seconds(length: float) -> str:
    return f"{length:.3g} s" if length < 999 else f"{length:.0f} s"
