"""Measure planted changes against the baseline, with a busy neighbour from half-way on."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchkit.cli.progress import show_progress
from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.events import finished_records
from benchkit.experiment.run.experiment import Experiment


def busy(seconds: float) -> None:
    """Keep one core busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(10_000))


def measure_planted(
    folder: Path, workloads: str, variables: str, *, blocks: int, quiet: bool
) -> Experiment:
    """Return the measured experiment of both arms and the null arm.

    Parameters
    ----------
    folder : path
        Empty folder for workloads, environments and store.
    workloads : str
        Text of the file of workloads.
    variables : str
        Variables of the environment with the changes, as YAML.
    blocks : int
        Number of blocks.
    quiet : bool
        Start no neighbour.

    Returns
    -------
    Experiment
        With its runs stored.
    """
    for name in ("w", "e"):
        (folder / name).mkdir()
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
    half = len(experiment.plan) // 2
    with _neighbour() as start:
        for place, _ in enumerate(finished_records(show_progress(experiment.run()))):
            if place == half and not quiet:
                start()
                print("a busy neighbour is there from now on")
    return experiment


@contextmanager
def _neighbour() -> Iterator:
    process = multiprocessing.Process(target=busy, args=(3600,), daemon=True)
    try:
        yield process.start
    finally:
        if process.is_alive():
            process.terminate()
