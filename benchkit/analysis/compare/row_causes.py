"""Add to the changed rows of a comparison what moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from benchkit.analysis.compare.causes import cause_changes
from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.explain import explain
from benchkit.errors import BenchkitError
from benchkit.formatting import counted
from benchkit.store.run import Run

__all__ = ["with_causes"]

#: Newest runs read on each side; more take longer to read and change the result little.
MAX_RUNS = 5


def with_causes(comparison: Comparison, open_run: Callable[[str], Run]) -> Comparison:
    """Return a comparison whose rows with a changed duration or memory say what moved."""
    frame = comparison.frame.copy()
    unknown = []
    changed = frame["changed"] & frame["metric"].isin(DEFAULT_METRICS)
    for index, row in frame[changed].iterrows():
        try:
            frame.loc[index, "cause"] = _cause(comparison, row, open_run)
        except BenchkitError as error:
            unknown.append(str(error))
    if unknown:
        text = f"cause unknown for {counted(len(unknown), 'changed row')}: {unknown[0]}"
        return replace(comparison, frame=frame, warnings=(*comparison.warnings, text))
    return replace(comparison, frame=frame)


def _cause(comparison: Comparison, row: pd.Series, open_run: Callable[[str], Run]) -> str:
    ids = comparison.run_ids(row)
    sides = []
    for arm in ("baseline", "contender"):
        runs = [open_run(str(run_id)) for run_id in ids[arm][-MAX_RUNS:] if run_id]
        sides.append([run for run in runs if run.outcome == "ok"])
    if not all(sides):  # the others reached their deadline
        return ""
    blocked = comparison.blocked and len(sides[0]) == len(sides[1])
    if row["metric"] == "duration":
        return cause_changes(sides[0], sides[1], blocked=blocked).sentence
    return explain(sides[0], sides[1], blocked=blocked).memory_sentence
