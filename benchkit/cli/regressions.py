"""`benchkit regressions`: list the regressions in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store, print_json

if TYPE_CHECKING:
    from benchkit.analysis.regression.regression import Regression
    from benchkit.store.store import Store


@click.command()
@click.option("--since", metavar="TIME", help="Seen since this time or age: 2026-08-01, 30d.")
@click.option("--state", "states", multiple=True, metavar="STATE",
              help="Only in this state: open, grown, recovered, accepted, ended.")  # fmt: skip
@click.option("--open", "only_open", is_flag=True, help="Only regressions that are still present.")
@common("store", "json")
def regressions(store: str | None, as_json: bool, **chosen: Any) -> None:
    """List regressions, the last seen first.

    \b
    Examples:
      benchkit regressions --open
      benchkit regressions --since 30d --json
    """
    from benchkit.table import Table

    selected = select_regressions(open_store(store), **chosen)
    if as_json:
        print_json([regression.to_dict() for regression in selected])
        return
    if not selected:
        click.echo("no regressions", err=True)
        return
    rows = [
        {
            "id": regression.id,
            "state": regression.state,
            "workload": regression.workload,
            "metric": regression.metric,
            "size": regression.size,
            "since": regression.night[:10],
            "environment": regression.environment,
            "cause": regression.cause + (", confirmed" if regression.confirmed else ""),
            "decided": ", ".join(str(about["verdict"]) for about in regression.decisions),
        }
        for regression in selected
    ]
    click.echo(Table(rows).to_text())


def select_regressions(
    run_store: Store, *, since: str | None, states: Collection[str], only_open: bool
) -> list[Regression]:
    """Return regressions of the ledger, the last seen first."""
    from benchkit.analysis.regression.regression import STATES, read_ledger
    from benchkit.errors import UsageError, did_you_mean
    from benchkit.store.filters import parse_moment

    for state in states:
        if state not in STATES:
            hint = did_you_mean(state, STATES, f"use {', '.join(STATES)}")
            raise UsageError(f"--state {state!r}: {hint}")
    moment = None if since is None else parse_moment(since)
    return [
        regression
        for regression in read_ledger(run_store.events(), run_store.marks())
        if (moment is None or parse_moment(regression.seen) >= moment)
        and (not states or regression.state in states)
        and (regression.is_open or not only_open)
    ]
