"""`benchkit compare`: compare sets of stored runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from benchkit.cli.options import TOO_FEW, WORSE, common
from benchkit.cli.rows import open_store, print_json

if TYPE_CHECKING:
    from benchkit.analysis.compare.comparison import Comparison
    from benchkit.store.store import Store


@click.command("compare")
@click.option("--baseline", required=True, metavar="SEL", help="Baseline runs.")
@click.option("--contender", "contenders", required=True, multiple=True, metavar="SEL",
              help="Runs to compare with the baseline; repeatable.")  # fmt: skip
@click.option("--null", metavar="SEL", help="More runs of the baseline, to measure the noise.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME",
              help="Metric to compare, repeatable; or all.")  # fmt: skip
@click.option("--all", "all_rows", is_flag=True, help="Also list unchanged metrics.")
@common("store", "json")
def compare_command(
    baseline: str,
    contenders: tuple[str, ...],
    null: str | None,
    metrics: tuple[str, ...],
    all_rows: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Compare sets of runs in the store.

    SEL is one or more of these, separated by commas: `env:NAME`, `tag:NAME=VALUE`,
    `param:NAME=VALUE`, `experiment:ID`, `arm:NAME`, `workload:GLOB`, `category:NAME`, `host:NAME`,
    `dask:VERSION`, `distributed:VERSION`, `python:VERSION`, `commit:SHA`, `build:HASH`,
    `outcome:NAME`, `since:WHEN`, `until:WHEN`. Runs that were not interleaved can also differ
    because the state of the machine changed.

    \b
    Examples:
      benchkit compare --baseline tag:variant=A --contender tag:variant=B
      benchkit compare --baseline param:method=apply --contender param:method=sum
      benchkit compare --baseline env:baseline,until:7d --contender env:baseline,since:7d

    Exit code 1: a metric is worse; 4: too few runs to compare.
    """
    run_store = open_store(store)
    comparison = compare_selections(run_store, baseline, contenders, null=null, metrics=metrics)
    if as_json:
        print_json(comparison.to_records())
    else:
        click.echo(comparison.to_table(all_rows=all_rows))
        click.echo(f"\n{comparison.sentence}")
    for warning in comparison.warnings:
        click.echo(f"warning: {warning}", err=True)
    if comparison.is_worse:
        sys.exit(WORSE)
    if not comparison.testable:
        sys.exit(TOO_FEW)


def compare_selections(
    run_store: Store,
    baseline: str,
    contenders: Sequence[str],
    *,
    null: str | None = None,
    metrics: Sequence[str] = (),
) -> Comparison:
    """Compare selections of runs."""
    from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, compare
    from benchkit.analysis.compare.explain import with_causes
    from benchkit.analysis.compare.run_groups import with_composition
    from benchkit.store.filters import select_sets

    sets = select_sets(run_store, [baseline, *contenders, *([null] if null else [])])
    comparison = compare(
        sets[baseline],
        {name: sets[name] for name in contenders},
        null=sets[null] if null else None,
        metrics=metrics or DEFAULT_METRICS,
        names=(baseline, "contender"),
    )
    return with_composition(with_causes(comparison, run_store.open), run_store)
