"""The record of a run that a result of another tool becomes: a number and what is known of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from benchkit.measure.run_ids import derived_id
from benchkit.store.schema import METRICS, RECORD_FIELDS

#: Names that no tag may have: they are fields of every run, or written below.
_TAKEN = {*RECORD_FIELDS, *METRICS.keys(), "imported", "n_samples"}


def result_record(
    tool: str,
    workload: str,
    started: datetime,
    params: Mapping[str, Any],
    metrics: Mapping[str, float | None],
    *,
    n_samples: int | None,
    units: str = "1",
    tags: Mapping[str, Any] | None = None,
    better: str = "lower",
    repetition: Any = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the record of the run that a result of another tool becomes.

    Results that differ in nothing else than their repetition are different runs.
    """
    ((metric, value),) = metrics.items()
    outcome = "failed" if value is None else "skipped" if math.isnan(value) else "ok"
    is_ours = metric in ("duration", "memory_peak")
    samples = {"n_samples": str(n_samples)} if n_samples else {}
    texts = {
        f"info_{name}" if name in _TAKEN else str(name): text
        if isinstance(text, str)
        else json.dumps(text)
        for name, text in (tags or {}).items()
        if text not in (None, "", {}, [])
    }
    identity = [tool, workload, *(fields.get(name) for name in ("environment", "host"))]
    identity += [] if repetition is None else [repetition]
    record = {
        "id": derived_id(
            started.timestamp(), json.dumps([*identity, fields.get("git_commit")], default=str)
        ),
        "workload": workload,
        "category": workload.partition(".")[0],
        "params": json.dumps(params, default=str),
        "version": 1,
        "environment": tool,
        "tags": json.dumps({**texts, "imported": tool, **samples}),
        "started": started.isoformat(timespec="microseconds"),
        "outcome": outcome,
        "capture": "off",
        "scale": 1.0,
        "host": "unknown",
        "cluster": "unknown",
        **{name: str(field) for name, field in fields.items() if field},
    }
    if not is_ours:
        record["own_metrics"] = json.dumps({metric: {"units": units, "better": better}})
    if outcome == "ok":
        record[metric] = float(value or 0.0)
    if outcome != "ok":
        record["error"] = f"{outcome} in {tool}"
    return record
