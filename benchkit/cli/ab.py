"""`benchkit ab`: environments against a baseline, interleaved, with a verdict."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import (
    FAILED,
    TOO_FEW,
    WORSE,
    MeasurementOptions,
    complete_names,
    measuring,
)
from benchkit.cli.rows import as_json_text, print_json
from benchkit.errors import NotEnoughRuns, UsageError
from benchkit.formatting import counted
from benchkit.interruption import interrupted_code
from benchkit.whole_file import check_folder

if TYPE_CHECKING:
    from pathlib import Path

    from benchkit.analysis.compare.comparison import Comparison
    from benchkit.experiment.run.api import Selection
    from benchkit.experiment.run.experiment import Experiment
    from benchkit.measure.discovery import BrokenFile

DEFAULT_BLOCKS = 5


@click.command()
@click.argument(
    "names",
    nargs=-1,
    metavar="BASELINE [OTHER]... [WORKLOAD]...",
    shell_complete=complete_names("environments", "workloads"),
)
@click.option("-n", "blocks", type=click.IntRange(1), help=f"Blocks; default {DEFAULT_BLOCKS}.")
@click.option("--adaptive", is_flag=True, help="Measure a workload until its verdict is decided.")
@click.option("--budget", metavar="TIME", help="Measure as many blocks as fit: 20m, 1h30m, 5USD.")
@click.option("--no-null", is_flag=True, help="Omit the null arm: the baseline measured twice.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=V,V",
              help="Arms: cluster.n_workers=2,4 or packages.dask=2026.7.1,2026.8.0.")  # fmt: skip
@click.option("--null-only", is_flag=True, help="Measure only the baseline, twice: the noise.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME",
              help="Metric to compare, repeatable; or all.")  # fmt: skip
@click.option("--resume", metavar="ID", help="Continue an experiment: its id, or latest.")
@click.option("-o", "--output", metavar="DIR",
              help="Folder of report and table; default: in the store.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="Do not write the report page.")
@measuring("select", "set", "virtual")
def ab(
    names: tuple[str, ...],
    blocks: int | None,
    adaptive: bool,
    budget: str | None,
    no_null: bool,
    sweeps: tuple[str, ...],
    null_only: bool,
    metrics: tuple[str, ...],
    resume: str | None,
    output: str | None,
    no_report: bool,
    options: MeasurementOptions,
) -> None:
    """Compare environments with a baseline (A/B).

    BASELINE and OTHER are environments (`benchkit list environments`); names of workloads select
    these. Each block runs each workload once in each arm, back to back. The baseline is measured
    twice: the difference of the two shows the noise. Ctrl-C reports on the runs so far; --resume
    continues.

    \b
    Examples:
      benchkit ab baseline no-stealing -k tag:quick -n 5
      benchkit ab baseline no-stealing sched.tree array.basic_sum
      benchkit ab baseline release-2023.4.1 -k category:join --budget 20m
      benchkit ab baseline --sweep cluster.n_workers=2,4
      benchkit ab baseline array.sum --sweep packages.dask=2024.11.2,2024.12.1
      benchkit ab baseline etl.group --sweep param.method=apply,sum
      benchkit ab baseline no-stealing -k profile:virtual --virtual workers=20
      benchkit ab --resume latest

    Exit code 1: something is worse; 3: a run failed; 4: too few runs to compare.
    """
    from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, compare_experiment
    from benchkit.analysis.compare.explain import with_causes
    from benchkit.analysis.compare.run_groups import with_composition
    from benchkit.cli.progress import has_failures, measure
    from benchkit.experiment.run.ab import split_names
    from benchkit.experiment.run.api import check_metrics_to_measure, resume_experiment
    from benchkit.experiment.run.stopping import parse_budget
    from benchkit.experiment.run.sweep import parse_sweeps

    if adaptive and blocks:
        raise UsageError("--adaptive -n: give one; --adaptive chooses the number of blocks")
    chosen = check_metrics_to_measure(metrics or DEFAULT_METRICS, options.store, options.folders)
    if output is not None:
        check_folder("--output", output)
    budget_s, budget_usd = (None, None) if budget is None else parse_budget(budget)
    stop = _StopOptions(blocks, adaptive, budget_s, budget_usd)
    if resume is not None:
        if names:
            raise UsageError(f"--resume {resume}: the arms are stored: give no names")
        experiment, broken = resume_experiment(options.store, resume)
    else:
        places = (options.folders, options.environment_folders)
        environments, workloads = split_names(names, *places)
        null = null_only or not (no_null or options.virtual)
        experiment, broken = _make_plan(
            options.selection(workloads, environments, null=null, sweeps=parse_sweeps(sweeps)),
            stop,
            null_only=null_only,
            virtual=options.virtual,
            arguments={"command": shlex.join(sys.argv[1:]), "adaptive": adaptive},
            **options.how,
        )
    experiment = _limited(experiment, stop, resumed=resume is not None)
    if not options.quiet:
        print_plan(experiment)
    records, interrupted = measure(experiment, broken, quiet=options.quiet)
    if interrupted:
        command = f"`benchkit ab --resume {experiment.id[:13]}` continues"
        text = command if experiment.is_stored else "nothing was measured"
        click.echo(f"interrupted: {text}", err=True)
    policy = experiment.stop_policy
    if not options.quiet and policy.n_settled:
        click.echo(f"skipped {counted(policy.n_settled, 'run')}: verdict already decided", err=True)
    if not options.quiet and policy.n_over_budget:
        click.echo(f"skipped {counted(policy.n_over_budget, 'run')}: budget used up", err=True)
    try:
        comparison = compare_experiment(experiment.store.runs(), experiment.id, metrics=chosen)
        comparison = with_causes(comparison, experiment.store.open)
        comparison = with_composition(comparison, experiment.store)
    except NotEnoughRuns:
        if interrupted:
            sys.exit(interrupted_code())
        raise
    if experiment.virtual is not None and not options.quiet:
        click.echo(_describe_schedules(records), err=True)
    if options.as_json:
        print_json(comparison.to_records())
    else:
        click.echo(comparison.to_table())
        click.echo(f"\n{comparison.sentence}")
        for warning in comparison.warnings:
            click.echo(f"warning: {warning}", err=True)
    if not no_report:
        write_report(experiment, comparison, chosen, output, options.quiet)
    if interrupted:
        sys.exit(interrupted_code())
    if comparison.is_worse:
        sys.exit(WORSE)
    if has_failures(records):
        sys.exit(FAILED)
    if not comparison.testable:
        sys.exit(TOO_FEW)


def write_report(
    experiment: Experiment,
    comparison: Comparison,
    metrics: tuple[str, ...],
    output: str | Path | None,
    quiet: bool,
) -> None:
    """Write the report page; print one line if that fails, because the runs are already stored."""
    from benchkit.errors import BenchkitError, MissingParts, describe_error
    from benchkit.show.reports.reports import ab_report, comparison_markdown

    try:
        table = {
            ".md": comparison_markdown(comparison),
            ".json": as_json_text(comparison.to_records()),
        }
        page = ab_report(
            experiment.store, experiment.id, metrics=metrics, folder=output, texts=table
        )
    except MissingParts as error:
        click.echo(f"warning: {error}", err=True)
        return
    except (BenchkitError, OSError) as error:
        click.echo(f"warning: report not written: {describe_error(error)}", err=True)
        return
    if not quiet:
        click.echo(f"report: {page}", err=True)


@dataclass(frozen=True)
class _StopOptions:
    """Options of the command that limit the number of runs."""

    blocks: int | None
    adaptive: bool
    budget_s: float | None
    budget_usd: float | None


def _make_plan(
    selection: Selection, stop: _StopOptions, *, null_only: bool, **options: Any
) -> tuple[Experiment, list[BrokenFile]]:
    """Return a new experiment, and the workload files that cannot be loaded."""
    from benchkit.experiment.run.api import plan_experiment
    from benchkit.experiment.run.stopping import LOOKS

    n_needed = 2 if not null_only and not selection.sweeps else 1
    if stop.adaptive and any(key.startswith("param.") for key in selection.sweeps):
        raise UsageError("--adaptive --sweep param: give a number of blocks with -n instead")
    if null_only and len(selection.environments) != 1:
        raise UsageError("--null-only compares one environment with itself: give one environment")
    if len(selection.environments) < n_needed:
        raise UsageError(
            "an A/B needs a baseline and another environment: "
            "see `benchkit list environments`, or --null-only"
        )
    return plan_experiment(
        selection,
        repeats=LOOKS[-1] if stop.adaptive else stop.blocks or DEFAULT_BLOCKS,
        **options,
    )


def _limited(experiment: Experiment, stop: _StopOptions, *, resumed: bool) -> Experiment:
    """Return the experiment with its stop policy, and with as many blocks as the budget permits."""
    from benchkit.experiment.run.estimate import (
        WORKER_PRICE_KEY,
        Estimate,
        known_durations,
        worker_price,
    )
    from benchkit.experiment.run.stopping import LOOKS, blocks_within

    for arm in experiment.arms if stop.budget_usd is not None else ():
        if worker_price(arm.environment) is None:
            raise UsageError(
                f"--budget {stop.budget_usd:g}USD: no price for arm {arm.name!r}: set "
                f"{WORKER_PRICE_KEY} in Dask's configuration, USD per worker and hour"
            )
    adaptive = stop.adaptive or (resumed and bool(experiment.arguments.get("adaptive")))
    repeats = experiment.repeats
    if not resumed and not adaptive and stop.blocks is None:
        if stop.budget_usd is not None:
            repeats = LOOKS[-1]  # an upper limit: the budget ends the experiment
        elif stop.budget_s is not None:
            durations = known_durations(experiment.store, experiment.known_workloads)
            run_seconds = Estimate([], durations).run_seconds
            round_s = sum(run_seconds(variant.name) for variant in experiment.variants)
            repeats = blocks_within(stop.budget_s, len(experiment.arms) * round_s)
    return replace(
        experiment,
        repeats=repeats,
        budget_s=stop.budget_s,
        budget_usd=stop.budget_usd,
        adaptive=adaptive,
    )


def print_plan(experiment: Experiment) -> None:
    """Print on stderr the arms, the number of runs and their expected duration."""
    from benchkit.analysis.run.noise import describe_detectable_changes
    from benchkit.cli.progress import format_duration
    from benchkit.experiment.run.estimate import known_noise
    from benchkit.experiment.run.plan import NULL_ARM, format_size

    for position, arm in enumerate(experiment.arms):
        role = "baseline" if not position else "null    " if arm.name == NULL_ARM else "against "
        description = arm.environment.description or arm.environment.name
        if arm.name == NULL_ARM:
            description = "the baseline measured a second time"
        click.echo(f"{role}  {arm.name:20}  {description}", err=True)
    names = [variant.name for variant in experiment.variants]
    size = format_size(experiment.arms, names, experiment.repeats)
    limit = "at most " if experiment.adaptive or experiment.budget_usd is not None else ""
    click.echo(
        f"experiment {experiment.id}: {limit}{counted(len(experiment.plan), 'run')} "
        f"({size}), about {format_duration(experiment.estimate.remaining_seconds)}",
        err=True,
    )
    noise = known_noise(experiment.store, names, experiment.known_workloads)
    detectable = describe_detectable_changes(noise, experiment.repeats)
    if detectable:
        click.echo(f"{detectable} (of {counted(len(names), 'workload')})", err=True)


def _describe_schedules(records: Iterable[Mapping[str, Any]]) -> str:
    """Return in how many cases the arms of an experiment have the same schedule."""
    digests: dict[tuple[str, int], set[str]] = {}
    for record in records:
        if record["outcome"] == "ok" and record.get("schedule"):
            case = record["workload"], record["block"]
            digests.setdefault(case, set()).add(record["schedule"])
    changed = sorted({name for (name, _), found in digests.items() if len(found) > 1})
    n_equal = sum(len(found) == 1 for found in digests.values())
    line = f"schedules: {n_equal} of {len(digests)} are the same in all arms"
    return f"{line}; changed: {', '.join(changed)}" if changed else line
