"""`benchkit run`: measure workloads, print a table, store the runs."""

from __future__ import annotations

import shlex
import sys
import textwrap
from typing import Any

import click

from benchkit.cli.options import MEASUREMENT, common, complete_names, print_json
from benchkit.formatting import counted

__all__ = ["run"]

#: Exit codes: a run failed; Ctrl-C.
FAILED, INTERRUPTED = 3, 130

#: Largest number of characters of an error in the table.
MOST_ERROR = 60


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_names("workloads"))
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1),
              help="Number of repetitions.")  # fmt: skip
@common("environment", "select", "set", "virtual", *MEASUREMENT)
def run(
    names: tuple[str, ...],
    repeats: int,
    scale: float,
    params: dict[str, Any],
    virtual: Any,
    capture: str,
    quiet: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment: str,
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: dict[str, str],
    as_json: bool,
) -> None:
    """Measure workloads and store the runs.

    NAMES are workloads or variants, globs allowed; default: all workloads. The column `change`
    compares the duration with earlier comparable runs (their number in parentheses); a star marks
    a change that noise rarely causes.

    \b
    Examples:
      benchkit run sched.task_throughput -n 3
      benchkit run -k "category:array and not slow" -e no-stealing
      benchkit run sched.task_throughput --set n=20000
      benchkit run --virtual workers=1000,threads=2 graph.tree

    Exit code 3: a run failed or gave a wrong answer.
    """
    from benchkit.cli.list import run_row
    from benchkit.cli.progress import has_failures, measure
    from benchkit.experiment.run.api import Selection, plan_experiment
    from benchkit.table import Table

    selection = Selection(
        names,
        select=expression,
        folders=folders,
        params=params,
        environments=[environment],
        environment_folders=environment_folders,
    )
    experiment, broken = plan_experiment(
        selection,
        store=store,
        repeats=repeats,
        scale=scale,
        capture=capture,
        tags=tags,
        virtual=virtual,
        keep_going=True,
        arguments={"command": shlex.join(sys.argv[1:])},
    )
    records, interrupted = measure(experiment, broken, quiet=quiet)
    if interrupted:
        click.echo(f"interrupted: {counted(len(records), 'run')} stored", err=True)
    if as_json:
        print_json(records)
    elif records:
        runs = experiment.store.runs()
        rows = [run_row(record, runs) for record in records]
        for row in rows:  # the whole text was printed when the run ended
            row["error"] = textwrap.shorten(row["error"], MOST_ERROR, placeholder=" ...")
        click.echo(Table(rows).to_text())
        click.echo(f"stored in {experiment.store.path}", err=True)
    if interrupted:
        sys.exit(INTERRUPTED)
    if has_failures(records):
        sys.exit(FAILED)
