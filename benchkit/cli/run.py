"""`benchkit run`: measure workloads, print a table, store the runs."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from benchkit.cli.options import common, print_json

__all__ = ["run"]

FAILED = 3


@click.command()
@click.argument("names", nargs=-1)
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1), help="Times.")
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the full size of the data.",
)
@click.option("--set", "sets", multiple=True, metavar="P=V", help="Set a workload's parameter.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the table.")
@common("capture", "prometheus", "store", "workloads", "environment", "select", "tag", "json")
def run(
    names: tuple[str, ...],
    repeats: int,
    scale: float,
    sets: tuple[str, ...],
    capture: str,
    quiet: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment: str,
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure workloads, print a table, keep the runs.

    NAMES are workloads or variants, globs allowed; without any, all are meant. The column
    `change` is the duration against the comparable runs before (their number in brackets); a
    star says that chance alone would rarely do that.

    \b
    Examples:
      benchkit run sched.task_throughput -n 3
      benchkit run -k "category:array and not slow" -e no-stealing
      benchkit run sched.task_throughput --set n=20000

    Exit code 3: a run failed or gave a wrong answer.
    """
    from benchkit.cli.list import run_row
    from benchkit.cli.progress import show_progress
    from benchkit.experiment.run.api import parse_pairs, plan_experiment
    from benchkit.experiment.run.events import finished_records
    from benchkit.formatting import Table

    experiment, broken = plan_experiment(
        names,
        select=expression,
        environments=[environment],
        environment_folders=environment_folders,
        folders=folders,
        params=parse_pairs(sets, "--set", typed=True),
        store=store,
        repeats=repeats,
        scale=scale,
        capture=capture,
        tags=parse_pairs(tags, "--tag"),
        words={"command": shlex.join(sys.argv[1:])},
    )
    for file in broken:
        click.echo(f"warning: {file}", err=True)
    records: list[dict[str, Any]] = []
    interrupted = False
    try:
        records.extend(finished_records(show_progress(experiment.run(), quiet=quiet)))
    except KeyboardInterrupt:
        interrupted = True
        click.echo(f"interrupted: {len(records)} runs are kept", err=True)
    if as_json:
        print_json(records)
    elif records:
        runs = experiment.store.runs()
        click.echo(Table([run_row(record, runs) for record in records]).to_text())
        click.echo(f"kept in {experiment.store.path}", err=True)
    if interrupted:
        sys.exit(130)
    if any(record["outcome"] not in ("ok", "skipped") for record in records):
        sys.exit(FAILED)
