"""`benchkit mark`: what people say about runs; nothing is ever deleted."""

from __future__ import annotations

import getpass
from typing import Any

import click

from benchkit.cli.options import common, print_json

__all__ = ["mark"]


@click.group()
def mark() -> None:
    """Say something about runs, for good: nothing is ever deleted, and all can be undone.

    A mark needs a reason and names its author.
    """


def _told(function: Any) -> Any:
    """Add what every mark has: reason and author."""
    function = click.option(
        "--by", metavar="NAME", default=None, help="Who says so; default: you."
    )(function)
    return click.option("--reason", "-m", required=True, metavar="TEXT", help="Why.")(function)


def _about(function: Any) -> Any:
    """Add the options that say which runs are meant."""
    for option in reversed(
        (
            click.option("--workload", metavar="GLOB", help="Runs of these workloads."),
            click.option("--where", multiple=True, metavar="FIELD=VALUE",
                         help="Runs with this field or tag: environment=main, host=ci-1."),
            click.option("--since", metavar="MOMENT", help="Runs from then on."),
            click.option("--before", metavar="MOMENT", help="Runs before then."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def _write(kind: str, store: str | None, by: str | None, **what: Any) -> None:
    from benchkit.experiment.run.api import parse_pairs
    from benchkit.store.store import Store

    if "where" in what:
        what["where"] = parse_pairs(what["where"], "--where") or None
    home = Store(store, create=False)
    name = home.mark(kind, by=by or getpass.getuser(), **what)
    click.echo(name)
    click.echo(f"marked; `benchkit mark undo {name} -m WHY` takes it back", err=True)


@mark.command()
@_about
@_told
@common("store")
def bankruptcy(store: str | None, by: str | None, **what: Any) -> None:
    """Say that runs before a moment tell nothing about today: a new machine, other data.

    Without --before: before now.
    """
    _write("bankruptcy", store, by, **what)


@mark.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@_about
@_told
@common("store")
def exclude(store: str | None, by: str | None, runs: tuple[str, ...], **what: Any) -> None:
    """Say that runs tell nothing at all: a machine was broken, a disk was full.

    RUN is an id or the beginning of one; or select by the options.
    """
    _write("exclude", store, by, runs=list(runs) or None, **what)


@mark.command()
@click.argument("what", metavar="REGRESSION|WORKLOAD")
@click.option("--metric", metavar="NAME", help="Only changes of this metric; source_hash: the "
              "workload measures the same although its source changed.")  # fmt: skip
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Only in this environment...")
@click.option("--at", metavar="MOMENT", help="The night of the change; default: as known, or now.")
@_told
@common("store")
def accept(
    store: str | None,
    by: str | None,
    what: str,
    metric: str | None,
    where: tuple[str, ...],
    at: str | None,
    reason: str,
) -> None:
    """Say that a change is known and wanted: its regression is closed, history starts anew there.

    WHAT is the id of a regression (see `benchkit regressions`), or a workload.
    """
    from benchkit.analysis.regression.regression import read_ledger
    from benchkit.store.store import Store

    home = Store(store, create=False)
    for one in read_ledger(home.events(), home.marks()):
        if one.id == what:
            pairs = [f"environment={one.environment}", f"host={one.host}"]
            _write("accept", store, by, workload=one.workload, metric=one.metric, reason=reason,
                   where=tuple(where) or tuple(pairs), at=at or one.night)  # fmt: skip
            return
    _write("accept", store, by, workload=what, metric=metric, where=where, at=at, reason=reason)


@mark.command()
@click.argument("old")
@click.argument("new")
@click.option("--field", type=click.Choice(["workload", "parameter", "environment"]),
              default="workload", show_default=True, help="What has another name now.")  # fmt: skip
@click.option("--workload", metavar="GLOB", help="The workloads whose parameter it is.")
@_told
@common("store")
def rename(store: str | None, by: str | None, old: str, new: str, **what: Any) -> None:
    """Let OLD go on under the name NEW, and its history with it."""
    _write("rename", store, by, from_=old, to=new, **what)


@mark.command()
@click.argument("name", metavar="MARK")
@_told
@common("store")
def undo(store: str | None, by: str | None, name: str, reason: str) -> None:
    """Take a mark back."""
    _write("undo", store, by, mark=name, reason=reason)


@mark.command(name="list")
@common("store", "json")
def list_marks(store: str | None, as_json: bool) -> None:
    """Show all marks, also those taken back."""
    from benchkit.formatting import Table
    from benchkit.store.marks import active_marks
    from benchkit.store.store import Store

    found = Store(store, create=False).marks()
    active = {one["id"] for one in active_marks(found)}
    if as_json:
        print_json([{**one, "active": one["id"] in active} for one in found])
        return
    shown = ("id", "kind", "by", "reason")
    rows = [
        {
            **{name: str(one.get(name, "")) for name in shown},
            "about": ", ".join(
                f"{name}={value}" for name, value in one.items() if name not in shown
            ),
            "active": "yes" if one["id"] in active else "no",
        }
        for one in found
    ]
    click.echo(Table(rows).to_text() if rows else "no marks")
