"""A run: a finished recording as an immutable DataTree, with an id and an outcome.

`Run` wraps the DataTree and returns tables ready to plot and a summary for notebooks.
`benchkit.store.build.run_from_recording` builds the DataTree.
"""

from __future__ import annotations

import html
import json
import zlib
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import MissingExtra
from benchkit.formatting import format_quantity
from benchkit.store.schema import METRICS, RECORD_FIELDS

__all__ = ["Run"]

#: Attribute with the seconds of an unmeasured step -> its row title in `Run.metadata`.
_STEPS = {"prepare_seconds": "prepare (s)", "check_seconds": "check (s)"}
#: Parts of event topics that mark an event as a problem.
_TROUBLE = ("lost", "remove", "restart", "pause", "terminat", "kill", "fail")


def _label(run: Run) -> str:
    return ", ".join([run.workload, *(f"{name}={value}" for name, value in run.tags.items())])


#: Group of entry points whose objects take a `Run`: ``run.plot``, ``run.panel()``.
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

    def __init__(self, tree: xr.DataTree) -> None:
        self.tree = tree

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
    def error(self) -> str:
        """Error of the run in one line; empty if there was none."""
        return str(self.tree.attrs.get("error", ""))

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of the run, by name."""
        return json.loads(self.tree.attrs.get("tags") or "{}")

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name, in the units of `benchkit.store.schema.METRICS`; unknown ones absent."""
        return {name: float(self.tree[name]) for name in METRICS if name in self.tree.data_vars}

    @property
    def record(self) -> dict[str, Any]:
        """The run's row of the store's index: facts and metrics, flat."""
        return json.loads(self.tree.attrs["record"])

    def _group(self, name: str) -> xr.Dataset:
        if name in self.tree.children:
            return self.tree[name].to_dataset()
        return xr.Dataset()

    def memory(self) -> xr.Dataset:
        """Return memory by kind over time, in B: of the cluster, and per worker as ``worker_*``."""
        scheduler, workers = self._group("scheduler"), self._group("workers")
        kinds = ["process", "managed", "unmanaged_old", "unmanaged_recent", "spilled"]
        if not scheduler.sizes:
            return xr.Dataset()
        per_worker = workers[kinds].rename(
            {"time": "worker_time", **{kind: f"worker_{kind}" for kind in kinds}}
        )
        return xr.merge([scheduler[kinds], per_worker], join="outer", compat="no_conflicts")

    def task_groups(self) -> pd.DataFrame:
        """Return a row per task group: seconds by activity, tasks, bytes; busiest first."""
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
            if name not in groups:  # a light capture does not record retries
                continue
            frame[name] = groups[name].values
        frame["result (B)"] = groups["nbytes"].values
        frame["start (s)"], frame["stop (s)"] = groups["start"].values, groups["stop"].values
        return frame.sort_values("total (s)", ascending=False)

    def task_stream(self) -> pd.DataFrame:
        """Return a row per task: group, worker, thread, start and duration in s, result in B."""
        tasks, groups = self._group("tasks"), self._group("task_groups")
        if not tasks.sizes.get("task"):
            return pd.DataFrame()
        names = groups["task_group"].values.astype(object)
        columns = ("worker", "thread", "ok", "nbytes", "start", "duration")
        frame = pd.DataFrame({name: tasks[name].values for name in columns})
        frame.insert(0, "task_group", pd.Categorical.from_codes(tasks["group"].values, names))
        return frame

    def task_keys(self, rows: np.ndarray | None = None) -> list[str]:
        """Return the keys of tasks: all, or those of some rows of `task_stream`.

        Parameters
        ----------
        rows : ndarray of int, optional
            Numbers of rows.
        """
        tasks = self._group("tasks")
        if not tasks.sizes.get("task"):
            return []
        blob = zlib.decompress(tasks["key_blob"].values.tobytes())
        if rows is None:
            return blob.decode().split("\n")
        # Splitting a million keys takes 1 s; finding the line ends takes a hundredth of it.
        ends = np.flatnonzero(np.frombuffer(blob, np.uint8) == ord("\n"))
        begins = np.concatenate([[0], ends + 1])
        ends = np.concatenate([ends, [len(blob)]])
        return [blob[begins[row] : ends[row]].decode() for row in rows]

    def transfers(self) -> xr.Dataset:
        """Return transfers between workers, source by destination: count, bytes (B), seconds (s).

        Coordinates are indices into ``workers``; -1 is a process outside the cluster, such as a
        client that gathers. Values are NaN where neither end reported.
        """
        return self._group("transfers")

    def fine_metrics(self) -> pd.DataFrame:
        """Return Dask's fine performance metrics, a row each: only they include P2P shuffles.

        Columns: context (``execute``, ``p2p``, ``get-data``, ...), prefix of the tasks, activity,
        unit (``seconds``, ``bytes``, ``count``), span (id), and value, a sum over all workers;
        largest first within a unit.
        """
        data = self._group("fine")
        if not data.sizes.get("metric"):
            return pd.DataFrame()
        names = [n for n in ("context", "prefix", "activity", "unit", "span") if n in data]
        frame = pd.DataFrame({name: data[name].values for name in (*names, "value")})
        return frame.sort_values(["unit", "value"], ascending=[True, False], ignore_index=True)

    def prometheus(self) -> xr.Dataset:
        """Return the Prometheus metrics of the run; empty if none were recorded.

        A variable per metric, named as Dask exposes it, in base units (s, B, counts), over time,
        ``instance`` (its coordinates identify the worker) and the metric's own labels, such as
        ``type`` or ``state``. Metrics of only the scheduler have no dimension ``instance``.
        """
        return self._group("prometheus")

    def profile(self) -> pd.DataFrame:
        """Return the call stacks of tasks, a row per frame, a parent before its children.

        Columns: parent (row, -1 for a root), prefix of the tasks, function, file, line, and count
        of samples (10 ms each by default), including the samples of the frames it calls.
        """
        data = self._group("profile")
        if not data.sizes.get("frame"):
            return pd.DataFrame()
        lines = zlib.decompress(data["code_blob"].values.tobytes()).decode().split("\n")
        places = pd.DataFrame(
            [line.split("\t") for line in lines], columns=["function", "file", "line"]
        )
        frame = places.iloc[data["code"].values].reset_index(drop=True)
        frame["line"] = pd.to_numeric(frame["line"], errors="coerce").fillna(0).astype(int)
        frame.insert(0, "parent", data["parent"].values)
        prefixes: list[str] = []
        for parent, function in zip(frame["parent"], frame["function"], strict=True):
            prefixes.append(function if parent < 0 else prefixes[parent])
        frame.insert(1, "prefix", prefixes)
        frame["count"] = data["count"].values
        return frame

    def spans(self) -> pd.DataFrame:
        """Return a row per span: id, name, parent span, and times (s)."""
        names = ("id", "name", "parent", "enqueued", "start", "stop", "active_cpu_seconds")
        return self._table("spans", names)

    def logs(self) -> pd.DataFrame:
        """Return a row per log line of level WARNING or above: time (s), process and text."""
        return self._table("logs", ("time", "level", "server", "worker", "text"))

    def metadata(self) -> pd.Series:
        """Return the facts of the run: workload, outcome, environment, cluster, versions, ...

        Includes the seconds of preparing the data and checking the answer, which are not measured.
        """
        attrs = self.tree.attrs
        names = [name for name in RECORD_FIELDS if name in attrs and attrs[name] not in ("{}", "")]
        steps = {title: round(attrs[name], 3) for name, title in _STEPS.items() if name in attrs}
        found = {name: attrs[name] for name in names} | steps
        return pd.Series(found, name="value", dtype=object)

    def events(self) -> pd.DataFrame:
        """Return a row per event of the cluster: time (s), topic, worker, message."""
        return self._table("events", ("time", "topic", "worker", "message"))

    def errors(self) -> pd.DataFrame:
        """Return a row per task that failed: time (s), key, worker, exception, traceback."""
        return self._table("errors", ("time", "key", "worker", "exception", "traceback"))

    def problems(self) -> pd.DataFrame:
        """Return the problems of the run in order: failed tasks, lost workers, capture errors."""
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
            if any(word in row.topic for word in _TROUBLE)
        ]
        rows = sorted(rows, key=lambda row: row[0])
        rows += [(np.nan, "capture", text) for text in self.capture_errors]
        if self.error:
            rows.append((np.nan, self.outcome, self.error))
        return pd.DataFrame(rows, columns=["time (s)", "what", "message"])

    def compare(self, other: Run) -> pd.DataFrame:
        """Return the metrics of two runs side by side, as text, with the ratio other / self.

        One run a side cannot separate a change from noise: the table gives no verdict.
        """
        mine, theirs = self.metrics, other.metrics
        rows = {
            metric.long_name: (
                format_quantity(mine.get(name), metric.units),
                format_quantity(theirs.get(name), metric.units),
                theirs[name] / mine[name] if mine.get(name) and name in theirs else np.nan,
            )
            for name, metric in METRICS.items()
            if name in mine or name in theirs
        }
        columns = [_label(self), _label(other), "ratio"]
        if columns[0] == columns[1]:
            columns = [self.id[:13], other.id[:13], "ratio"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).round({"ratio": 3})

    @property
    def plot(self) -> Any:
        """Plot functions of this run: ``run.plot.task_stream()``.

        Raises
        ------
        MissingExtra
            The packages for plots are not installed.
        """
        return self._accessor("plot")

    def panel(self) -> Any:
        """Return the figures of the run's page for a notebook, linked by one time window.

        The figures stay visible in an exported notebook, without a kernel or a network.
        ``pn.panel(run.panel())`` is interactive: tables follow the time window, and a click
        selects a task group.

        Raises
        ------
        MissingExtra
            The packages for plots are not installed.
        """
        return self._accessor("panel")

    def _accessor(self, name: str) -> Any:
        """Return the object that a package registered for runs under this name.

        The plot code is loaded by its entry point, so that `store` imports nothing from `show`.
        """
        for point in entry_points(group=ACCESSORS, name=name):
            try:
                return point.load()(self)
            except ImportError as error:
                raise MissingExtra("show", str(error.name)) from error
        raise MissingExtra("show", f"entry point {name!r} of {ACCESSORS}")

    @property
    def capture_errors(self) -> list[str]:
        """Errors of the capture itself; a run is stored in spite of them."""
        return [str(text) for text in json.loads(self.tree.attrs.get("capture_errors") or "[]")]

    def _table(self, group: str, columns: tuple[str, ...]) -> pd.DataFrame:
        data = self._group(group)
        return pd.DataFrame({name: data[name].values for name in columns if name in data})

    def __repr__(self) -> str:
        duration = self.metrics.get("duration")
        took = format_quantity(duration, "s") if duration is not None else "no time"
        return f"<benchkit.Run {self.id[:13]} {self.workload} {self.outcome} {took}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(METRICS[name].long_name)}</th>"
            f"<td>{html.escape(format_quantity(value, METRICS[name].units))}</td></tr>"
            for name, value in self.metrics.items()
        )
        error = f"<p>{html.escape(self.error)}</p>" if self.error else ""
        return (
            f"<h4>{html.escape(self.workload)}: {html.escape(self.outcome)}</h4>{error}"
            f"<p><code>{html.escape(self.id)}</code>, {html.escape(self.summary_line)}</p>"
            f"<table>{rows}</table>"
        )

    @property
    def summary_line(self) -> str:
        """Start time, cluster size and versions of the run, in one line."""
        attrs = self.tree.attrs
        parts = [str(attrs.get("started", ""))[:19].replace("T", " ")]
        if "n_workers" in attrs:
            parts.append(f"{attrs['n_workers']} workers, {attrs['n_threads']} threads")
        parts += [f"{name} {attrs[name]}" for name in ("dask", "python") if name in attrs]
        return ", ".join(part for part in parts if part)
