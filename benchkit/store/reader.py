"""Read a store: open runs, list them as a table, and count its content."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import xarray as xr

from benchkit.errors import UnknownRun, UsageError, did_you_mean
from benchkit.measure.arguments import check_text, list_of
from benchkit.measure.run_ids import is_id
from benchkit.store.arrow import order_by_time, plain_array, table_to_frame
from benchkit.store.artifacts import artifact_files
from benchkit.store.bucket import open_files
from benchkit.store.filters import (
    check_names,
    columns_needed,
    matching,
    parse_moment,
    row_condition,
    warn_of_unknown_workloads,
)
from benchkit.store.index import Index
from benchkit.store.ledger import read_events
from benchkit.store.manifest import FORMAT_VERSION, default_store, read_meta
from benchkit.store.marks import active_marks, apply_marks, mark_columns
from benchkit.store.run import Run
from benchkit.store.runfile import open_run, run_name
from benchkit.store.schema import METRICS, RECORD_FIELDS

__all__ = ["MARK_COLUMNS", "StoreReader"]

#: Minimum length of an abbreviated id.
SHORTEST_ID = 4
#: Columns of `StoreReader.runs` that are computed from the marks.
MARK_COLUMNS = ("comparable", "reason")


class StoreReader:
    """Read access to a store of runs.

    Parameters
    ----------
    path : path or str, optional
        A folder or the address of a bucket; by default that of `default_store`.
    create : bool, default True
        Accept a missing store.

    Raises
    ------
    InvalidStoreError
        `path` is not a store, or does not exist and `create` is false.
    """

    def __init__(self, path: str | Path | None = None, create: bool = True) -> None:
        self.files = open_files(str(path or default_store()))
        self.path: Any = self.files.root
        self.index = Index(self.files)
        self._meta = read_meta(self.files, create=create)
        #: Whether the store did not exist and this object has not added a run to it.
        self.is_new = not self._meta

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
        ids = [self.resolve(run_id) for run_id in list_of(run_ids, "run_ids")]
        self.files.fetch(map(run_name, ids))
        return [self.open(run_id, groups) for run_id in ids]

    def file(self, run_id: str) -> Path:
        """Return the path of the NetCDF file of a run; other tools may read it.

        Parameters
        ----------
        run_id : str
            An id as `open` accepts it.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        """
        return self.files.path(run_name(self.resolve(run_id)))

    def extras(self, run_id: str) -> list[Path]:
        """Return the additional files of a run: performance report, cluster dump, memray profile.

        Parameters
        ----------
        run_id : str
            An id as `open` accepts it.

        Returns
        -------
        list of Path
            Files, sorted; empty if there are none.

        Raises
        ------
        UnknownRun
            No run has this id, or several ids begin with it.
        UnreadableRun
            The file of the run is damaged.
        """
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
        self._check_names(filters, fields, marks)
        reads = columns_needed(filters) | mark_columns(marks)
        reads |= {"workload"} if workload is not None else set()
        reads |= {"started"} if since or until or not reads else set()

        orders: dict[int, np.ndarray | None] = {}  # of so many rows; repeated ones are left out

        def choose(table: pa.Table) -> tuple[pa.Table, np.ndarray, Collection[str] | None]:
            table = apply_marks(table, marks)
            keep = matching(table, workload=workload, since=since, before=until, where=filters)
            if comparable is not None:
                keep &= table["comparable"].to_numpy() == comparable
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

        where = row_condition(workload=workload, since=since, before=until, marks=marks)
        table = self.index.select(reads, choose, where)
        n_rows = table.num_rows
        order = orders[n_rows] if n_rows in orders else order_by_time(table)
        if order is not None:
            table = table.take(order)
        if workload is not None and not n_rows:
            warn_of_unknown_workloads(self.index, list_of(workload, "workload"))
        if columns is not None:
            table = table.select(list(dict.fromkeys(columns)))
        return table_to_frame(table)

    def _check_names(
        self, filters: Mapping[str, Any], fields: Sequence[str], marks: Sequence[Mapping[str, Any]]
    ) -> None:
        if any(name not in fields or isinstance(filters[name], Mapping) for name in filters):
            names = {"tags", "params", *mark_columns(marks)}
            table = self.index.select(names, lambda table: (table, None, names))
            check_names(apply_marks(table, marks), filters, fields)

    def _field_names(self, requested: set[str]) -> list[str]:
        fields = [*RECORD_FIELDS, *METRICS, *MARK_COLUMNS]
        if requested <= set(fields):
            return fields
        return fields + sorted(self.index.names() - set(fields))  # fields of a newer benchkit

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
        frame = self.runs(workload, **selection)
        # A string index takes 7 s at a million runs; a coordinate without index takes no time.
        variables: dict[str, Any] = {}
        for name in frame.columns:
            attrs = METRICS[name].attrs if name in METRICS else {}
            variables[name] = ("run", plain_array(frame[name]), attrs)
        coordinates = [name for name in frame.columns if name not in METRICS]
        dataset = xr.Dataset(variables, {"run": np.arange(len(frame))})
        return dataset.set_coords(coordinates)

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as `benchkit store info` prints them.

        Returns
        -------
        dict
            JSON values: path, id, version, numbers of runs, workloads, marks and files, runs by
            outcome, size in B, and times of the first and last run.
        """
        frame = self.runs(columns=["workload", "started", "outcome", "environment"])
        sizes = self.files.sizes()
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
            "bytes": int(sum(sizes.values())),
        }
