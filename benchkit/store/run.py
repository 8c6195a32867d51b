"""A run: a finished recording as an immutable DataTree, with an id and an outcome.

`Run` wraps the DataTree and returns tables ready to plot and a summary for notebooks.
`benchkit.store.build.run_from_recording` builds the DataTree.
"""

from __future__ import annotations

import html
import json
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd

from benchkit.errors import UsageError, needs_extra
from benchkit.formatting import counted, format_quantity
from benchkit.store.run_tables import RunTables
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.table import Table

__all__ = ["Run"]

#: Attribute with the seconds of an unmeasured step -> its row title in `Run.metadata`.
_STEPS = {"prepare_seconds": "prepare (s)", "check_seconds": "check (s)"}
#: Parts of event topics by which an event is a problem.
_PROBLEM_TOPICS = ("lost", "remove", "restart", "pause", "terminat", "kill", "fail")
#: Group of entry points whose objects take a `Run`: ``run.plot``, ``run.limits()``, ...
ACCESSORS = "benchkit.run_accessors"


class Run(RunTables):
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
        """Metrics by name, in the units of `METRICS`; metrics without a value are absent."""
        return {name: float(self.tree[name]) for name in METRICS if name in self.tree.data_vars}

    def quality(self) -> pd.DataFrame:
        """Return what the metrics do not say: a row per limit of the measurement.

        Returns
        -------
        DataFrame
            Columns: kind ("absent", "estimated", "cut", "unfinished", "disturbed", "unmeasured"
            or "lost"), names of the metrics concerned, and text.
        """
        rows = json.loads(self.tree.attrs.get("quality") or "[]")
        rows += [{"kind": "lost", "metrics": [], "text": line} for line in self.capture_errors]
        frame = pd.DataFrame(rows, columns=["kind", "metrics", "text"])
        frame["metrics"] = frame["metrics"].map(", ".join)
        return frame

    @property
    def record(self) -> dict[str, Any]:
        """The run's row of the store's index: fields and metrics, flat."""
        return dict(json.loads(self.tree.attrs["record"]))

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
            for name, metric in METRICS.items()
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
            Findings with cost, evidence and what to change. Renders itself in a notebook.
        """
        return self._accessor("diagnose")

    def whatif(self, **changes: Any) -> Any:
        """Predict the duration of this run after a change, by a replay of its graph.

        Parameters
        ----------
        **changes
            ``workers``, ``threads`` (numbers, or lists of numbers), ``transfers``, ``bandwidth``
            (factors), ``groups`` (factors by name of a task group or prefix), ``no_spill``.

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
        return f"<benchkit.Run {self.id[:13]} {self.workload} {self.outcome} {took}{simulated}>"

    def _repr_html_(self) -> str:
        rows = [
            {"metric": METRICS[k].long_name, "value": format_quantity(v, METRICS[k].units)}
            for k, v in self.metrics.items()
        ]
        error = f"<p>{html.escape(self.error)}</p>" if self.error else ""
        return (
            f"<h4>{html.escape(self.workload)}: {html.escape(self.outcome)}"
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
