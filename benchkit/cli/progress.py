"""What is going on, on stderr: a bar on a terminal, a line per measurement elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from benchkit.experiment.estimate import Estimate, known_durations
from benchkit.experiment.experiment import Experiment, Measurement
from benchkit.store.text import format_seconds

__all__ = ["watched"]


def watched(experiment: Experiment, *, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """Run an experiment and tell on stderr how far it is.

    Parameters
    ----------
    experiment : Experiment
        What runs.
    quiet : bool, default False
        Say nothing.

    Yields
    ------
    dict
        The record of each run.
    """
    plan = experiment.plan()
    estimate = Estimate(
        [measurement.variant for measurement in plan], known_durations(experiment.store)
    )
    # Rich leaves out colours for NO_COLOR, and control codes for TERM=dumb, by itself.
    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    on_terminal = console.is_terminal and not console.is_dumb_terminal and not quiet
    progress = Progress(
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not on_terminal,
    )
    task = progress.add_task("", total=len(plan), left="")
    began = time.monotonic()

    def before(measurement: Measurement) -> None:
        nonlocal began
        began = time.monotonic()
        left = f"about {_roughly(estimate.left_s)} left"
        progress.update(task, description=measurement.variant, left=left)
        if not on_terminal:
            place = f"[{measurement.order + 1}/{len(plan)}]"
            console.print(f"{place} {measurement.variant} ({left})", markup=False)
            sys.stderr.flush()

    with progress:
        for record in experiment.run(before):
            estimate.finished(time.monotonic() - began, record.get("duration"))
            progress.advance(task)
            console.print(_ended(record), markup=False)
            yield record


def _ended(record: dict[str, Any]) -> str:
    text = f"  {record['outcome']:13} {format_seconds(record.get('duration')):>10}"
    text += f"  {record['workload']}"
    return f"{text}: {record['error']}" if record.get("error") else text


def _roughly(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
