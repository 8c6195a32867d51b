"""Details of a run: facts, source, environment and stored files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import panel as pn

from benchkit.formatting import format_bytes, format_quantity
from benchkit.show.dashboard.components import components as parts
from benchkit.store.run import Run

__all__ = ["provenance"]

#: Largest size of a file in bytes for download; of larger files the page shows the path.
MOST_BYTES = 200 * 2**20
MOST_FILES = 20


def provenance(run: Run, files: Sequence[Path] = ()) -> Any:
    """Return the facts of a run, most frequently needed first.

    Parameters
    ----------
    run : Run
        The run.
    files : sequence of Path
        Stored files of the run, offered for download.
    """
    attrs = run.tree.attrs
    content = [parts.heading("What was measured"), parts.facts(_facts(run)), *_beside(files)]
    if attrs.get("source"):
        content += [parts.heading("Source"), parts.source_text(attrs["source"])]
    for name, title in (
        ("environment_spec", "Environment"),
        ("cluster_description", "Cluster"),
        ("variables", "Environment variables"),
        ("config", "Dask configuration"),
        ("packages", "Packages"),
    ):
        value = json.loads(attrs.get(name) or "{}")
        if value:
            text = json.dumps(value, indent=1, sort_keys=True)
            content += [parts.heading(title), parts.source_text(text)]
    return pn.Column(*content, sizing_mode="stretch_width")


def _facts(run: Run) -> dict[str, Any]:
    """Return the metadata of the run, with values formatted for reading."""
    known: dict[str, Any] = dict(run.metadata())
    for name, units, factor in (("memory_limit", "B", 1), ("biggest_group_share", "%", 100)):
        if name in known:
            known[name] = format_quantity(known[name] * factor, units)
    return known


def _beside(files: Sequence[Path]) -> list[Any]:
    """Return download buttons for the stored files; no file name comes from the address."""
    files = [path for path in files if path.exists()]  # deleted by pruning after the page opened
    if not files:
        return []
    content: list[Any] = [
        parts.heading(
            "Files",
            "The run as NetCDF; beside it, where asked for, performance report, cluster dump and "
            "memray profiles.",
        )
    ]
    for path in files[:MOST_FILES]:
        size = path.stat().st_size
        if size > MOST_BYTES:
            content.append(parts.words(f"{path.name} ({format_bytes(size)}): {path}"))
        else:
            told = f"{path.name} ({format_bytes(size)})"
            content.append(parts.download(path.name, partial(path.open, "rb"), told))
    if len(files) > MOST_FILES:
        content.append(parts.words(f"{len(files) - MOST_FILES} more in {files[0].parent}"))
    return content
