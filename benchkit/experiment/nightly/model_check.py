"""Check the models of predictions: both engines replay runs of a night, whose duration is known."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from benchkit.errors import BenchkitError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.virtual.api import Simulator, simulation_job
from benchkit.formatting import run_limits
from benchkit.measure.engines import DASK
from benchkit.predict.change import Change
from benchkit.predict.whatif import Replayed
from benchkit.store.store import Store

#: Number of runs of a night to replay: they take about 20 s of CPU.
MAX_RUNS = 10
#: Number of runs to try, of which some are refused.
MAX_TRIED = 30
#: Largest number of tasks: a simulation of more takes more than 10 s of CPU.
MAX_TASKS = 20_000


def replay_errors(
    store: Store, runs: pd.DataFrame, environments: Mapping[str, Environment]
) -> Iterator[dict[str, Any]]:
    """Yield by how much replays of runs are off, as shares of the durations, a row each.

    Runs of environments that are built are also replayed by the scheduler of these environments.
    """
    simulators = {
        name: Simulator(build(environment), environment, None)
        for name, environment in environments.items()
        if environment.engine == DASK
    }
    n_replayed = 0
    for record in _chosen(runs)[:MAX_TRIED]:
        try:
            replayed = Replayed(store.open(record["id"]))
        except BenchkitError:  # no prediction is made from it either
            continue
        row = {name: record[name] for name in ("workload", "environment", "host")}
        row |= {"run": record["id"], "replay": replayed.base.duration / replayed.duration - 1}
        simulator = simulators.get(str(record["environment"]))
        if simulator is not None:
            try:
                job = simulation_job(None, replayed, None, Change(), {})
                [again] = simulator.run([(*job, 0)], keep=False)
            except BenchkitError:
                continue
            row["simulation"] = again.duration / replayed.duration - 1
        yield row
        n_replayed += 1
        if n_replayed == MAX_RUNS:
            return


def _chosen(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a run of each workload that was not disturbed, in an order by chance."""
    records = [
        {str(name): value for name, value in row.items()}
        for row in runs[runs["outcome"] == "ok"].to_dict("records")
    ]
    usable = [
        record
        for record in records
        if record.get("capture") == "full"
        and 0 < record.get("n_tasks", 0) <= MAX_TASKS
        and "disturbed" not in run_limits(record)
    ]
    usable.sort(key=lambda record: zlib.crc32(str(record["id"]).encode()))
    return list({str(record["workload"]): record for record in usable}.values())
