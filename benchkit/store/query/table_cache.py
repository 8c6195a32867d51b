"""A cache of the tables of runs as Parquet files, in batches of runs; never the truth.

A batch is a folder with a file per table and the ids of its runs. It appears whole, by a rename,
and never changes. Small batches are made anew together when there are many.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchkit.errors import StoreError, UnreadableRun
from benchkit.store.query.tables import SCHEMAS, run_tables
from benchkit.whole_file import drafted
from benchkit.working_folder import cache_folder

if TYPE_CHECKING:  # a store imports this module
    from benchkit.store.store import Store

__all__ = ["TableCache"]

#: Runs of a batch at most, and of a batch that is made anew with others.
_MAX_RUNS, _SMALL = 256, 64
#: Small batches at most.
_MAX_SMALL = 8
#: Version of the tables; another version makes all batches anew.
_VERSION = 3
_GROUPS = ("tasks", "task_groups", "transfers", "workers", "events")


class TableCache:
    """The tables of the runs of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        name = sha256(str(store.path).encode()).hexdigest()[:16]
        self.folder = cache_folder() / "tables" / f"{name}-{_VERSION}"

    def update(
        self, ids: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[str]:
        """Add the runs that the cache lacks."""
        batches = {folder: self._ids(folder) for folder in self._batches()}
        small = [folder for folder, members in batches.items() if len(members) < _SMALL]
        if len(small) > _MAX_SMALL:
            for folder in small:
                shutil.rmtree(folder, ignore_errors=True)
                del batches[folder]
        known = {run_id for members in batches.values() for run_id in members}
        missing = [run_id for run_id in ids if run_id not in known]
        problems: list[str] = []
        try:
            for start in range(0, len(missing), _MAX_RUNS):
                problems += self._write(missing[start : start + _MAX_RUNS])
                if progress is not None:
                    progress(min(start + _MAX_RUNS, len(missing)), len(missing))
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written: {error.strerror}") from error
        return problems

    def files(self, table: str) -> list[Path]:
        """Return the files of a table."""
        return [folder / f"{table}.parquet" for folder in self._batches()]

    def ids(self) -> set[str]:
        """Return the runs in the cache; some may be no longer in the store."""
        return {run_id for folder in self._batches() for run_id in self._ids(folder)}

    def _batches(self) -> list[Path]:
        return sorted(self.folder.glob("batch-*"))

    def _ids(self, folder: Path) -> list[str]:
        ids: list[str] = json.loads((folder / "runs.json").read_text())["ids"]
        return ids

    def _write(self, ids: Sequence[str]) -> list[str]:
        """Write a batch, and return a line per run that cannot be read."""
        problems = []
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"batch-{ids[0]}-{uuid4().hex[:8]}"
        with drafted(final, durable=False) as draft, ExitStack() as stack:
            draft.mkdir()
            writers = {
                name: stack.enter_context(_writer(draft / f"{name}.parquet", schema))
                for name, schema in SCHEMAS.items()
            }
            for run_id in ids:
                try:
                    tables = run_tables(self.store.open(run_id, _GROUPS))
                except UnreadableRun as error:
                    problems.append(str(error))
                    continue
                for name, table in tables.items():
                    if table.num_rows:
                        writers[name].write_table(table)
            (draft / "runs.json").write_text(json.dumps({"ids": list(ids)}))
        return problems


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="lz4",
        use_dictionary=[f.name for f in schema if f.type not in ("double", "int64")],
        use_byte_stream_split=[f.name for f in schema if f.type == "double"],
    )
