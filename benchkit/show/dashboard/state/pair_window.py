"""The window of time and the task group that a page of two runs is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import short_group
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.plots.thread_activity import whole_time
from benchkit.store.run import Run

__all__ = ["NAMES", "PairWindow"]

#: What the two are called.
NAMES = ("A", "B")


class PairWindow(Window):
    """What a page of two runs looks at; groups go by their names without Dask's hash."""

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
        """Whether it is known of both when tasks computed."""
        return all(within.n_tasks for within in self.withins)

    def groups_of(self, within: TaskTimeline) -> list[str]:
        """Return the groups of one run that the chosen name stands for."""
        return [name for name in within.groups if short_group(name) == self.group]
