"""A run: a finished recording as an immutable DataTree, with an id and an outcome.

`Run` wraps the DataTree and returns tables ready to plot and a summary for notebooks.
`benchkit.store.build.run_from_recording` builds the DataTree.
"""

from __future__ import annotations

import html
import json
import zlib
from collections import Counter
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import NotRecorded, UnreadableRun, UsageError, needs_extra
from benchkit.formatting import counted, format_quantity, run_limits
from benchkit.measure.engines import ran_in_dask
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.task_graph import TaskGraph, has_task_graph
from benchkit.table import Table

#: Attribute with the seconds of an unmeasured step -> its row title in `Run.metadata`.
_STEPS = {"prepare_seconds": "prepare (s)", "check_seconds": "check (s)"}
#: Parts of event topics by which an event is a problem.
_PROBLEM_TOPICS = ("lost", "remove", "restart", "pause", "terminat", "kill", "fail")
#: Group of entry points whose objects take a `Run`: ``run.plot``, ``run.limits()``, ...
ACCESSORS = "benchkit.run_accessors"


class Run:
    """Tables and a summary of one run.

    Parameters
    ----------
    tree : DataTree
        The content of a run file; available as ``.tree``. `Store.open` reads it from a store.

    Examples
    --------
    >>> run = store.open("latest")  # doctest: +SKIP
    >>> run.task_groups().head()  # doctest: +SKIP
    """

    #: The store that opened the run.
    store: Any = None

    def __init__(self, tree: xr.DataTree) -> None:
        if not isinstance(tree, xr.DataTree):
            raise UsageError(f"Run takes a DataTree, not {tree!r}: open runs with Store.open")
        self.tree = tree
        METRICS.define(tree.attrs.get("own_metrics"))

    def __getattr__(self, name: str) -> float:
        """Return a metric: ``run.duration``."""
        if name not in METRICS:
            raise AttributeError(f"a run has no {name!r}; `dir(run)` lists what it has")
        if name not in self.tree.data_vars:
            raise AttributeError(f"this run has no {name}: `run.quality()` says why")
        return float(self.tree[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.metrics]

    @property
    def id(self) -> str:
        """The run's id, a UUIDv7."""
        return str(self.tree.attrs["id"])

    @property
    def workload(self) -> str:
        """Full name of the variant that ran."""
        return str(self.tree.attrs.get("workload", ""))

    @property
    def outcome(self) -> str:
        """How the run ended, one of `benchkit.store.schema.OUTCOMES`."""
        return str(self.tree.attrs["outcome"])

    @property
    def simulated(self) -> bool:
        """Whether a virtual cluster made the run; see `simulation`."""
        return bool(self.tree.attrs.get("simulated"))

    @property
    def simulation(self) -> dict[str, Any]:
        """Facts of a simulated run: digest, draw, model, scheduler_busy (share of the time)."""
        return dict(json.loads(self.tree.attrs.get("simulation") or "{}"))

    @property
    def error(self) -> str:
        """Error of the run in one line; empty if there was none."""
        return str(self.tree.attrs.get("error", ""))

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of the run, by name."""
        return dict(json.loads(self.tree.attrs.get("tags") or "{}"))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name, in the units of `METRICS`; metrics without a value are absent.

        Those of `benchkit.record(...).metric` come last.
        """
        names = [*METRICS, *json.loads(self.tree.attrs.get("own_metrics") or "{}")]
        variables = self.tree.variables  # 20 times as fast as `tree[name]`
        return {name: float(variables[name].values) for name in names if name in variables}

    def quality(self) -> pd.DataFrame:
        """Return what the metrics do not say: a row per limit of the measurement.

        Returns
        -------
        DataFrame
            Columns: kind ("absent", "estimated", "cut", "unfinished", "disturbed", "unmeasured"
            or "lost"), names of the metrics concerned, and text.
        """
        rows = self._notes()
        rows += [{"kind": "lost", "metrics": [], "text": line} for line in self.capture_errors]
        frame = pd.DataFrame(rows, columns=["kind", "metrics", "text"])
        frame["metrics"] = frame["metrics"].map(", ".join)
        return frame

    @property
    def other_cores(self) -> float:
        """Processor cores of the workers' machines that other processes used; 0: none noted."""
        return max((note.get("other_cores", 0.0) for note in self._notes()), default=0.0)

    def _notes(self) -> list[dict[str, Any]]:
        """Return the notes of `benchkit.store.build.quality` in the file."""
        return list(json.loads(self.tree.attrs.get("quality") or "[]"))

    @property
    def _shown_limits(self) -> list[str]:
        """Limits that are shown with the outcome, such as that the run was disturbed."""
        return run_limits({"quality": {note["kind"]: note["kind"] for note in self._notes()}})

    @property
    def record(self) -> dict[str, Any]:
        """The run's row of the store's index: fields and metrics, flat."""
        return dict(json.loads(self.tree.attrs["record"]))

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
            The run has no such samples: an older file, capture level "light", or an engine that
            does not report sizes of results.
        """
        held = self._group("held")
        if "nbytes" not in held:
            raise self._not_recorded("bytes by task group")
        attrs = self.tree.attrs
        if not ran_in_dask(attrs) and not held["nbytes"].values.any():
            raise NotRecorded(
                f"run {attrs['id']}: the engine {attrs['engine']} does not report sizes of results"
            )
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
        if "nbytes" in groups:
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
        return self._task_graph

    @cached_property
    def _task_graph(self) -> TaskGraph:
        """The graph, read once: rules and the replay of a diagnosis asked for it nine times."""
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

    def _require_format_3(self, group: str, what: str) -> xr.Dataset:
        data = self._group(group)
        if not data.sizes:
            run = f"run {self.tree.attrs.get('id', 'without an id')}"
            if int(self.tree.attrs.get("benchkit_format", 1)) < 3:
                raise NotRecorded(f"{run}: {what}: this run was recorded before format 3")
            raise NotRecorded(f"{run}: {what} were not recorded: the capture was off")
        return data

    def threads(self) -> pd.DataFrame:
        """Return how long threads ran and waited for a processor.

        Returns
        -------
        DataFrame
            A row per event loop, thread of tasks and main thread of the client: server, index of
            the worker, role, its number in `task_stream`, and in s, between its first and last
            sample: ran, waited for a processor, and the time between. The samples are in
            ``run.tree["thread_times"]``.

        Raises
        ------
        NotRecorded
            The run was recorded before format 3, or without a capture.
        """
        data = self._require_format_3("thread_times", "waits for a processor")
        names = ("sample_time", "ran", "waited")
        samples = pd.DataFrame({name: data[name].values for name in names})
        grouped = samples.groupby(data["sample_thread"].values)
        span = (grouped.max() - grouped.min()).reindex(range(data.sizes["thread"]))
        columns = ("server", "worker", "role", "task_thread")
        frame = pd.DataFrame({name: data[name].values for name in columns})
        frame["ran (s)"], frame["waited (s)"] = span["ran"], span["waited"]
        frame["sampled (s)"] = span["sample_time"]
        return frame

    def profile(
        self, start: float | None = None, stop: float | None = None, *, scheduler: bool = False
    ) -> pd.DataFrame:
        """Return the call stacks of tasks.

        Parameters
        ----------
        start, stop : float, optional
            Only samples of the cycles of Dask's profiler (1 s by default) that begin or end
            between these times in s after clock on.
        scheduler : bool, default False
            Return those of the scheduler's event loop.

        Returns
        -------
        DataFrame
            A row per frame, a parent before its children: parent (row, -1 for a root), prefix of
            the tasks, function, file, line, and count of samples (10 ms each by default),
            including the samples of the frames it calls.

        Raises
        ------
        NotRecorded
            A window or the scheduler is asked for, and the run was recorded before format 3; or
            Dask's profiler did not sample the scheduler.
        """
        group = "scheduler_profile" if scheduler else "profile"
        is_windowed = start is not None or stop is not None
        data = self._group(group)
        if scheduler or (is_windowed and "cycle_start" not in data):
            data = self._require_format_3("scheduler_profile", "times of call stacks")
        if not data.sizes.get("frame"):
            if scheduler:
                raise NotRecorded(
                    f"run {self.tree.attrs.get('id', 'without an id')}: call stacks of the "
                    "scheduler: Dask's profiler did not sample its event loop, as with Python 3.11"
                )
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
        if is_windowed:
            frame["count"] = _samples_between(data, start, stop)
            # Rows without samples stay: `parent` is the number of a row.
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

    def metadata(self) -> pd.Series:
        """Return the metadata of the run: workload, outcome, environment, cluster, versions, ...

        `quality` returns what is known about the quality of its metrics.

        Returns
        -------
        Series
            Values by name; also the seconds of preparation and check, which are not measured.
        """
        attrs = self.tree.attrs
        names = [
            name
            for name in RECORD_FIELDS
            if name != "quality" and attrs.get(name, "") not in ("{}", "")
        ]
        steps = {title: round(attrs[name], 3) for name, title in _STEPS.items() if name in attrs}
        values = {name: attrs[name] for name in names} | steps
        return pd.Series(values, name="value", dtype=object)

    def problems(self) -> pd.DataFrame:
        """Return the problems of the run: failed tasks, lost workers, errors of the capture.

        Returns
        -------
        DataFrame
            A row per problem, ordered by time (s): source of the problem, message.
        """
        rows = [
            (row.time, "task", f"{row.key}: {row.exception}")
            for row in self.errors().itertuples(index=False)
        ]
        events = self.events()
        if len(events) and (events["topic"] == "worker-removed").any():  # the more detailed event
            events = events[events["topic"] != "remove-worker"]
        rows += [
            (row.time, row.topic, row.message)
            for row in events.itertuples(index=False)
            if any(part in row.topic for part in _PROBLEM_TOPICS)
        ]
        rows = sorted(rows, key=lambda row: row[0])
        rows += [(np.nan, "capture", text) for text in self.capture_errors]
        if self.error:
            rows.append((np.nan, self.outcome, self.error))
        return pd.DataFrame(rows, columns=["time (s)", "what", "message"])

    def compare(self, other: Run | str) -> pd.DataFrame:
        """Return the metrics of two runs as a table, without verdicts.

        Two single runs are not enough to separate a change from noise.

        Parameters
        ----------
        other : Run or str
            The contender; also an id, the beginning of one or ``"latest"``, in the store of a run
            that `Store.open` returned.

        Returns
        -------
        DataFrame
            A row per metric: both values as text, and the ratio other / self; NaN if one value is
            unknown, or the definition of the metric differs.

        Raises
        ------
        UsageError
            `other` is not a Run.
        """
        if isinstance(other, str) and self.store is not None:
            other = self.store.open(other)
        if not isinstance(other, Run):
            raise UsageError(f"compare takes a Run, not {other!r}: such as store.open('latest')")
        if self.simulated != other.simulated:
            raise UsageError("one run is simulated, the other measured: they are not compared")
        before, after = self.metrics, other.metrics
        versions = [json.loads(run.record.get("metric_versions") or "{}") for run in (self, other)]

        def is_comparable(name: str) -> bool:
            same_definition = versions[0].get(name, 1) == versions[1].get(name, 1)
            return same_definition and bool(before.get(name)) and name in after

        rows = {
            metric.long_name: (
                format_quantity(before.get(name), metric.units),
                format_quantity(after.get(name), metric.units),
                after[name] / before[name] if is_comparable(name) else np.nan,
            )
            for name, metric in {**METRICS, **METRICS.own}.items()
            if name in before or name in after
        }
        columns = [
            ", ".join([run.workload, *(f"{name}={value}" for name, value in run.tags.items())])
            for run in (self, other)
        ]
        if columns[0] == columns[1]:
            columns = [self.id[:13], other.id[:13]]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=[*columns, "ratio"])
        return table.round({"ratio": 3})

    @property
    def plot(self) -> Any:
        """Plot functions of this run: ``run.plot.task_stream()``."""
        return self._accessor("plot")

    def panel(self) -> Any:
        """Return the figures of the run's page for a notebook, linked by one time window.

        The figures stay visible in an exported notebook, without a kernel or a network.
        ``pn.panel(run.panel())`` is interactive: tables follow the time window, and a click
        selects a task group.

        Returns
        -------
        object
            Renders itself in a notebook.

        Raises
        ------
        MissingExtra
            The packages for plots are not installed.
        """
        return self._accessor("panel")

    def limits(self) -> Any:
        """Return what bounds the duration of this run.

        Returns
        -------
        Limits
            Lower bounds by compute, critical path, network, disk and scheduler; the critical path;
            and the cause of each second of the duration. Renders itself in a notebook.

        Raises
        ------
        NotRecorded
            The run has no task graph.
        """
        return self._accessor("limits")

    def diagnose(self) -> Any:
        """Return what makes this run slower than it has to be.

        Returns
        -------
        Diagnosis
            Findings that cost at least 3 % of the duration and 0.2 s, with evidence and what to
            change. Without a task graph (an older file, capture level "light") fewer rules apply.
            Renders itself in a notebook.
        """
        return self._accessor("diagnose")

    @property
    def duration_corrected(self) -> Any:
        """Duration that this run would have had without other processes on its machine.

        Seconds with an interval (``seconds``, ``low``, ``high``): the graph is replayed without the
        waits for a processor of its threads. The duration itself if others used no more than half
        a core. An error says if the run lacks the data: a task graph, or run format 3.
        """
        return self._accessor("duration_corrected")

    def whatif(self, **changes: Any) -> Any:
        """Predict the duration of this run after a change, by a replay of its graph.

        Parameters
        ----------
        **changes
            ``workers``, ``threads``, ``memory`` (of each worker: B, or ``"2GiB"``), ``bandwidth``
            (``"2x"``, ``"200MB/s"`` or B/s), ``transfers`` and ``scheduler``
            (factors of their seconds), ``groups`` (factors by name of a task group or prefix),
            ``chunks`` (``"2x"``: half as many tasks), ``no_spill``. Lists of values are combined.
            ``within`` (seconds, or ``"2min"``) finds the fewest workers that end in this time.

        Returns
        -------
        Answer
            A prediction with interval per combination. Renders itself in a notebook.

        Raises
        ------
        NotRecorded
            The run has no task graph.
        UsageError
            The model does not hold for this run, or a change is out of range.
        """
        return self._accessor("whatif", **changes)

    def memory_peaks(self) -> Any:
        """Return which task groups held the memory of results at its peaks.

        Returns
        -------
        MemoryPeaks
            Of the cluster, of the worst worker, and of single tasks while they run.

        Raises
        ------
        NotRecorded
            The run has no bytes by task group.
        """
        return self._accessor("memory_peaks")

    def _accessor(self, name: str, **arguments: Any) -> Any:
        """Call what a package registered for runs under this name.

        It is loaded by its entry point, so that `store` imports nothing from higher layers.
        """
        for point in entry_points(group=ACCESSORS, name=name):
            with needs_extra("show"):
                return point.load()(self, **arguments)
        raise UsageError(
            f"run.{name}: the installed benchkit does not know it: install benchkit again, in a "
            "clone with `pip install -e .`"
        )

    @property
    def capture_errors(self) -> list[str]:
        """Errors of the capture itself; a run is stored in spite of them."""
        return [str(text) for text in json.loads(self.tree.attrs.get("capture_errors") or "[]")]

    def __repr__(self) -> str:
        duration = self.metrics.get("duration")
        took = format_quantity(duration, "s") if duration is not None else "no time"
        simulated = " simulated" if self.simulated else ""
        outcome = ", ".join([self.outcome, *self._shown_limits])
        return f"<benchkit.Run {self.id[:13]} {self.workload} {outcome} {took}{simulated}>"

    def _repr_html_(self) -> str:
        rows = [
            {"metric": METRICS[k].long_name, "value": format_quantity(v, METRICS[k].units)}
            for k, v in self.metrics.items()
        ]
        error = f"<p>{html.escape(self.error)}</p>" if self.error else ""
        return (
            f"<h4>{html.escape(self.workload)}: "
            f"{html.escape(', '.join([self.outcome, *self._shown_limits]))}"
            f"{' (simulated)' if self.simulated else ''}</h4>{error}"
            f"<p><code>{html.escape(self.id)}</code>, {html.escape(self.summary_line)}</p>"
            f"{Table(rows).to_html()}"
        )

    @property
    def summary_line(self) -> str:
        """Start time, cluster size and versions of the run, in one line."""
        attrs = self.tree.attrs
        parts = ["simulated"] if self.simulated else []
        parts.append(str(attrs.get("started", ""))[:19].replace("T", " "))
        if "n_workers" in attrs:
            parts.append(
                f"{counted(attrs['n_workers'], 'worker')}, {counted(attrs['n_threads'], 'thread')}"
            )
        parts += [f"{name} {attrs[name]}" for name in ("dask", "python") if name in attrs]
        return ", ".join(part for part in parts if part)

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


def _samples_between(data: xr.Dataset, start: float | None, stop: float | None) -> np.ndarray:
    """Return the samples of each frame of a profile in the cycles of a window."""
    inside = np.ones(data.sizes["cycle"], bool)
    if start is not None:
        inside &= data["cycle_stop"].values > start
    if stop is not None:
        inside &= data["cycle_start"].values < stop
    chosen = inside[data["entry_cycle"].values]
    counts = np.zeros(data.sizes["frame"], np.int64)
    np.add.at(counts, data["entry_frame"].values[chosen], data["entry_count"].values[chosen])
    parents = data["parent"].values
    for row in range(len(counts) - 1, -1, -1):  # a parent is before its children
        if parents[row] >= 0:
            counts[parents[row]] += counts[row]
    return counts


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
