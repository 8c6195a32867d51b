"""`benchkit mark`: write, list and undo marks; runs are never deleted."""

from __future__ import annotations

import getpass
from typing import Any

import click

from benchkit.cli.options import common, read_pairs
from benchkit.cli.rows import open_store, print_json


@click.group()
def mark() -> None:
    """Add marks to runs. Marks can be undone; runs are never deleted.

    A mark has a reason and an author.
    """


def _author_options(function: Any) -> Any:
    """Add the options of all marks: reason and author."""
    function = click.option(
        "--by", metavar="NAME", default=None, help="Author; default: the current user."
    )(function)
    return click.option(
        "--reason", "-m", required=True, metavar="TEXT", help="Reason of the mark."
    )(function)


def _selection_options(function: Any) -> Any:
    """Add the options that select runs."""
    for option in reversed(
        (
            click.option("--workload", metavar="GLOB", help="Runs of these workloads."),
            click.option("--where", multiple=True, metavar="FIELD=VALUE", callback=read_pairs,
                         help="Runs with this field or tag: environment=main, host=ci-1."),
            click.option("--since", metavar="TIME", help="Runs at or after this time."),
            click.option("--before", metavar="TIME", help="Runs before this time."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def _write(kind: str, store: str | None, by: str | None, **what: Any) -> None:
    if "where" in what:
        what["where"] = what["where"] or None
    run_store = open_store(store)
    name = run_store.mark(kind, by=by or getpass.getuser(), **what)
    click.echo(name)
    click.echo(f"marked; `benchkit mark undo {name} -m WHY` undoes it", err=True)


@mark.command()
@_selection_options
@_author_options
@common("store")
def bankruptcy(store: str | None, by: str | None, **what: Any) -> None:
    """Start histories anew, as for a new machine.

    Runs before --before (default: now) are no longer compared with later runs.
    """
    _write("bankruptcy", store, by, **what)


@mark.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@_selection_options
@_author_options
@common("store")
def exclude(store: str | None, by: str | None, runs: tuple[str, ...], **what: Any) -> None:
    """Exclude runs, as when the disk was full.

    RUN is an id or the first characters of one; or select runs with the options.
    """
    _write("exclude", store, by, runs=list(runs) or None, **what)


def _change_options(function: Any) -> Any:
    """Add the argument and the options that name a change."""
    for option in reversed(
        (
            click.argument("what", metavar="REGRESSION|WORKLOAD"),
            click.option("--metric", metavar="NAME", help="Only changes of this metric; "
                         "source_hash: the workload measures the same although its source "
                         "changed."),
            click.option("--where", multiple=True, metavar="FIELD=VALUE", callback=read_pairs,
                         help="Only in runs with this field: environment=main."),
            click.option("--at", metavar="TIME",
                         help="Time of the change; default: that of the regression, or now."),
            click.option("--evidence", multiple=True, metavar="TEXT", help="Experiment, report or "
                         "address that shows it; repeatable."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@mark.command()
@_change_options
@_author_options
@common("store")
def accept(store: str | None, by: str | None, what: str, **options: Any) -> None:
    """Accept a change and close its regression.

    Its history starts anew.

    The argument is the id of a regression (see `benchkit regressions`), or a workload.
    """
    _mark_change("accept", store, by, what, options)


@mark.command()
@_change_options
@click.option("--verdict", required=True, metavar="VERDICT",
              help="real, intended, noise (nothing changed) or machine (it changed).")  # fmt: skip
@_author_options
@common("store")
def decide(store: str | None, by: str | None, what: str, **options: Any) -> None:
    """Keep what a change was.

    It is shown at the change from then on; see `benchkit report decisions`. Its state stays as it
    is: `benchkit mark accept` closes a regression.

    \b
    Example:
      benchkit mark decide 3f2a9c01de --verdict machine --evidence 0198f2 -m "new disk on ci-1"
    """
    _mark_change("decide", store, by, what, options)


def _mark_change(
    kind: str, store: str | None, by: str | None, what: str, options: dict[str, Any]
) -> None:
    """Write a mark about a regression or the changes of a workload."""
    from benchkit.analysis.regression.regression import read_ledger
    from benchkit.errors import UsageError, did_you_mean

    run_store = open_store(store)
    options["evidence"] = list(options["evidence"]) or None
    regressions = {each.id: each for each in read_ledger(run_store.events(), run_store.marks())}
    regression = regressions.get(what)
    if regression is None and "." not in what:
        hint = did_you_mean(what, list(regressions), "see `benchkit regressions`")
        raise UsageError(f"mark {kind} {what}: neither a regression nor a workload: {hint}")
    if regression is None and kind == "decide" and not options["at"]:
        raise UsageError("mark decide: give --at, the night of the change, with a workload")
    if regression is not None:
        history = {"environment": regression.environment, "host": regression.host}
        options |= {
            "metric": regression.metric,
            "where": options["where"] or history,
            "at": options["at"] or regression.night,
            "regression": regression.id,
        }
    _write(kind, store, by, workload=regression.workload if regression else what, **options)


@mark.command()
@click.argument("old")
@click.argument("new")
@click.option("--field", type=click.Choice(["workload", "parameter", "environment"]),
              default="workload", show_default=True, help="Kind of the renamed item.")  # fmt: skip
@click.option("--workload", metavar="GLOB", help="Workloads with the renamed parameter.")
@_author_options
@common("store")
def rename(store: str | None, by: str | None, old: str, new: str, **what: Any) -> None:
    """Continue a history under another name."""
    _write("rename", store, by, from_=old, to=new, **what)


@mark.command()
@click.argument("workload", metavar="GLOB")
@click.option("--metric", required=True, metavar="NAME", help="Changes of this metric.")
@click.option("--size", required=True, metavar="SHARE", help="Smallest change to report: 10%.")
@click.option("--where", multiple=True, metavar="FIELD=VALUE", callback=read_pairs,
              help="Only in runs with this field: environment=main.")  # fmt: skip
@_author_options
@common("store")
def threshold(store: str | None, by: str | None, **what: Any) -> None:
    """Set the smallest change to report.

    A smaller change for the worse opens no regression; nights report it as tolerated. The newest
    threshold for a workload and metric applies.

    \b
    Example:
      benchkit mark threshold "tpch.*" --metric duration --size 10% --by "frames team" \
        -m "smaller ones are noise"
    """
    _write("threshold", store, by, **what)


@mark.command()
@click.argument("name", metavar="MARK")
@_author_options
@common("store")
def undo(store: str | None, by: str | None, name: str, reason: str) -> None:
    """Undo a mark."""
    _write("undo", store, by, mark=name, reason=reason)


@mark.command(name="list")
@common("store", "json")
def list_marks(store: str | None, as_json: bool) -> None:
    """List all marks, including undone ones."""
    from benchkit.store.marks import active_marks
    from benchkit.table import Table

    marks = open_store(store).marks()
    active = {mark["id"] for mark in active_marks(marks)}
    if as_json:
        print_json([{**mark, "active": mark["id"] in active} for mark in marks])
        return
    shown = ("id", "kind", "by", "reason")
    rows = [
        {
            **{name: str(mark.get(name, "")) for name in shown},
            "about": ", ".join(
                f"{name}={value}" for name, value in mark.items() if name not in shown
            ),
            "active": "yes" if mark["id"] in active else "no",
        }
        for mark in marks
    ]
    click.echo(Table(rows).to_text() if rows else "no marks")
