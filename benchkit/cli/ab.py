"""`benchkit ab`: environments against a baseline, interleaved, with a verdict."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from benchkit.cli.options import as_json_text, common, print_json

__all__ = ["ab"]

DEFAULT_BLOCKS = 5
WORSE, FAILED, TOO_FEW, INTERRUPTED = 1, 3, 4, 130


@click.command()
@click.argument("environments", nargs=-1, metavar="BASELINE [OTHER]...")
@click.option("-n", "blocks", type=click.IntRange(1), help=f"Blocks; default {DEFAULT_BLOCKS}.")
@click.option("--adaptive", is_flag=True, help="Stop a workload when its verdict is settled.")
@click.option("--budget", metavar="TIME", help="As many blocks as fit: 20m, 1h30m, 5USD.")
@click.option("--no-null", is_flag=True, help="Leave out the baseline against itself.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=V,V", help="Arms from a grid.")
@click.option("--null-only", is_flag=True, help="Only the baseline against itself: its noise.")
@click.option(
    "--order",
    type=click.Choice(["abba", "random"]),
    default="abba",
    show_default=True,
    help="Order of the arms in a block.",
)
@click.option("--seed", default=0, show_default=True, help="For --order random.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Judge these; or all.")
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of the full size of the data.")  # fmt: skip
@click.option("--set", "sets", multiple=True, metavar="P=V", help="Set a workload's parameter.")
@click.option("--resume", metavar="ID", help="Go on with an experiment: its id, or latest.")
@click.option("--output", metavar="DIR", help="Also write report and table here.")
@click.option("--no-report", is_flag=True, help="No page, only the table.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@common("capture", "prometheus", "store", "workloads", "environments", "select", "tag", "json")
def ab(
    environments: tuple[str, ...],
    blocks: int | None,
    adaptive: bool,
    budget: str | None,
    no_null: bool,
    sweeps: tuple[str, ...],
    null_only: bool,
    order: str,
    seed: int,
    metrics: tuple[str, ...],
    scale: float,
    sets: tuple[str, ...],
    capture: str,
    resume: str | None,
    output: str | None,
    no_report: bool,
    quiet: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Hold environments against a baseline: measure interleaved, judge, report.

    BASELINE and OTHER are environments (`benchkit list environments`). Every block runs each
    workload once in each arm, back to back; the baseline runs twice, so that its difference from
    itself shows what noise does. Ctrl-C reports on what there is; --resume goes on.

    \b
    Examples:
      benchkit ab baseline no-stealing -k tag:quick -n 5
      benchkit ab baseline release-2023.4.1 -k category:join --budget 20m
      benchkit ab baseline --sweep cluster.n_workers=2,4
      benchkit ab --resume latest

    Exit code 1: something is worse; 3: a run failed; 4: too few runs to compare.
    """
    from benchkit.analysis.compare.compare_runs import (
        DEFAULT_METRICS,
        check_metrics,
        compare_experiment,
    )
    from benchkit.cli.abplan import make_plan, say_plan
    from benchkit.cli.progress import watched
    from benchkit.errors import UsageError
    from benchkit.experiment.run.api import parse_pairs
    from benchkit.experiment.run.sweep import parse_sweeps

    if adaptive and blocks:
        raise UsageError("--adaptive -n: an adaptive plan finds the number of blocks itself")
    chosen = check_metrics(metrics or DEFAULT_METRICS)
    experiment, estimate, pace, broken = make_plan(
        environments,
        resume=resume,
        blocks=blocks or DEFAULT_BLOCKS,
        blocks_given=blocks is not None,
        adaptive=adaptive,
        budget=budget,
        null=not no_null,
        null_only=null_only,
        sweeps=parse_sweeps(sweeps),
        store=store,
        expression=expression,
        folders=folders,
        environment_folders=environment_folders,
        params=parse_pairs(sets, "--set", typed=True),
        order=order,
        seed=seed,
        scale=scale,
        capture=capture,
        tags=parse_pairs(tags, "--tag"),
        words={"command": shlex.join(sys.argv[1:])},
    )
    for file in broken:
        click.echo(f"warning: {file}", err=True)
    if not quiet:
        say_plan(experiment, estimate, pace)
    records: list[dict[str, Any]] = []
    interrupted = False
    try:
        for record in watched(experiment, estimate, quiet=quiet, skip=pace.skip):
            pace.saw(record)
            records.append(record)
    except KeyboardInterrupt:
        interrupted = True
        click.echo(f"interrupted; `benchkit ab --resume {experiment.id[:13]}` goes on", err=True)
    if not quiet and pace.n_saved:
        click.echo(f"{pace.n_saved} runs were saved: their verdict was settled", err=True)
    if not quiet and pace.n_over:
        click.echo(f"{pace.n_over} runs were left out: the budget is used up", err=True)
    report = compare_experiment(experiment.store.runs(), experiment.id, metrics=chosen)
    if as_json:
        print_json(report.to_records())
    else:
        click.echo(report.to_table())
        click.echo(f"\n{report.sentence}")
        for warning in report.warnings:
            click.echo(f"warning: {warning}", err=True)
    if not no_report:
        _write_report(experiment, report, chosen, output, quiet)
    if interrupted:
        sys.exit(INTERRUPTED)
    if len(report.worse):
        sys.exit(WORSE)
    if any(record["outcome"] not in ("ok", "skipped") for record in records):
        sys.exit(FAILED)
    if not report.testable:
        sys.exit(TOO_FEW)


def _write_report(
    experiment: Any, report: Any, metrics: tuple[str, ...], output: str | None, quiet: bool
) -> None:
    """Write the page, or say in a line why there is none: the measurements are what counts."""
    from benchkit.errors import BenchkitError
    from benchkit.show.reports.reports import ab_report

    try:
        page = ab_report(experiment.store, experiment.id, metrics=metrics, folder=output)
    except BenchkitError as error:
        click.echo(f"warning: no page was written: {error}", err=True)
        return
    page.with_suffix(".md").write_text(report.to_markdown(), encoding="utf-8")
    page.with_suffix(".json").write_text(as_json_text(report.to_records()), encoding="utf-8")
    if not quiet:
        click.echo(f"report: {page}", err=True)
