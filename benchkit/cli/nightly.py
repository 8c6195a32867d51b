"""`benchkit nightly`: measure, judge, confirm and publish, without interaction."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import FAILED, WORSE, MeasurementOptions, complete_names, measuring
from benchkit.cli.rows import as_json_text, print_error, print_json
from benchkit.errors import BenchkitError, UsageError, describe_error
from benchkit.interruption import interrupted_code
from benchkit.whole_file import check_folder, write_whole

if TYPE_CHECKING:
    from benchkit.experiment.nightly.night import Night
    from benchkit.show.issues.webhook import Webhook


@click.command("nightly")
@click.argument("names", nargs=-1, shell_complete=complete_names("workloads"))
@click.option("-e", "environments", multiple=True, metavar="ENV",
              shell_complete=complete_names("environments"),
              help="Environment to measure; repeatable.  [default: current]")  # fmt: skip
@click.option("--control", metavar="ENV", help="Environment that stays unchanged between nights.")
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1),
              help="Runs of each workload in each environment.")  # fmt: skip
@click.option("--budget", metavar="TIME", help="Time limit: 90m, 6h; the rest is skipped.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME",
              help="Metric to judge, repeatable; or all.")  # fmt: skip
@click.option("--night", metavar="TIME", help="Time of the night; default: now. With "
              "--no-measure, date or time of the night to judge.")  # fmt: skip
@click.option("--no-measure", is_flag=True,
              help="Only judge the last night in the store, or that of --night.")  # fmt: skip
@click.option("--no-confirm", is_flag=True, help="Do not measure suspects again.")
@click.option("-o", "--output", metavar="DIR", default="benchkit-nightly", show_default=True,
              help="Folder for report and summary.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="Do not write the report page, only the summary.")
@click.option("--publish", metavar="DIR", help="Folder for the site of all nights.")
@click.option("--site", metavar="URL", help="URL of the published site; issues link to it.")
@click.option("--issues", type=click.Choice(["none", "github"]), default="none",
              show_default=True, help="Write an issue for each regression.")  # fmt: skip
@click.option("--webhook", type=click.Choice(["none", "json", "slack"]), default="none",
              show_default=True,
              help="Post changes and failures to the URL in $BENCHKIT_WEBHOOK: all facts, or a "
              "message for Slack.")  # fmt: skip
@measuring("select")
def nightly_command(
    names: tuple[str, ...],
    environments: tuple[str, ...],
    control: str | None,
    repeats: int,
    budget: str | None,
    metrics: tuple[str, ...],
    night: str | None,
    no_measure: bool,
    no_confirm: bool,
    output: str,
    no_report: bool,
    publish: str | None,
    site: str | None,
    issues: str,
    webhook: str,
    options: MeasurementOptions,
) -> None:
    """Measure, and judge against the history.

    Suspected regressions are measured again at once, interleaved with the last good build. The
    results are added to the ledger in the store; report, site and issues are made from it. A part
    that fails (a workload, an environment, the network) is reported and does not stop the others.
    The URL of --webhook is a secret: it is read from $BENCHKIT_WEBHOOK, or from the file that
    $BENCHKIT_WEBHOOK_FILE names. A webhook that does not answer does not change the exit code.

    \b
    Examples:
      benchkit nightly -k profile:nightly -e tip -e release --control control
      benchkit nightly --no-measure --publish site --issues github
      benchkit nightly --no-measure --night 2026-11-20

    Exit code 1: something is worse than before; 3: a run or a part failed.
    """
    from benchkit.analysis.regression.history import DEFAULT_METRICS
    from benchkit.analysis.regression.status import workload_owners
    from benchkit.cli.progress import show_progress
    from benchkit.experiment.nightly.nightly import nightly
    from benchkit.experiment.run.api import check_metrics_to_measure
    from benchkit.experiment.run.stopping import parse_budget
    from benchkit.show.issues.sync import GitHubTracker, sync_issues
    from benchkit.show.issues.webhook import webhook_for
    from benchkit.show.reports.reports import nightly_report
    from benchkit.show.site import build_site

    check_folder("--output", output)
    budget_s, budget_usd = parse_budget(budget) if budget else (None, None)
    if budget_usd is not None:
        raise UsageError(f"--budget {budget}: must be a time, such as 90m or 6h")
    tracker = GitHubTracker() if issues == "github" else None  # raises before any measurement
    hook = webhook_for(webhook)

    chosen = check_metrics_to_measure(metrics or DEFAULT_METRICS, options.store, options.folders)
    result = nightly(
        *names,
        select=options.expression,
        environments=environments or ("current",),
        control=control,
        repeats=repeats,
        budget_s=budget_s,
        metrics=chosen,
        measure=not no_measure,
        confirming=not no_confirm,
        night=night,
        folders=options.folders,
        environment_folders=options.environment_folders,
        progress=partial(show_progress, quiet=options.quiet),
        **options.how,
    )
    parts: dict[str, Callable[[], Any]] = {}
    if tracker is not None:
        owners = workload_owners(result.store.runs(columns=["workload", "started", "owner"]))
        parts["issues"] = partial(
            sync_issues, result.regressions, tracker, site=site, owners=owners
        )
    if not no_report:
        page = Path(output) / "nightly.html"
        parts["report"] = partial(nightly_report, result.store, result.night, page)
    if publish:
        parts["site"] = partial(build_site, result.store, publish, address=site)
    parts["summary"] = partial(_write_summary, result, Path(output), chosen, site)
    _publish(result, parts, quiet=options.quiet)
    if hook is not None:
        _post(result, hook, site, quiet=options.quiet)
    if options.as_json:
        print_json([_row(event) for event in result.changes])
    else:
        click.echo(repr(result))
    if result.interrupted:
        sys.exit(interrupted_code())
    if result.worse:
        sys.exit(WORSE)
    if result.failed or result.failures:
        sys.exit(FAILED)


def _publish(night: Night, parts: Mapping[str, Callable[[], Any]], *, quiet: bool) -> None:
    """Write each part; an error is added to the failures of the night."""
    from benchkit.show.reports.night import workflow_commands

    for name, write in parts.items():
        try:
            written = write()
        except Exception as error:  # one page's error must not stop the others
            night.add_failure(f"{name}: {describe_error(error)}")
            print_error(night.failures[-1])
            continue
        for line in written if isinstance(written, list) else [written]:
            if not quiet:
                click.echo(f"{name}: {line}", err=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in workflow_commands(night):
            click.echo(line, err=True)


def _post(night: Night, hook: Webhook, site: str | None, *, quiet: bool) -> None:
    """Post changes and failures; a webhook without an answer is no failure of the night."""
    failed = [f"{run['workload']}: {run['outcome']}: {run.get('error')}" for run in night.failed]
    rows = [_row(event) for event in night.changes]
    try:
        done = hook.post(night.sentence, rows, [*failed, *night.failures], site=site)
    except BenchkitError as error:
        click.echo(f"warning: webhook: {error}", err=True)
    else:
        if not quiet:
            click.echo(f"webhook: {done}", err=True)


def _write_summary(night: Night, folder: Path, metrics: Sequence[str], site: str | None) -> Path:
    from benchkit.show.reports.night import night_markdown

    text = night_markdown(night, metrics, site=site)
    path = folder / "summary.md"
    write_whole(path, text)
    write_whole(folder / "news.json", as_json_text([_row(event) for event in night.changes]))
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with open(step_summary, "a", encoding="utf-8") as file:
            file.write(text)
    return path


def _row(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as one flat object."""
    facts = event.get("facts") or {}
    flat = {name: value for name, value in event.items() if name not in ("facts", "again")}
    return {**flat, "explanation": facts.get("explanation"), "bisect": facts.get("bisect")}
