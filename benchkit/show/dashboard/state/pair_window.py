"""Time window and task group selected on the page of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import short_group
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.plots.thread_activity import whole_time
from benchkit.store.run import Run

__all__ = ["NAMES", "PairWindow"]

#: Names of the two runs of a pair.
NAMES = ("A", "B")


class PairWindow(Window):
    """Selection on the page of two runs; groups are named without Dask's hash."""

    VIEW = "pair"

    def __init__(
        self, runs: list[Run], timelines: list[TaskTimeline], state: Mapping[str, str]
    ) -> None:
        self.runs, self.timelines = runs, timelines
        self.ids = {name: run.id for name, run in zip(("a", "b"), runs, strict=True)}
        starts, ends = zip(
            *(whole_time(run.tree, line) for run, line in zip(runs, timelines, strict=True)),
            strict=True,
        )
        super().__init__(runs[1], timelines[1], state, whole=(min(starts), max(ends)))
        self.names = list(
            dict.fromkeys(short_group(name) for timeline in timelines for name in timeline.groups)
        )
        self.group = state.get("group", "") if state.get("group") in self.names else ""

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address."""
        state = super().state()
        names = ("from", "to", "group", "sort", "holds", "page", "per")
        return {**self.ids, **{name: state[name] for name in names}, **changed}

    @property
    def has_times(self) -> bool:
        """Whether both runs have task times."""
        return all(timeline.n_tasks for timeline in self.timelines)

    def groups_of(self, timeline: TaskTimeline) -> list[str]:
        """Return the groups of a run that have the selected short name."""
        return [name for name in timeline.groups if short_group(name) == self.group]
