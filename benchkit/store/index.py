"""The index of a store: which runs there are, with their fields and metrics.

Only a cache: each record is also in its run file, and a lost index is rebuilt from the run files.
A run that was added is a JSON file in `index/new`; `compact` merges these into Parquet files, which
pyarrow.dataset reads. All files have digests of their content. A reader that meets a damaged file
stops: it would show other numbers, or fewer runs. Files never change; compacting first writes a
durable superset and then deletes only its inputs, so any number of processes may do it at once.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from benchkit.errors import AlreadyStored, StoreError, UnreadableRun
from benchkit.measure.run_ids import derived_id, id_time, is_id, new_id
from benchkit.store.arrow import ENCODED, SCHEMA, records_to_table, unite, without_dictionaries
from benchkit.store.storage import Files, decode_object, encode_object, run_name
from benchkit.values import json_safe

if TYPE_CHECKING:
    import pyarrow.dataset as ds

#: Folders of the records and of the Parquet files, which are called segments.
RECORDS, SEGMENTS = "index/new", "index"
#: Maximum number of runs of a segment: merging holds one in memory, 250 MB.
SEGMENT_ROWS = 250_000
#: Runs of a row group, the smallest part of a segment that is read.
GROUP_ROWS = 16_384
#: Numbers of records, and of segments that are not full, above which adding a run compacts: 500
#: records open in 30 ms.
MAX_RECORDS, MAX_SEGMENTS = 500, 8
#: Name of the digests of all columns of all row groups in the metadata of a segment, 16 B each.
_DIGESTS, _DIGEST_BYTES = b"benchkit.digests", 16
#: Attempts to read the index while other processes delete compacted files; each takes some ms.
_READ_ATTEMPTS = 100
#: Start times that are further ahead come from a wrong clock.
_CLOCK_TOLERANCE = timedelta(days=1)
#: Takes columns of the runs. Returns them, perhaps with other values or more columns; the mask
#: of the chosen rows, or None for all; and the names of all wanted columns, or None for all.
Choose = Callable[[pa.Table], "tuple[pa.Table, np.ndarray | None, Collection[str] | None]"]
T = TypeVar("T")


@lru_cache(maxsize=1)
def _formats() -> tuple[ds.ParquetFileFormat, ds.ParquetFileFormat]:
    """Return Parquet as it is, and with few values as dictionaries: a third of the time."""
    import pyarrow.dataset as ds  # imports pandas, which commands that read no runs do not need

    options = ds.ParquetReadOptions(dictionary_columns=ENCODED)
    return ds.ParquetFileFormat(), ds.ParquetFileFormat(read_options=options)


class DamagedFile(Exception):
    """A file of the index is damaged: its name in the store, and the reason."""


class Index:
    """The index of the runs in a store."""

    def __init__(self, files: Files) -> None:
        self.files = files
        # Names of damaged files that are left out; others raise an error.
        self.left_out: Collection[str] = ()
        # By file name; files never change. The containers are replaced, never changed: threads
        # share them without a lock.
        self._records: dict[str, dict[str, Any]] = {}
        self._segments: dict[str, _Segment] = {}

    def table(self, columns: Iterable[str] | None = None) -> pa.Table:
        """Return all runs as a table, each once, in no particular order."""
        wanted = None if columns is None else {"id", *columns}
        return without_dictionaries(self.select({"id"}, lambda table: (table, None, wanted)))

    def select(
        self, columns: Collection[str], choose: Choose, where: pc.Expression | None = None
    ) -> pa.Table:
        """Return chosen runs, each once, in no particular order.

        Columns on which the choice depends are read first; the others only of row groups with
        chosen runs. `where` is a condition that all chosen runs meet: it only saves reading.
        """

        def read() -> pa.Table:
            records, segments = self._load()
            known = _listed(segments, [record["id"] for record in records])
            new = _NewRuns([record for record in records if record["id"] not in known])
            parts = [(segment, segment.groups(where)) for segment in segments]
            parts = [(segment, groups) for segment, groups in parts if groups]
            sources: list[tuple[_Source, list[int]]] = [*parts, (new, [0])]
            head = unite([source.read(columns, groups) for source, groups in sources])
            head, keep, wanted = choose(head)
            first = np.concatenate([*_first_rows(parts), np.ones(new.n_rows, bool)])
            keep = first if keep is None else first & np.asarray(keep)
            chosen, start = [], 0
            for source, groups in sources:
                stop = start + sum(source.sizes(groups))
                names = [n for n in source.columns if n not in {*columns, *head.column_names}]
                names = [n for n in names if wanted is None or n in wanted]
                part, mask = head.slice(start, stop - start), keep[start:stop]
                chosen.append(_chosen_rows(source, groups, part, mask, names))
                start = stop
            for segment in segments:  # fields of a newer benchkit exist also without chosen rows
                names = [n for n in segment.columns if n not in SCHEMA.names]
                chosen.append(segment.read([n for n in names if wanted is None or n in wanted], []))
            table = unite(chosen)
            added = [name for name in head.column_names if name not in columns]  # by `choose`
            names = [*(name for name in table.column_names if name not in added), *added]
            return table.select([name for name in names if wanted is None or name in wanted])

        return self._retry(read)

    def __len__(self) -> int:
        def count() -> int:
            records, segments = self._load()
            n_known = len(_listed(segments, [record["id"] for record in records]))
            whole = [(segment, list(range(segment.n_groups))) for segment in segments]
            n_repeated = sum(int((~first).sum()) for first in _first_rows(whole))
            return sum(s.n_rows for s in segments) - n_repeated + len(records) - n_known

        return self._retry(count)

    def names(self) -> set[str]:
        """Return the names of all columns, including fields written by a newer benchkit."""

        def read() -> set[str]:
            records, segments = self._load()
            return set(SCHEMA.names).union(*records, *(segment.columns for segment in segments))

        return self._retry(read)

    def ids(self, prefix: str = "") -> set[str]:
        """Return the ids of runs in the index."""

        def choose(table: pa.Table) -> tuple[pa.Table, np.ndarray, set[str]]:
            return table, pc.starts_with(table["id"], prefix).to_numpy(), {"id"}

        field = pc.field("id")
        where = (field >= prefix) & (field <= f"{prefix}g")  # g: behind all digits of an id
        return set(self.select({"id"}, choose, where)["id"].to_pylist())

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
            ends = [high for s in self._load()[1] for _, high in s.ranges("started")]
            last = max((end for end in ends if end <= limit), default=None)
            where = None if last is None else pc.field("started") >= pa.scalar(last)
            return set(self.select({"started"}, choose, where)["id"].to_pylist())

        return max(self._retry(read) or self.ids(), default=None)

    def damaged(self, *, fresh: bool = False) -> dict[str, str]:
        """Return the damaged files of the index, each with the reason; reads all bytes.

        If `fresh`, of a bucket and not of its local copies.
        """

        def read() -> dict[str, str]:
            found = {}
            names = [name for names in self._list() for name in names]
            self.files.fetch(names, fresh=fresh)
            for name in names:
                try:
                    if name.startswith(RECORDS):
                        self._record(name)
                    else:
                        _Segment(name, self.files.path(name)).verify_all()
                except DamagedFile as error:
                    found[name] = str(error.args[1])
            return found

        return self._retry(read)

    def add(self, record: dict[str, Any]) -> None:
        """Add a run to the index. Its run file must exist already."""
        self.files.create(f"{RECORDS}/{record['id']}.json", encode_object(json_safe(record)))

    def add_many(self, records: Sequence[dict[str, Any]]) -> None:
        """Add many runs to the index as one segment. Their run files must exist already."""
        if records:
            write_segments(self.files, records_to_table([json_safe(record) for record in records]))

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
        return len(records) > MAX_RECORDS or (
            len(segments) > MAX_SEGMENTS
            and sum(s.n_rows < SEGMENT_ROWS for s in self._open(segments)) > MAX_SEGMENTS
        )

    def compact(self, *, fold: bool = True) -> dict[str, int]:
        """Merge records and small segments into few, and add runs missing after a crash.

        If `fold` is false, only if there are many segments that are not full.
        """

        def merge() -> dict[str, int]:
            names, segment_names = self._list()
            records = [(name, self._record(name)) for name in names]
            segments = self._open(segment_names)
            parts = [segment for segment in segments if segment.n_rows < SEGMENT_ROWS]
            if fold:
                double = {s.name for group in _overlapping(segments) for s in group}
                parts = [s for s in segments if s in parts or s.name in double]
            elif len(parts) <= MAX_SEGMENTS:
                parts = []
            adopted = self._orphans()
            if not (records or adopted) and len(parts) < 2:
                return {"runs": 0, "records": 0, "segments": 0, "adopted": 0}
            new = records_to_table([record for _, record in records] + adopted)
            n_runs = _merge(self.files, parts, new)
            # The superset is durable: delete its inputs, and only them.
            self.files.delete(*names, *(segment.name for segment in parts))
            counts = {"records": len(records), "segments": len(parts), "adopted": len(adopted)}
            return {"runs": n_runs, **counts}

        return self._retry(merge)

    def remove(self, ids: Collection[str]) -> None:
        """Remove runs from the index. A concurrent compaction may add a removed run again."""

        def rewrite() -> None:
            names, segments = self._list()
            replaced = [name for name in names if self._record(name)["id"] in ids]
            for segment in self._open(segments):
                if _listed([segment], ids):
                    table = segment.read(segment.columns)
                    gone = pc.is_in(table["id"], pa.array(sorted(ids)))
                    write_segments(self.files, table.filter(pc.invert(gone)))
                    replaced.append(segment.name)
            self.files.delete(*replaced)

        self._retry(rewrite)

    def add_unlisted(self, ids: Iterable[str]) -> None:
        """Add stored runs that are missing here, as an interrupted writer leaves them."""
        from benchkit.store.runfile import accepted_record

        wanted = {run_id for run_id in ids if is_id(run_id)}
        for run_id in sorted(wanted - self.ids() if wanted else ()):
            with suppress(UnreadableRun):  # `check` reports it
                self.add_existing(accepted_record(self.files.path(run_name(run_id))))

    def prune(self, ids: Iterable[str]) -> int:
        """Move run files to the folder ``trash``, and remove their runs from the index."""
        moved, in_trash = [], []
        try:
            for run_id in ids:
                name = run_name(run_id)
                if self.files.exists(name):
                    self.files.move(name, f"trash/{name}")
                    moved.append(run_id)
                if self.files.exists(f"trash/{name}"):  # also by an interrupted `prune`
                    in_trash.append(run_id)
        finally:
            try:
                self.remove(in_trash)
            except (StoreError, OSError):  # a full disk: moving back needs no space
                with suppress(StoreError, OSError):
                    for run_id in self.ids().intersection(moved):
                        self.files.move(f"trash/{run_name(run_id)}", run_name(run_id))
                raise
        return len(moved)

    def _orphans(self) -> list[dict[str, Any]]:
        """Return records of unlisted runs in the two newest months; `check` covers all months."""
        from benchkit.store.runfile import accepted_record

        months = self.files.folders("runs")[-2:]
        names = [name for month in months for name in self.files.list(month, ".nc")]
        files = {name.rpartition("/")[2].removesuffix(".nc"): name for name in names}
        records, segments = self._load()
        listed = _listed(segments, files).union(record["id"] for record in records)
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

    def _retry(self, read: Callable[[], T]) -> T:
        for attempt in range(_READ_ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:
                time.sleep(attempt / 1000)  # another process compacted: retry
            except DamagedFile as error:
                name, reason = error.args
                raise StoreError(
                    f"{self.files.path(name)}: damaged ({reason}): "
                    "`benchkit store check` rebuilds it from the runs"
                ) from error
        raise StoreError(
            f"{self.files.root}: index changed {_READ_ATTEMPTS} times during reading: retry"
        )

    def _list(self) -> tuple[list[str], list[str]]:
        # List records before segments: runs compacted in between are read twice, never missed.
        return self._named(RECORDS, ".json"), self._named(SEGMENTS, ".parquet")

    def _named(self, folder: str, suffix: str) -> list[str]:
        # `check` reports files with other names.
        names = (n for n in self.files.list(folder, suffix) if n not in self.left_out)
        return [name for name in names if is_id(name[len(folder) + 1 : -len(suffix)])]

    def _load(self) -> tuple[list[dict[str, Any]], list[_Segment]]:
        names, segments = self._list()
        self.files.fetch(name for name in names if name not in self._records)
        self._records = {name: self._records.get(name) or self._record(name) for name in names}
        return list(self._records.values()), self._open(segments)

    def _open(self, names: Sequence[str]) -> list[_Segment]:
        self.files.fetch(name for name in names if name not in self._segments)
        known = self._segments
        opened = [known.get(name) or _Segment(name, self.files.path(name)) for name in names]
        self._segments = {segment.name: segment for segment in opened}
        return opened

    def _record(self, name: str) -> dict[str, Any]:
        try:
            record = decode_object(self.files.read(name))
        except ValueError as error:
            raise DamagedFile(name, str(error)) from error
        if name != f"{RECORDS}/{record.get('id')}.json":
            raise DamagedFile(name, "its content is not the record of the run in its name")
        return record


class _NewRuns:
    """Records as a part of the index like a segment of one row group."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.records, self.n_rows = records, len(records)
        self.columns = records_to_table(records).column_names

    def sizes(self, groups: Iterable[int]) -> list[int]:
        """Return the number of records."""
        return [self.n_rows for _ in groups]

    def read(self, columns: Collection[str], groups: Sequence[int]) -> pa.Table:
        """Return columns of the records."""
        return records_to_table(self.records if groups else [], columns)


class _Segment:
    """A Parquet file of the index; its metadata are read once.

    Its name is made of the digest of its last part, the metadata, and these have a digest of each
    column of each row group, so that a reader of some columns verifies only those. Segments of
    before November 2026 have no digests: their metadata have one entry, of Arrow.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        own_id = name.rpartition("/")[2].removesuffix(".parquet")
        is_verified = derived_id(id_time(own_id), _footer_digest(path)) == own_id
        try:
            local = fs.LocalFileSystem(use_mmap=True)
            self._plain, self._coded = (
                each.make_fragment(str(path), filesystem=local) for each in _formats()
            )
            self.metadata = self._plain.metadata
            self.columns: list[str] = self._plain.physical_schema.names
            entries = self.metadata.metadata or {}
            self._digests = bytes.fromhex(entries.get(_DIGESTS, b"").decode())
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedFile(name, str(error).partition("\n")[0]) from error
        if not (is_verified or set(entries) <= {b"ARROW:schema"}):
            raise DamagedFile(name, "its metadata differ from their digest")
        if "id" not in self.columns:
            raise DamagedFile(name, "no column id")
        self.n_rows: int = self.metadata.num_rows
        self.n_groups: int = self.metadata.num_row_groups
        self._verified: set[tuple[int, str]] = set()
        self._ranges: dict[str, list[tuple[Any, Any]]] = {}

    def ranges(self, column: str) -> list[tuple[Any, Any]]:
        """Return the lowest and the highest value of a column in each row group with values."""
        if column not in self._ranges:
            found = []
            if column in self.columns:
                number = self.columns.index(column)
                groups = map(self.metadata.row_group, range(self.n_groups))
                found = [group.column(number).statistics for group in groups]
            self._ranges[column] = [(s.min, s.max) for s in found if s and s.has_min_max]
        return self._ranges[column]

    def groups(self, where: pc.Expression | None) -> list[int]:
        """Return the row groups that can contain rows that meet a condition."""
        if where is None:
            return list(range(self.n_groups))
        parts = self._plain.split_by_row_group(where, schema=_schema_with(self._plain))
        return [part.row_groups[0].id for part in parts]

    def sizes(self, groups: Iterable[int]) -> list[int]:
        """Return the numbers of rows of row groups."""
        return [self.metadata.row_group(group).num_rows for group in groups]

    def read(self, columns: Collection[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Return columns of row groups; texts of few values as dictionaries."""
        groups = list(range(self.n_groups)) if groups is None else groups
        names = [name for name in self.columns if name in columns]
        self._verify(names, groups)
        try:
            return self._coded.subset(row_group_ids=list(groups)).to_table(columns=names)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DamagedFile(self.name, str(error).partition("\n")[0]) from error

    def verify_all(self) -> None:
        """Read all bytes; raise if some are damaged."""
        self.read(self.columns)

    def _verify(self, names: Iterable[str], groups: Iterable[int]) -> None:
        wanted = {(group, name) for group in groups for name in names} - self._verified
        if not (wanted and self._digests):
            return
        with pa.memory_map(str(self.path)) as file:
            for group, name in wanted:
                number = self.columns.index(name)
                chunk = self.metadata.row_group(group).column(number)
                start = (group * len(self.columns) + number) * _DIGEST_BYTES
                file.seek(_offset(chunk))
                found = sha256(file.read_buffer(chunk.total_compressed_size)).digest()
                if found[:_DIGEST_BYTES] != self._digests[start : start + _DIGEST_BYTES]:
                    raise DamagedFile(self.name, f"column {name} differs from its digest")
        self._verified |= wanted


_Source: TypeAlias = "_Segment | _NewRuns"


def _schema_with(fragment: ds.ParquetFileFragment) -> pa.Schema:
    """Return the schema of a fragment with the columns that it lacks, of which it has nulls."""
    own = fragment.physical_schema
    return pa.schema([*own, *(field for field in SCHEMA if field.name not in own.names)])


def _offset(chunk: Any) -> int:
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return int(min(start for start in starts if start is not None))


def _footer_digest(path: Path) -> str:
    """Return the digest of the last part of a Parquet file, its metadata, with their length."""
    with path.open("rb") as file:
        file.seek(-min(8, file.seek(0, os.SEEK_END)), os.SEEK_END)
        size = int.from_bytes(file.read(4), "little") + 8
        file.seek(-min(size, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return sha256(file.read()).hexdigest()


def _overlapping(segments: Sequence[_Segment]) -> list[list[_Segment]]:
    """Return the segments whose ranges of ids overlap: only these can list a run twice."""
    ranges = []
    for number, segment in enumerate(segments):
        found = segment.ranges("id")
        if segment.n_rows:  # without statistics, of another program: overlaps with all
            whole = len(found) == segment.n_groups
            low = min(low for low, _ in found) if whole else ""
            ranges.append((low, max(high for _, high in found) if whole else "g", number))
    sets: list[list[int]] = []
    highest = ""
    for low, high, number in sorted(ranges):
        if not sets or low > highest:
            sets.append([])
        sets[-1].append(number)
        highest = max(highest, high)
    return [[segments[n] for n in sorted(numbers)] for numbers in sets if len(numbers) > 1]


def _first_rows(parts: Sequence[tuple[_Segment, list[int]]]) -> list[np.ndarray]:
    """Return which rows of row groups list a run that no earlier segment lists."""
    import pandas as pd

    repeated: dict[str, np.ndarray] = {}
    for members in _overlapping([segment for segment, _ in parts]):
        ids = [segment.read(["id"])["id"].to_numpy() for segment in members]
        flags = pd.Series(np.concatenate(ids)).duplicated().to_numpy()
        masks = np.split(flags, np.cumsum([len(column) for column in ids])[:-1])
        repeated |= {segment.name: mask for segment, mask in zip(members, masks, strict=True)}
    first = []
    for segment, groups in parts:
        if segment.name in repeated:
            is_read = np.repeat(
                np.isin(range(segment.n_groups), groups), segment.sizes(range(segment.n_groups))
            )
            first.append(~repeated[segment.name][is_read])
        else:
            first.append(np.ones(sum(segment.sizes(groups)), bool))
    return first


def _listed(segments: Sequence[_Segment], ids: Collection[str]) -> set[str]:
    """Return the ids that at least one segment lists."""
    wanted = pa.array(sorted(ids), pa.string())
    listed: set[str] = set()
    for segment in segments if len(wanted) else ():
        column = segment.read(["id"], segment.groups(pc.field("id").isin(wanted)))["id"]
        listed.update(column.filter(pc.is_in(column, wanted)).to_pylist())
    return listed


def _chosen_rows(
    source: _Source, groups: list[int], head: pa.Table, mask: np.ndarray, names: Sequence[str]
) -> pa.Table:
    """Return the chosen rows of a part of the index, with more columns."""
    part = head.filter(pa.array(mask))
    if names:
        sizes = source.sizes(groups)
        used = [bool(flags.any()) for flags in np.split(mask, np.cumsum(sizes)[:-1])]
        rest = source.read(
            names, [group for group, is_used in zip(groups, used, strict=True) if is_used]
        )
        rest = rest.filter(pa.array(mask[np.repeat(used, sizes)]))
        for name in rest.column_names:
            part = part.append_column(name, rest[name])
    return part


def write_segments(files: Files, table: pa.Table) -> None:
    """Write runs as segments, cut by id, which is the order of time."""
    order = pc.sort_indices(table["id"])
    for start in range(0, table.num_rows, SEGMENT_ROWS):
        part = order[start : start + SEGMENT_ROWS]
        _write_segment(files, table if len(part) == len(order) else table.take(part))


def _write_segment(files: Files, table: pa.Table) -> None:
    # Sorted by workload: a reader of one workload skips most row groups.
    table = without_dictionaries(table)
    table = table.sort_by([("workload", "ascending"), ("id", "ascending")]).combine_chunks()
    if table.num_rows:
        metadata = pq.read_metadata(io.BytesIO(data := _parquet(table, b"")))
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        chunks = [group.column(n) for group in groups for n in range(metadata.num_columns)]
        view = memoryview(data)
        parts = [view[_offset(c) : _offset(c) + c.total_compressed_size] for c in chunks]
        digests = b"".join(sha256(part).digest()[:_DIGEST_BYTES] for part in parts)
        data = _parquet(table, digests)
        size = int.from_bytes(data[-8:-4], "little") + 8
        name = derived_id(id_time(new_id()), sha256(data[-size:]).hexdigest())
        files.create(f"{SEGMENTS}/{name}.parquet", data)


def _parquet(table: pa.Table, digests: bytes) -> bytes:
    sink = io.BytesIO()
    # Uncompressed: 91 ms for 8 columns of a million runs, zstd 267 ms. Dictionaries of values that
    # hardly repeat: a fifth larger, and twice the time to read.
    n_values = ((name, pc.count_distinct(table[name]).as_py()) for name in table.column_names)
    repeats = [name for name, n in n_values if n <= table.num_rows / 2]
    with pq.ParquetWriter(sink, table.schema, compression="none", use_dictionary=repeats) as writer:
        writer.write_table(table, row_group_size=GROUP_ROWS)
        if digests:
            writer.add_key_value_metadata({_DIGESTS.decode(): digests.hex()})
    return sink.getvalue()


def _merge(files: Files, segments: Sequence[_Segment], new: pa.Table) -> int:
    """Write the runs of segments and new runs as segments that list each run once.

    Reads the row groups of one new segment at a time.
    """
    whole = [(segment, list(range(segment.n_groups))) for segment in segments]
    first = _first_rows(whole)
    new = new.filter(
        pc.invert(
            pc.is_in(
                new["id"], pa.array(sorted(_listed(segments, new["id"].to_pylist())), pa.string())
            )
        )
    )
    ids = [
        segment.read(["id"])["id"].filter(pa.array(mask))
        for segment, mask in zip(segments, first, strict=True)
    ]
    every = pa.chunked_array(
        [c for column in (*ids, new["id"]) for c in column.chunks], pa.string()
    )
    cuts = every.take(pc.sort_indices(every)[::SEGMENT_ROWS]).to_pylist()
    for low, high in zip(cuts, [*cuts[1:], None], strict=True):
        where = pc.field("id") >= low
        where = where if high is None else where & (pc.field("id") < high)
        parts = [new.filter(where)]
        for segment, mask in zip(segments, first, strict=True):
            starts = np.cumsum([0, *segment.sizes(range(segment.n_groups))])
            for group in segment.groups(where):
                table = segment.read(segment.columns, [group])
                table = table.filter(pa.array(mask[starts[group] : starts[group + 1]]))
                parts.append(table.filter(where))
        _write_segment(files, unite(parts))
    return len(every)
