"""`benchkit doctor`: what works here."""

from __future__ import annotations

import sys

import click

from benchkit.cli.options import common, print_json

__all__ = ["doctor"]

_SIGNS = {"ok": "ok     ", "absent": "absent ", "trouble": "TROUBLE"}


@click.command()
@common("store", "json")
def doctor(store: str | None, as_json: bool) -> None:
    """Try what benchkit needs: Dask, kernels, disk, credentials, browser, clocks.

    \b
    Example:
      benchkit doctor --json

    Exit code 3: something does not work; what is merely absent is fine.
    """
    from benchkit.experiment.doctor import run_checks

    findings = []
    for finding in run_checks(store):
        findings.append(finding)
        if not as_json:
            click.echo(f"{_SIGNS[finding.status]}  {finding.check:16}  {finding.detail}")
    if as_json:
        print_json([finding.to_dict() for finding in findings])
    if any(finding.status == "trouble" for finding in findings):
        sys.exit(3)
