"""The index of a store: the union of JSON records and Parquet segments, without a lock.

The index is only a cache: each record is also in its run file, and a lost index is rebuilt from
the run files. A record file holds one run that is not compacted yet; a segment holds many runs.
Reading unites both and returns each id once. Compacting first writes a durable superset and then
deletes only its inputs, so several processes may compact at the same time.
"""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchkit.errors import AlreadyStored, StoreError, UnreadableRun
from benchkit.measure.run_ids import is_id, new_id
from benchkit.store.files import LocalFiles
from benchkit.store.index.arrow import SCHEMA, records_to_table, unite
from benchkit.store.runfile.file import run_name, stored_record
from benchkit.values import json_safe

__all__ = ["Catalogue"]

NEW, INDEX = "index/new", "index"
#: Number of records above which to compact: 5000 records open in 275 ms, one segment of 5000
#: runs in 3 ms.
COMPACT_RECORDS = 500
#: Number of segments above which to compact.
COMPACT_SEGMENTS = 8
#: Maximum number of runs per segment: merging must never rewrite a store of a million runs.
SEGMENT_ROWS = 250_000
#: Attempts to read the index while other processes delete compacted files; each takes some ms.
_READ_ATTEMPTS = 100
T = TypeVar("T")


class Catalogue:
    """The index of the runs in a store.

    Parameters
    ----------
    files : LocalFiles
        Files of the store.
    """

    def __init__(self, files: LocalFiles) -> None:
        self.files = files
        # Records by file name. Files never change, so entries stay valid. The dict is replaced,
        # never changed in place: threads share it without a lock.
        self._records: dict[str, dict[str, Any] | None] = {}

    def add(self, record: dict[str, Any]) -> None:
        """Add a run to the index. Its run file must exist already.

        Parameters
        ----------
        record : dict
            Record of the run: fields and metrics, flat.

        Raises
        ------
        AlreadyStored
            The run has a record file already.
        StoreError
            The record could not be written.
        """
        name = f"{NEW}/{record['id']}.json"
        self.files.create(name, json.dumps(json_safe(record), allow_nan=False).encode())

    def add_many(self, records: Sequence[dict[str, Any]]) -> None:
        """Add many runs to the index as one segment. Their run files must exist already.

        Parameters
        ----------
        records : sequence of dict
            Records of the runs.

        Raises
        ------
        StoreError
            The segment could not be written.
        """
        if records:
            table = records_to_table([json_safe(record) for record in records])
            self._write_segments(table)

    # -- reading ------------------------------------------------------------------------------

    def table(self, columns: Iterable[str] | None = None) -> pa.Table:
        """Return all runs as a table, each once, in no particular order.

        Parameters
        ----------
        columns : iterable of str, optional
            Read only these columns from the segments; ``id`` is always included.

        Returns
        -------
        Table
            A row per run. A field that no run has is all null if it is in the schema, and absent
            otherwise.
        """
        wanted = None if columns is None else {"id", *columns}
        return self._retry(lambda: self._unite(*self._list_files(), wanted))

    def names(self) -> set[str]:
        """Return the names of all columns, including fields written by a newer benchkit.

        Returns
        -------
        set of str
            Names of the schema and of all records and segments.
        """

        def read() -> set[str]:
            records, segments = self._list_files()
            names = set(SCHEMA.names)
            for _, record in self._load(records):
                names.update(record)
            for _, file in self._open(segments):
                names.update(file.schema_arrow.names)
            return names

        return self._retry(read)

    def ids(self) -> set[str]:
        """Return the ids of all runs in the index.

        Returns
        -------
        set of str
            Full ids.
        """
        return set(self.table(["id"])["id"].to_pylist())

    def digests(self) -> dict[str, str | None]:
        """Return the digest of each run's file.

        Returns
        -------
        dict of str to str
            By full id; None for runs that an older benchkit added.
        """
        table = self.table(["id", "digest"])
        return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))

    def damaged(self) -> list[str]:
        """Return the names of index files that cannot be read.

        Returns
        -------
        list of str
            Names in the store, sorted.
        """

        def read() -> list[str]:
            records, segments = self._list_files()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                readable = {name for name, _ in self._load(records)}
                readable.update(name for name, _ in self._open(segments))
            return sorted({*records, *segments} - readable)

        return self._retry(read)

    def _list_files(self) -> tuple[list[str], list[str]]:
        # List records before segments: runs compacted in between are read twice, never missed.
        return self._named_after_ids(NEW, ".json"), self._named_after_ids(INDEX, ".parquet")

    def _named_after_ids(self, folder: str, suffix: str) -> list[str]:
        # `check` reports files with other names.
        names = self.files.list(folder, suffix)
        return [name for name in names if is_id(name[len(folder) + 1 : -len(suffix)])]

    def _retry(self, read: Callable[[], T]) -> T:
        for attempt in range(_READ_ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:
                time.sleep(attempt / 1000)  # another process compacted: retry
        raise StoreError(
            f"{self.files.root}: index changed {_READ_ATTEMPTS} times during reading: retry"
        )

    def _unite(
        self, records: Sequence[str], segments: Sequence[str], wanted: set[str] | None
    ) -> pa.Table:
        tables = [table for _, table in self._read(segments, wanted)]
        loaded = [record for _, record in self._load(records)]
        if loaded or not tables:
            tables.append(records_to_table(loaded, wanted))
        return _unite_unique(tables)

    def _read(
        self, segments: Iterable[str], wanted: set[str] | None
    ) -> Iterator[tuple[str, pa.Table]]:
        for name, file in self._open(segments):
            present = file.schema_arrow.names
            try:
                table = file.read([c for c in present if wanted is None or c in wanted])
            except (pa.ArrowException, OSError) as error:
                self._warn_skipped(name, error)
            else:
                yield name, table

    def _open(self, segments: Iterable[str]) -> Iterator[tuple[str, pq.ParquetFile]]:
        for name in segments:
            try:
                file = pq.ParquetFile(self.files.path(name), memory_map=True)
                if "id" not in file.schema_arrow.names:
                    raise pa.ArrowInvalid("no column id")
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                self._warn_skipped(name, error)
            else:
                yield name, file

    def _load(self, records: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
        cache = self._records
        loaded = {name: cache[name] if name in cache else self._record(name) for name in records}
        self._records = loaded
        return [(name, record) for name, record in loaded.items() if record is not None]

    def _record(self, name: str) -> dict[str, Any] | None:
        try:
            record = json.loads(self.files.read(name))
        except ValueError as error:
            self._warn_skipped(name, error)
            return None
        if not isinstance(record, dict) or name != f"{NEW}/{record.get('id')}.json":
            self._warn_skipped(name, "its content is not the record of the run in its name")
            return None
        return record

    def _warn_skipped(self, name: str, error: object) -> None:
        reason = (str(error).splitlines() or [""])[0]
        warnings.warn(
            f"{self.files.path(name)}: skipped, cannot be read ({reason}): "
            "`benchkit store check` rebuilds it from the runs",
            stacklevel=2,
        )

    # -- compacting ---------------------------------------------------------------------------

    def wants_compaction(self) -> bool:
        """Return whether the index should be compacted.

        Returns
        -------
        bool
            Whether it has more than `COMPACT_RECORDS` records or `COMPACT_SEGMENTS` segments.
        """
        records, segments = self._list_files()
        return len(records) > COMPACT_RECORDS or len(segments) > COMPACT_SEGMENTS

    def compact(self, *, fold: bool = True) -> dict[str, int]:
        """Merge records and small segments into few segments, and add runs missing after a crash.

        Parameters
        ----------
        fold : bool, default True
            Merge small segments too; if False, only when there are more than eight.

        Returns
        -------
        dict of str to int
            ``runs`` in the new segments; ``records`` and ``segments`` merged into them;
            ``adopted`` runs of the two newest months that were missing from the index.
        """
        return self._retry(lambda: self._compact(fold))

    def _compact(self, fold: bool) -> dict[str, int]:
        names, segments = self._list_files()
        loaded = self._load(names)
        small = [n for n, file in self._open(segments) if file.metadata.num_rows < SEGMENT_ROWS]
        adopted = self._orphans()
        parts = []
        if fold or len(segments) > COMPACT_SEGMENTS:
            parts = list(self._read(small, None))
        if not (loaded or adopted) and len(parts) < 2:
            return {"runs": 0, "records": 0, "segments": 0, "adopted": 0}
        new = [record for _, record in loaded] + adopted
        table = _unite_unique([*(part for _, part in parts), records_to_table(new)])
        self._write_segments(table)
        # The superset is durable: delete its inputs, and only them.
        for name in [*(name for name, _ in loaded), *(name for name, _ in parts)]:
            self.files.delete(name)
        return {
            "runs": table.num_rows,
            "records": len(loaded),
            "segments": len(parts),
            "adopted": len(adopted),
        }

    def remove(self, ids: Collection[str]) -> None:
        """Remove runs from the index. A concurrent compaction may add a removed run again.

        Parameters
        ----------
        ids : collection of str
            Full ids; ids that are not in the index are ignored.
        """
        self._retry(lambda: self._remove(set(ids)))

    def _remove(self, ids: set[str]) -> None:
        names, segments = self._list_files()
        replaced = [name for name, record in self._load(names) if record["id"] in ids]
        for name, table in list(self._read(segments, None)):
            keep = pc.invert(pc.is_in(table["id"], pa.array(sorted(ids), pa.string())))
            if not pc.all(keep).as_py():
                self._write_segments(table.filter(keep))
                replaced.append(name)
        for name in replaced:
            self.files.delete(name)

    def _write_segments(self, table: pa.Table) -> None:
        table = table.sort_by([("workload", "ascending"), ("id", "ascending")])
        for start in range(0, table.num_rows, SEGMENT_ROWS):
            sink = io.BytesIO()
            # Uncompressed: 91 ms for 8 columns of a million runs, zstd 267 ms.
            pq.write_table(table.slice(start, SEGMENT_ROWS), sink, compression="none")
            self.files.create(f"{INDEX}/{new_id()}.parquet", sink.getvalue())

    def _orphans(self) -> list[dict[str, Any]]:
        """Return records of unlisted runs in the two newest months; `check` covers all months."""
        orphans = []
        listed = self.ids()
        for month in self.files.folders("runs")[-2:]:
            for name in self.files.list(month, ".nc"):
                run_id = name.rpartition("/")[2].removesuffix(".nc")
                if run_id in listed or not is_id(run_id) or name != run_name(run_id):
                    continue
                try:
                    record = stored_record(self.files.path(name))
                except (UnreadableRun, FileNotFoundError):
                    continue  # `check` reports it
                if record.get("id") == run_id:
                    orphans.append(json_safe(record))
        return orphans

    def add_existing(self, record: dict[str, Any]) -> bool:
        """Add a stored run to the index, unless it has a record file.

        Parameters
        ----------
        record : dict
            Record of the run.

        Returns
        -------
        bool
            False if another process added it first.

        Raises
        ------
        StoreError
            The record could not be written.
        """
        try:
            self.add(record)
        except AlreadyStored:
            return False
        return True


def _unite_unique(tables: Sequence[pa.Table]) -> pa.Table:
    """Unite tables and keep the first row of each id."""
    table = unite(tables)
    if len(tables) == 1:
        return table
    ids = table["id"].combine_chunks()
    if pc.count_distinct(ids).as_py() == len(ids):
        return table
    rows = pa.table({"id": ids, "row": pa.array(range(len(ids)))})
    first = rows.group_by("id").aggregate([("row", "min")])["row_min"]
    return table.take(first)
