"""Details of a run: metadata, source, environment and stored files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import panel as pn
from panel.viewable import Viewable

from benchkit.formatting import format_bytes
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.run_summary import metadata_table
from benchkit.store.run import Run
from benchkit.values import decode_json

__all__ = ["details"]

#: Largest size of a file in bytes for download; of larger files the page shows the path.
MAX_BYTES = 200 * 2**20
MAX_FILES = 20


def details(run: Run, files: Sequence[Path] = ()) -> pn.Column:
    """Return the metadata of a run, most frequently needed first."""
    attrs = run.tree.attrs
    content = [
        ui.heading("What was measured"),
        tables.facts(metadata_table(run).to_dict()),
        *_downloads(files),
    ]
    if attrs.get("source"):
        content += [ui.heading("Source"), ui.code_block(attrs["source"])]
    for name, title in (
        ("environment_spec", "Environment"),
        ("cluster_description", "Cluster"),
        ("variables", "Environment variables"),
        ("config", "Dask configuration"),
        ("packages", "Packages"),
    ):
        value = decode_json(attrs.get(name))
        if value:
            content += [ui.heading(title), ui.json_block(value)]
    return ui.column(*content)


def _downloads(files: Sequence[Path]) -> list[Viewable]:
    """Return download buttons for the stored files; no file name comes from the address."""
    files = [path for path in files if path.exists()]  # deleted by pruning after the page opened
    if not files:
        return []
    content: list[Viewable] = [
        ui.heading(
            "Files",
            "The run as NetCDF; if requested: performance report, cluster dump, memray profiles.",
        )
    ]
    for path in files[:MAX_FILES]:
        size = path.stat().st_size
        if size > MAX_BYTES:
            content.append(ui.paragraph(f"{path.name} ({format_bytes(size)}): {path}"))
        else:
            label = f"{path.name} ({format_bytes(size)})"
            content.append(tables.download_button(path.name, partial(path.open, "rb"), label))
    if len(files) > MAX_FILES:
        content.append(ui.paragraph(f"{len(files) - MAX_FILES} more in {files[0].parent}"))
    return content
