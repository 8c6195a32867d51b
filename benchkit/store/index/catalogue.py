"""The index of a store: add runs, compact, remove.

The index is only a cache: each record is also in its run file, and a lost index is rebuilt from
the run files. Compacting first writes a durable superset and then deletes only its inputs, so
several processes may compact at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from benchkit.errors import AlreadyStored, UnreadableRun
from benchkit.measure.run_ids import is_id
from benchkit.store.index import compaction
from benchkit.store.index.arrow import records_to_table
from benchkit.store.index.index_reader import RECORDS, SEGMENTS, IndexReader
from benchkit.store.index.segments import Segment, listed_ids, overlapping
from benchkit.store.runfile.file import accepted_record, run_name
from benchkit.values import json_safe

__all__ = ["Catalogue"]

#: Number of records above which to compact: 5000 records open in 275 ms, one segment of 5000
#: runs in 3 ms.
COMPACT_RECORDS = 500
#: Number of segments that are not full above which to merge them.
COMPACT_SEGMENTS = 8


class Catalogue(IndexReader):
    """The index of the runs in a store."""

    def add(self, record: dict[str, Any]) -> None:
        """Add a run to the index. Its run file must exist already."""
        name = f"{RECORDS}/{record['id']}.json"
        self.files.create(name, json.dumps(json_safe(record), allow_nan=False).encode())

    def add_many(self, records: Sequence[dict[str, Any]]) -> None:
        """Add many runs to the index as one segment. Their run files must exist already."""
        if records:
            table = records_to_table([json_safe(record) for record in records])
            compaction.write_segments(self.files, table)

    def add_existing(self, record: dict[str, Any]) -> bool:
        """Add a stored run to the index, unless it has a record file."""
        try:
            self.add(record)
        except AlreadyStored:
            return False
        return True

    def wants_compaction(self) -> bool:
        """Return whether the index should be compacted."""
        # One request to a bucket; a file that another process moves meanwhile does not matter here.
        names = list(self.files.walk(SEGMENTS))
        records = [name for name in names if name.endswith(".json")]
        segments = [n for n in names if n.endswith(".parquet") and is_id(n[len(SEGMENTS) + 1 : -8])]
        return len(records) > COMPACT_RECORDS or (
            len(segments) > COMPACT_SEGMENTS and len(self._small(segments)) > COMPACT_SEGMENTS
        )

    def _small(self, names: Iterable[str]) -> list[Segment]:
        opened = self._open(names)
        return [segment for segment in opened if segment.n_rows < compaction.SEGMENT_ROWS]

    def compact(self, *, fold: bool = True) -> dict[str, int]:
        """Merge records and small segments into few, and add runs missing after a crash."""
        return self._retry(lambda: self._compact(fold))

    def _compact(self, fold: bool) -> dict[str, int]:
        names, segment_names = self._list_files()
        loaded = self._load(names)
        parts = self._small(segment_names)
        if fold:
            segments = self._open(segment_names)
            double = [segment for group in overlapping(segments) for segment in group]
            parts = [segment for segment in segments if segment in parts or segment in double]
        elif len(parts) <= COMPACT_SEGMENTS:
            parts = []
        adopted = self._orphans()
        if not (loaded or adopted) and len(parts) < 2:
            return {"runs": 0, "records": 0, "segments": 0, "adopted": 0}
        new = records_to_table([record for _, record in loaded] + adopted)
        n_runs = compaction.merge_segments(self.files, parts, new)
        # The superset is durable: delete its inputs, and only them.
        merged = [*(name for name, _ in loaded), *(segment.name for segment in parts)]
        self.files.delete(*merged)
        return {
            "runs": n_runs,
            "records": len(loaded),
            "segments": len(parts),
            "adopted": len(adopted),
        }

    def remove(self, ids: Collection[str]) -> None:
        """Remove runs from the index. A concurrent compaction may add a removed run again."""
        self._retry(lambda: self._remove(set(ids)))

    def _remove(self, ids: set[str]) -> None:
        names, segments = self._list_files()
        replaced = [name for name, record in self._load(names) if record["id"] in ids]
        for segment in self._open(segments):
            if listed_ids([segment], ids):
                compaction.write_without(self.files, segment, ids)
                replaced.append(segment.name)
        self.files.delete(*replaced)

    def _orphans(self) -> list[dict[str, Any]]:
        """Return records of unlisted runs in the two newest months; `check` covers all months."""
        months = self.files.folders("runs")[-2:]
        names = [name for month in months for name in self.files.list(month, ".nc")]
        files = {name.rpartition("/")[2].removesuffix(".nc"): name for name in names}
        records, segments = self._load_all()
        listed = listed_ids(segments, files).union(record["id"] for record in records)
        orphans = []
        for run_id, name in files.items():
            if run_id in listed or not is_id(run_id) or name != run_name(run_id):
                continue
            try:
                record = accepted_record(self.files.path(name))
            except (UnreadableRun, FileNotFoundError):
                continue  # `check` reports it
            if record.get("id") == run_id:
                orphans.append(json_safe(record))
        return orphans
