"""The page of two runs, A and B, on one time axis: memory, threads, tasks and their differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.insight.memory import memory_difference
from benchkit.analysis.run.timeline import group_differences
from benchkit.errors import NotRecorded
from benchkit.formatting import MISSING, format_outcome, short_group
from benchkit.show.pages import comparison
from benchkit.show.pages.page import (
    Bar,
    Cell,
    Content,
    Figure,
    Filter,
    Later,
    LiveFigure,
    Page,
    Row,
    Section,
    Table,
    Target,
    Text,
    cells_table,
    metric_terms,
    select_filter,
    text_table,
)
from benchkit.show.pages.run import (
    RunData,
    busy_threads,
    cells_filter,
    decimals,
    shown_part,
    task_stream,
)
from benchkit.show.plots.base import has, retitle
from benchkit.show.plots.flame import flame_difference
from benchkit.show.plots.run_metrics import memory_overlay
from benchkit.show.plots.transfers import transfer_difference
from benchkit.show.theme import BETTER, UNCHANGED, WORSE
from benchkit.store.run import Run
from benchkit.table import Table as TextTable

#: Names of the two runs.
NAMES = ("A", "B")
#: Divisor of thread-seconds -> unit of the values, and factor from seconds to this unit.
UNITS = {"": ("s", 1.0), "task": ("ms per task", 1e3), "GiB": ("s per GiB", 1.0)}
_DIVISORS = {"of all threads": "", "for each task": "task", "for each GiB of results": "GiB"}
_CALLS = {"calls of B": "", "also calls that only A has": "1"}
#: Width of the mark in the middle of a bar of differences, as a share of the bar.
_MIDDLE = 0.01


@dataclass(frozen=True, eq=False)
class PairData:
    """Two runs that a page compares."""

    a: RunData
    b: RunData

    @property
    def sides(self) -> tuple[tuple[str, RunData], ...]:
        """The runs with their names."""
        return tuple(zip(NAMES, (self.a, self.b), strict=True))

    @property
    def runs(self) -> tuple[Run, Run]:
        """The runs."""
        return self.a.run, self.b.run

    @cached_property
    def whole(self) -> tuple[float, float]:
        """First and last time of both runs, in s."""
        starts, ends = zip(self.a.whole, self.b.whole, strict=True)
        return min(starts), max(ends)

    @cached_property
    def groups(self) -> list[str]:
        """Names of the task groups without Dask's hash."""
        names = (*self.a.timeline.groups, *self.b.timeline.groups)
        return list(dict.fromkeys(map(short_group, names)))

    @property
    def has_times(self) -> bool:
        """Whether both runs have task times."""
        return bool(self.a.timeline.n_tasks and self.b.timeline.n_tasks)


def page(data: PairData, state: Mapping[str, str]) -> Page:
    """Return the page of two runs.

    `state` has the times in s (``from``, ``to``), the task group, and the values of filters.
    """
    first, second = (run.workload for run in data.runs)
    different = "" if first == second else "These are runs of different workloads."
    problems = [
        f"The tasks of {name} cannot be shown: {side.problem}"
        for name, side in data.sides
        if side.problem
    ]
    title = f"{first} and {second}" if different else first
    return Page(title, [different, *problems], sections(data, state))


def sections(data: PairData, state: Mapping[str, str]) -> list[Section]:
    """Return the sections of the page."""

    def section(
        key: str,
        title: str,
        make: Callable[[PairData, Mapping[str, str]], Sequence[Content]],
        note: str = "",
        **more: Any,
    ) -> Section:
        return Section(title, Later(partial(make, data, state)), note, key=key, **more)

    return [
        section("runs", "Which runs are these?", _runs),
        section("memory", "How was memory used?", _memory),
        section("threads", "How many threads were busy?", _busy),
        section("stream", "What did each thread do, and when?", _stream),
        section("groups", "Which task groups took more or less?", _group_table,
                filters=lambda: [_divisor(state)], follows=("from", "to", "group")),
        section("held", "Which task groups held memory?", _held),
        section("transfers", "Which workers sent more or less?", _transfers,
                "Of the whole runs, for any window; red and +: more in B, blue and −: less.",
                filters=lambda: [cells_filter(state)]),
        section("stacks", "In which calls did tasks spend more or less?", _stacks,
                filters=lambda: [] if _without_stacks(data) else [_calls(state)]),
        section("metrics", "Which metrics differ?", _metrics),
        section("differences", "What differs between A and B?", _differences),
    ]  # fmt: skip


def _runs(data: PairData, state: Mapping[str, str]) -> list[Content]:
    is_same = data.a.run.workload == data.b.run.workload
    return [cells_table([_run_cells(name, side.run, is_same) for name, side in data.sides])]


def _run_cells(name: str, run: Run, is_same: bool) -> dict[str, Cell]:
    attrs = run.tree.attrs
    return {
        "": name,
        "run": Text(run.id[:13], target=Target("run", {"id": run.id})),
        "workload": "" if is_same else run.workload,
        "environment": str(attrs.get("arm") or attrs.get("environment", MISSING)),
        "outcome": format_outcome(run.record),
        "started, on": run.summary_line,
    }


def _times(data: PairData, state: Mapping[str, str]) -> tuple[float, float]:
    return shown_part(state) or data.whole


def _memory(data: PairData, state: Mapping[str, str]) -> list[Content]:
    trees = [run.tree for run in data.runs]
    return [Figure(partial(memory_overlay, trees, NAMES), _times(data, state))]


def _busy(data: PairData, state: Mapping[str, str]) -> list[Content]:
    def make(name: str, side: RunData) -> LiveFigure:
        made = busy_threads(side, shown_part(state))
        retitle(made.figure, f"{name}: what were threads busy with?")
        return made

    return _figures(data, state, make)


def _stream(data: PairData, state: Mapping[str, str]) -> list[Content]:
    def make(name: str, side: RunData) -> LiveFigure:
        groups = partial(_full_names, side)
        made = task_stream(side, shown_part(state), state.get("group", ""), groups)
        title = str(made.figure.html_attributes["aria-label"])
        retitle(made.figure, f"{name}: {title[0].lower()}{title[1:]}")
        return made

    return _figures(data, state, make)


def _figures(
    data: PairData, state: Mapping[str, str], make: Callable[[str, RunData], LiveFigure]
) -> list[Content]:
    """Return a figure of each run that has task times."""
    return [
        Figure(partial(make, name, side), _times(data, state))
        for name, side in data.sides
        if side.timeline.n_tasks
    ]


def _full_names(side: RunData, group: str) -> list[str]:
    """Return the task groups of a run that have a name without Dask's hash."""
    return [name for name in side.timeline.groups if group and short_group(name) == group]


def _divisor(state: Mapping[str, str]) -> Filter:
    # Order and page belong to the previous values.
    return replace(
        select_filter(state, "per", "Thread-seconds", _DIVISORS), resets=("sort", "page")
    )


def _group_table(data: PairData, state: Mapping[str, str]) -> list[Content]:
    """Return thread-seconds by task group within the window, the largest difference first."""
    per = _divisor(state).value
    unit, scale = UNITS[per]
    part = shown_part(state) if data.has_times else None
    table = group_differences(data.a.timeline, data.b.timeline, part, per)
    table[["a", "b", "difference"]] *= scale
    largest = float(table["difference"].abs().max()) if len(table) else 0.0
    rows = []
    for group, *values in table.itertuples(name=None):
        mark = "● " if group == state.get("group") else ""
        a, b, difference, *tasks = values
        cells = [decimals(a), decimals(b), decimals(difference), *(f"{n:,}" for n in tasks)]
        bar = _difference_bar(difference, largest, unit)
        rows.append(Row([f"{mark}{group}", bar, *cells], str(group)))
    titles = (
        *("task group", "less · more", f"A ({unit})", f"B ({unit})", f"B − A ({unit})"),
        *("tasks of A", "tasks of B"),
    )
    empty = "No task ran within the window."
    return [Table(titles, rows, empty, picks="group"), [Text(_about_groups(data), "soft")]]


def _difference_bar(value: float, largest: float, unit: str) -> Bar:
    """Return a difference as a bar from the middle: left is less, right is more."""
    if not math.isfinite(value):
        return Bar([], MISSING)
    length = 0.5 * abs(value) / largest if largest else 0.0
    middle = (_MIDDLE, UNCHANGED)
    left = [(0.5 - length, "none"), (length, BETTER), middle]
    right = [(0.5, "none"), middle, (length - _MIDDLE, WORSE)] if length > _MIDDLE else []
    parts = left if value < 0 else right or [(0.5, "none"), middle]
    return Bar(parts, f"{value:+.3f} {unit}")


def _about_groups(data: PairData) -> str:
    where = "within the window" if data.has_times else "of the whole runs, for any window"
    text = (
        f"Thread-seconds {where}, B − A, largest difference first. One run per side shows a "
        "difference but proves none."
    )
    for name, side in data.sides:
        if not side.timeline.n_tasks:
            text += f" Task times of {name} were not recorded."
        elif side.timeline.n_unseen:
            text += f" {side.timeline.n_unseen:,} tasks of {name} were not recorded (too many)."
    return text


def _held(data: PairData, state: Mapping[str, str]) -> list[Content]:
    """Return the bytes of results by task group, or a line if a run has none."""
    try:
        difference = memory_difference([data.a.run], [data.b.run])
    except NotRecorded as error:
        return [[Text(str(error))]]
    section = comparison.group_memory(
        difference.rename(columns={"before (B)": "A (B)", "after (B)": "B (B)"})
    )
    return [[Text(section.note, "soft")], *section.contents()]


def _transfers(data: PairData, state: Mapping[str, str]) -> list[Content]:
    value = cells_filter(state).value or "bytes"
    return [Figure(partial(transfer_difference, *data.runs, value))]


def _calls(state: Mapping[str, str]) -> Filter:
    return select_filter(state, "calls", "Show", _CALLS)


def _without_stacks(data: PairData) -> list[str]:
    return [name for name, side in data.sides if not has(side.run.tree, "profile", "frame")]


def _stacks(data: PairData, state: Mapping[str, str]) -> list[Content]:
    missing = " and ".join(_without_stacks(data))
    if missing:
        text = f"Not recorded in {missing}: only the full capture of Dask's tasks records them."
        return [[Text(text)]]
    show_removed = bool(_calls(state).value)
    note = (
        "Of the whole runs, for any window and group. Widths are those of B; ▲ and red: more than "
        "in A, ▼ and blue: less. A click zooms to a call, a double click shows everything again."
    )
    figure = Figure(partial(flame_difference, *data.runs, show_removed=show_removed))
    return [figure, [Text(note, "soft")]]


def _metrics(data: PairData, state: Mapping[str, str]) -> list[Content]:
    table = data.a.run.compare(data.b.run)
    table.columns = ["A", "B", "B / A"]
    return [
        text_table(
            TextTable.from_frame(table, "metric"),
            terms=metric_terms(data.a.run.metrics),
            terms_title="What the metrics mean",
        )
    ]


def _differences(data: PairData, state: Mapping[str, str]) -> Sequence[Content]:
    table = differences([data.a.run], [data.b.run])
    (section,) = comparison.differences("A", {"B": table[table["kind"] != "count"]})
    return section.contents()
