"""From the words of `benchkit ab` to a plan, and the plan in words before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from benchkit.analysis.run.noise import describe_detectable_changes
from benchkit.cli.progress import roughly
from benchkit.errors import UsageError
from benchkit.experiment.run.api import plan_experiment, resume_experiment
from benchkit.experiment.run.estimate import Estimate, estimate_of, known_durations
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.known_workloads import known_noise, load_known
from benchkit.experiment.run.plan import NULL_ARM
from benchkit.experiment.run.prices import KEY, worker_price
from benchkit.experiment.run.stopping import LOOKS, StopPolicy, blocks_within, parse_budget
from benchkit.measure.discovery import Broken

__all__ = ["make_plan", "say_plan"]


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
) -> tuple[Experiment, Estimate, StopPolicy, list[Broken]]:
    """Return the experiment, what knows its duration, what ends it early, and broken files.

    Raises
    ------
    UsageError
        Fewer than two arms, or an experiment to resume beside arms.
    """
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
    if budget_usd is not None:
        for arm in experiment.arms:
            if worker_price(arm.environment) is None:
                raise UsageError(
                    f"--budget {budget}: no price is known for arm {arm.name!r}: set {KEY} in "
                    "Dask's configuration, USD per worker and hour"
                )
        if resume is None and not adaptive and not blocks_given:
            experiment.repeats = LOOKS[-1]  # as many as the money lasts for
    names = [variant.name for variant in experiment.variants]
    if budget_s is not None and resume is None and not adaptive and not blocks_given:
        one = Estimate([], known_durations(experiment.store, load_known(experiment)))
        block_s = len(experiment.arms) * sum(one.run_seconds(name) for name in names)
        experiment.repeats = blocks_within(budget_s, block_s)
    estimate = estimate_of(experiment)
    arms = [arm.name for arm in experiment.arms]
    pace = StopPolicy(
        arms, names, estimate, budget_s=budget_s, budget_usd=budget_usd, adaptive=adaptive
    )
    for record in experiment.store.runs(experiment=experiment.id).to_dict("records"):
        pace.saw(record)  # of an experiment that is taken up again
    return experiment, estimate, pace, broken


def say_plan(experiment: Experiment, estimate: Estimate, pace: StopPolicy) -> None:
    """Print on stderr what will be measured and how long it takes."""
    for place, arm in enumerate(experiment.arms):
        role = "baseline" if not place else "null    " if arm.name == NULL_ARM else "against "
        what = arm.environment.description or arm.environment.name
        if arm.name == NULL_ARM:
            what = "the baseline once more"
        click.echo(f"{role}  {arm.name:20}  {what}", err=True)
    n_runs, n_arms = len(experiment.plan()), len(experiment.arms)
    size = f"{n_arms} arms x {len(experiment.variants)} workloads x {experiment.repeats} blocks"
    upto = "at most " if pace.adaptive or pace.budget_usd is not None else ""
    click.echo(
        f"experiment {experiment.id}: {upto}{n_runs} runs ({size}), "
        f"about {roughly(estimate.left_s)}",
        err=True,
    )
    told = describe_detectable_changes(known_noise(experiment), experiment.repeats)
    if told:
        click.echo(f"{told} (of {len(experiment.variants)} workloads)", err=True)
