"""Summarise a run as text and numbers, for the top of a page."""

from __future__ import annotations

from typing import Any

import pandas as pd
from IPython.display import HTML

from benchkit.formatting import (
    OUTCOME_WORDS,
    format_bytes,
    format_count,
    format_quantity,
    format_seconds,
    short_group,
)
from benchkit.show.escape import escape
from benchkit.store.run import Run
from benchkit.store.schema import METRICS

__all__ = ["KEY_FIGURES", "heading", "task_group_table"]

KEY_FIGURES = {
    "duration": "wall time",
    "memory_peak": "peak memory of all workers",
    "memory_peak_worker": "peak of the worst worker",
    "spilled_peak": "spilled at most",
    "network_bytes": "over the network",
    "n_tasks": "tasks",
}


def heading(run: Run) -> Any:
    """Return the name, outcome and key metrics of a run as HTML to display."""
    symbol, words = OUTCOME_WORDS.get(run.outcome, ("?", run.outcome))
    bad = "" if run.outcome == "ok" else " class='benchkit-bad'"
    metrics = run.metrics
    tiles = "".join(
        f"<div><b style='font-size:1.35em;font-weight:600'>"
        f"{escape(format_quantity(metrics[name], METRICS[name].units))}</b><br>"
        f"<small>{escape(label)}</small></div>"
        for name, label in KEY_FIGURES.items()
        if name in metrics
    )
    error = f"<p class='benchkit-bad'>{escape(run.error)}</p>" if run.error else ""
    tags = "".join(f" · {escape(name)}={escape(value)}" for name, value in run.tags.items())
    return HTML(
        f"<h4 style='font-size:1.25em'>{escape(run.workload)} "
        f"<span{bad}>{symbol} {escape(words)}</span></h4>{error}"
        f"<p><small>{escape(run.summary_line)} · <code>{escape(run.id)}</code>{tags}</small></p>"
        f"<div style='display:flex;flex-wrap:wrap;gap:1em 2.2em;margin:.8em 0'>{tiles}</div>"
    )


def task_group_table(run: Run, most: int = 12) -> pd.DataFrame:
    """Return the busiest task groups of a run as text with units; zeros are empty cells."""
    groups = run.task_groups().head(most)
    table = pd.DataFrame(index=pd.Index([short_group(name) for name in groups.index]))
    table.index.name = "task group"
    for name in groups:
        if name.endswith("(s)") and not name.startswith(("start", "stop")):
            table[name.removesuffix(" (s)")] = [
                format_seconds(value) if value > 0 else "" for value in groups[name]
            ]
    for name, words in (("n_tasks", "tasks"), ("n_erred", "raised"), ("n_retried", "retried")):
        if name in groups:
            table[words] = [format_count(value) if value else "" for value in groups[name]]
    if "result (B)" in groups:
        table["results"] = [format_bytes(value) if value else "" for value in groups["result (B)"]]
    return table.loc[:, (table != "").any()]
