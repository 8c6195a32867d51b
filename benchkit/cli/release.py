"""`benchkit nightly --profile release`: the pinned environment against the previous pin."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

__all__ = ["check_release"]

#: Environment to release, and the previously released environment.
RUNTIME, PREVIOUS = "runtime", "runtime-previous"
BLOCKS = 3
WORSE, FAILED, INTERRUPTED = 1, 3, 130


def check_release(
    names: Sequence[str],
    expression: str | None,
    store: str | None,
    folders: Sequence[str],
    environment_folders: Sequence[str],
    output: str,
    quiet: bool,
    *,
    blocks: int = BLOCKS,
    scale: float = 1.0,
    capture: str = "full",
) -> None:
    """Compare the pinned environment with the previous pin, and export the tested environment.

    The environment file is written only if all runs of the new pin succeeded. The report and the
    exit code give the change in performance.
    """
    from benchkit.analysis.compare.compare_runs import compare_experiment
    from benchkit.cli.ab import make_plan, print_plan
    from benchkit.cli.progress import show_progress
    from benchkit.errors import NotEnoughRuns
    from benchkit.experiment.run.events import finished_records
    from benchkit.show.reports.reports import ab_report

    experiment, broken = make_plan(
        [PREVIOUS, RUNTIME],
        resume=None,
        blocks=blocks,
        blocks_given=True,
        adaptive=False,
        budget=None,
        null=True,
        null_only=False,
        store=store,
        names=names,
        select=expression or (None if names else "profile:release"),
        folders=folders,
        environment_folders=environment_folders,
        scale=scale,
        capture=capture,
        words={"command": "nightly --profile release"},
    )
    for file in broken:
        click.echo(f"warning: {file}", err=True)
    if not quiet:
        print_plan(experiment)
    records: list[Mapping[str, Any]] = []
    interrupted = False
    try:
        records.extend(finished_records(show_progress(experiment.run(), quiet=quiet)))
    except KeyboardInterrupt:
        interrupted = True
    folder, report = Path(output), None
    try:
        report = compare_experiment(experiment.store.runs(), experiment.id)
    except NotEnoughRuns as error:
        click.echo(f"no report: {error}", err=True)
    else:
        page = ab_report(experiment.store, experiment.id, folder=folder)
        page.with_suffix(".md").write_text(report.to_markdown(), encoding="utf-8")
        click.echo(report.to_table())
        click.echo(f"\n{report.sentence}")
        click.echo(f"report: {page}", err=True)
    if interrupted:
        sys.exit(INTERRUPTED)
    bad = [run for run in records if run["outcome"] not in ("ok", "skipped")]
    failed = [run for run in bad if run["arm"] == RUNTIME]
    if failed:
        click.echo(f"environment not exported: {len(failed)} runs failed", err=True)
    else:
        for path in _export_environment(experiment.store, records, folder):
            click.echo(f"exported: {path}", err=True)
    if report is not None and len(report.worse):
        sys.exit(WORSE)
    if bad:
        sys.exit(FAILED)


def _export_environment(
    store: Any, records: Sequence[Mapping[str, Any]], folder: Path
) -> list[Path]:
    """Write the environment that was tested: as an environment file, and for pip."""
    tested = [run["id"] for run in records if run["arm"] == RUNTIME and run["outcome"] == "ok"]
    if not tested:
        return []
    attrs = store.open(tested[-1]).tree.attrs
    packages: dict[str, str] = json.loads(attrs["packages"])
    pins = [f"{name}=={version}" for name, version in packages.items() if "+" not in version]
    python = ".".join(str(attrs["python"]).split(".")[:2])
    content = {
        "description": f"tested by {len(tested)} runs on {str(attrs['started'])[:10]}",
        "python": python,
        "packages": pins,
    }
    environment, lines = folder / "runtime-tested.yaml", folder / "requirements.txt"
    folder.mkdir(parents=True, exist_ok=True)
    environment.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    head = f"# Python {python}; {content['description']}\n"
    lines.write_text(head + "\n".join(pins) + "\n", encoding="utf-8")
    return [environment, lines]
