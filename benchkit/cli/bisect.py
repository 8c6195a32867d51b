"""`benchkit bisect`: the release or commit with which a workload changed."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from benchkit.cli.options import common, print_json

__all__ = ["bisect"]

FAILED, TOO_FEW, INTERRUPTED = 3, 4, 130
#: Exit codes of `git bisect run`.
GOOD, BAD, CANNOT_TELL = 0, 1, 125


@click.command()
@click.argument("workload", required=False)
@click.option("--package", metavar="NAME", help="Releases of this package in the index.")
@click.option("--git", "checkout", metavar="PATH", help="Commits of the package checked out here.")
@click.option("--good", metavar="V", help="Release or commit before the change.")
@click.option("--bad", metavar="V", help="Release or commit after it.")
@click.option("--git-step", is_flag=True,
              help="Judge the commit that is checked out, for `git bisect run`.")  # fmt: skip
@click.option("--metric", default="duration", show_default=True, metavar="NAME",
              help="Metric that changed; outcome: what ended well and now fails.")  # fmt: skip
@click.option("-e", "base", default="current", show_default=True, metavar="ENV",
              help="Environment that all else comes from.")  # fmt: skip
@click.option("-n", "--blocks", default=2, show_default=True, type=click.IntRange(1),
              help="Blocks of a build before it is left for the next, at least.")  # fmt: skip
@click.option("--max-repeats", default=20, show_default=True, type=click.IntRange(3),
              help="Blocks of a build, at most.")  # fmt: skip
@click.option("--confidence", default=0.95, show_default=True,
              type=click.FloatRange(0.5, 0.999), help="How sure to be.")  # fmt: skip
@click.option("--budget", metavar="TIME", help="Stop when it is used up: 20m, 1h30m.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(0, min_open=True), metavar="S",
              help="Seconds a run may take; a timeout counts as slow.")  # fmt: skip
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of the full size of the data.")  # fmt: skip
@click.option("--set", "sets", multiple=True, metavar="P=V", help="Set a workload's parameter.")
@click.option("--resume", metavar="ID", help="Go on with a bisection: its id, or latest.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@common("capture", "prometheus", "store", "workloads", "environments", "tag", "json")
def bisect(
    workload: str | None,
    package: str | None,
    checkout: str | None,
    good: str | None,
    bad: str | None,
    git_step: bool,
    metric: str,
    base: str,
    blocks: int,
    max_repeats: int,
    confidence: float,
    budget: str | None,
    deadline_s: float | None,
    scale: float,
    sets: tuple[str, ...],
    capture: str,
    resume: str | None,
    quiet: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment_folders: tuple[str, ...],
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the release or commit with which a workload became slower.

    Measures the build in the middle beside the good one, until it is clear to which end it
    belongs, then the middle of what is left. Builds that fail are left out; a wrong step is
    corrected by what comes after it. All packages but the one in question stay the same, and all
    runs are kept. Ctrl-C tells what is known; --resume goes on.

    \b
    Examples:
      benchkit bisect array.basic_sum --package dask --good 2024.1.0 --bad 2026.8.0
      benchkit bisect shuffle.p2p --git ../distributed --good 2026.7.1 --bad main
      benchkit bisect --resume latest
      git bisect run benchkit bisect array.basic_sum --git . --good v1 --bad main --git-step

    Exit code 0: found; 3: a run failed; 4: the ends do not differ, or too few runs to be sure.
    With --git-step 0: like the good commit, 1: like the bad one, 125: cannot be told.
    """
    from benchkit.errors import BenchkitError, UsageError
    from benchkit.experiment.bisect.candidates import find_candidates
    from benchkit.experiment.bisect.session import plan_bisection, resume_bisection
    from benchkit.experiment.environment.lookup import find_environment
    from benchkit.experiment.paths import folders_of
    from benchkit.experiment.run.api import parse_pairs
    from benchkit.experiment.run.stopping import parse_budget

    budget_s, budget_usd = parse_budget(budget) if budget else (None, None)
    if budget_usd is not None:
        raise UsageError(f"--budget {budget}: of a bisection it is a time, such as 20m or 1h30m")
    if resume is not None:
        if workload or package or checkout:
            raise UsageError(f"--resume {resume}: it knows what it looks for: name nothing")
        bisection = resume_bisection(store, resume)
    else:
        if workload is None:
            raise UsageError("a workload to bisect is missing: see `benchkit list workloads`")
        environment = find_environment(base, folders_of("environments", environment_folders))
        bisection = plan_bisection(
            workload,
            find_candidates(good, bad, environment, package=package, git=checkout, step=git_step),
            environment,
            metric=metric,
            folders=folders,
            environment_folders=environment_folders,
            params=parse_pairs(sets, "--set", typed=True),
            store=store,
            search={"confidence": confidence, "fewest": blocks, "max_repeats": max_repeats},
            ends=None if git_step else (),
            tags=parse_pairs(tags, "--tag"),
            words={"command": shlex.join(sys.argv[1:])},
            scale=scale,
            capture=capture,
            deadline_s=deadline_s,
        )
    interrupted = False
    try:
        _run(bisection, budget_s, quiet)
    except KeyboardInterrupt:
        interrupted = True
        goes_on = f"`benchkit bisect --resume {bisection.experiment.id[:13]}` goes on"
        click.echo(f"interrupted; {goes_on}", err=True)
    except BenchkitError as error:
        if not git_step:
            raise
        click.echo(f"error: {error}", err=True)
        sys.exit(CANNOT_TELL)
    found = bisection.found()
    if bisection.over and not quiet:
        click.echo("the budget is used up", err=True)
    if as_json:
        print_json(found.to_records())
    else:
        _print(found)
    if interrupted:
        sys.exit(INTERRUPTED)
    if git_step:
        sys.exit(_verdict(found))
    if found.status != "found":
        sys.exit(TOO_FEW)


def _run(bisection: Any, budget_s: float | None, quiet: bool) -> None:
    """Run the bisection, and print each step, run and intermediate result on stderr."""
    from benchkit.experiment.run.events import finished_records
    from benchkit.formatting import format_seconds

    def report(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    names = [candidate.name for candidate in bisection.candidates]
    report(
        f"bisection {bisection.experiment.id}: {len(names)} builds, {names[0]} to {names[-1]}, "
        f"for {bisection.metric} of {bisection.experiment.variants[0].name}"
    )
    for record in finished_records(bisection.run(report, budget_s=budget_s)):
        line = f"  {record['outcome']:13} {format_seconds(record.get('duration')):>10}  "
        line += record["arm"]
        report(f"{line}: {record['error']}" if record.get("error") else line)


def _print(found: Any) -> None:
    """Print the result, the packages that differ between both builds, and a table of builds."""
    from benchkit.formatting import Table

    click.echo("\n".join(found.sentences()))
    if found.first is not None:
        for row in found.packages().to_dict("records"):
            click.echo(f"  {row['name']}: {row['baseline']} -> {row['contender']}")
    rows = found.steps().to_dict("records")
    click.echo(f"\n{Table(rows).to_text()}" if rows else "")
    if found.compare_command:
        click.echo(f"\nsee: {found.compare_command}")


def _verdict(found: Any) -> int:
    """Return the exit code for `git bisect run`: the verdict on the checked-out commit."""
    if found.status != "found" or found.untold:
        return CANNOT_TELL
    return BAD if found.first is found.candidates[1] else GOOD
