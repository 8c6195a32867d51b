"""`benchkit.simulate`: predict durations on other clusters by Dask's own scheduler."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
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
from benchkit.experiment.virtual.process import VirtualSpec, simulate_in_environment
from benchkit.measure.arguments import check_count
from benchkit.measure.run_ids import new_id
from benchkit.predict.answer import Answer, Base, Prediction
from benchkit.predict.change import Change, changes
from benchkit.predict.chunks import CHUNKS_NOTE
from benchkit.predict.refusals import refuse_without_sizes
from benchkit.predict.whatif import Replayed
from benchkit.predict.workflow import Workflow
from benchkit.private_folder import private_folder
from benchkit.simulation.graph import VirtualGraph
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.synthetic import make_graph
from benchkit.simulation.wfformat import read_wfformat
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.store import Store

#: Between which factors a run can change the cost of event loops; a bandwidth that JSON can write.
SCALES = (0.05, 50.0)
MAX_BANDWIDTH = 1e15
#: Constants that are seconds of the scheduler alone.
SCHEDULER_COSTS = (
    "scheduler_call", "scheduler_transition", "balance_per_worker", "update_per_task",
)  # fmt: skip
#: Share of the time in which the scheduler is busy above which it limits the duration.
SCHEDULER_BINDS = 0.7


def simulate(
    run: Run | VirtualGraph,
    *,
    model: Model | None = None,
    config: Mapping[str, Any] | None = None,
    environment: str | Environment = CURRENT,
    environment_folders: Sequence[str | Path] = (),
    draws: int = 3,
    store: Store | str | Path | None = None,
    **options: Any,
) -> Answer:
    """Simulate a kept run on other clusters, with the scheduler of an environment.

    The run itself is simulated first: its error is shown and corrects each prediction, and above
    30 % nothing is predicted.

    Parameters
    ----------
    run : Run or VirtualGraph
        A run of format 2 or later, a graph of `benchkit.simulation.synthetic`, or one of another
        system (`benchkit.simulation.wfformat.read_wfformat`).
    model : Model, optional
        Constants; by default its own for a graph, and those that a run shows for a run.
    config : mapping, optional
        Dask configuration by dotted name, ``distributed.`` may be absent; a list of values gives a
        curve.
    environment : str or Environment, default "current"
        Its packages and configuration are simulated.
    environment_folders : sequence of path, optional
        Folders of environment files.
    draws : int, default 3
        Simulations of each cluster, with other orders and phases.
    store : Store or path, optional
        Store for the runs; by default they are not stored.
    **options
        As of `Run.whatif`: ``workers``, ``threads``, ``memory``, ``bandwidth``, ...; lists of
        values are combined.

    Returns
    -------
    Answer
        Predictions, and the simulated runs.

    Raises
    ------
    NotRecorded
        The run has no task graph.
    UsageError
        The run cannot be simulated, an argument is invalid, or the error is above 30 %.
    InvalidEnvironmentError
        A name in `config` does not exist.

    Examples
    --------
    >>> run = benchkit.Store().open("latest")  # doctest: +SKIP
    >>> benchkit.simulate(run, workers=[10, 100, 1000])  # doctest: +SKIP
    """
    check_count(draws, "draws")
    chosen = list(changes(**options))
    environment = as_environment(environment, environment_folders)
    settings = list(_settings(config or {}))
    points = [(change, all_, swept) for change in chosen for all_, swept in settings]
    replayed = Replayed(run) if isinstance(run, Run) else None
    if replayed is not None:
        refuse_without_sizes(replayed.run, "a simulation")
    graph = run if isinstance(run, VirtualGraph) else None
    jobs = [simulation_job(graph, replayed, model, *point[:2]) for point in points]
    simulator = Simulator(build(environment), environment, store)
    _check_config(list(settings[0][0]), environment, simulator.built)
    base = None
    if replayed is not None:
        # In the environment as it is: `config` is part of the prediction.
        job = simulation_job(None, replayed, model, Change(), {})
        replays = simulator.run([(*job, draw) for draw in range(draws)], keep=False)
        again = float(np.median([each.duration for each in replays]))
        base = Base.of(replayed.run, replayed.given, again, replayed.computing)
    runs = simulator.run([(*job, draw) for job in jobs for draw in range(draws)])
    predictions = [
        _prediction(base, change, swept, spec, runs[number * draws : (number + 1) * draws])
        for number, ((change, _, swept), (_, spec)) in enumerate(zip(points, jobs, strict=True))
    ]
    binds = [each.more["workers"] for each in predictions if each.more["binds"]]
    notes = [f"the scheduler limits the duration from {min(binds)} workers on"] if binds else []
    if base is None or replayed is None:
        notes += [graph.note] if graph and graph.note else []
        return Answer(predictions, note="; ".join(notes), runs=runs)
    notes += [*base.notes, *[CHUNKS_NOTE] * any(change.chunks for change in chosen)]
    return Answer(predictions, replayed.run.id, base.duration, base.error, "; ".join(notes), runs)


def simulation_job(
    graph: VirtualGraph | None,
    replayed: Replayed | None,
    model: Model | None,
    change: Change,
    config: Mapping[str, Any],
) -> tuple[VirtualGraph, VirtualSpec]:
    """Return the graph and the cluster of a simulation."""
    if replayed is None:
        assert graph is not None
        if change.groups or change.no_spill or change.transfers is not None or change.chunks:
            raise UsageError(f"{change}: only a run can be changed like this, no graph")
        shape, constants = change.shape_of(ClusterShape()), model or Model()
    else:
        shape = change.shape_of(replayed.shape)
        # Of the scheduler, each handler has its own cost here.
        given = replayed.on(replace(change, scheduler=None).applied(replayed.given), shape)
        graph = given.virtual_graph(replayed.run, np.maximum(given.seconds - given.disk, 0.0))
        constants = model or model_of(given)
    if model is not None or replayed is None:
        constants = replace(constants, bandwidth=change.bandwidth_of(constants.bandwidth))
    if change.scheduler is not None:
        costs = {name: change.scheduler * getattr(constants, name) for name in SCHEDULER_COSTS}
        constants = replace(constants, **costs)
        for submission in graph.submissions:
            if submission.handling_s is not None:
                submission.handling_s *= change.scheduler
    return graph, VirtualSpec(shape, constants, config=config)


def _delays(model: Model) -> tuple[float, float]:
    """Return the seconds of event loops to the next task of a thread, and to a dependent task.

    Without waits for a batch of messages and the network.
    """
    end = model.thread_switch + model.worker_call + 2 * model.worker_transition
    start = model.execute + model.thread_switch
    message = model.batch_write + model.message_write + model.batch_read + model.message_read
    scheduler = model.scheduler_call + 3 * model.scheduler_transition
    worker = model.worker_call + 3 * model.worker_transition
    return end + start, end + 2 * message + scheduler + worker + start


def model_of(given: Workflow) -> Model:
    """Return constants with the bandwidth and the delays that a run shows."""
    model = Model()
    handoff, dispatch = _delays(model)
    if given.handoff < given.dispatch:
        scale = given.handoff / handoff
    else:  # no task waited for a thread
        scale = (given.dispatch - 2 * model.latency) / dispatch
    bandwidth = min(given.bandwidth, MAX_BANDWIDTH)
    return replace(model, scale=float(np.clip(scale, *SCALES)), bandwidth=bandwidth)


def _prediction(
    base: Base | None,
    change: Change,
    swept: Mapping[str, Any],
    spec: VirtualSpec,
    runs: Sequence[Run],
) -> Prediction:
    """Return the prediction of a change from its draws."""
    metrics = pd.DataFrame([run.metrics for run in runs])
    low, middle, high = (float(metrics["duration"].quantile(share)) for share in (0, 0.5, 1))
    texts = [str(change)] if change != Change() or not swept else []
    text = " ".join([*texts, *(f"--set {name}={value}" for name, value in swept.items())])
    found = Prediction(text, middle, low, high, None)
    if base is not None:
        found = base.predict(text, spec.shape, (low, middle, high), change.reach)
    share = float(np.median([run.simulation["scheduler_busy"] for run in runs]))
    more = {
        "workers": spec.shape.workers,
        "threads": spec.shape.threads,
        **found.more,
        "bandwidth": spec.model.bandwidth,
        **swept,
        **{name: metrics[name].median() for name in ("transfer_bytes", "memory_peak", "n_steals")},
        "scheduler": share,
        "binds": share > SCHEDULER_BINDS,
    }
    return replace(found, more=more)


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield combinations of the settings' values: all of them by full name, and the swept ones."""
    names = [name.removeprefix("distributed.") for name in config]
    several = {
        name: value
        for name, value in zip(names, config.values(), strict=True)
        if isinstance(value, (list, tuple))
    }
    fixed = {
        f"distributed.{name}": value
        for name, value in zip(names, config.values(), strict=True)
        if name not in several
    }
    for values in itertools.product(*several.values()):
        swept = dict(zip(several, values, strict=True))
        yield fixed | {f"distributed.{name}": value for name, value in swept.items()}, swept


def _check_config(names: Sequence[str], environment: Environment, built: Built) -> None:
    """Raise an error for a setting that the distributed of the environment does not have."""
    nested: dict[str, Any] = {}
    dask.config.set(dict.fromkeys(names), config=nested)
    check_settings(
        Environment(environment.name, dask=nested), {**built.settings(), "packages": built.packages}
    )


def graph_of_name(name: str) -> VirtualGraph:
    """Return a synthetic graph with its default arguments, or that of a file in WfFormat."""
    try:
        if name.endswith(".json"):
            return read_wfformat(Path(name))
        return make_graph(name.partition(".")[2])
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass
class Simulator:
    """Simulate graphs in an environment, in one process per processor core."""

    built: Built  # The environment as built
    environment: Environment  # The environment
    store: Store | str | Path | None  # Store for the runs

    def run(
        self, jobs: Sequence[tuple[VirtualGraph, VirtualSpec, int]], *, keep: bool = True
    ) -> list[Run]:
        """Simulate graphs on clusters, each with the number of a draw."""
        experiment = new_id()
        facts = {
            "category": "graph",
            "environment": self.environment.name,
            "environment_spec": {**self.environment.to_dict(), "built": self.built.to_dict()},
            "experiment": experiment,
        }

        def one(job: tuple[VirtualGraph, VirtualSpec, int]) -> Run:
            graph, spec, draw = job
            own = {"id": new_id(), "workload": graph.name or "graph", "tags": {"draw": str(draw)}}
            recording = simulate_in_environment(
                self.environment,
                self.built,
                graph.to_dict(),
                spec,
                folder=folder,
                facts={**facts, **own},
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
