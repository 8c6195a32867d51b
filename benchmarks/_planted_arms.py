"""Measure planted changes against the baseline, with a busy neighbour from half-way on."""

from __future__ import annotations

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
) -> tuple[Experiment, bool]:
    """Return the experiment of both arms and the null arm, and whether it is measured.

    Parameters
    ----------
    folder : path
        For workloads, environments and store. If it has an experiment, that one is continued.
    workloads : str
        Text of the file of workloads.
    variables : str
        Variables of the environment with the changes, as YAML.
    blocks : int
        Number of blocks.
    quiet : bool
        Start no neighbour.
    budget_s : float, optional
        Seconds after which nothing more is started; call again to continue.

    Returns
    -------
    experiment : Experiment
        With its runs stored.
    is_complete : bool
        Whether all of them are measured.
    """
    if any(folder.glob("store/experiments/*/plan.json")):
        experiment, _ = resume_experiment(folder / "store", "latest")
    else:
        experiment = _planned(folder, workloads, variables, blocks)
    experiment = replace(experiment, budget_s=budget_s, min_blocks=0)
    half = len(experiment.arms) * len(experiment.variants) * blocks // 2
    with _neighbour() as start:
        is_busy = quiet
        for event in show_progress(experiment.run()):
            place = event.measurement.order if isinstance(event, Started) else 0
            if place >= half and not is_busy:
                start()
                is_busy = True
                print("a busy neighbour is there from now on")
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
def _neighbour() -> Iterator:
    process = multiprocessing.Process(target=busy, args=(3600,), daemon=True)
    try:
        yield process.start
    finally:
        if process.is_alive():
            process.terminate()
