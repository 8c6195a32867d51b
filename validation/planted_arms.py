"""Measure planted changes against the baseline, with busy neighbours.

In `METRICS`, one workload sleeps 8 % longer in one arm, one holds twice the memory, the others do
not change. In `WORK`, tasks or the scheduler take 10 % more CPU seconds in one arm. In `GROUPS`,
each workload has three task groups, which run one after the other, or in half of the workloads as
chains; in some a group of 2 to 10 % of the run does more in one arm.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchkit.cli.progress import show_progress
from benchkit.experiment.run.api import Selection, plan_experiment, resume_experiment
from benchkit.experiment.run.events import Started
from benchkit.experiment.run.experiment import Experiment

METRICS = """import os, time
import numpy as np
from benchkit.measure import workload

@workload(variants={{"n": list(range({unchanged}))}})
def even(client, scale, *, n):
    "Compute the same in each arm: naps and a little work."
    def work(i):
        time.sleep(0.03)
        return float(np.sort(np.random.default_rng(i).random(400_000))[0])
    return client.map(work, range(8 + n % 4), pure=False)

@workload
def naps(client, scale):
    "Sleep 8 % longer in one arm."
    return client.submit(lambda s: time.sleep(s), 0.8 * (1 + float(os.environ.get("NAP", "0"))))

@workload
def holds(client, scale):
    "Hold twice the memory in one arm."
    def hold(mib):
        kept = np.ones(mib * 2**17)
        time.sleep(1.2)
        return float(kept[0])
    return client.submit(hold, 100 * int(os.environ.get("HOLD", "1")))
"""

GROUPS = """import os
from benchkit.measure import workload

def spin(rounds):
    for _ in range(rounds):
        sum(i * i for i in range(1000))
    return rounds

def load(i, rounds):
    return spin(rounds)

def merge(i, rounds):
    return spin(rounds)

def store(i, rounds):
    return spin(rounds)

@workload(variants={{"n": list(range({workloads}))}})
def grouped(client, scale, *, n):
    "Compute in three task groups; `merge` takes 2 to 10 % of the run."
    share = 0.02 * (1 + n % 5)
    total = 40_000 + 2_000 * (n % 7)
    more = 1 + (float(os.environ.get("MORE", "0")) if n < {planted} else 0)
    parts = {{load: 0.6 * (1 - share), merge: share * more, store: 0.4 * (1 - share)}}
    inputs = range(24)
    futures = []
    for work, part in parts.items():
        futures += client.map(work, inputs, rounds=int(total * part / 24), pure=False)
        if n % 2:
            inputs = futures[-24:]
    return futures
"""

WORK = """import os, time
from distributed.diagnostics.plugin import SchedulerPlugin
from benchkit.measure import workload

def spin(i, seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return i

@workload(variants={{"n": list(range({workloads}))}})
def tasks(client, scale, *, n):
    "Compute for some CPU seconds; 10 % more in one arm."
    more = 1 + (float(os.environ.get("MORE", "0")) if n < {planted} else 0)
    return client.map(spin, range(30), seconds=0.03 * more, pure=False)

@workload(variants={{"n": list(range({workloads}))}})
def sched(client, scale, *, n):
    "Run many small tasks; the scheduler takes more CPU seconds in one arm."
    burn_s = float(os.environ.get("BURN", "0")) if n < {planted} else 0.0

    class Burn(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            if finish == "memory":
                end = time.thread_time() + burn_s
                while time.thread_time() < end:
                    pass

    client.register_plugin(Burn(), name="burn")
    return client.map(lambda i: i, range(500), pure=False)
"""


def busy(seconds: float) -> None:
    """Keep one core busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(10_000))


def measure_planted(
    folder: Path,
    workloads: str,
    variables: str,
    *,
    blocks: int,
    quiet: bool,
    budget_s: float | None = None,
    n_neighbours: int = 1,
) -> tuple[Experiment, bool]:
    """Return the experiment of both arms and the null arm, and whether all of it is measured.

    A number of busy neighbours starts half-way; if there are several, at once. If the folder has an
    experiment, that one is continued; `variables` are those of the environment
    with the changes, as YAML; after `budget_s` nothing more is started.
    """
    if any(folder.glob("store/experiments/*/plan.json")):
        experiment, _ = resume_experiment(folder / "store", "latest")
    else:
        experiment = _planned(folder, workloads, variables, blocks)
    experiment = replace(experiment, budget_s=budget_s, min_blocks=0)
    half = len(experiment.arms) * len(experiment.variants) * blocks // 2
    half = half if n_neighbours == 1 else 0
    with _neighbours(n_neighbours) as start:
        is_busy = quiet
        for event in show_progress(experiment.run()):
            place = event.measurement.order if isinstance(event, Started) else 0
            if place >= half and not is_busy:
                start()
                is_busy = True
                print(f"busy neighbours from now on: {n_neighbours}")
    return experiment, not replace(experiment).plan  # computed again: the plan of what is left


def _planned(folder: Path, workloads: str, variables: str, blocks: int) -> Experiment:
    for name in ("w", "e"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "w" / "own.py").write_text(workloads, encoding="utf-8")
    cluster = "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 1 GiB}\n"
    (folder / "e" / "base.yaml").write_text(cluster, encoding="utf-8")
    changed = f"extends: base\nvariables: {variables}\n"
    (folder / "e" / "planted.yaml").write_text(changed, encoding="utf-8")
    selection = Selection(
        folders=[folder / "w"],
        environments=["base", "planted"],
        environment_folders=[folder / "e"],
        null=True,
    )
    experiment, _ = plan_experiment(selection, store=folder / "store", repeats=blocks)
    return experiment


@contextmanager
def _neighbours(number: int) -> Iterator:
    processes = [
        multiprocessing.Process(target=busy, args=(3600,), daemon=True) for _ in range(number)
    ]

    def start() -> None:
        for process in processes:
            process.start()

    try:
        yield start
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
