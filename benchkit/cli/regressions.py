"""`benchkit regressions`: what the ledger says."""

from __future__ import annotations

import click

from benchkit.cli.options import common, print_json

__all__ = ["regressions"]


@click.command()
@click.option("--since", metavar="MOMENT", help="Seen since then: 30d, 2026-08-01.")
@click.option("--state", "states", multiple=True, metavar="STATE",
              help="Only these: open, grown, recovered, accepted, ended.")  # fmt: skip
@click.option("--open", "only_open", is_flag=True, help="Only those that are still there.")
@common("store", "json")
def regressions(
    since: str | None,
    states: tuple[str, ...],
    only_open: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the regressions in the ledger, the one seen last first.

    \b
    Examples:
      benchkit regressions --open
      benchkit regressions --since 30d --json
    """
    from benchkit.analysis.regression.regression import STATES, read_ledger
    from benchkit.errors import UsageError, did_you_mean
    from benchkit.formatting import Table
    from benchkit.store.index.query import parse_moment
    from benchkit.store.store import Store

    for state in states:
        if state not in STATES:
            hint = did_you_mean(state, STATES, f"use {', '.join(STATES)}")
            raise UsageError(f"--state {state!r}: {hint}")
    home = Store(store, create=False)
    found = read_ledger(home.events(), home.marks())
    if since is not None:
        moment = parse_moment(since)
        found = [one for one in found if parse_moment(one.seen) >= moment]
    found = [one for one in found if not states or one.state in states]
    found = [one for one in found if one.is_open or not only_open]
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        click.echo("no regressions", err=True)
        return
    rows = [
        {
            "id": one.id,
            "state": one.state,
            "workload": one.workload,
            "metric": one.metric,
            "size": one.size,
            "since": one.night[:10],
            "environment": one.environment,
            "cause": one.cause + (", confirmed" if one.confirmed else ""),
        }
        for one in found
    ]
    click.echo(Table(rows).to_text())
