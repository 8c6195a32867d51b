"""`benchkit report`: write reports as HTML pages, sites and Grafana files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store, print_error, print_json
from benchkit.errors import BenchkitError, MissingParts
from benchkit.whole_file import write_whole

#: Format of `report trace` -> its viewer.
_VIEWERS = {"trace": "https://ui.perfetto.dev", "speedscope": "https://www.speedscope.app"}


@click.group()
def report() -> None:
    """Write reports as HTML pages."""


def _write_pages(
    pages: Sequence[tuple[dict[str, str], Callable[[], Path]]], *, as_json: bool
) -> None:
    """Write pages and print their paths; an error of one does not stop the others."""
    rows, code = [], 0
    for about, write in pages:
        try:
            page = write()
        except BenchkitError as error:
            print_error(str(error))
            code = code or error.exit_code
            if not isinstance(error, MissingParts):
                continue
            page = error.page
        rows.append({**about, "report": str(page)})
        if not as_json:
            click.echo(page)
    if as_json:
        print_json(rows)
    sys.exit(code)


@report.command("run")
@click.argument("ids", nargs=-1)
@click.option("-o", "--output", metavar="FILE", help="Output path; default: in the store.")
@common("store", "json")
def report_run(ids: tuple[str, ...], output: str | None, store: str | None, as_json: bool) -> None:
    """Write one HTML page for each run.

    IDS are ids of runs or their first characters; default: the latest run.

    \b
    Examples:
      benchkit report run
      benchkit report run latest --output run.html
    """
    from benchkit.errors import UsageError
    from benchkit.show.reports.reports import run_report

    if output is not None and len(ids) > 1:
        raise UsageError(f"--output {output!r}: one file cannot hold {len(ids)} runs: give one id")
    run_store = open_store(store)
    known = [run_store.resolve(run_id) for run_id in ids or ("latest",)]
    pages = [({"id": i}, partial(run_report, run_store, i, output)) for i in known]
    _write_pages(pages, as_json=as_json)


@report.command("trace")
@click.argument("run_id", metavar="RUN", default="latest")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to create.")
@click.option("--format", "form", metavar="NAME", help="Format; default: by the ending of FILE.")
@common("store", "json")
def report_trace(
    run_id: str, output: str, form: str | None, store: str | None, as_json: bool
) -> None:
    """Write a run for a viewer of traces or stacks.

    \b
    Formats and the endings that select them:
      trace       .json, .json.gz: for ui.perfetto.dev and chrome://tracing
      speedscope  .speedscope.json: call stacks, for www.speedscope.app

    Nothing is sent anywhere: open the file in the viewer, which reads it in the browser.

    \b
    Examples:
      benchkit report trace latest -o run.json.gz
      benchkit report trace 0198f -o run.speedscope.json
    """
    from benchkit.store.interchange.export import export_run

    run = open_store(store).open(run_id)
    form = export_run(run, output, form=form)
    print_json([{"id": run.id, "file": output}]) if as_json else click.echo(output)
    click.echo(f"open it with {_VIEWERS[form]}", err=True)


@report.command("ab")
@click.argument("experiment", default="latest")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Metrics to compare; repeatable."
)
@click.option("-o", "--output", metavar="DIR", help="Output path; default: in the store.")
@common("store", "json")
def report_ab(
    experiment: str,
    metrics: tuple[str, ...],
    output: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Write the page of an A/B experiment.

    EXPERIMENT is an id, its first characters, or latest: the latest with two arms.

    \b
    Example:
      benchkit report ab latest
    """
    from benchkit.show.reports.reports import ab_report

    write = partial(ab_report, open_store(store), experiment, metrics=metrics, folder=output)
    _write_pages([({}, write)], as_json=as_json)


@report.command("decisions")
@common("store", "json")
def report_decisions(store: str | None, as_json: bool) -> None:
    """List decisions about changes.

    `benchkit mark decide` and `benchkit mark accept` write decisions.

    \b
    Example:
      benchkit report decisions --json
    """
    from benchkit.analysis.regression.regression import decisions
    from benchkit.table import Table

    run_store = open_store(store)
    rows = decisions(run_store.events(), run_store.marks())
    if as_json:
        print_json(rows)
    elif rows:
        columns = (
            "date", "verdict", "by", "regression", "workload", "metric", "change", "reason"
        )  # fmt: skip
        texts = [
            {name: row.get(name, "") for name in columns} | {"evidence": ", ".join(row["evidence"])}
            for row in rows
        ]
        click.echo(Table(texts).to_text())
    else:
        click.echo("no decisions", err=True)


@report.command("bisect")
@click.argument("bisection", default="latest")
@click.option("-o", "--output", metavar="DIR", help="Output path; default: in the store.")
@common("store", "json")
def report_bisect(bisection: str, output: str | None, store: str | None, as_json: bool) -> None:
    """Write the steps of a bisection as a page.

    BISECTION is an id, its first characters, or latest.

    \b
    Example:
      benchkit report bisect latest
    """
    from benchkit.show.reports.reports import bisect_report

    write = partial(bisect_report, open_store(store), bisection, output)
    _write_pages([({}, write)], as_json=as_json)


@report.command("site")
@click.option(
    "-o", "--output", default="site", show_default=True, metavar="DIR", help="Output folder."
)
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Metrics with figures; repeatable."
)
@click.option("--title", default="Dask performance", show_default=True, help="Title of the site.")
@click.option(
    "--url", "address", metavar="URL", help="URL of the published site; required for feeds."
)
@common("store", "json")
def report_site(
    output: str, metrics: tuple[str, ...], store: str | None, as_json: bool, **options: Any
) -> None:
    """Write all results as a static site.

    Its pages can be opened from disk or served.

    \b
    Examples:
      benchkit report site
      benchkit report site --output public --url https://example.org/performance
    """
    from benchkit.analysis.metric_names import check_metrics
    from benchkit.show.site import SITE_METRICS, build_site

    chosen = check_metrics(metrics) if metrics else SITE_METRICS
    write = partial(build_site, open_store(store), output, metrics=chosen, **options)
    _write_pages([({}, write)], as_json=as_json)


@report.command("grafana")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: standard output.")
def report_grafana(output: str | None) -> None:
    """Write a dashboard for Grafana.

    JSON with Dask's metrics, to import there.

    It shows the metrics of scheduler and workers from a Prometheus server. Post runs to it as
    annotations with `benchkit report annotations`. Set $BENCHKIT_GRAFANA to link each run in
    `benchkit dashboard` to Grafana.

    \b
    Example:
      benchkit report grafana -o dask.json
    """
    from benchkit.errors import UsageError
    from benchkit.show.grafana import grafana_board

    text = grafana_board()
    if output is None:
        click.echo(text)
        return
    try:
        write_whole(Path(output), f"{text}\n")
    except OSError as error:
        raise UsageError(f"--output {output!r}: cannot be written: {error.strerror}") from error
    click.echo(output)


@report.command("annotations")
@click.argument("ids", nargs=-1)
@common("store")
def report_annotations(ids: tuple[str, ...], store: str | None) -> None:
    """Print runs as annotations for Grafana.

    One per line, to post to /api/annotations.

    IDS are ids of runs or their first characters; default: the latest run.

    \b
    Example:
      benchkit report annotations latest | curl -H "Authorization: Bearer $TOKEN" \\
          -H "Content-Type: application/json" -d @- https://grafana.example/api/annotations
    """
    from benchkit.show.grafana import annotation

    run_store = open_store(store)
    for run_id in ids or ("latest",):
        click.echo(json.dumps(annotation(run_store.open(run_id))))
