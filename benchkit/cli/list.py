"""`benchkit list`: what there is."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import Any

import click

from benchkit.cli.options import common, print_json

__all__ = ["list_things"]

_FEW = 30
_THINGS = ["workloads", "environments", "runs", "metrics", "noise"]
_EMPTY = {
    "workloads": "no workloads: see --workloads",
    "runs": "no runs: `benchkit run` measures some",
    "noise": "no runs: `benchkit ab ENV --null-only --blocks 5` measures what noise is told from",
}


@click.command("list")
@click.argument("what", type=click.Choice(_THINGS), default="workloads")
@click.option("--since", metavar="WHEN", help="Runs: since a moment, or an age such as 7d.")
@click.option("--outcome", metavar="NAME", help="Runs: only those that ended so.")
@click.option("--all", "everything", is_flag=True, help=f"Runs: not only the last {_FEW}.")
@common("store", "workloads", "environment", "select", "tag", "json")
def list_things(
    what: str,
    since: str | None,
    outcome: str | None,
    everything: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment: str,
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """List workloads (with the size of their data here), environments, runs, metrics, or noise.

    Noise is how much one run of a workload differs from the next, and how many runs it takes to
    see a change in spite of that. With --json, as facts.json beside workloads it tells others'
    plans.

    \b
    Examples:
      benchkit list workloads -k category:array
      benchkit list runs --since 7d --json
      benchkit list noise --json > workloads/facts.json
    """
    from benchkit.cli import listing
    from benchkit.cli.table import as_table
    from benchkit.experiment.run.api import parse_pairs

    shown: list[dict[str, Any]]
    if what == "runs":
        filters = {**parse_pairs(tags, "--tag"), "outcome": outcome}
        found = listing.runs(store, expression, since=since, **filters)
        if as_json:
            print_json(listing.as_records(found))
            return
        few = found if everything else found.tail(_FEW)
        if len(few) < len(found):
            click.echo(f"the last {_FEW} of {len(found)} runs; --all shows all", err=True)
        shown = [listing.short_run(record) for record in listing.as_records(few)]
    else:
        if what == "workloads":
            rows = listing.workloads(folders, expression, environment, environment_folders)
        elif what == "environments":
            rows = listing.environments(environment_folders)
        elif what == "noise":
            rows = listing.noise(store, expression)
        else:
            rows = listing.metrics()
        if as_json:
            print_json(rows)
            return
        short = {"workloads": listing.short_workload, "noise": listing.short_noise}.get(what)
        shown = rows if short is None else [short(row) for row in rows]
    if not shown:
        click.echo(_EMPTY.get(what, f"no {what}"), err=True)
        return
    on_terminal = sys.stdout.isatty()
    click.echo(as_table(shown, width=get_terminal_size().columns if on_terminal else None))
