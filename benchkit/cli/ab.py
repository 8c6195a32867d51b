"""`benchkit ab`: environments against a baseline, interleaved, with a verdict."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import as_json_text, common, print_json

if TYPE_CHECKING:
    from benchkit.experiment.run.experiment import Experiment
    from benchkit.measure.discovery import BrokenFile

__all__ = ["ab", "make_plan", "print_plan"]

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
    from benchkit.cli.progress import show_progress
    from benchkit.errors import UsageError
    from benchkit.experiment.run.api import parse_pairs
    from benchkit.experiment.run.events import finished_records
    from benchkit.experiment.run.sweep import parse_sweeps

    if adaptive and blocks:
        raise UsageError("--adaptive -n: an adaptive plan finds the number of blocks itself")
    chosen = check_metrics(metrics or DEFAULT_METRICS)
    experiment, broken = make_plan(
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
        select=expression,
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
        print_plan(experiment)
    records: list[dict[str, Any]] = []
    interrupted = False
    try:
        records.extend(finished_records(show_progress(experiment.run(), quiet=quiet)))
    except KeyboardInterrupt:
        interrupted = True
        click.echo(f"interrupted; `benchkit ab --resume {experiment.id[:13]}` goes on", err=True)
    policy = experiment.stop_policy
    if not quiet and policy.n_settled:
        click.echo(f"skipped {policy.n_settled} runs: verdict already decided", err=True)
    if not quiet and policy.n_over_budget:
        click.echo(f"skipped {policy.n_over_budget} runs: budget used up", err=True)
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
    """Write the report page; print one line if that fails, because the runs are already stored."""
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


def make_plan(
    environments: Sequence[str],
    *,
    resume: str | None,
    blocks: int,
    blocks_given: bool,
    adaptive: bool,
    budget: str | None,
    null: bool,
    null_only: bool,
    store: str | None,
    words: dict[str, Any],
    **options: Any,
) -> tuple[Experiment, list[BrokenFile]]:
    """Return the experiment of `benchkit ab`, and the workload files that cannot be loaded.

    `options` are those of `benchkit.experiment.run.api.plan_experiment`.

    Raises
    ------
    UsageError
        Fewer than two arms, arms in addition to --resume, or a budget in USD without a price.
    """
    from benchkit.errors import UsageError
    from benchkit.experiment.run.api import plan_experiment, resume_experiment
    from benchkit.experiment.run.estimate import (
        WORKER_PRICE_KEY,
        Estimate,
        known_durations,
        worker_price,
    )
    from benchkit.experiment.run.stopping import LOOKS, blocks_within, parse_budget

    budget_s, budget_usd = (None, None) if budget is None else parse_budget(budget)
    if resume is not None:
        if environments:
            raise UsageError(f"--resume {resume}: an experiment has its arms already: name none")
        experiment, broken = resume_experiment(store, resume)
        adaptive = adaptive or bool(experiment.words.get("adaptive"))
    else:
        if null_only and len(environments) != 1:
            raise UsageError("--null-only holds one environment against itself: name one")
        if not null_only and len(environments) < (1 if options.get("sweeps") else 2):
            raise UsageError(
                "an A/B needs a baseline and another environment: "
                "see `benchkit list environments`, or --null-only"
            )
        experiment, broken = plan_experiment(
            environments=environments,
            null=null or null_only,
            store=store,
            repeats=LOOKS[-1] if adaptive else blocks,
            words={**words, "adaptive": adaptive},
            **options,
        )
    for arm in experiment.arms if budget_usd is not None else ():
        if worker_price(arm.environment) is None:
            raise UsageError(
                f"--budget {budget}: no price is known for arm {arm.name!r}: set "
                f"{WORKER_PRICE_KEY} in Dask's configuration, USD per worker and hour"
            )
    repeats = experiment.repeats
    if resume is None and not adaptive and not blocks_given:
        if budget_usd is not None:
            repeats = LOOKS[-1]  # an upper limit: the budget ends the experiment
        elif budget_s is not None:
            durations = known_durations(experiment.store, experiment.known_workloads)
            run_seconds = Estimate([], durations).run_seconds
            round_s = sum(run_seconds(variant.name) for variant in experiment.variants)
            repeats = blocks_within(budget_s, len(experiment.arms) * round_s)
    planned = replace(
        experiment, repeats=repeats, budget_s=budget_s, budget_usd=budget_usd, adaptive=adaptive
    )
    return planned, broken


def print_plan(experiment: Experiment) -> None:
    """Print on stderr what will be measured and how long it takes."""
    from benchkit.analysis.run.noise import describe_detectable_changes
    from benchkit.cli.progress import format_duration
    from benchkit.experiment.run.known_workloads import known_noise
    from benchkit.experiment.run.plan import NULL_ARM

    for place, arm in enumerate(experiment.arms):
        role = "baseline" if not place else "null    " if arm.name == NULL_ARM else "against "
        description = arm.environment.description or arm.environment.name
        if arm.name == NULL_ARM:
            description = "the baseline once more"
        click.echo(f"{role}  {arm.name:20}  {description}", err=True)
    names = [variant.name for variant in experiment.variants]
    size = f"{len(experiment.arms)} arms x {len(names)} workloads x {experiment.repeats} blocks"
    limit = "at most " if experiment.adaptive or experiment.budget_usd is not None else ""
    click.echo(
        f"experiment {experiment.id}: {limit}{len(experiment.plan)} runs ({size}), "
        f"about {format_duration(experiment.estimate.remaining_seconds)}",
        err=True,
    )
    noise = known_noise(experiment.store, names, experiment.known_workloads)
    detectable = describe_detectable_changes(noise, experiment.repeats)
    if detectable:
        click.echo(f"{detectable} (of {len(names)} workloads)", err=True)
