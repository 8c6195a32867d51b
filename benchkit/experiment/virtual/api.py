"""`benchkit.simulate`: predict the durations of a kept run on other clusters, replay first."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd

from benchkit.captured_process import programs_end_at_interrupt
from benchkit.errors import UsageError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.environment.validate import check_settings
from benchkit.experiment.virtual.graph_of_run import graph_of_run, shape_of_run
from benchkit.experiment.virtual.process import VirtualSpec, simulate_in_environment
from benchkit.formatting import counted, format_quantity
from benchkit.measure.arguments import check_count
from benchkit.measure.run_ids import new_id
from benchkit.private_folder import private_folder
from benchkit.simulation.graph import VirtualGraph
from benchkit.simulation.model import Model
from benchkit.simulation.synthetic import make_graph
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.store import Store
from benchkit.table import Table

#: Relative error of the replay above which nothing is predicted.
MAX_REPLAY_ERROR = 0.15
#: Share of the time in which the scheduler is busy above which it limits the duration.
SCHEDULER_BINDS = 0.7
#: Metrics in the table of a simulation.
_METRICS = ("duration", "transfer_bytes", "memory_peak", "n_steals")


@dataclass(frozen=True, repr=False)
class Simulation:
    """Simulated runs of one graph on several clusters."""

    runs: list[Run]  # A run per cluster and draw; each is marked as simulated
    points: list[dict[str, Any]]  # Workers, threads, bandwidth and latency of each run
    # Relative error of the replay of the measured run; None for a synthetic graph.
    replay_error: float | None = None

    @property
    def table(self) -> pd.DataFrame:
        """A row per cluster, medians over draws.

        Columns: workers, threads, bandwidth (B/s), latency (s), duration (s), low and high (s:
        range of the draws, widened by the replay error), transfer_bytes (B), memory_peak (B),
        n_steals, scheduler (share of the time in which it is busy) and binds (whether it limits
        the duration); after latency, the settings with several values.
        """
        rows = []
        for point, runs in self._by_point():
            metrics = pd.DataFrame([run.metrics for run in runs])
            error = abs(self.replay_error or 0.0)
            share = float(np.median([run.simulation["scheduler_busy"] for run in runs]))
            rows.append(
                {
                    **point,
                    "duration": metrics["duration"].median(),
                    "low": metrics["duration"].min() / (1 + error),
                    "high": metrics["duration"].max() * (1 + error),
                    **{name: metrics[name].median() for name in _METRICS[1:]},
                    "scheduler": share,
                    "binds": share > SCHEDULER_BINDS,
                }
            )
        return pd.DataFrame(rows)

    def _by_point(self) -> Iterable[tuple[dict[str, Any], list[Run]]]:
        pairs = zip(self.points, self.runs, strict=True)
        for point, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
            yield point, [run for _, run in group]

    @property
    def swept_settings(self) -> list[str]:
        """Names of the settings with several values."""
        shape = ("workers", "threads", "bandwidth", "latency")
        return [name for name in self.points[0] if name not in shape] if self.points else []

    @property
    def scheduler_binds_at(self) -> int | None:
        """Smallest number of workers with which the scheduler limits the duration, if any."""
        table = self.table
        return int(table.loc[table["binds"], "workers"].min()) if table["binds"].any() else None

    @property
    def sentence(self) -> str:
        """The replay error, and where the scheduler limits the duration."""
        parts = []
        if self.replay_error is not None:
            parts.append(f"replay of the measured run: {self.replay_error:+.1%}")
        if self.scheduler_binds_at is not None:
            parts.append(
                f"the scheduler limits the duration from {self.scheduler_binds_at} workers on"
            )
        return "; ".join(parts) or "the scheduler does not limit the duration"

    def rows(self) -> list[dict[str, str]]:
        """Return the table as text."""
        return [
            {
                "workers": f"{row['workers']}x{row['threads']}",
                "bandwidth": f"{format_quantity(row['bandwidth'], 'B')}/s",
                **{name: str(row[name]) for name in self.swept_settings},
                "duration": format_quantity(row["duration"], "s"),
                "from": format_quantity(row["low"], "s"),
                "to": format_quantity(row["high"], "s"),
                "transferred": format_quantity(row["transfer_bytes"], "B"),
                "peak memory": format_quantity(row["memory_peak"], "B"),
                "steals": f"{row['n_steals']:.0f}",
                "scheduler busy": f"{row['scheduler']:.0%}{' (binds)' if row['binds'] else ''}",
            }
            for row in self.table.to_dict("records")
        ]

    def __repr__(self) -> str:
        return f"<benchkit.Simulation {counted(len(self.runs), 'run')}, {self.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p>Simulated: {self.sentence}</p>{Table(self.rows()).to_html()}"


def simulate(
    run: Run | VirtualGraph,
    *,
    workers: int | Sequence[int] | None = None,
    threads: int | Sequence[int] | None = None,
    memory_limit: int | None = None,
    bandwidth: float | Sequence[float] | None = None,
    latency: float | None = None,
    model: Model | None = None,
    config: Mapping[str, Any] | None = None,
    environment: str | Environment = CURRENT,
    environment_folders: Sequence[str | Path] = (),
    draws: int = 3,
    store: Store | str | Path | None = None,
) -> Simulation:
    """Simulate a kept run on other clusters, with the scheduler of an environment.

    The measured run is replayed first: its error is shown with each prediction, and above 15 %
    nothing is predicted.

    Parameters
    ----------
    run : Run or VirtualGraph
        A measured run of format 2, or a graph of `benchkit.simulation.synthetic`.
    workers, threads : int or sequence of int, optional
        Numbers of workers, and of threads of each; a sequence gives a curve. By default those of
        the run.
    memory_limit : int, optional
        Memory limit of each worker in B.
    bandwidth : float or sequence of float, optional
        Bandwidth of each worker's link in B/s.
    latency : float, optional
        Latency of the network in s.
    model : Model, optional
        Other constants.
    config : mapping, optional
        Dask configuration by dotted name, ``distributed.`` may be absent; a list of values gives a
        curve, too.
    environment : str or Environment, default "current"
        Its packages and configuration are simulated.
    environment_folders : sequence of path, optional
        Folders of environment files.
    draws : int, default 3
        Simulations of each cluster, with other orders and phases.
    store : Store or path, optional
        Store for the runs; by default they are not stored.

    Returns
    -------
    Simulation
        The runs and a table.

    Raises
    ------
    UnsupportedRun, NotRecorded
        The run cannot be simulated.
    UsageError
        An argument is invalid, or the replay error is above 15 %.
    InvalidEnvironmentError
        A name in `config` does not exist.

    Examples
    --------
    >>> run = benchkit.Store().open("latest")  # doctest: +SKIP
    >>> benchkit.simulate(run, workers=[10, 100, 1000]).table  # doctest: +SKIP
    """
    check_count(draws, "draws")
    measured = run if isinstance(run, Run) else None
    graph = graph_of_run(run) if isinstance(run, Run) else run
    base = VirtualSpec(model=model or Model())
    if measured is not None:
        base = replace(base, shape=shape_of_run(measured))
    environment = as_environment(environment, environment_folders)
    simulator = Simulator(graph, build(environment), environment, store)
    names = {name: name.removeprefix("distributed.") for name in config or {}}
    values = {f"distributed.{names[name]}": value for name, value in (config or {}).items()}
    _check_config(list(values), environment, simulator.built)
    specs, points = _sweep_grid(
        base,
        workers=workers,
        threads=threads,
        memory_limit=memory_limit,
        bandwidth=bandwidth,
        latency=latency,
        config=values,
    )
    replay_error = None
    if measured is not None:
        # In the environment as it is: `config` is part of the prediction.
        replays = simulator.run([(base, draw) for draw in range(draws)], keep=False)
        replay_error = float(np.median([r.duration for r in replays])) / measured.duration - 1
        if abs(replay_error) > MAX_REPLAY_ERROR:
            raise UsageError(
                f"run {measured.id[:13]}: its replay differs by {replay_error:+.0%} from the "
                f"measured time: above {MAX_REPLAY_ERROR:.0%} nothing is predicted"
            )
    jobs = [(spec, draw) for spec in specs for draw in range(draws)]
    runs = simulator.run(jobs)
    return Simulation(runs, [point for point in points for _ in range(draws)], replay_error)


def _sweep_grid(
    base: VirtualSpec,
    *,
    workers: Any,
    threads: Any,
    memory_limit: int | None,
    bandwidth: Any,
    latency: float | None,
    config: Mapping[str, Any],
) -> tuple[list[VirtualSpec], list[dict[str, Any]]]:
    """Return the clusters of a sweep, and what differs between them."""
    swept = {name: value for name, value in config.items() if isinstance(value, (list, tuple))}
    fixed = {name: value for name, value in config.items() if name not in swept}
    specs, points = [], []
    constants = {} if latency is None else {"latency": latency}
    limit = base.shape.memory_limit if memory_limit is None else memory_limit
    for n_workers, n_threads, speed, *settings in itertools.product(
        _values(workers, base.shape.workers),
        _values(threads, base.shape.threads),
        _values(bandwidth, base.model.bandwidth),
        *swept.values(),
    ):
        chosen = dict(zip(swept, settings, strict=True))
        try:
            shape = replace(base.shape, workers=n_workers, threads=n_threads, memory_limit=limit)
            model = Model.from_dict({**base.model.to_dict(), **constants, "bandwidth": speed})
        except ValueError as error:
            raise UsageError(str(error)) from None
        specs.append(replace(base, shape=shape, model=model, config={**fixed, **chosen}))
        points.append(
            {
                "workers": n_workers,
                "threads": n_threads,
                "bandwidth": model.bandwidth,
                "latency": model.latency,
                **{name.removeprefix("distributed."): value for name, value in chosen.items()},
            }
        )
    return specs, points


def _values(given: Any, default: Any) -> list[Any]:
    if given is None:
        return [default]
    return list(given) if isinstance(given, (list, tuple, range, np.ndarray)) else [given]


def _check_config(names: Sequence[str], environment: Environment, built: Built) -> None:
    """Raise an error for a setting that the distributed of the environment does not have."""
    nested: dict[str, Any] = {}
    dask.config.set(dict.fromkeys(names), config=nested)
    check_settings(
        Environment(environment.name, dask=nested), {**built.settings(), "packages": built.packages}
    )


def graph_of_name(name: str) -> VirtualGraph:
    """Return a synthetic graph with its default arguments."""
    try:
        return make_graph(name.partition(".")[2])
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass
class Simulator:
    """Simulate one graph in an environment, in one process per processor core."""

    graph: VirtualGraph  # The graph
    built: Built  # The environment as built
    environment: Environment  # The environment
    store: Store | str | Path | None  # Store for the runs

    def run(self, jobs: Sequence[tuple[VirtualSpec, int]], *, keep: bool = True) -> list[Run]:
        """Simulate the graph on clusters."""
        content, experiment = self.graph.to_dict(), new_id()
        facts = {
            "workload": self.graph.name or "graph",
            "category": "graph",
            "environment": self.environment.name,
            "environment_spec": {**self.environment.to_dict(), "built": self.built.to_dict()},
            "experiment": experiment,
        }

        def one(job: tuple[VirtualSpec, int]) -> Run:
            spec, draw = job
            recording = simulate_in_environment(
                self.environment,
                self.built,
                content,
                spec,
                folder=folder,
                facts={**facts, "id": new_id(), "tags": {"draw": str(draw)}},
                draw=draw,
            )
            run = Run(run_from_recording(recording))
            if run.outcome != "ok":
                raise UsageError(run.error)
            return run

        store = self.store if keep else None
        if store is not None and not isinstance(store, Store):
            store = Store(store)
        runs: list[Run] = []
        with private_folder() as name:
            folder = Path(name)
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool, programs_end_at_interrupt(pool):
                for run in pool.map(one, jobs):
                    if store is not None:
                        store.add(run.tree)
                    runs.append(run)
        return runs
