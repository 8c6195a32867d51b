"""Store: immutable run files, marks on runs, and an index, in a folder or a bucket.

The content of a store is the union of its files: copying files merges two stores. A crash between
the two writes of `add` leaves a complete run file, which `check` adds to the index.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchkit.errors import (
    AlreadyStored,
    BenchkitError,
    StoreError,
    UnknownRun,
    UnlistableFolder,
    UnreadableRun,
    UsageError,
    did_you_mean,
)
from benchkit.formatting import counted, format_bytes
from benchkit.interruption import uninterrupted
from benchkit.measure.arguments import check_text, list_of
from benchkit.measure.run_ids import is_id
from benchkit.store.arrow import order_by_time, plain_array, table_to_frame
from benchkit.store.bucket import open_files
from benchkit.store.filters import (
    PAIR_KEYS,
    Selection,
    check_names,
    matching,
    parse_moment,
    row_condition,
    warn_of_unknown_workloads,
)
from benchkit.store.index import Index
from benchkit.store.ledger import add_event, read_events
from benchkit.store.manifest import STORE_FILE, default_store, read_meta, store_info, write_meta
from benchkit.store.marks import (
    active_marks,
    apply_marks,
    check_matches,
    encode_mark,
    mark_columns,
    new_mark,
)
from benchkit.store.schema import MARK_COLUMNS, MEMORY_LIMIT, METRICS, RECORD_FIELDS, TIMEOUT_S
from benchkit.store.storage import RECORDINGS, in_parallel, index_record, run_name, unfinished_files
from benchkit.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from benchkit.store.check import CheckReport
    from benchkit.store.run import Run

#: Runs added between checks whether to compact the index; listing it takes 0.3 ms.
_COMPACTION_CHECK_EVERY_RUNS = 64
#: Runs of `add_many` between two flushes, each of which takes up to some seconds.
_BATCH_RUNS = 5_000
#: Minimum length of an abbreviated id.
SHORTEST_ID = 4


class Store:
    """A set of runs in a folder or in a bucket.

    Any number of processes and threads may use one store at once, on one machine or on many.

    Parameters
    ----------
    path : path or str, optional
        The folder, or the address of a bucket: ``s3://bucket/prefix``, ``gs://...``, ``az://...``;
        by default the result of `default_store`.
    create : bool, default True
        Accept a missing store; the first added run creates it.

    Raises
    ------
    InvalidStoreError
        `path` is not a store, or does not exist and `create` is false.
    StoreError
        The bucket cannot be reached, or refuses the credentials.

    Examples
    --------
    >>> store = Store("./benchkit-store")  # doctest: +SKIP
    >>> store.runs("array.*", outcome="ok", since="30d")  # doctest: +SKIP
    """

    def __init__(self, path: str | Path | None = None, create: bool = True) -> None:
        self.files = open_files(str(path or default_store()))
        self.path: Any = self.files.root
        self.index = Index(self.files)
        self._meta = read_meta(self.files, create=create)
        #: Whether the store did not exist and this object has not added a run to it.
        self.is_new = not self._meta
        self._n_added = 0  # by this object

    def __reduce__(self) -> tuple[type[Store], tuple[Path | str]]:
        return Store, (self.path,)  # a worker process reads the files itself

    def open(self, run_id: str, groups: Collection[str] | None = None) -> Run:
        """Open one run; variables are read from the file on first use.

        Parameters
        ----------
        run_id : str
            An id, an unambiguous beginning of an id, or ``"latest"``.
        groups : collection of str, optional
            Read at least these groups, or variables with their coordinates, such as
            ``"task_groups/seconds"``, in addition to metrics and attributes; by default all
            groups. Opening a run with few groups takes a third of the time.

        Returns
        -------
        Run
            The run; its DataTree is ``run.tree``.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        UnreadableRun
            The file is damaged.
        """
        from benchkit.store.run import Run
        from benchkit.store.runfile import open_run

        full_id = self.resolve(run_id)
        try:
            run = Run(open_run(self.file(full_id), groups))
        except FileNotFoundError as error:
            raise UnknownRun(
                f"run {full_id}: in the index, but its file is missing in {self.path}: "
                "copy it back or run `benchkit store check`"
            ) from error
        run.store = self
        return run

    def load(self, run_ids: Iterable[str], groups: Collection[str] | None = None) -> list[Run]:
        """Open several runs.

        Parameters
        ----------
        run_ids : iterable of str
            Ids as `open` accepts them; raises the same errors.
        groups : collection of str, optional
            Argument of `open`.

        Returns
        -------
        list of Run
            One run per id, in the same order.
        """
        ids = [self.resolve(run_id) for run_id in list_of(run_ids, "run_ids")]
        self.files.fetch(map(run_name, ids))
        return [self.open(run_id, groups) for run_id in ids]

    def values(
        self, run_ids: Iterable[str], names: Collection[str]
    ) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Read some variables of many runs, in a tenth of the time of `load`.

        Parameters
        ----------
        run_ids : iterable of str
            Full ids; runs without a file, or with a damaged one, are left out.
        names : collection of str
            Groups and variables, such as ``"task_groups/seconds"``.

        Yields
        ------
        tuple of str and dict
            Id, and arrays by name, in the units of the tables; with the ``"outcome"`` of the run.
        """
        from benchkit.store.runfile import read_values

        ids = list_of(run_ids, "run_ids")
        with suppress(BenchkitError):  # of a bucket: below each run by itself
            self.files.fetch(map(run_name, ids))
        for run_id in ids:
            with suppress(BenchkitError, FileNotFoundError):
                yield run_id, read_values(self.files.path(run_name(run_id)), names)

    def file(self, run_id: str) -> Path:
        """Return the path of the NetCDF file of a run; other tools may read it.

        Parameters
        ----------
        run_id : str
            An id as `open` accepts it; raises the same errors.

        Returns
        -------
        Path
            The file.
        """
        return self.files.path(run_name(self.resolve(run_id)))

    def extras(self, run_id: str) -> list[Path]:
        """Return the additional files of a run: performance report, cluster dump, memray profile.

        Parameters
        ----------
        run_id : str
            An id as `open` accepts it; raises the same errors.

        Returns
        -------
        list of Path
            Files, sorted; empty if there are none.
        """
        from benchkit.store.artifacts import artifact_files

        return artifact_files(self.files, self.resolve(run_id))

    def resolve(self, run_id: str) -> str:
        """Return the full id for an id, an unambiguous beginning of an id, or ``"latest"``.

        Parameters
        ----------
        run_id : str
            The id, its beginning, or ``"latest"``: the last start that is not in the future.

        Returns
        -------
        str
            The full id.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        """
        if run_id != "":
            check_text(run_id, "run")
        if is_id(run_id) and self.files.exists(run_name(run_id)):
            return run_id
        latest = self.index.latest()
        if latest is None:
            raise UnknownRun(f"{self.path}: the store has no runs: add some with `benchkit run`")
        if run_id == "latest":
            return latest
        if len(run_id) < SHORTEST_ID:
            raise UnknownRun(f"run {run_id!r}: give at least {SHORTEST_ID} characters of the id")
        matches = sorted(self.index.ids(run_id.lower()))
        if not matches:
            raise UnknownRun(
                f"no run {run_id!r} in {self.path}: see `benchkit list runs`, or use 'latest'"
            )
        if len(matches) > 1:
            raise UnknownRun(
                f"{len(matches)} runs begin with {run_id!r}: give more characters, "
                f"such as {matches[-1]}"
            )
        return matches[0]

    def marks(self) -> list[dict[str, Any]]:
        """Return all marks.

        Returns
        -------
        list of dict
            Oldest first, including undone marks; damaged files are skipped.
        """
        return self.files.read_objects("marks")

    def events(self) -> list[dict[str, Any]]:
        """Return the ledger of regressions.

        Returns
        -------
        list of dict
            Events, oldest first.
        """
        return read_events(self.files)

    def ids(self) -> list[str]:
        """Return the ids of all runs.

        Returns
        -------
        list of str
            Full ids, oldest first.
        """
        return sorted(self.index.ids())

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, run_id: str | int) -> Run:
        if isinstance(run_id, int):
            ids = self.ids()
            if not -len(ids) <= run_id < len(ids):
                raise IndexError(f"run {run_id} of {len(ids)} runs")
            run_id = ids[run_id]
        return self.open(run_id)

    def __iter__(self) -> Iterator[Run]:
        return (self.open(run_id) for run_id in self.ids())

    def _ipython_key_completions_(self) -> list[str]:
        return ["latest", *reversed(self.ids())]

    def __contains__(self, run_id: object) -> bool:
        return is_id(run_id) and self.files.exists(run_name(str(run_id)))

    def runs(
        self,
        workload: str | Sequence[str] | None = None,
        *,
        since: Any = None,
        until: Any = None,
        columns: Sequence[str] | None = None,
        comparable: bool | None = None,
        **filters: Any,
    ) -> pd.DataFrame:
        """Return a row per run, oldest first.

        Parameters
        ----------
        workload : str or sequence of str, optional
            A name or glob, or several; ``"array.sum"`` also finds its variants.
        since, until : str, datetime or timedelta, optional
            A time (ISO 8601; UTC by default), or an age such as ``"7d"``; without `until` itself.
        columns : sequence of str, optional
            Only these fields and metrics; all by default, which takes longer.
        comparable : bool, optional
            True: only runs that no mark excludes; False: only excluded runs.
        **filters
            A field, tag or parameter and its value, glob, or a list of them: ``outcome="ok"``,
            ``environment=["main", "dev-*"]``, ``variant="A"``.

        Returns
        -------
        DataFrame
            Metrics in the units of `METRICS`; counts as ``Int64``; ``params``, ``tags`` and
            ``extra_metrics`` as JSON text; ``comparable`` and ``reason`` from the marks.

        Raises
        ------
        UsageError
            A column or filter does not exist.
        """
        filters = {name: value for name, value in filters.items() if value is not None}
        columns = None if columns is None else list_of(columns, "columns")
        fields = self._field_names({*(columns or ()), *filters})
        for name in (name for name in columns or () if name not in fields):
            hint = did_you_mean(name, fields, "see `benchkit list metrics`")
            raise UsageError(f"runs have no field {name!r}: {hint}")
        marks = active_marks(self.marks())
        since, until = (None if t is None else parse_moment(t) for t in (since, until))
        if any(name not in fields or isinstance(filters[name], Mapping) for name in filters):
            names = {*PAIR_KEYS.values(), *mark_columns(marks)}
            table = self.index.select(names, lambda table: (table, None, names))
            check_names(apply_marks(table, marks), filters, fields)
        stored = Selection(workload=workload, where=filters, since=since, before=until)
        reads = (stored.columns | mark_columns(marks)) or {"started"}
        if comparable is not None:  # a column that the marks add
            filters = {**filters, "comparable": comparable}
        selection = replace(stored, where=filters)

        orders: dict[int, np.ndarray | None] = {}  # of so many rows; repeated ones are left out

        def choose(table: pa.Table) -> tuple[pa.Table, np.ndarray, Collection[str] | None]:
            table = apply_marks(table, marks)
            keep = matching(table, selection)
            if columns is None or "started" not in reads:
                return table, keep, None if columns is None else {"id", "started", *columns}
            started = table.select(["started"])
            chosen = started if keep.all() else started.filter(pa.array(keep))
            orders.clear()
            try:
                orders[chosen.num_rows] = order_by_time(chosen)
            except KeyError:  # ids order equal times; to read a million takes 40 ms
                return table, keep, {"id", "started", *columns}
            return table, keep, {"started", *columns}

        table = self.index.select(reads, choose, row_condition(stored, marks))
        n_rows = table.num_rows
        order = orders[n_rows] if n_rows in orders else order_by_time(table)
        if order is not None:
            table = table.take(order)
        if workload is not None and not n_rows:
            warn_of_unknown_workloads(self.index, list_of(workload, "workload"))
        if columns is not None:
            table = table.select(list(dict.fromkeys(columns)))
        return table_to_frame(table)

    def _field_names(self, requested: set[str]) -> list[str]:
        fields = [*RECORD_FIELDS, *METRICS, *MARK_COLUMNS]
        is_known = requested <= set(fields)  # else of a newer benchkit
        return fields if is_known else fields + sorted(self.index.names() - set(fields))

    def dataset(self, workload: str | Sequence[str] | None = None, **selection: Any) -> xr.Dataset:
        """Return `runs` as a Dataset with an integer ``run`` dimension and units.

        Parameters
        ----------
        workload, **selection
            Arguments of `runs`.

        Returns
        -------
        Dataset
            Fields as coordinates without an index, metrics as variables; times in UTC.
        """
        import xarray as xr

        frame = self.runs(workload, **selection)
        # A string index takes 7 s at a million runs; a coordinate without index takes no time.
        variables: dict[str, Any] = {}
        for name in frame.columns:
            attrs = METRICS[name].attrs if name in METRICS else {}
            variables[name] = ("run", plain_array(frame[name]), attrs)
        dataset = xr.Dataset(variables, {"run": np.arange(len(frame))})
        return dataset.set_coords([name for name in frame.columns if name not in METRICS])

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as `benchkit store info` prints them.

        Returns
        -------
        dict
            JSON values: path, id, version, number and size in B of the files, numbers of runs,
            workloads and marks, runs by outcome, and times of the first and last run. Instead of
            what the runs say, `problem` if Google or Azure do not list the index or the marks.
        """
        return store_info(self, self._meta)

    def create(self) -> None:
        """Write ``store.json`` unless it exists; must come before any other file of the store."""
        if not self._meta:
            self._meta = write_meta(self.files)

    def add(self, tree: xr.DataTree) -> str:
        """Store a run: write its file durably, then its record to the index.

        Adding an identical run again completes an interrupted `add` and changes nothing otherwise.

        Parameters
        ----------
        tree : DataTree
            A result of `run_from_recording`; the attributes ``id`` and ``record`` are required.

        Returns
        -------
        str
            The run's id.

        Raises
        ------
        AlreadyStored
            The store holds another run with this id.
        StoreError
            The file could not be written (disk full, no permission); no partial file remains.
        UsageError
            The tree is not a run.
        """
        from benchkit.store.runfile import encode_run, read_record

        run_id, record, data = encode_run(tree)
        self.create()
        try:
            self.files.create(run_name(run_id), data)
        except AlreadyStored:
            if read_record(self.files.path(run_name(run_id))) != record:
                raise
        self.index.add_existing(index_record(record, data))
        self.is_new = False
        self._n_added += 1
        if self._n_added % _COMPACTION_CHECK_EVERY_RUNS == 1:
            with suppress(StoreError):  # the run is stored; a later one compacts
                if self.index.wants_compaction():
                    self.index.compact(fold=False)
        return run_id

    def add_many(self, trees: Iterable[xr.DataTree]) -> int:
        """Store many runs; the files of some thousand are flushed to disk together.

        Runs given before an error or Ctrl-C stay in the store and in the index.

        Parameters
        ----------
        trees : iterable of DataTree
            Runs as `add` accepts them; raises its `StoreError` and `UsageError`.

        Returns
        -------
        int
            Number of runs that were not in the store before.
        """
        from benchkit.store.runfile import encode_run

        self.create()
        batch, n_added = self.files.batch(), 0
        records: dict[str, dict[str, Any]] = {}  # by the name of the file

        def publish() -> int:
            with uninterrupted():
                created = batch.publish()
                self.is_new = False
                self.index.add_many([records.pop(name) for name in created])
                self.index.add_unlisted(record["id"] for record in records.values())
                records.clear()
            return len(created)

        try:
            for tree in trees:
                run_id, record, data = encode_run(tree)
                name = run_name(run_id)
                if name not in records:
                    batch.add(name, data)
                    records[name] = index_record(record, data)
                if len(records) == _BATCH_RUNS:
                    n_added += publish()
        finally:
            n_added += publish()
        return n_added

    def add_event(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Append an event to the ledger of regressions.

        Parameters
        ----------
        kind : str
            One of `benchkit.store.ledger.KINDS`.
        **facts
            Further JSON values of the event.

        Returns
        -------
        dict
            The event as written, with its ``id``.

        Raises
        ------
        UsageError
            `kind` is unknown.
        StoreError
            The event could not be written.
        """
        self.create()
        return add_event(self.files, kind, facts)

    def mark(self, kind: str, *, reason: str = "", by: str = "", **what: Any) -> str:
        """Add a mark on runs; `runs` applies it on every read.

        Parameters
        ----------
        kind : {"accept", "bankruptcy", "decide", "exclude", "rename", "threshold", "undo"}
            See `benchkit.store.marks`.
        reason, by : str
            Reason and author.
        **what
            Which runs: ``runs`` (ids or beginnings of ids), ``workload``, ``where``, ``since``,
            ``before``; for a rename ``from_``, ``to`` and ``field``; for an undo ``mark``; for a
            decision ``verdict`` and ``evidence``; for a threshold ``metric`` and ``size``.

        Returns
        -------
        str
            The mark's id.

        Raises
        ------
        UsageError
            The mark could not be applied, or applies to no run of the store.

        Examples
        --------
        >>> store.mark("bankruptcy", workload="shuffle.*", reason="new disks")  # doctest: +SKIP
        """
        mark = new_mark(kind, reason=reason, by=by, **what)
        if "runs" in mark:
            mark["runs"] = [self.resolve(run) for run in mark["runs"]]
        undone = mark.get("mark")
        if kind == "undo" and not (is_id(undone) and self.files.exists(f"marks/{undone}.json")):
            raise UsageError(f"mark undo: no mark {undone!r} in {self.path}")
        data = encode_mark(mark)
        check_matches(self.index, mark, self.marks())
        self.create()
        self.files.create(f"marks/{mark['id']}.json", data)
        return str(mark["id"])

    def copy(self, to: Store | str | Path) -> int:
        """Copy all runs, marks and experiments to another store, without drafts and other files.

        Parameters
        ----------
        to : Store or path
            The target; files that exist there are not replaced.

        Returns
        -------
        int
            Number of copied runs.

        Raises
        ------
        UnreadableRun
            Runs are damaged and were not copied; everything else was.
        UnlistableFolder
            Google or Azure hold a folder with invalid names, which was not copied; the others were.
        """
        from benchkit.store.runfile import accepted_record

        other = to if isinstance(to, Store) else Store(to)
        other.create()
        damaged, unlisted, existing = list[str](), list[str](), set[str]()

        def copy_file(name: str) -> bool:
            record = None
            if name.startswith("runs/"):
                try:
                    record = accepted_record(self.files.path(name))
                except UnreadableRun as error:
                    damaged.append(str(error))
                    return False
            with suppress(AlreadyStored):
                other.files.create(name, self.files.read(name))
            return record is not None and other.index.add_existing(record)

        n_copied, n_threads = 0, max(self.files.n_threads, other.files.n_threads)
        for folder in ("runs", "marks", "ledger", "experiments"):
            # Files of other programs stay where they are; `check` names them.
            present = set(other.files.walk(folder))
            try:
                found = list(self.files.walk(folder))
            except UnlistableFolder as error:
                unlisted.append(str(error))
                continue
            names = {name for name in found if STORE_FILE.fullmatch(name)}
            missing = sorted(names - present - {*unfinished_files(found)})
            n_copied += sum(in_parallel(copy_file, missing, n_threads))
            existing |= names & present if folder == "runs" else set()
        other.index.add_unlisted(n.rpartition("/")[2].removesuffix(".nc") for n in existing)
        if damaged:
            more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            raise UnreadableRun(f"{damaged[0]}{more}: not copied; everything else was")
        if unlisted:
            raise UnlistableFolder(f"{'; '.join(unlisted)}: not copied; everything else was")
        return n_copied

    def query(
        self,
        sql: str,
        *,
        timeout_s: float | None = TIMEOUT_S,
        memory_limit: str | None = MEMORY_LIMIT,
    ) -> pd.DataFrame:
        """Return the rows of a SELECT statement over all runs.

        Parameters
        ----------
        sql : str
            SQL of DuckDB over ``runs``, ``tasks``, ``task_groups``, ``transfers``, ``workers`` and
            ``events``; see `benchkit.store.query.SCHEMAS`.
        timeout_s : float or None, default 120.0
            The statement is stopped after this time in s.
        memory_limit : str or None, default "2GiB"
            Memory that the statement may use, and that its rows may use.

        Returns
        -------
        DataFrame
            The rows.

        Raises
        ------
        UsageError
            The statement is wrong, changes something, or reached a limit, or DuckDB is not
            installed.

        Examples
        --------
        >>> store.query(
        ...     "select workload, prefix, median(duration) from tasks group by all"
        ... )  # doctest: +SKIP
        """
        from benchkit.store.query import query

        return query(self, sql, timeout_s=timeout_s, memory_limit=memory_limit)

    def tasks(self, workload: str | None = None, **selection: Any) -> pd.DataFrame:
        """Return the tasks of several runs.

        Parameters
        ----------
        workload, **selection
            Arguments of `runs`.

        Returns
        -------
        DataFrame
            A row per task: run, workload, environment, task group, prefix, worker, thread, ok,
            nbytes (B), start and duration (s); those of a run by prefix and duration.
        """
        from benchkit.store.query import rows_of_runs

        return rows_of_runs(self, "tasks", self.runs(workload, columns=["id"], **selection)["id"])

    def task_groups(self, workload: str | None = None, **selection: Any) -> pd.DataFrame:
        """Return the task groups of several runs.

        Parameters
        ----------
        workload, **selection
            Arguments of `runs`.

        Returns
        -------
        DataFrame
            A row per run and task group: number of tasks, bytes, and thread-seconds by activity.
        """
        from benchkit.store.query import rows_of_runs

        ids = self.runs(workload, columns=["id"], **selection)["id"]
        return rows_of_runs(self, "task_groups", ids)

    def compact(self) -> dict[str, int]:
        """Merge the index into few segments; safe at any time, also concurrently.

        Returns
        -------
        dict of str to int
            Numbers of merged runs, records and segments, and of added unlisted runs.
        """
        return self.index.compact()

    def check(
        self, *, repair: bool = True, quick: bool = False, set_aside: bool = False
    ) -> CheckReport:
        """Compare index and files, with all bytes; add unlisted runs to the index.

        Parameters
        ----------
        repair : bool, default True
            Add unlisted runs, delete damaged index files (rebuilt from the runs) and unfinished
            writes that are older than a day; if false, only report.
        quick : bool, default False
            Compare names only: do not read the files of listed runs.
        set_aside : bool, default False
            Move damaged runs to the folder ``trash``, so that `copy` from another store brings
            them back.

        Returns
        -------
        CheckReport
            Problems found and repairs made.
        """
        from benchkit.store.check import inspect_store, put_aside

        if repair and (self.files.folders("") or self.files.workspace(RECORDINGS).is_dir()):
            with suppress(StoreError):  # the report names what cannot be repaired
                self.create()
        report = inspect_store(self.files, self.index, repair=repair, quick=quick)
        return put_aside(self.files, self.index, report) if set_aside and repair else report

    def prune(self, ids: Iterable[str]) -> int:
        """Move runs to the folder ``trash`` of the store; moving a file back restores its run.

        Parameters
        ----------
        ids : iterable of str
            Full ids; `check` adds runs that were moved back to the index.

        Returns
        -------
        int
            Number of moved runs.

        Raises
        ------
        StoreError
            A run could not be moved; earlier ones stay moved. Or the index could not be written;
            the runs are moved back.
        """
        return self.index.prune(list_of(ids, "ids"))

    def __repr__(self) -> str:
        return f"<benchkit.Store {self.path}: {counted(len(self), 'run')}>"

    def _repr_html_(self) -> str:
        info = {"outcomes": {}, **self.info()}
        info["outcomes"] = ", ".join(f"{n} {outcome}" for outcome, n in info["outcomes"].items())
        left_out = ("path", "id", "created", "version", "files", "bytes", "records", "segments")
        table = Table([{k: v for k, v in info.items() if k not in left_out}]).to_html()
        path = f"<code>{html.escape(str(self.path))}</code>"
        return f"<h4>benchkit store</h4><p>{path}, {format_bytes(info['bytes'])}</p>{table}"
