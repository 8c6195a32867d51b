"""`benchkit doctor`: check what works on this machine."""

from __future__ import annotations

import sys

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json

#: Status -> its text in a column of 7 characters.
_STATUS_TEXTS = {"ok": "ok     ", "absent": "absent ", "trouble": "FAILED "}


@click.command()
@common("store", "json")
def doctor(store: str | None, as_json: bool) -> None:
    """Check what benchkit needs on this machine.

    That is Dask, kernels, disk, credentials, browser and clocks.

    \b
    Example:
      benchkit doctor --json

    Exit code 3: a check failed; absent optional parts are not failures.
    """
    from benchkit.experiment.doctor import run_checks

    results = []
    for result in run_checks(store):
        results.append(result)
        if not as_json:
            click.echo(f"{_STATUS_TEXTS[result.status]}  {result.check:16}  {result.detail}")
    if as_json:
        print_json([result.to_dict() for result in results])
    if any(result.status == "trouble" for result in results):
        sys.exit(3)
