"""Store: immutable run files, marks on runs, and an index, in a folder or a bucket.

The content of a store is the union of its files: copying files merges two stores. A crash between
the two writes of `add` leaves a complete run file, which `check` adds to the index.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from benchkit.errors import AlreadyStored, StoreError, UnreadableRun, UsageError, did_you_mean
from benchkit.formatting import counted, format_bytes
from benchkit.measure.arguments import list_of
from benchkit.measure.run_ids import is_id
from benchkit.store.check import CheckReport, inspect_store
from benchkit.store.filters import columns_needed, matching
from benchkit.store.ledger import add_event
from benchkit.store.manifest import STORE_FILE, write_meta
from benchkit.store.marks import active_marks, apply_marks, encode_mark, mark_columns, new_mark
from benchkit.store.query.database import MEMORY_LIMIT, TIMEOUT_S, query, rows_of_runs
from benchkit.store.reader import StoreReader
from benchkit.store.runfile import (
    accepted_record,
    encode_run,
    index_record,
    read_record,
    run_name,
)
from benchkit.store.storage import RECORDINGS, in_parallel, unfinished_files
from benchkit.table import Table

__all__ = ["Store"]

#: Runs added between checks whether to compact the index; listing it takes 0.3 ms.
_COMPACTION_CHECK_EVERY_RUNS = 64


class Store(StoreReader):
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

    #: Number of runs that this object added.
    _n_added = 0

    def __reduce__(self) -> tuple[type[Store], tuple[Path | str]]:
        return Store, (self.path,)  # a worker process reads the files itself

    def create(self) -> None:
        """Write ``store.json`` unless it exists; must come before any other file of the store.

        Raises
        ------
        StoreError
            The file could not be written.
        """
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
        """Store many runs: write each file durably, then one index segment for all.

        Runs written before an error or Ctrl-C stay in the store and in the index.

        Parameters
        ----------
        trees : iterable of DataTree
            Runs as `add` accepts them.

        Returns
        -------
        int
            Number of runs that were not in the store before.

        Raises
        ------
        StoreError
            A file could not be written.
        UsageError
            A tree is not a run.
        """
        self.create()
        records, existing = [], []
        try:
            for tree in trees:
                run_id, record, data = encode_run(tree)
                try:
                    self.files.create(run_name(run_id), data)
                    records.append(index_record(record, data))
                except AlreadyStored:
                    existing.append(run_id)
        finally:
            self.is_new = False
            self.index.add_many(records)
            self._list_existing(existing)
        return len(records)

    def _list_existing(self, ids: Iterable[str]) -> None:
        """Add stored runs to the index that are missing there, as an interrupted writer leaves."""
        wanted = {run_id for run_id in ids if is_id(run_id)}
        for run_id in sorted(wanted - self.index.ids() if wanted else ()):
            with suppress(UnreadableRun):  # `check` reports it
                self.index.add_existing(accepted_record(self.files.path(run_name(run_id))))

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
        kind : {"accept", "bankruptcy", "exclude", "rename", "undo"}
            See `benchkit.store.marks`.
        reason, by : str
            Reason and author.
        **what
            Selection: ``runs`` (ids or beginnings of ids), ``workload``, ``where``, ``since``,
            ``before``; for a rename ``from_``, ``to`` and ``field``; for an undo ``mark``.

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
        self._check_mark(mark)
        self.create()
        self.files.create(f"marks/{mark['id']}.json", data)
        return str(mark["id"])

    def _check_mark(self, mark: Mapping[str, Any]) -> None:
        """Raise if the names in a mark match no run, neither as stored nor after renames."""
        where = dict(mark.get("where") or {})
        workload = mark.get("workload")
        if mark["kind"] == "rename" and mark["field"] == "environment":
            where["environment"] = mark["from"]
        elif mark["kind"] == "rename" and mark["field"] == "workload":
            workload = mark["from"]
        if mark["kind"] == "undo" or not (where or workload):
            return
        marks = active_marks(self.marks())
        columns = {"id", "started", "category", "environment", "params", "workload"}
        columns |= columns_needed(where) | mark_columns(marks)
        stored = self.index.table(columns)
        tables = [stored, apply_marks(stored, marks)]
        if not stored.num_rows or any(
            matching(table, workload=workload, where=where).any() for table in tables
        ):
            return
        wanted = ", ".join(f"{name}={value}" for name, value in where.items())
        names = [str(name) for table in tables for name in table["workload"].unique().to_pylist()]
        names += [name.partition("[")[0] for name in names]
        hint = did_you_mean(str(workload), names, "see `benchkit list runs`")
        what = f"{workload!r} {wanted}".strip() if workload else wanted
        raise UsageError(f"mark {mark['kind']}: {what}: matches no runs: {hint}")

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
        """
        other = to if isinstance(to, Store) else Store(to)
        other.create()
        damaged: list[str] = []

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
            found = list(self.files.walk(folder))
            names = [name for name in found if STORE_FILE.fullmatch(name)]
            missing = sorted({*names} - present - {*unfinished_files(found)})
            n_copied += sum(in_parallel(copy_file, missing, n_threads))
            if folder == "runs":
                existing = present.intersection(names)
        other._list_existing(sorted(n.rpartition("/")[2].removesuffix(".nc") for n in existing))
        if damaged:
            more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            raise UnreadableRun(f"{damaged[0]}{more}: not copied; everything else was")
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
            ``events``; see `benchkit.store.query.tables.SCHEMAS`.
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
        if repair and (self.files.folders("") or self.files.workspace(RECORDINGS).is_dir()):
            with suppress(StoreError):  # the report names what cannot be repaired
                self.create()
        report = inspect_store(self.files, self.index, repair=repair, quick=quick)
        if set_aside and repair and report.unreadable:
            objects = [name for name in report.damaged_objects if "/" in name]
            try:
                self.prune(report.damaged_runs)
                for name in objects:
                    self.files.move(name, f"trash/{name}")
                report = replace(report, set_aside=[*report.damaged_runs, *objects])
            except StoreError as error:
                report = replace(report, not_repaired=[*report.not_repaired, str(error)])
        return report

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
        moved, in_trash = [], []
        try:
            for run_id in list_of(ids, "ids"):
                name = run_name(run_id)
                if self.files.exists(name):
                    self.files.move(name, f"trash/{name}")
                    moved.append(run_id)
                if self.files.exists(f"trash/{name}"):  # also by an interrupted `prune`
                    in_trash.append(run_id)
        finally:
            try:
                self.index.remove(in_trash)
            except (StoreError, OSError):  # a full disk: moving back needs no space
                with suppress(StoreError, OSError):
                    for run_id in self.index.ids().intersection(moved):
                        self.files.move(f"trash/{run_name(run_id)}", run_name(run_id))
                raise
        return len(moved)

    def __repr__(self) -> str:
        return f"<benchkit.Store {self.path}: {counted(len(self), 'run')}>"

    def _repr_html_(self) -> str:
        info = self.info()
        info["outcomes"] = ", ".join(f"{n} {outcome}" for outcome, n in info["outcomes"].items())
        names = ("runs", "outcomes", "workloads", "environments", "first", "last", "marks")
        table = Table([{name: info[name] for name in names}]).to_html()
        path = f"<code>{html.escape(str(self.path))}</code>"
        return f"<h4>benchkit store</h4><p>{path}, {format_bytes(info['bytes'])}</p>{table}"
