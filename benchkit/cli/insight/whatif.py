"""`benchkit whatif`: predict the duration of a run after a change."""

from __future__ import annotations

from typing import Any

import click

from benchkit.cli.options import common, read_numbers
from benchkit.cli.rows import open_store, print_json


def _factor(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Return the factor of a text such as ``x2`` or ``0.5``: a callback of click."""
    try:
        return None if text is None else float(text.removeprefix("x"))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: expected a factor, such as x2 or 0.5") from error


def _group_factors(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    """Return the factors of texts such as ``sum=0.5``: a callback of click."""
    factors = {}
    for text in texts:
        name, equals, factor = text.rpartition("=")
        try:
            factors[name] = float(factor)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise click.BadParameter(f"{text!r}: expected GROUP=FACTOR, such as sum=0.5")
    return factors


@click.command()
@click.argument("run", default="latest")
@click.option("--workers", metavar="N,...", callback=read_numbers, help="Numbers of workers.")
@click.option("--threads", metavar="N,...", callback=read_numbers, help="Threads of each worker.")
@click.option("--transfers", metavar="FACTOR", callback=_factor,
              help="Factor of the seconds of transfers; 0: they are free.")  # fmt: skip
@click.option("--bandwidth", metavar="FACTOR", callback=_factor, help="Factor, such as x2.")
@click.option("--group", "groups", metavar="GROUP=FACTOR", multiple=True, callback=_group_factors,
              help="Factor of the durations of a task group or prefix; repeatable.")  # fmt: skip
@click.option("--no-spill", is_flag=True, help="No task waits for spilled data.")
@common("store", "json")
def whatif(run: str, store: str | None, as_json: bool, **changes: Any) -> None:
    """Predict the duration of a run after a change.

    Replays the recorded graph of RUN (an id, the beginning of one, or `latest`) with its recorded
    durations and transfers. Several numbers of workers or threads give one row each; the other
    changes apply to all rows.

    \b
    Examples:
      benchkit whatif latest --workers 4,8,16
      benchkit whatif latest --group "sum=0.5" --transfers 0
    """
    from benchkit.predict.whatif import what_if

    answer = what_if(open_store(store).open(run), **changes)
    if as_json:
        print_json(answer.to_records())
    else:
        click.echo(answer.to_table().to_text())
        click.echo(f"\n{answer.sentence}")
