"""Read the groups of a run as tables that are ready to plot."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import NotRecorded, UnreadableRun, UsageError
from benchkit.store.task_graph import TaskGraph, has_task_graph

__all__ = ["RunTables", "worker_names"]


class RunTables:
    """The groups of a run as DataFrames and Datasets; a group that was not recorded is empty.

    Parameters
    ----------
    tree : DataTree
        The content of a run file; available as ``.tree``.
    """

    def __init__(self, tree: xr.DataTree) -> None:
        if not isinstance(tree, xr.DataTree):
            raise UsageError(f"Run takes a DataTree, not {tree!r}: open runs with Store.open")
        self.tree = tree

    def memory(self) -> xr.Dataset:
        """Return memory by kind over time.

        Returns
        -------
        Dataset
            In B: sums over the cluster with the dimension ``time`` (s), and per worker as
            ``worker_*`` with the dimensions ``worker_time`` (s) and ``worker``, the names of the
            workers; empty if none was recorded.

        Examples
        --------
        >>> import hvplot.xarray  # doctest: +SKIP
        >>> run.memory()["worker_process"].hvplot.line(  # doctest: +SKIP
        ...     x="worker_time", by="worker"
        ... )
        """
        scheduler, workers = self._group("scheduler"), self._group("workers")
        kinds = ["process", "managed", "unmanaged_old", "unmanaged_recent", "spilled"]
        if not scheduler.sizes:
            return xr.Dataset()
        per_worker = workers[kinds].rename(
            {"time": "worker_time", **{kind: f"worker_{kind}" for kind in kinds}}
        )
        per_worker = per_worker.assign_coords(worker=worker_names(self.tree))
        return xr.merge([scheduler[kinds], per_worker], join="outer", compat="no_conflicts")

    def _not_recorded(self, what: str) -> NotRecorded:
        return NotRecorded(
            f"run {self.tree.attrs.get('id', 'without an id')}: {what} were not recorded: measure "
            "it again at capture level full (run files from format 2 on have them)"
        )

    def memory_by_group(self, worker: int | None = None) -> pd.DataFrame:
        """Return the bytes of results that each task group held over time.

        Parameters
        ----------
        worker : int, optional
            Index of a worker; by default the sum of all workers. A replica counts on each worker.

        Returns
        -------
        DataFrame
            In B, in memory or spilled: a row per sample (time in s after clock on), a column per
            task group, the largest first. Groups include scattered data and results of earlier
            work.

        Raises
        ------
        NotRecorded
            The run has no such samples: an older file, or capture level "light".
        """
        held = self._group("held")
        if "nbytes" not in held:
            raise self._not_recorded("bytes by task group")
        names = np.array([*json.loads(held.attrs["groups"]), ""], object)
        columns = ("time", "worker", "nbytes")
        frame = pd.DataFrame({name: held[name].values for name in columns})
        frame["task_group"] = names[held["group"].values]
        times = np.unique(frame["time"])
        if worker is not None:
            frame = frame[frame["worker"] == worker]
        table = frame.pivot_table(
            index="time", columns="task_group", values="nbytes", aggfunc="sum", fill_value=0
        ).reindex(times, fill_value=0)
        table = table.drop(columns="", errors="ignore")
        return table[table.max().sort_values(ascending=False, kind="stable").index]

    def task_groups(self) -> pd.DataFrame:
        """Return the task groups.

        Returns
        -------
        DataFrame
            A row per task group: seconds by activity, number of tasks, bytes; the group with most
            seconds first.
        """
        groups = self._group("task_groups")
        if not groups.sizes.get("task_group"):
            return pd.DataFrame()
        frame = pd.DataFrame(
            groups["seconds"].values,
            index=pd.Index(groups["task_group"].values, name="task_group"),
            columns=[f"{action} (s)" for action in groups["action"].values],
        )
        frame.insert(0, "total (s)", frame.sum(axis=1))
        for name in ("n_tasks", "n_erred", "n_retried"):
            if name in groups:  # a light capture does not record retries
                frame[name] = groups[name].values
        frame["result (B)"] = groups["nbytes"].values
        frame["start (s)"], frame["stop (s)"] = groups["start"].values, groups["stop"].values
        return frame.sort_values("total (s)", ascending=False)

    def task_stream(self) -> pd.DataFrame:
        """Return the tasks.

        Returns
        -------
        DataFrame
            A row per task: group, index of the worker, thread, whether it succeeded, size of the
            result in B, start and duration in s.
        """
        tasks, groups = self._group("tasks"), self._group("task_groups")
        if not tasks.sizes.get("task"):
            return pd.DataFrame()
        names = groups["task_group"].values.astype(object)
        columns = ("worker", "thread", "ok", "nbytes", "start", "duration")
        frame = pd.DataFrame({name: tasks[name].values for name in columns})
        frame.insert(0, "task_group", pd.Categorical.from_codes(tasks["group"].values, names))
        return frame

    def task_graph(self) -> TaskGraph:
        """Return the graph of the run: dependencies, durations and sizes of its tasks.

        Returns
        -------
        TaskGraph
            A node per task, dependencies before dependents.

        Raises
        ------
        NotRecorded
            The run has no graph: an older file, capture level "light", or an incomplete capture.
        UnreadableRun
            Another program wrote a graph that contradicts itself.
        """
        if not has_task_graph(self.tree):
            raise self._not_recorded("the dependencies of its tasks")
        try:
            return TaskGraph.of(self.tree)
        except (IndexError, KeyError, ValueError) as error:
            text = f"run {self.tree.attrs.get('id')}: its task graph is inconsistent: {error}"
            raise UnreadableRun(text.splitlines()[0]) from error

    def task_keys(self, rows: np.ndarray | None = None) -> list[str]:
        """Return the keys of tasks: all, or those of some rows of `task_stream`.

        Parameters
        ----------
        rows : ndarray of int, optional
            Numbers of rows.

        Returns
        -------
        list of str
            A key per row.
        """
        tasks = self._group("tasks")
        if not tasks.sizes.get("task"):
            return []
        blob = zlib.decompress(tasks["key_blob"].values.tobytes())
        if rows is None:
            return blob.decode().split("\n")
        # Splitting a million keys takes 1 s, searching for line ends 10 ms.
        ends = np.flatnonzero(np.frombuffer(blob, np.uint8) == ord("\n"))
        begins = np.concatenate([[0], ends + 1])
        ends = np.concatenate([ends, [len(blob)]])
        return [blob[begins[row] : ends[row]].decode() for row in rows]

    def transfers(self) -> xr.Dataset:
        """Return transfers between workers.

        Returns
        -------
        Dataset
            An entry per pair of workers with transfers: ``source`` and ``destination`` are indices
            into ``workers`` (-1 is a process outside the cluster, such as a client that gathers),
            ``count``, ``bytes`` and ``bytes_compressed`` (B; NaN if the sender did not report) and
            ``seconds`` (s). A pair without an entry had no transfers, unless both ends are in
            ``incomplete``: the indices of the workers without a complete report.
        """
        data = self._group("transfers")
        return _pairs(data) if "source" in data.dims else data

    def fine_metrics(self) -> pd.DataFrame:
        """Return Dask's fine performance metrics; only these metrics include P2P shuffles.

        Returns
        -------
        DataFrame
            Context (``execute``, ``p2p``, ``get-data``, ...), prefix of the tasks, activity, unit
            (``seconds``, ``bytes``, ``count``), span (id), and value, a sum over all workers;
            largest first within a unit.
        """
        frame = self._table("fine", ("context", "prefix", "activity", "unit", "span", "value"))
        if frame.empty:
            return pd.DataFrame()
        return frame.sort_values(["unit", "value"], ascending=[True, False], ignore_index=True)

    def prometheus(self) -> xr.Dataset:
        """Return the Prometheus metrics of the run.

        Returns
        -------
        Dataset
            A variable per metric, named as Dask exposes it, in base units (s, B, counts), over
            time, ``instance`` (its coordinates identify the worker) and the metric's own labels,
            such as ``type`` or ``state``. Metrics of the scheduler have no dimension ``instance``.
            Empty if none were recorded.
        """
        return self._group("prometheus")

    def profile(self) -> pd.DataFrame:
        """Return the call stacks of tasks.

        Returns
        -------
        DataFrame
            A row per frame, a parent before its children: parent (row, -1 for a root), prefix of
            the tasks, function, file, line, and count of samples (10 ms each by default),
            including the samples of the frames it calls.
        """
        data = self._group("profile")
        if not data.sizes.get("frame"):
            return pd.DataFrame()
        lines = zlib.decompress(data["code_blob"].values.tobytes()).decode().split("\n")
        codes = pd.DataFrame(
            [line.split("\t") for line in lines], columns=["function", "file", "line"]
        )
        frame = codes.iloc[data["code"].values].reset_index(drop=True)
        frame["line"] = pd.to_numeric(frame["line"], errors="coerce").fillna(0).astype(int)
        frame.insert(0, "parent", data["parent"].values)
        prefixes: list[str] = []
        for parent, function in zip(frame["parent"], frame["function"], strict=True):
            prefixes.append(function if parent < 0 else prefixes[parent])
        frame.insert(1, "prefix", prefixes)
        frame["count"] = data["count"].values
        return frame

    def spans(self) -> pd.DataFrame:
        """Return the spans.

        Returns
        -------
        DataFrame
            A row per span: id, name, parent span, and times (s).
        """
        names = ("id", "name", "parent", "enqueued", "start", "stop", "active_cpu_seconds")
        return self._table("spans", names)

    def logs(self) -> pd.DataFrame:
        """Return the log messages of level WARNING or above.

        Returns
        -------
        DataFrame
            A row per message: time (s), level, process and text.
        """
        return self._table("logs", ("time", "level", "server", "worker", "text"))

    def events(self) -> pd.DataFrame:
        """Return the events of the cluster.

        Returns
        -------
        DataFrame
            A row per event: time (s), topic, index of the worker, message (JSON).
        """
        return self._table("events", ("time", "topic", "worker", "message"))

    def errors(self) -> pd.DataFrame:
        """Return the errors of tasks.

        Returns
        -------
        DataFrame
            A row per failed task: time (s), key, index of the worker, exception, traceback.
        """
        return self._table("errors", ("time", "key", "worker", "exception", "traceback"))

    def _group(self, name: str) -> xr.Dataset:
        if name in self.tree.children:
            return self.tree[name].to_dataset()
        return xr.Dataset()

    def _table(self, group: str, columns: tuple[str, ...]) -> pd.DataFrame:
        data = self._group(group)
        return pd.DataFrame({name: data[name].values for name in columns if name in data})


def worker_names(tree: xr.DataTree) -> list[str]:
    """Return the unique names of the workers of a run, in order of arrival."""
    workers = tree["workers"].to_dataset() if "workers" in tree.children else xr.Dataset()
    if not workers.sizes.get("worker"):
        return []
    seen: Counter[str] = Counter()
    names = []
    for name in map(str, workers["name"].values):
        names.append(f"{name} (restart {seen[name]})" if seen[name] else name)
        seen[name] += 1
    return names


def _pairs(data: xr.Dataset) -> xr.Dataset:
    """Return transfers by pair from the matrix of older files, source by destination."""
    indices, counts = data["source"].values, data["count"].values
    rows, columns = np.nonzero(counts > 0)
    # A pair is NaN if both ends lack a report; the pair of a worker with itself has one end.
    incomplete = indices[np.isnan(np.diagonal(counts)) & (indices >= 0)]
    pairs = {name: ("pair", array.values[rows, columns]) for name, array in data.items()}
    ends = {"source": ("pair", indices[rows]), "destination": ("pair", indices[columns])}
    return xr.Dataset(
        {**ends, **pairs, "incomplete": ("incomplete_report", incomplete)}, attrs=data.attrs
    )
