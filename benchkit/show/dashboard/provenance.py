"""What a run was: facts, source, environment, and the files that are kept beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import panel as pn

from benchkit.show.dashboard import parts
from benchkit.store.run import Run
from benchkit.store.text import format_bytes

__all__ = ["provenance"]

#: A larger file is not sent through the page; its place is told instead.
MOST_BYTES = 200 * 2**20
MOST_FILES = 20


def provenance(run: Run, files: Sequence[Path] = ()) -> Any:
    """Return the facts of a run, the most asked for first.

    Parameters
    ----------
    run : Run
        The run.
    files : sequence of Path
        What the store keeps beside it, to be downloaded.
    """
    attrs = run.tree.attrs
    content = [parts.heading("What was measured"), parts.facts(run.facts()), *_beside(files)]
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


def _beside(files: Sequence[Path]) -> list[Any]:
    """Return downloads of what the store keeps beside the run; no address names a file."""
    if not files:
        return []
    content: list[Any] = [
        parts.heading("Kept beside the run", "Performance report, cluster dump, memray profiles.")
    ]
    for path in files[:MOST_FILES]:
        size = path.stat().st_size
        if size > MOST_BYTES:
            content.append(parts.words(f"{path.name} ({format_bytes(size)}): {path}"))
        else:
            content.append(_download(path, size))
    if len(files) > MOST_FILES:
        content.append(parts.words(f"{len(files) - MOST_FILES} more in {files[0].parent}"))
    return content


def _download(path: Path, size: int) -> Any:
    # Saved, never shown as a page of ours: a performance report may hold anybody's scripts.
    return pn.widgets.FileDownload(
        callback=lambda: path.open("rb"),
        filename=path.name,
        label=f"{path.name} ({format_bytes(size)})",
        button_type="light",
        width=380,
        margin=(2, 0),
    )
