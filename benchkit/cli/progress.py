"""What is going on, on stderr: a bar on a terminal, a line per measurement elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from benchkit.experiment.run.estimate import Estimate
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import Measurement
from benchkit.formatting import format_seconds

__all__ = ["bar", "roughly", "watched"]


@contextmanager
def bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, and nothing elsewhere; gives what to call with done and total."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    columns = (TextColumn(what), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True,
                  disable=quiet or not console.is_terminal) as progress:  # fmt: skip
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def watched(
    experiment: Experiment,
    estimate: Estimate,
    *,
    quiet: bool = False,
    skip: Callable[[Measurement], bool] = lambda measurement: False,
) -> Iterator[dict[str, Any]]:
    """Run an experiment and tell on stderr how far it is.

    Parameters
    ----------
    experiment : Experiment
        What runs.
    estimate : Estimate
        What knows how long it takes.
    quiet : bool, default False
        Say nothing.
    skip : callable
        Asked whether a measurement is still worth it.

    Yields
    ------
    dict
        The record of each run.
    """
    n_planned = len(experiment.plan())
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
    task = progress.add_task("", total=n_planned, left="")
    several = len(experiment.arms) > 1
    began = time.monotonic()
    place = 0

    def before(measurement: Measurement) -> None:
        nonlocal began, place
        began, place = time.monotonic(), place + 1
        what = f"{measurement.variant} in {measurement.arm}" if several else measurement.variant
        left = f"about {roughly(estimate.left_s)} left"
        progress.update(task, completed=place - 1, description=what, left=left)
        if not on_terminal:
            console.print(f"[{place}/{n_planned}] {what} ({left})", markup=False)
            sys.stderr.flush()

    def dropped(measurement: Measurement) -> bool:
        nonlocal place
        if not skip(measurement):
            return False
        place += 1
        estimate.dropped(measurement.variant)
        return True

    with progress:
        for record in experiment.run(before, dropped):
            if record["outcome"] != "infrastructure":  # or it is tried again
                elapsed = time.monotonic() - began
                estimate.finished(record["workload"], elapsed, record.get("duration"))
            console.print(_ended(record), markup=False)
            yield record


def _ended(record: dict[str, Any]) -> str:
    text = f"  {record['outcome']:13} {format_seconds(record.get('duration')):>10}"
    text += f"  {record['workload']}"
    return f"{text}: {record['error']}" if record.get("error") else text


def roughly(seconds: float) -> str:
    """Return seconds as people say them of something to wait for."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
