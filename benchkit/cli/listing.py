"""Rows that the commands print: flat, the same for a table and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd

from benchkit.analysis.run.baseline import against_previous
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.environment import CURRENT
from benchkit.experiment.environment.lookup import find_environment, list_environments
from benchkit.experiment.paths import folders_of
from benchkit.experiment.run.sizes import size_text
from benchkit.formatting import format_bytes, format_change, format_seconds, short_group
from benchkit.measure.discovery import collect
from benchkit.measure.expression import matcher
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

__all__ = [
    "as_records",
    "environments",
    "metrics",
    "noise",
    "run_row",
    "runs",
    "short_noise",
    "short_run",
    "short_workload",
    "workloads",
]


def workloads(
    folders: Sequence[str],
    expression: str | None,
    environment: str = CURRENT,
    environment_folders: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return a row per variant; broken files are rows too, with their reason."""
    collection = collect(folders_of("workloads", folders))
    arm = find_environment(environment, folders_of("environments", environment_folders))
    rows = [
        {
            "name": variant.name,
            "category": variant.workload.category,
            "size": size_text(variant, arm),
            "tags": list(variant.tags),
            "description": variant.workload.description.partition("\n")[0],
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
                "size": "",
                "tags": [],
                "description": "",
                "available": False,
                "reason": broken.reason,
            }
        )
    return rows


def runs(store: str | None, expression: str | None = None, **filters: Any) -> pd.DataFrame:
    """Return the runs of a store, oldest first, with their metrics.

    `expression` selects as ``-k`` does among workloads; its tags are ``NAME=VALUE``.
    """
    frame = Store(store, create=False).runs(**filters)
    if expression is None or frame.empty:
        return frame
    matches = matcher(expression)
    keep = [
        matches(_Named(row.workload, SimpleNamespace(category=row.category), _words(row.tags)))
        for row in frame[["workload", "category", "tags"]].itertuples(index=False)
    ]
    return frame[keep]


class _Named(NamedTuple):
    """What a selection looks at, for a run."""

    name: str
    workload: Any
    tags: tuple[str, ...]


def _words(tags: Any) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in (tags or {}).items())


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table with None where nothing is known."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def environments(given: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a row per environment, the one that benchkit runs in first."""
    folders = folders_of("environments", given)
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


def noise(store: str | None, expression: str | None = None) -> list[dict[str, Any]]:
    """Return a row per variant of a store: its duration, its noise, and what that lets one see."""
    from benchkit.experiment.run.known_workloads import noise_table

    return as_records(noise_table(runs(store, expression)))


def short_noise(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table of noise shows of a variant."""
    known = row["noise"] is not None
    needed = {
        f"runs to see {name.removeprefix('needed_')} %": ("over 1000" if value < 0 else value)
        if known
        else ""
        for name, value in row.items()
        if name.startswith("needed_")
    }
    return {
        "workload": row["workload"],
        "runs": row["n_runs"],
        "usual": format_seconds(row["duration"]),
        "noise of one run": f"{row['noise']:.1%}" if known else "too few runs",
        **needed,
    }


def short_workload(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table of workloads shows of one; without its reason it is available."""
    size = row["size"]
    return {
        "name": row["name"],
        "size here": size if len(size) <= 36 else f"{size[:35]}…",
        "unavailable": row["reason"],
        "tags": row["tags"],
        "what it does": row["description"],
    }


def run_row(record: Mapping[str, Any], earlier: pd.DataFrame | None = None) -> dict[str, Any]:
    """Return what the table after a run shows of it.

    Parameters
    ----------
    record : mapping
        The run's record.
    earlier : DataFrame, optional
        Runs of the store; comparable ones among them give the change.
    """
    return {
        "workload": record["workload"],
        "outcome": record["outcome"],
        "duration": format_seconds(record.get("duration")),
        "change": _change(record, earlier),
        "peak memory": format_bytes(record.get("memory_peak")),
        "biggest task group": _biggest(record),
        "error": record.get("error") or "",
        "run": record["id"][:13],
    }


def short_run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table of many runs shows of one."""
    return {
        "run": record["id"][:13],
        "started": f"{record['started']:%Y-%m-%d %H:%M}" if record.get("started") else "",
        "workload": record["workload"],
        "environment": record.get("environment") or "",
        "outcome": record["outcome"],
        "duration": format_seconds(record.get("duration")),
        "peak memory": format_bytes(record.get("memory_peak")),
        "tags": ", ".join(f"{k}={v}" for k, v in (record.get("tags") or {}).items()),
        "error": record.get("error") or "",
    }


def _change(record: Mapping[str, Any], earlier: pd.DataFrame | None) -> str:
    """Say how the duration compares; a star where that is no longer what chance does."""
    previous = None if earlier is None else against_previous(earlier, record)
    if previous is None or record["outcome"] != "ok":
        return ""
    star = "*" if previous.unusual else ""
    return f"{format_change(previous.ratio)}{star} ({previous.n_runs})"


def _biggest(record: Mapping[str, Any]) -> str:
    """Return the biggest task group without Dask's hash, which says nothing to a reader."""
    name = short_group(record.get("biggest_group") or "")
    share = record.get("biggest_group_share")
    name = name if len(name) <= 44 else f"{name[:21]}…{name[-22:]}"
    return f"{name} {share:.0%}" if name and share is not None else name
