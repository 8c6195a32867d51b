"""Rows that the commands print, and the table they are printed as."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchkit.errors import BenchkitError, UsageError
from benchkit.experiment.environment import CURRENT, find_environment, list_environments
from benchkit.experiment.folders import folders_of
from benchkit.measure.collection import collect
from benchkit.store.schema import METRICS
from benchkit.store.store import Store
from benchkit.store.text import format_bytes, format_seconds

__all__ = ["as_table", "environments", "metrics", "run_row", "runs", "workloads"]


def workloads(folders: Sequence[str], expression: str | None) -> list[dict[str, Any]]:
    """Return a row per variant; broken files are rows too, with their reason."""
    collection = collect(folders_of("workloads", folders))
    rows = [
        {
            "name": variant.name,
            "category": variant.workload.category,
            "tags": list(variant.tags),
            "available": not variant.missing_packages(),
            "reason": ", ".join(variant.missing_packages()),
        }
        for variant in collection.select((), expression)
    ]
    for broken in collection.broken:
        where = f"{broken.path}:{broken.line}"
        rows.append(
            {
                "name": where,
                "category": "",
                "tags": [],
                "available": False,
                "reason": broken.reason,
            }
        )
    return rows


def runs(store: str | None) -> list[dict[str, Any]]:
    """Return a row per run of a store, oldest first, with its metrics."""
    frame = Store(store, create=False).runs()
    frame = frame.astype(object).where(frame.notna(), None)
    return frame.to_dict("records")


def environments() -> list[dict[str, Any]]:
    """Return a row per environment, the one that benchkit runs in first."""
    folders = folders_of("environments")
    rows = []
    for name in [CURRENT, *list_environments(folders)]:
        try:
            found = find_environment(name, folders)
            rows.append({"name": name, "description": found.description, "error": ""})
        except BenchkitError as error:
            rows.append({"name": name, "description": "", "error": str(error)})
    return rows


def metrics() -> list[dict[str, Any]]:
    """Return a row per metric."""
    return [{"name": metric.name, **metric.attrs} for metric in METRICS.values()]


def run_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the table after a run shows of it."""
    return {
        "workload": record["workload"],
        "outcome": record["outcome"],
        "duration": format_seconds(record.get("duration")),
        "peak memory": format_bytes(record.get("memory_peak")),
        # Dask's hash at the end of a group's name says nothing to a reader.
        "biggest task group": re.sub(r"-[0-9a-f]{16,}$", "", record.get("biggest_group", "")),
        "error": record.get("error", ""),
        "id": record["id"],
    }


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as aligned text; columns that are empty throughout are left out."""
    if not rows:
        raise UsageError("nothing to list")
    names = [name for name in rows[0] if any(row.get(name) not in ("", None, []) for row in rows)]
    names = names[:8]
    cells = [[str(row.get(name, "")) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    lines = [names, *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
