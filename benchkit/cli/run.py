"""`benchkit run`: measure workloads, print a table, store the runs."""

from __future__ import annotations

import shlex
import sys
import textwrap

import click

from benchkit.cli.options import FAILED, MeasurementOptions, complete_names, measuring
from benchkit.cli.rows import print_json
from benchkit.formatting import counted
from benchkit.interruption import interrupted_code

#: Largest number of characters of an error in the table.
MAX_ERROR = 60


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_names("workloads"))
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1),
              help="Number of repetitions.")  # fmt: skip
@measuring("environment", "select", "set", "virtual")
def run(names: tuple[str, ...], repeats: int, options: MeasurementOptions) -> None:
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
    from benchkit.experiment.run.api import plan_experiment
    from benchkit.table import Table

    experiment, broken = plan_experiment(
        options.selection(names, [options.environment]),
        repeats=repeats,
        virtual=options.virtual,
        keep_going=True,
        arguments={"command": shlex.join(sys.argv[1:])},
        **options.how,
    )
    was_new = experiment.store.is_new
    records, interrupted = measure(experiment, broken, quiet=options.quiet)
    if interrupted:
        click.echo(f"interrupted: {counted(len(records), 'run')} stored", err=True)
    if options.as_json:
        print_json(records)
    elif records:
        # A single run in a new store has no earlier ones; reading them costs requests to a bucket.
        runs = None if was_new and len(records) == 1 else experiment.store.runs()
        rows = [run_row(record, runs) for record in records]
        for row in rows:  # the whole text was printed when the run ended
            row["error"] = textwrap.shorten(row["error"], MAX_ERROR, placeholder=" ...")
        click.echo(Table(rows).to_text())
        click.echo(f"stored in {experiment.store.path}", err=True)
    if interrupted:
        sys.exit(interrupted_code())
    if has_failures(records):
        sys.exit(FAILED)
