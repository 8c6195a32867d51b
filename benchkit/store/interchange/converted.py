"""Store one run of which another tool recorded parts: its file becomes the tables of a recording.

The tables go through the builders of measured runs. The file names the metrics that follow from
what it holds; all others are absent, with that reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import xarray as xr

from benchkit.errors import InvalidImportError
from benchkit.measure.capture.columns import NAN
from benchkit.measure.engines.tables import Task, task_tables
from benchkit.measure.errors import error_summary
from benchkit.measure.recording import Recording, RecordingWriter
from benchkit.measure.run_ids import derived_id
from benchkit.private_folder import private_folder
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.interchange.coiled import ImportReport
from benchkit.store.interchange.netcdf import read_file
from benchkit.store.store import Store

#: Errors of code that meets a content of another shape than expected.
_UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    struct.error,
)  # fmt: skip


@dataclass
class Converted:
    """What a file holds of a run."""

    started: float  # Unix time in s of the scheduler's clock, as in the tables
    stopped: float
    tables: dict[str, Any]  # Tables of a recording, as the capture sends them
    metrics: tuple[str, ...]  # Metrics that follow from the tables
    workers: list[dict[str, Any]]
    # Limits of what the file holds: kind and text of a row of `Run.quality`, metrics concerned.
    notes: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    n_workers: int | None = None
    n_threads: int | None = None
    memory_limit: int | None = None  # B, all workers together
    versions: Mapping[str, str] = field(default_factory=dict)  # of dask, distributed, python
    error: str = ""  # Empty if the file says of no failure
    source: str = ""  # Code that ran


def import_converted(
    store: Store, path: Path, tool: str, convert: Callable[[bytes], Converted]
) -> ImportReport:
    """Add the run in a file to a store; the same file always gives the same id."""
    data = read_file(path)
    named = tool.replace("-", " ")
    try:
        content = convert(data)
        run_id = derived_id(content.started, f"{tool} {sha256(data).hexdigest()}")
        if run_id in store:
            return ImportReport(rows=1)
        tree = _tree(content, path, tool, run_id)
    except _UNEXPECTED as error:
        text = f"{path}: cannot be read as a {named}: {error_summary(error)}"
        raise InvalidImportError(text) from error
    return ImportReport(rows=1, added=store.add_many([tree]))


def _tree(content: Converted, path: Path, tool: str, run_id: str) -> xr.DataTree:
    imported = {"tool": tool.replace("-", " "), "metrics": content.metrics, "notes": content.notes}
    workload = path.name.partition(".")[0] or tool
    with private_folder() as folder:  # the writer removes secrets
        writer = RecordingWriter(Path(folder), run_id)
        writer.head(
            id=run_id, workload=workload, category=tool, params={}, version=1, environment=tool,
            tags={"imported": tool, "file": path.name}, started=content.started, scale=1.0,
            capture="off", imported=imported, source=content.source,
            host={"host": "unknown", "python": content.versions.get("python")},
        )  # fmt: skip
        state = {"t_on": content.started, "t_off": content.stopped}
        writer.segment({"workers": content.workers, "fine": [], "state": state, **content.tables})
        writer.tail(
            outcome="failed" if content.error else "ok",
            error=content.error,
            phase="workload" if content.error else "",
            cluster={
                "class": "unknown",
                "n_workers": content.n_workers,
                "n_threads": content.n_threads,
                "memory_limit": content.memory_limit,
                "versions": {"client": dict(content.versions)},
            },
        )
        return run_from_recording(writer.path)


def worker_row(index: int, address: str, joined: float, **facts: Any) -> dict[str, Any]:
    """Return the row of a worker in a recording; when it left is unknown."""
    host = address.rpartition("://")[2].rpartition(":")[0]
    row = {"name": address, "host": host, "nthreads": 0, "memory_limit": 0}
    return {**row, **facts, "worker": index, "address": address, "joined": joined, "left": None}


def rows_of_tasks(tasks: Iterable[Task]) -> dict[str, Any]:
    """Return the tables of tasks, their activities and their groups; retries are unknown."""
    return task_tables(Recording(Path()), tasks, retries=False)


def packed_rows(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> bytes:
    """Return a table of float64; values that a row does not have are NaN."""
    columns = tuple(columns)
    values = [float(NAN if row.get(name) is None else row[name])
              for row in rows for name in columns]  # fmt: skip
    return struct.pack(f"{len(values)}d", *values)


def as_key(value: Any) -> str:
    """Return the key of a task as text; keys that are tuples arrive as lists."""

    def tupled(item: Any) -> Any:
        return tuple(map(tupled, item)) if isinstance(item, (list, tuple)) else item

    return value if isinstance(value, str) else str(tupled(value))
