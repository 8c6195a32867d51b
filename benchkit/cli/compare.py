"""`benchkit compare`: two sets of runs that are there already."""

from __future__ import annotations

import sys

import click

from benchkit.cli.options import common, print_json

__all__ = ["compare"]

WORSE, TOO_FEW = 1, 4


@click.command()
@click.option("--baseline", required=True, metavar="SEL", help="Runs to hold the others against.")
@click.option("--contender", "contenders", required=True, multiple=True, metavar="SEL",
              help="Runs in question; may be given again.")  # fmt: skip
@click.option("--null", metavar="SEL", help="Runs of the baseline once more.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Judge these; or all.")
@click.option("--all", "all_rows", is_flag=True, help="Also list what did not change.")
@common("store", "json")
def compare(
    baseline: str,
    contenders: tuple[str, ...],
    null: str | None,
    metrics: tuple[str, ...],
    all_rows: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Compare sets of runs in the store.

    SEL is one or several of these, with commas between them: `env:NAME`, `tag:NAME=VALUE`,
    `param:NAME=VALUE`, `experiment:ID`, `arm:NAME`, `workload:GLOB`, `host:NAME`, `dask:VERSION`,
    `commit:SHA`, `since:WHEN`, `until:WHEN`. Runs that were not interleaved differ by whatever the
    machine did in between.

    \b
    Examples:
      benchkit compare --baseline tag:variant=A --contender tag:variant=B
      benchkit compare --baseline env:baseline,until:7d --contender env:baseline,since:7d

    Exit code 1: something is worse; 4: too few runs to compare.
    """
    from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, check_metrics
    from benchkit.analysis.compare.compare_runs import compare as compare_runs
    from benchkit.store.selector import select_runs
    from benchkit.store.store import Store

    chosen = check_metrics(metrics or DEFAULT_METRICS)
    home = Store(store, create=False)
    report = compare_runs(
        select_runs(home, baseline),
        {name: select_runs(home, name) for name in contenders},
        null=None if null is None else select_runs(home, null),
        metrics=chosen,
        names=(baseline, "contender"),
    )
    if as_json:
        print_json(report.to_records())
    else:
        click.echo(report.to_table(all_rows=all_rows))
        click.echo(f"\n{report.sentence}")
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    if len(report.worse):
        sys.exit(WORSE)
    if not report.testable:
        sys.exit(TOO_FEW)
