"""`benchkit nightly --profile release`: the next pinned environment against the previous."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from benchkit.formatting import counted
from benchkit.interruption import interrupted_code
from benchkit.whole_file import write_whole

if TYPE_CHECKING:
    from benchkit.cli.options import MeasurementOptions
    from benchkit.store.store import Store

#: Environment to release, and the previously released environment.
RUNTIME, PREVIOUS = "runtime", "runtime-previous"
#: Exit codes: something is worse; a run failed.
WORSE, FAILED = 1, 3


def check_release(
    options: MeasurementOptions, names: Sequence[str], output: Path, *, repeats: int
) -> None:
    """Compare the next pinned environment with the previous, and export it if it was tested.

    The environment file is written only if all its runs succeeded. The report and the exit code
    give the change in performance.
    """
    from benchkit.analysis.compare.compare_runs import compare_experiment
    from benchkit.cli.ab import print_plan, write_report
    from benchkit.cli.progress import has_failures, measure
    from benchkit.errors import NotEnoughRuns
    from benchkit.experiment.run.api import plan_experiment

    profile = None if names else "profile:release"
    options = replace(options, expression=options.expression or profile)
    experiment, broken = plan_experiment(
        options.selection(names, [PREVIOUS, RUNTIME], null=True),
        repeats=repeats,
        arguments={"command": "nightly --profile release", "adaptive": False},
        **options.how,
    )
    if not options.quiet:
        print_plan(experiment)
    records, interrupted = measure(experiment, broken, quiet=options.quiet)
    comparison = None
    try:
        comparison = compare_experiment(experiment.store.runs(), experiment.id)
    except NotEnoughRuns as error:
        click.echo(f"no report: {error}", err=True)
    else:
        click.echo(comparison.to_table())
        click.echo(f"\n{comparison.sentence}")
        write_report(experiment, comparison, (), output, quiet=False)
    if interrupted:
        sys.exit(interrupted_code())
    tested = [record for record in records if record["arm"] == RUNTIME]
    n_failed = sum(has_failures([record]) for record in tested)
    if n_failed:
        click.echo(f"environment not exported: {counted(n_failed, 'run')} failed", err=True)
    else:
        for path in _export_environment(experiment.store, tested, output):
            click.echo(f"exported: {path}", err=True)
    if comparison is not None and len(comparison.worse):
        sys.exit(WORSE)
    if has_failures(records):
        sys.exit(FAILED)


def _export_environment(
    store: Store, tested: Sequence[Mapping[str, Any]], folder: Path
) -> list[Path]:
    """Write the packages of the tested runs: as an environment file, and for pip."""
    ids = [record["id"] for record in tested if record["outcome"] == "ok"]
    if not ids:
        return []
    attrs = store.open(ids[-1]).tree.attrs
    packages: dict[str, str] = json.loads(attrs["packages"])
    pins = [f"{name}=={version}" for name, version in packages.items() if "+" not in version]
    python = ".".join(str(attrs["python"]).split(".")[:2])
    content = {
        "description": f"tested by {counted(len(ids), 'run')} on {str(attrs['started'])[:10]}",
        "python": python,
        "packages": pins,
    }
    environment, lines = folder / "runtime-tested.yaml", folder / "requirements.txt"
    write_whole(environment, yaml.safe_dump(content, sort_keys=False))
    head = f"# Python {python}; {content['description']}\n"
    write_whole(lines, head + "\n".join(pins) + "\n")
    return [environment, lines]
