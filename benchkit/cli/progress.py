"""Show progress on stderr: a bar on a terminal, a line per measurement elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from benchkit.experiment.run.events import (
    PROGRESS_LOG,
    Event,
    Planned,
    Skipped,
    Started,
    finished_records,
)
from benchkit.formatting import NO_FAILURE, SHOWN_LIMITS, format_seconds, run_limits
from benchkit.measure.secrets import redact_text

if TYPE_CHECKING:
    from benchkit.experiment.run.experiment import Experiment
    from benchkit.measure.discovery import BrokenFile


@contextmanager
def bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    columns = (TextColumn(what), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True,
                  disable=quiet or not console.is_terminal) as progress:  # fmt: skip
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


#: Warning that is shown with --quiet too.
_NOT_ALONE = (
    "warning: another benchkit measures on this machine: on local clusters each disturbs the "
    "times of the other"
)


def show_progress(events: Iterable[Event], *, quiet: bool = False) -> Iterator[Event]:
    """Show the events of an experiment on stderr, and yield them."""
    # Rich itself omits colours for NO_COLOR, and control codes for TERM=dumb.
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
    task = progress.add_task("", total=None, left="")
    n_planned = n_done = 0
    show_arm = False
    limits: set[str] = set()
    with progress, _progress_log_shown(console):
        for event in events:
            if isinstance(event, Planned):
                if not event.is_alone:
                    click.echo(_NOT_ALONE, err=True)
                n_planned = len(event.measurements)
                show_arm = len({measurement.arm for measurement in event.measurements}) > 1
                progress.update(task, total=n_planned)
            elif isinstance(event, Skipped):
                n_done += 1
            elif isinstance(event, Started):
                label = event.measurement.variant
                label += f" in {event.measurement.arm}" if show_arm else ""
                label = redact_text(label)
                left = f"about {format_duration(event.remaining_seconds)} left"
                progress.update(task, completed=n_done, description=label, left=left)
                n_done += 1
                if not on_terminal:
                    console.print(f"[{n_done}/{n_planned}] {label} ({left})", markup=False)
                    sys.stderr.flush()
            else:
                limits |= {*run_limits(event.record)}
                console.print(_result_line(event.record), markup=False)
                losses = event.record.get("capture_losses")
                if losses:  # with --quiet too
                    click.echo(
                        f"warning: {event.record['workload']}: not captured: {losses}", err=True
                    )
            yield event
    for kind in sorted(limits):
        console.print(
            f"{kind}: {SHOWN_LIMITS[kind]}; `benchkit report run RUN` says what", markup=False
        )


class _ConsoleHandler(logging.Handler):
    """Print log messages above the bar."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        self._console.print(f"  {record.getMessage()}", markup=False)


@contextmanager
def _progress_log_shown(console: Console) -> Iterator[None]:
    logger, handler = logging.getLogger(PROGRESS_LOG), _ConsoleHandler(console)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def measure(
    experiment: Experiment, broken: Sequence[BrokenFile], *, quiet: bool
) -> tuple[list[dict[str, Any]], bool]:
    """Run an experiment with progress on stderr, until its end or Ctrl-C."""
    for file in broken:
        click.echo(f"warning: {file}", err=True)
    records: list[dict[str, Any]] = []
    try:
        records.extend(finished_records(show_progress(experiment.run(), quiet=quiet)))
    except KeyboardInterrupt:
        return records, True
    return records, False


def _result_line(record: dict[str, Any]) -> str:
    text = f"  {record['outcome']:13} {format_seconds(record.get('duration')):>10}"
    text += f"  {record['workload']}"
    limits = run_limits(record)
    text += f"  [{', '.join(limits)}]" if limits else ""
    return f"{text}: {record['error']}" if record.get("error") else text


def format_duration(seconds: float) -> str:
    """Return a duration as text, such as "1 h 5 min", "3 min 20 s" or "12 s"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def has_failures(records: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a run failed."""
    return any(record["outcome"] not in NO_FAILURE for record in records)
