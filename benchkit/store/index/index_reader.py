"""Read the index of a store: the union of JSON records and Parquet segments, without a lock.

A record file holds one run that is not compacted yet; a segment holds many runs. Reading unites
both and returns each id once. A file that another process compacted meanwhile is no error: the
index is listed again.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchkit.errors import StoreError
from benchkit.measure.run_ids import is_id
from benchkit.store.index.arrow import SCHEMA, without_dictionaries
from benchkit.store.index.segments import (
    Bounds,
    DamagedSegment,
    Segment,
    listed_ids,
    repeated_rows,
)
from benchkit.store.index.selection import Choose, read_chosen
from benchkit.store.storage import Files

__all__ = ["IndexReader"]

#: Folders of the records and of the segments.
RECORDS, SEGMENTS = "index/new", "index"
#: Attempts to read the index while other processes delete compacted files; each takes some ms.
_READ_ATTEMPTS = 100
#: Start times that are further ahead come from a wrong clock.
_CLOCK_TOLERANCE = timedelta(days=1)
T = TypeVar("T")


class IndexReader:
    """Read access to the index of the runs in a store."""

    def __init__(self, files: Files) -> None:
        self.files = files
        # Records, segments and repeated rows by file name. Files never change, so entries stay
        # valid. The containers are replaced, never changed: threads share them without a lock.
        self._records: dict[str, dict[str, Any] | None] = {}
        self._segments: dict[str, Segment] = {}
        self._repeated: tuple[list[str], dict[str, np.ndarray]] = ([], {})
        self._damaged: dict[str, BaseException | None] = {}

    def table(self, columns: Iterable[str] | None = None) -> pa.Table:
        """Return all runs as a table, each once, in no particular order."""
        wanted = None if columns is None else {"id", *columns}
        return without_dictionaries(self.select({"id"}, lambda table: (table, None, wanted)))

    def select(
        self, columns: Collection[str], choose: Choose, bounds: Bounds | None = None
    ) -> pa.Table:
        """Return chosen runs, each once, in no particular order.

        Columns on which the choice depends are read first; the others only of row groups with
        chosen runs.
        """

        def read() -> pa.Table:
            records, segments = self._load_all()
            listed = listed_ids(segments, [record["id"] for record in records])
            records = [record for record in records if record["id"] not in listed]
            repeated = self._repeated_rows(segments)
            return read_chosen(segments, repeated, records, columns, choose, bounds or {})

        return self._retry(read)

    def __len__(self) -> int:
        def count() -> int:
            records, segments = self._load_all()
            n_repeated = sum(int(rows.sum()) for rows in self._repeated_rows(segments).values())
            n_listed = len(listed_ids(segments, [record["id"] for record in records]))
            return sum(s.n_rows for s in segments) - n_repeated + len(records) - n_listed

        return self._retry(count)

    def names(self) -> set[str]:
        """Return the names of all columns, including fields written by a newer benchkit."""

        def read() -> set[str]:
            records, segments = self._load_all()
            return set(SCHEMA.names).union(*records, *(segment.columns for segment in segments))

        return self._retry(read)

    def ids(self, prefix: str = "") -> set[str]:
        """Return the ids of runs in the index."""

        def choose(table: pa.Table) -> tuple[pa.Table, np.ndarray, set[str]]:
            return table, pc.starts_with(table["id"], prefix).to_numpy(), {"id"}

        bounds = {"id": lambda low, high: low[: len(prefix)] <= prefix <= high}
        return set(self.select({"id"}, choose, bounds)["id"].to_pylist())

    def latest(self) -> str | None:
        """Return the id of the run that started last.

        Start times in the future come from a wrong clock: they count only if there are no others.
        """
        limit = datetime.now(timezone.utc) + _CLOCK_TOLERANCE

        def choose(table: pa.Table) -> tuple[pa.Table, np.ndarray, set[str]]:
            started = table["started"]
            credible = pc.fill_null(pc.less_equal(started, limit), False)
            if pc.any(credible).as_py():
                started = pc.if_else(credible, started, None)
            last = pc.fill_null(pc.equal(started, pc.max(started)), False)
            return table, last.to_numpy(), {"id"}

        def read() -> set[str]:
            ends = [r[1] for s in self._load_all()[1] for r in s.ranges("started") if r is not None]
            first = max((end for end in ends if end <= limit), default=None)
            bounds = {} if first is None else {"started": lambda low, high: high >= first}
            return set(self.select({"started"}, choose, bounds)["id"].to_pylist())

        return max(self._retry(read) or self.ids(), default=None)

    def digests(self) -> dict[str, str | None]:
        """Return the digest of each run's file."""
        table = self.table(["id", "digest"])
        return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))

    def damaged(self) -> list[str]:
        """Return the names of index files that cannot be read."""
        # returned: Names in the store, sorted.

        def read() -> list[str]:
            records, segments = self._list_files()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                readable = {name for name, _ in self._load(records)}
                readable.update(segment.name for segment in self._open(segments))
            return sorted({*records, *segments} - readable)

        return self._retry(read)

    def _list_files(self) -> tuple[list[str], list[str]]:
        # List records before segments: runs compacted in between are read twice, never missed.
        return self._named_after_ids(RECORDS, ".json"), self._named_after_ids(SEGMENTS, ".parquet")

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
            except DamagedSegment as error:
                name = error.segment.name
                self._damaged = {**self._damaged, name: error.__cause__}
                self._segments = {n: s for n, s in self._segments.items() if n != name}
        raise StoreError(
            f"{self.files.root}: index changed {_READ_ATTEMPTS} times during reading: retry"
        )

    def _load_all(self) -> tuple[list[dict[str, Any]], list[Segment]]:
        names, segments = self._list_files()
        return [record for _, record in self._load(names)], self._open(segments)

    def _repeated_rows(self, segments: Sequence[Segment]) -> dict[str, np.ndarray]:
        names = [segment.name for segment in segments]
        known, rows = self._repeated
        if known != names:
            rows = repeated_rows(segments)
            self._repeated = names, rows
        return rows

    def _open(self, names: Iterable[str]) -> list[Segment]:
        cache, names = self._segments, list(names)
        self.files.fetch(name for name in names if name not in cache)
        opened = [cache.get(name) or self._segment(name) for name in names]
        self._segments = {segment.name: segment for segment in opened if segment is not None}
        return list(self._segments.values())

    def _segment(self, name: str) -> Segment | None:
        try:
            if name in self._damaged:
                raise OSError(self._damaged[name])
            return Segment(name, self.files.path(name))
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            self._warn_skipped(name, error)
            return None

    def _load(self, records: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
        cache, records = self._records, list(records)
        self.files.fetch(name for name in records if name not in cache)
        loaded = {name: cache[name] if name in cache else self._record(name) for name in records}
        self._records = loaded
        return [(name, record) for name, record in loaded.items() if record is not None]

    def _record(self, name: str) -> dict[str, Any] | None:
        try:
            record = json.loads(self.files.read(name))
        except (ValueError, RecursionError) as error:
            self._warn_skipped(name, error)
            return None
        if not isinstance(record, dict) or name != f"{RECORDS}/{record.get('id')}.json":
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
