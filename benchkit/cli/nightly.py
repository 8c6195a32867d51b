"""`benchkit nightly`: measure, judge, confirm, publish; unattended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchkit.cli.options import as_json_text, common, print_json

__all__ = ["nightly"]

WORSE, FAILED, INTERRUPTED = 1, 3, 130


@click.command()
@click.argument("names", nargs=-1)
@click.option("-e", "environments", multiple=True, metavar="ENV",
              help="Environment to measure; several allowed.  [default: current]")  # fmt: skip
@click.option("--control", metavar="ENV", help="Pinned environment that tells machines from code.")
@click.option("--profile", metavar="NAME",
              help="Workloads of a profile; release: also against the last pin.")  # fmt: skip
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1),
              help="Runs of each workload in each environment.")  # fmt: skip
@click.option("--budget", metavar="TIME", help="Leave out what does not fit: 90m, 6h.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Judge these; or all.")
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of the full size of the data.")  # fmt: skip
@click.option("--night", metavar="MOMENT", help="What night it is; default now.")
@click.option("--no-measure", is_flag=True, help="Only judge the last night in the store.")
@click.option("--no-confirm", is_flag=True, help="Do not measure suspects again.")
@click.option("--output", metavar="DIR", default="benchkit-nightly", show_default=True,
              help="Where report, summary and issue files go.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="No page of the night, only the summary.")
@click.option("--publish", metavar="DIR", help="Write the site of all nights here.")
@click.option("--site", metavar="URL", help="Where the site will be; issues link to it.")
@click.option("--issues", type=click.Choice(["none", "github", "file"]), default="none",
              show_default=True, help="Open, update, close an issue per regression.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@common("capture", "prometheus", "store", "workloads", "environments", "select", "tag", "json")
def nightly(
    names: tuple[str, ...],
    environments: tuple[str, ...],
    control: str | None,
    profile: str | None,
    repeats: int,
    budget: str | None,
    metrics: tuple[str, ...],
    scale: float,
    capture: str,
    night: str | None,
    no_measure: bool,
    no_confirm: bool,
    output: str,
    no_report: bool,
    publish: str | None,
    site: str | None,
    issues: str,
    quiet: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure workloads in one or more environments, and judge them against their history.

    Suspects are measured again at once, interleaved with the last good build. What was found goes
    into the ledger in the store; report, site and issues are made from it. A part that fails (a
    workload, an environment, the network) is told and does not stop the rest.

    \b
    Examples:
      benchkit nightly -k profile:nightly -e tip -e release --control control
      benchkit nightly --no-measure --publish site --issues github
      benchkit nightly --profile release

    Exit code 1: something got worse tonight; 3: a run or a part failed.
    """
    from benchkit.analysis.compare.compare_runs import check_metrics
    from benchkit.analysis.regression.history import DEFAULT_METRICS
    from benchkit.cli.progress import show_progress
    from benchkit.errors import UsageError
    from benchkit.experiment.nightly.nightly import nightly as measure_night
    from benchkit.experiment.run.api import parse_pairs
    from benchkit.experiment.run.stopping import parse_budget
    from benchkit.show.issues.trackers import tracker_for

    if profile == "release":
        from benchkit.cli.release import check_release

        check_release(
            names,
            expression,
            store,
            folders,
            environment_folders,
            output,
            quiet,
            blocks=repeats if repeats > 1 else 3,
            scale=scale,
            capture=capture,
        )
        return
    if profile:
        expression = f"profile:{profile}" + (f" and ({expression})" if expression else "")
    budget_s, budget_usd = parse_budget(budget) if budget else (None, None)
    if budget_usd is not None:
        raise UsageError(f"--budget {budget}: a night's budget is a time, such as 90m or 6h")
    tracker = tracker_for(issues, Path(output) / "issues")  # raises before any measurement

    found = measure_night(
        *names,
        select=expression,
        environments=environments or ("current",),
        control=control,
        repeats=repeats,
        budget_s=budget_s,
        store=store,
        metrics=check_metrics(metrics or DEFAULT_METRICS),
        measure=not no_measure,
        confirming=not no_confirm,
        night=night,
        scale=scale,
        capture=capture,
        tags=parse_pairs(tags, "--tag"),
        folders=folders,
        environment_folders=environment_folders,
        progress=partial(show_progress, quiet=quiet),
    )
    _publish(found, Path(output), no_report, publish, tracker, site, quiet)
    if as_json:
        print_json([_row(event) for event in found.news])
    else:
        click.echo(repr(found))
    if found.interrupted:
        sys.exit(INTERRUPTED)
    if found.worse:
        sys.exit(WORSE)
    if found.failed or found.troubles:
        sys.exit(FAILED)


def _publish(
    found: Any,
    output: Path,
    no_report: bool,
    publish: str | None,
    tracker: Any,
    site: str | None,
    quiet: bool,
) -> None:
    """Write summary, page, site and issues; add each failure to the troubles of the night."""
    from benchkit.errors import BenchkitError
    from benchkit.show.issues.sync import sync_issues
    from benchkit.show.reports.night import night_markdown, workflow_commands

    def attempt(what: str, do: Callable[[], Any]) -> None:
        try:
            told = do()
        except (BenchkitError, OSError) as error:
            found.troubles.append(f"{what}: {error}")
        else:
            for line in told if isinstance(told, list) else [told]:
                if line and not quiet:
                    click.echo(f"{what}: {line}", err=True)

    def write_page() -> Any:
        from benchkit.show.reports.reports import nightly_report

        return nightly_report(found.store, found.night, output / "nightly.html")

    def write_site() -> Any:
        from benchkit.show.site import build_site

        return build_site(found.store, publish or "site", address=site)

    if tracker is not None:
        attempt("issues", lambda: sync_issues(found.regressions, tracker, site=site))
    if not no_report:
        attempt("report", write_page)
    if publish:
        attempt("site", write_site)
    attempt("summary", lambda: _summary(output, night_markdown(found), found.news))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in workflow_commands(found):
            click.echo(line, err=True)


def _summary(output: Path, text: str, news: list[dict[str, Any]]) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "summary.md"
    path.write_text(text, encoding="utf-8")
    (output / "news.json").write_text(as_json_text([_row(one) for one in news]), encoding="utf-8")
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    if step:
        with open(step, "a", encoding="utf-8") as file:
            file.write(text)
    return path


def _row(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as one flat object."""
    facts = event.get("facts") or {}
    flat = {name: value for name, value in event.items() if name not in ("facts", "again")}
    return {**flat, "explanation": facts.get("explanation"), "bisect": facts.get("bisect")}
