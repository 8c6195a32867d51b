"""A Grafana dashboard of Dask's metrics, and runs as annotations on it.

The dashboard is the file ``board.json``, as Grafana imports and exports it. Its queries use the
metric names that Dask exposes; a test compares them with a real scrape.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchkit.errors import UsageError
from benchkit.store.run import Run
from benchkit.text import escape

__all__ = ["ANNOTATION_TAG", "annotation", "grafana_board"]

#: Tag of annotations that represent runs; the dashboard shows annotations with this tag.
ANNOTATION_TAG = "benchkit"


def grafana_board() -> str:
    """Return a dashboard of scheduler and workers as JSON that Grafana imports.

    Its variables are the data source, the jobs that scrape the cluster, and the workers. Runs that
    were posted as annotations with the tag ``benchkit`` are marked on every panel.
    """
    return (Path(__file__).parent / "board.json").read_text(encoding="utf-8").rstrip()


def annotation(run: Run) -> dict[str, Any]:
    """Return a run as an annotation for Grafana's HTTP API."""
    attrs = run.tree.attrs
    if "clock_on" not in attrs:
        raise UsageError(f"run {run.id}: has no time range, because its clock was never started")
    begin, end = float(attrs["clock_on"]), float(attrs.get("clock_off", attrs["clock_on"]))
    end = end if math.isfinite(end) else begin
    tags = [ANNOTATION_TAG, run.workload, str(attrs.get("environment") or ""), run.outcome]
    # Grafana renders the text as HTML.
    lines = [run.workload, run.outcome, run.error, run.id]
    return {
        "time": math.floor(1000 * begin),
        "timeEnd": math.ceil(1000 * end),
        "tags": [tag for tag in tags if tag],
        "text": "<br>".join(escape(line) for line in lines if line),
    }
