"""Summarise a run as HTML and as a table, for a page about it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import HTML, Markdown

from benchkit.analysis.insight.memory import bytes_as_text, memory_growth, memory_peaks
from benchkit.analysis.run.baseline import comparable
from benchkit.errors import BenchkitError, NotRecorded
from benchkit.formatting import (
    OUTCOME_WORDS,
    format_bytes,
    format_count,
    format_quantity,
    format_seconds,
    short_names,
)
from benchkit.show.plots.base import read_group
from benchkit.show.templates import render_template
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.table import Table
from benchkit.text import markdown_text

#: Metrics at the top of a page about a run -> label.
KEY_FIGURES = {
    "duration": "wall time",
    "memory_peak": "peak memory of all workers",
    "memory_peak_worker": "highest peak of one worker",
    "spilled_peak": "peak of spilled data",
    "transfer_bytes": "fetched between workers",
    "n_tasks": "tasks",
}


#: Earlier runs used for the growth of memory, and the groups of them that it reads.
GROWTH_RUNS, GROWTH_GROUPS = 9, ("scheduler", "held")


def run_heading(run: Run) -> HTML:
    """Return the name, outcome and key metrics of a run as HTML to display."""
    figures = {
        label: format_quantity(run.metrics[name], METRICS[name].units)
        for name, label in KEY_FIGURES.items()
        if name in run.metrics
    }
    outcome = " ".join(OUTCOME_WORDS.get(run.outcome, ("?", run.outcome)))
    limits = run.quality().to_dict("records")
    template = "run_heading.html"
    return HTML(render_template(template, run=run, outcome=outcome, figures=figures, limits=limits))


def memory_parts(run: Run) -> list[Any]:
    """Return who held the memory of a run, and its growth from run to run, to display."""
    parts: list[Any] = []
    try:
        parts.append(memory_peaks(run))
    except NotRecorded as error:
        parts.append(Markdown(markdown_text(str(error))))
    earlier = comparable(run.store.runs(run.workload), run.record).tail(GROWTH_RUNS)
    try:
        runs = [*run.store.load(earlier["id"] if len(earlier) else (), GROWTH_GROUPS), run]
        growth = bytes_as_text(memory_growth(runs))
        parts.append(Table.from_frame(growth, f"of {len(runs)} runs"))
    except BenchkitError as error:
        parts.append(Markdown(markdown_text(str(error))))
    return parts


def metadata_table(run: Run) -> pd.Series:
    """Return the metadata of a run, with values formatted for reading."""
    values = run.metadata()
    for name, units, factor in (("memory_limit", "B", 1), ("biggest_group_share", "%", 100)):
        if name in values:
            values[name] = format_quantity(values[name] * factor, units)
    return values


def task_group_table(run: Run, most: int = 12) -> pd.DataFrame:
    """Return the busiest task groups of a run as text with units."""
    groups = run.task_groups().head(most)
    every = read_group(run, "task_groups", "task_group")
    names = short_names([] if every is None else map(str, every["task_group"].values))
    table = pd.DataFrame(index=pd.Index([names[name] for name in groups.index]))
    table.index.name = "task group"
    for name in groups:
        if name.endswith("(s)") and not name.startswith(("start", "stop")):
            table[name.removesuffix(" (s)")] = [
                format_seconds(value) if value > 0 else "" for value in groups[name]
            ]
    for name, label in (("n_tasks", "tasks"), ("n_erred", "raised"), ("n_retried", "retried")):
        if name in groups:
            table[label] = [format_count(value) if value else "" for value in groups[name]]
    if "result (B)" in groups:
        table["results"] = [format_bytes(value) if value else "" for value in groups["result (B)"]]
    return table.loc[:, (table != "").any()]
