"""`benchkit bisect`: the release or commit with which a workload changed."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import TOO_FEW, MeasurementOptions, complete_names, measuring
from benchkit.cli.rows import print_json
from benchkit.interruption import interrupted_code

if TYPE_CHECKING:
    from benchkit.experiment.bisect.api import Target
    from benchkit.experiment.bisect.result import BisectionResult
    from benchkit.experiment.bisect.session import Bisection

#: Exit codes of `git bisect run`; SKIP: the commit cannot be tested.
GOOD, BAD, SKIP = 0, 1, 125


@click.command()
@click.argument(
    "names",
    nargs=-1,
    metavar="[OLD NEW] WORKLOAD",
    shell_complete=complete_names("environments", "workloads"),
)
@click.option("--package", metavar="NAME", help="Releases of this package in the index.")
@click.option("--git", "checkout", metavar="PATH",
              help="Commits of the package checked out here; with --package or OLD NEW, those of "
              "the release that is found.")  # fmt: skip
@click.option("--good", metavar="V", help="Release or commit before the change.")
@click.option("--bad", metavar="V", help="Release or commit after it.")
@click.option("--git-step", is_flag=True,
              help="Test the checked-out commit, for `git bisect run`.")  # fmt: skip
@click.option("--metric", default="duration", show_default=True, metavar="NAME",
              help="Metric that changed; outcome: runs that ended ok and now fail; "
              "schedule: with --virtual, runs that are scheduled in another way.")  # fmt: skip
@click.option("-e", "base", default="current", show_default=True, metavar="ENV",
              help="Environment that defines everything except the builds.")  # fmt: skip
@click.option("-n", "--blocks", default=2, show_default=True, type=click.IntRange(1),
              help="Minimum number of blocks of a build.")  # fmt: skip
@click.option("--max-repeats", default=20, show_default=True, type=click.IntRange(3),
              help="Maximum number of blocks of a build.")  # fmt: skip
@click.option("--confidence", default=0.95, show_default=True,
              type=click.FloatRange(0.5, 0.999),
              help="Required probability of the answer.")  # fmt: skip
@click.option("--budget", metavar="TIME", help="Time limit: 20m, 1h30m.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(0, min_open=True), metavar="S",
              help="Time limit of a run in seconds; a timeout counts as slow.")  # fmt: skip
@click.option("--resume", metavar="ID", help="Continue a bisection: its id, or latest.")
@measuring("set", "virtual")
def bisect(
    names: tuple[str, ...],
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
    resume: str | None,
    options: MeasurementOptions,
) -> None:
    """Find the build that made a workload slower.

    A build is a release or a commit.

    Measures the build in the middle in alternation with the good build until it is decided to
    which end it belongs, then the middle of the rest. Builds that fail are skipped; later
    measurements can correct a wrong step. All other packages stay the same, and all runs are
    stored. Ctrl-C prints the result so far; --resume continues.

    OLD and NEW are environments, or run:ID for that of a run: their packages change from OLD to
    NEW one after the other, until the package is found, and then its release. With --git, the
    commit of that release is found, too.

    \b
    Examples:
      benchkit bisect release-2024.11.2 release-2024.12.1 array.basic_sum --git ../dask
      benchkit bisect array.basic_sum --package dask --good 2024.1.0 --bad 2026.8.0
      benchkit bisect shuffle.p2p --git ../distributed --good 2026.7.1 --bad main
      benchkit bisect graph.uneven --virtual workers=20 --package distributed
        --good 2025.1.0 --bad 2025.2.0
      benchkit bisect --resume latest
      git bisect run benchkit bisect array.basic_sum --git . --good v1 --bad main --git-step

    Exit code 0: found; 3: an end cannot be measured; 4: the ends do not differ, or undecided.
    With --git-step 0: like the good commit; 1: like the bad commit; 125: undecided.
    """
    from benchkit.errors import BenchkitError, UsageError
    from benchkit.experiment.bisect.api import (
        Target,
        narrow_bisection,
        plan_bisection,
        resume_bisection,
    )
    from benchkit.experiment.bisect.candidates import find_candidates
    from benchkit.experiment.environment.lookup import as_environment
    from benchkit.experiment.run.stopping import parse_budget

    budget_s, budget_usd = parse_budget(budget) if budget else (None, None)
    if budget_usd is not None:
        raise UsageError(f"--budget {budget}: must be a time for a bisection, such as 20m or 1h30m")
    how: dict[str, Any] = {
        "arguments": {"command": shlex.join(sys.argv[1:])},
        "deadline_s": deadline_s,
        "virtual": options.virtual,
        **options.how,
    }
    if resume is not None:
        if names or package or checkout:
            raise UsageError(f"--resume {resume}: give no workload, --package or --git with it")
        bisection = resume_bisection(options.store, resume)
    else:
        if not names:
            raise UsageError("a workload to bisect is missing: see `benchkit list workloads`")
        if len(names) not in (1, 3):
            raise UsageError(
                "give one workload, or two environments and one workload: "
                "see `benchkit list environments`"
            )
        *ends, workload = names
        target = Target(
            workload,
            metric=metric,
            folders=options.folders,
            environment_folders=options.environment_folders,
            params=options.params,
            search={"confidence": confidence, "fewest": blocks, "max_repeats": max_repeats},
            checkout=checkout if checkout and (ends or package) else "",
        )
        if ends:
            if package or good or bad or git_step:
                raise UsageError(f"{' '.join(ends)}: two environments are the ends: give no other")
            bisection = _between(ends, target, options, how)
        else:
            environment = as_environment(base, options.environment_folders)
            found = find_candidates(
                good, bad, environment, package=package, git=checkout, step=git_step
            )
            ends_known = None if git_step else ()
            bisection = plan_bisection(target, found, environment, ends=ends_known, **how)
    results, interrupted = [], False
    while True:
        began = time.monotonic()
        try:
            _run(bisection, budget_s, options.quiet)
        except KeyboardInterrupt:
            interrupted = True
            command = f"`benchkit bisect --resume {bisection.experiment.id[:13]}` continues"
            text = command if bisection.experiment.is_stored else "nothing was measured"
            click.echo(f"interrupted: {text}", err=True)
        except BenchkitError as error:
            if not git_step:
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(SKIP)
        result = bisection.result()
        results.append(result)
        if bisection.out_of_budget and not options.quiet:
            click.echo("stopped: budget used up", err=True)
        if not options.as_json:
            _print(result)
        is_over = interrupted or bisection.out_of_budget or result.status != "found"
        if budget_s is not None:
            budget_s = max(budget_s - (time.monotonic() - began), 1.0)
        following = None if is_over else narrow_bisection(bisection, partial(click.echo, err=True))
        if following is None:
            break
        bisection = following
    if options.as_json:
        print_json([row for result in results for row in result.to_records()])
    if interrupted:
        sys.exit(interrupted_code())
    if git_step:
        sys.exit(_verdict(results[-1]))
    if results[0].status != "found":
        sys.exit(TOO_FEW)


def _between(
    ends: Sequence[str], target: Target, options: MeasurementOptions, how: Mapping[str, Any]
) -> Bisection:
    """Return the bisection of the packages that differ between two environments."""
    from benchkit.cli.rows import open_store
    from benchkit.experiment.bisect.api import plan_bisection
    from benchkit.experiment.bisect.candidates import check_checkout
    from benchkit.experiment.bisect.packages import (
        base_of,
        other_differences,
        package_candidates,
        read_end,
    )
    from benchkit.store.store import Store

    recorded = any(name.startswith("run:") for name in ends)
    store = open_store(options.store) if recorded else Store(options.store)
    old, new = (read_end(name, options.environment_folders, store) for name in ends)
    others = other_differences(old, new)
    if others and not options.quiet:
        click.echo(f"not searched, as in {ends[0]}: {', '.join(others)}", err=True)
    builds = package_candidates(old, new)
    if target.checkout:
        check_checkout(target.checkout, builds)
    return plan_bisection(
        replace(target, base=ends[0]),
        builds,
        base_of(old),
        pinned={},
        **how,
    )


def _run(bisection: Bisection, budget_s: float | None, quiet: bool) -> None:
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


def _print(result: BisectionResult) -> None:
    """Print the result, the packages that differ between both builds, and a table of builds."""
    click.echo("\n".join(result.sentences()))
    if result.first is not None:
        for row in result.packages().to_dict("records"):
            click.echo(f"  {row['name']}: {row['baseline']} -> {row['contender']}")
    click.echo(f"\n{result.steps().to_text()}")
    if result.compare_command:
        click.echo(f"\nsee: {result.compare_command}")


def _verdict(result: BisectionResult) -> int:
    """Return the exit code for `git bisect run`: the verdict on the checked-out commit."""
    if result.status != "found" or result.skipped_between:
        return SKIP
    return BAD if result.first is result.candidates[1] else GOOD
