"""`benchkit diagnose`: say what makes runs slower than they have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store, print_json

if TYPE_CHECKING:
    from benchkit.analysis.insight.diagnose import Diagnosis
    from benchkit.store.store import Store


@click.command("diagnose")
@click.argument("selection", default="latest", metavar="[RUN|SEL]")
@common("store", "json")
def diagnose_command(selection: str, store: str | None, as_json: bool) -> None:
    """Say what slows runs down.

    RUN is an id, the beginning of one, or `latest`; SEL selects several runs, as in
    `benchkit compare`, such as `experiment:ID`. Each finding has its cost, its evidence and what to
    change. Findings that cost less than 3 % of the duration or 0.2 s are not reported.

    \b
    Examples:
      benchkit diagnose
      benchkit diagnose experiment:latest --json
    """
    found = diagnose_runs(open_store(store), selection)
    if as_json:
        print_json([row for diagnosis in found for row in diagnosis.to_records()])
        return
    for diagnosis in found:
        if len(found) > 1:
            click.echo(f"\n{diagnosis.run_id[:13]} {diagnosis.workload}")
        for line in diagnosis.conclusion:
            click.echo(line)
        click.echo(f"\n{diagnosis.sentence}")
        if diagnosis.findings:
            click.echo(diagnosis.to_table().to_text())
        for finding in diagnosis.findings:
            if proof := diagnosis.proof(finding):
                click.echo(f"to prove that {finding.what}:\n{proof}")


def diagnose_runs(run_store: Store, selection: str) -> list[Diagnosis]:
    """Return the diagnoses of a run or of a selection of runs."""
    from benchkit.analysis.insight.diagnose import diagnose
    from benchkit.store.filters import select_runs

    ids = select_runs(run_store, selection, columns=["id"])["id"] if ":" in selection else None
    return [diagnose(run_store.open(run_id)) for run_id in ([selection] if ids is None else ids)]
