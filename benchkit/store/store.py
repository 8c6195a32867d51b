"""Store: a folder of immutable run files, marks on runs, and an index.

The content of a store is the union of its files: copying files merges two stores. A crash between
the two writes of `add` leaves a complete run file, which `check` adds to the index.
"""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import (
    AlreadyStored,
    InvalidStoreError,
    StoreError,
    UnknownRun,
    UsageError,
    did_you_mean,
)
from benchkit.formatting import format_bytes
from benchkit.measure.run_ids import is_id
from benchkit.store.check import CheckReport, inspect_store
from benchkit.store.files import LocalFiles
from benchkit.store.index.arrow import order_by_time, plain_array, table_to_frame
from benchkit.store.index.catalogue import Catalogue
from benchkit.store.index.query import check_names, columns_needed, matching
from benchkit.store.ledger import add_event, read_events
from benchkit.store.manifest import FORMAT_VERSION, default_store, read_meta, write_meta
from benchkit.store.marks import active_marks, apply_marks, encode_mark, mark_columns, new_mark
from benchkit.store.run import Run
from benchkit.store.runfile.file import encode_run, open_run, read_record, run_name
from benchkit.store.schema import METRICS, RECORD_FIELDS

__all__ = ["Store"]

#: Minimum length of an abbreviated id.
SHORTEST_ID = 4
#: Runs added between checks whether to compact the index; listing it takes 0.3 ms.
_COMPACTION_CHECK_EVERY_RUNS = 64
_ADDED_BY_MARKS = ("comparable", "reason")


class Store:
    """A set of runs in a folder.

    Any number of processes and threads may use one store at once, on one machine or on many.

    Parameters
    ----------
    path : path, optional
        The folder; by default the result of `default_store`.
    create : bool, default True
        Accept a missing folder; the first added run creates it.

    Raises
    ------
    InvalidStoreError
        `path` is not a store, or does not exist and `create` is false.

    Examples
    --------
    >>> store = Store("./benchkit-store")  # doctest: +SKIP
    >>> store.runs("array.*", outcome="ok", since="30d")  # doctest: +SKIP
    """

    def __init__(self, path: str | Path | None = None, create: bool = True) -> None:
        text = str(path if path is not None else default_store()).removeprefix("file://")
        if "://" in text:
            raise InvalidStoreError(
                f"{text}: stores in buckets are not supported yet: give a folder"
            )
        self.path = Path(text).expanduser()
        self.files = LocalFiles(self.path)
        self.catalogue = Catalogue(self.files)
        self._meta = read_meta(self.files, create=create)
        self._n_added = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path,)  # a worker process reads the files itself

    def _ensure(self) -> None:
        if not self._meta:
            self._meta = write_meta(self.files)

    # -- writing ------------------------------------------------------------------------------

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
        self._ensure()
        try:
            self.files.create(run_name(run_id), data)
        except AlreadyStored:
            if read_record(self.files.path(run_name(run_id))) != record:
                raise
        self.catalogue.add_existing(record)
        self._n_added += 1
        if self._n_added % _COMPACTION_CHECK_EVERY_RUNS == 1 and self.catalogue.wants_compaction():
            with suppress(StoreError):  # the run is stored; a later one compacts
                self.catalogue.compact(fold=False)
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
        self._ensure()
        records = []
        try:
            for tree in trees:
                run_id, record, data = encode_run(tree)
                with suppress(AlreadyStored):
                    self.files.create(run_name(run_id), data)
                    records.append(record)
        finally:
            self.catalogue.add_many(records)
        return len(records)

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
            The mark could not be applied.

        Examples
        --------
        >>> store.mark("bankruptcy", workload="shuffle.*", reason="new disks")  # doctest: +SKIP
        """
        mark = new_mark(kind, reason=reason, by=by, **what)
        if "runs" in mark:
            mark["runs"] = [self.resolve(run) for run in mark["runs"]]
        if kind == "undo" and not self.files.exists(f"marks/{mark['mark']}.json"):
            raise UsageError(f"mark undo: there is no mark {mark['mark']!r} in {self.path}")
        data = encode_mark(mark)
        self._ensure()
        self.files.create(f"marks/{mark['id']}.json", data)
        return str(mark["id"])

    def compact(self) -> dict[str, int]:
        """Merge the index into few segments; safe at any time, also concurrently.

        Returns
        -------
        dict of str to int
            Numbers of merged runs, records and segments, and of added unlisted runs.
        """
        return self.catalogue.compact()

    def copy(self, to: Store | str | Path) -> int:
        """Copy all runs, marks and experiments to another store.

        Parameters
        ----------
        to : Store or path
            The target; files that exist there are not replaced.

        Returns
        -------
        int
            Number of copied runs.
        """
        other = to if isinstance(to, Store) else Store(to)
        other._ensure()
        copied = 0
        for folder in ("runs", "marks", "ledger", "experiments"):
            for name in self.files.walk(folder):
                if other.files.exists(name):
                    continue
                with suppress(AlreadyStored):
                    other.files.create(name, self.files.read(name))
                if folder == "runs":
                    copied += other.catalogue.add_existing(read_record(other.files.path(name)))
        return copied

    # -- reading ------------------------------------------------------------------------------

    def open(self, run_id: str, groups: Collection[str] | None = None) -> Run:
        """Open one run; variables are read from the file on first use.

        Parameters
        ----------
        run_id : str
            An id, an unambiguous beginning of an id, or ``"latest"``.
        groups : collection of str, optional
            Read at least these groups, in addition to metrics and attributes; by default all
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
        full_id = self.resolve(run_id)
        try:
            return Run(open_run(self.file(full_id), groups))
        except FileNotFoundError as error:
            raise UnknownRun(
                f"run {full_id}: listed, but its file is gone from {self.path}: copy it back"
            ) from error

    def load(self, run_ids: Iterable[str], groups: Collection[str] | None = None) -> list[Run]:
        """Open several runs.

        Parameters
        ----------
        run_ids : iterable of str
            Ids as `open` accepts them.
        groups : collection of str, optional
            Read at least these groups of each run; by default all.

        Returns
        -------
        list of Run
            One run per id, in the same order.

        Raises
        ------
        UnknownRun
            No run has one of the ids, or several ids begin with it.
        UnreadableRun
            A file is damaged.
        """
        return [self.open(run_id, groups) for run_id in run_ids]

    def file(self, run_id: str) -> Path:
        """Return the path of the NetCDF file of a run.

        Parameters
        ----------
        run_id : str
            An id as `open` accepts it.

        Returns
        -------
        Path
            The file; other tools may read it.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        """
        return self.files.path(run_name(self.resolve(run_id)))

    def extras(self, run_id: str) -> list[Path]:
        """Return files stored next to a run: performance report, cluster dump, memray."""
        folders = self.path.glob(f"experiments/*/extras/{self.resolve(run_id)}")
        return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())

    def resolve(self, run_id: str) -> str:
        """Return the full id for an id, an unambiguous beginning of an id, or ``"latest"``.

        Parameters
        ----------
        run_id : str
            The id, its beginning, or ``"latest"``.

        Returns
        -------
        str
            The full id.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        """
        if is_id(run_id) and self.files.exists(run_name(run_id)):
            return run_id
        ids = self.ids()
        if not ids:
            raise UnknownRun(f"{self.path}: no runs yet: `benchkit run` measures some")
        if run_id == "latest":
            return ids[-1]
        if len(run_id) < SHORTEST_ID:
            raise UnknownRun(f"run {run_id!r}: give at least {SHORTEST_ID} characters of the id")
        matches = [full_id for full_id in ids if full_id.startswith(run_id.lower())]
        if not matches:
            raise UnknownRun(
                f"no run {run_id!r} in {self.path}: see `benchkit list runs`, or say 'latest'"
            )
        if len(matches) > 1:
            raise UnknownRun(
                f"{len(matches)} runs begin with {run_id!r}: give more, such as {matches[-1]}"
            )
        return matches[0]

    def marks(self) -> list[dict[str, Any]]:
        """Return all marks, oldest first, including undone marks."""
        marks = []
        for name in self.files.list("marks", ".json"):
            with suppress(ValueError):  # `check` reports it
                mark = json.loads(self.files.read(name))
                if isinstance(mark, dict):
                    marks.append(mark)
        return marks

    def add_event(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Append an event to the ledger of regressions; see `benchkit.store.ledger`."""
        self._ensure()
        return add_event(self.files, kind, facts)

    def events(self) -> list[dict[str, Any]]:
        """Return the ledger of regressions, oldest event first."""
        return read_events(self.files)

    def ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return sorted(self.catalogue.ids())

    def __len__(self) -> int:
        return len(self.catalogue.ids())

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
            A time (ISO 8601; UTC by default), or an age such as ``"7d"``. `since` is
            included, `until` is not.
        columns : sequence of str, optional
            Only these fields and metrics; all by default. Reading 8 columns of 100 000 runs takes
            less than 0.1 s.
        comparable : bool, optional
            True: only runs that no mark excludes; False: only excluded runs.
        **filters
            A field, tag or parameter and its value, glob, or a list of them: ``outcome="ok"``,
            ``environment=["main", "dev-*"]``, ``variant="A"``.

        Returns
        -------
        DataFrame
            Metrics in the units of `METRICS`; counts as ``Int64``; ``params``, ``tags`` and
            ``extra_metrics`` as dicts; ``comparable`` and ``reason`` from the marks.

        Raises
        ------
        UsageError
            A column or filter does not exist.
        """
        filters = {name: wanted for name, wanted in filters.items() if wanted is not None}
        known = self._field_names({*(columns or ()), *filters})
        for name in columns or ():
            if name not in known:
                hint = did_you_mean(name, known, "see `benchkit list metrics`")
                raise UsageError(f"no field of runs is named {name!r}: {hint}")
        marks = active_marks(self.marks())
        needed = {"id", "started", "workload", *columns_needed(filters), *mark_columns(marks)}
        if columns is not None:
            needed.update(set(columns) - set(_ADDED_BY_MARKS))
        table = self.catalogue.table(None if columns is None else needed)
        table = apply_marks(table, marks)
        check_names(table, filters, known)
        keep = matching(table, workload=workload, since=since, before=until, where=filters)
        if comparable is not None:
            keep &= table["comparable"].to_numpy().astype(bool) == comparable
        if not keep.all():
            table = table.filter(keep)
        table = table.take(order_by_time(table))
        if columns is not None:
            table = table.select(list(dict.fromkeys(columns)))
        return table_to_frame(table)

    def _field_names(self, requested: set[str]) -> list[str]:
        known = [*RECORD_FIELDS, *METRICS, *_ADDED_BY_MARKS]
        if requested <= set(known):
            return known
        return known + sorted(self.catalogue.names() - set(known))  # fields of a newer benchkit

    def dataset(self, workload: str | Sequence[str] | None = None, **selection: Any) -> xr.Dataset:
        """Return `runs` as a Dataset with an integer ``run`` dimension and units.

        Parameters
        ----------
        workload : str or sequence of str, optional
            As in `runs`.
        **selection
            Other arguments of `runs`.

        Returns
        -------
        Dataset
            Fields as coordinates without an index, metrics as variables; times in UTC.
        """
        frame = self.runs(workload, **selection)
        # A string index takes 7 s at a million runs; a coordinate without index takes no time.
        variables: dict[str, Any] = {}
        for name in frame.columns:
            attrs = METRICS[name].attrs if name in METRICS else {}
            variables[name] = ("run", plain_array(frame[name]), attrs)
        coordinates = [name for name in frame.columns if name not in METRICS]
        dataset = xr.Dataset(variables, {"run": np.arange(len(frame))})
        return dataset.set_coords(coordinates)

    # -- maintenance --------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as `benchkit store info` prints them."""
        frame = self.runs(columns=["workload", "started", "outcome", "environment"])
        sizes = [self.files.size(name) for name in self.files.walk()]
        return {
            "path": str(self.path),
            "id": self._meta.get("id"),
            "created": self._meta.get("created"),
            "version": self._meta.get("version", FORMAT_VERSION),
            "runs": len(frame),
            "workloads": int(frame["workload"].nunique()),
            "environments": int(frame["environment"].nunique()),
            "outcomes": {str(k): int(v) for k, v in frame["outcome"].value_counts().items()},
            "first": frame["started"].min().isoformat() if len(frame) else None,
            "last": frame["started"].max().isoformat() if len(frame) else None,
            "marks": len(self.marks()),
            "records": len(self.files.list("index/new", ".json")),
            "segments": len(self.files.list("index", ".parquet")),
            "files": len(sizes),
            "bytes": int(sum(sizes)),
        }

    def check(self, *, repair: bool = True) -> CheckReport:
        """Compare index and files; add unlisted runs to the index.

        Parameters
        ----------
        repair : bool, default True
            Add unlisted runs, remove damaged index files (rebuilt from the runs) and unfinished
            writes that are a day old; if false, only report.

        Returns
        -------
        CheckReport
            Problems found and repairs made.
        """
        return inspect_store(self.files, self.catalogue, repair=repair)

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
            A run could not be moved; earlier ones stay moved.
        """
        moved = []
        try:
            for run_id in ids:
                name = run_name(run_id)
                if self.files.exists(name):
                    self.files.move(name, f"trash/{name}")
                    moved.append(run_id)
        finally:
            self.catalogue.remove(moved)
        return len(moved)

    def __repr__(self) -> str:
        return f"<benchkit.Store {self.path}: {len(self)} runs>"

    def _repr_html_(self) -> str:
        info = self.info()
        info["outcomes"] = ", ".join(f"{n} {outcome}" for outcome, n in info["outcomes"].items())
        shown = ("runs", "outcomes", "workloads", "environments", "first", "last", "marks")
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(str(info[name]))}</td></tr>"
            for name in shown
            if info[name] not in (None, "")
        )
        place = f"{html.escape(str(self.path))}</code>, {format_bytes(info['bytes'])}"
        return f"<h4>benchkit store</h4><p><code>{place}</p><table>{rows}</table>"
