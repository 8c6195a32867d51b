"""`benchkit data`: list, make and clear the input datasets of workloads."""

from __future__ import annotations

import click

from benchkit.cli.options import common, print_json

__all__ = ["data"]


@click.group()
def data() -> None:
    """Look after the datasets that workloads read."""


@data.command("list")
@common("json")
def list_data(as_json: bool) -> None:
    """List the datasets that are there.

    \b
    Example:
      benchkit data list --json
    """
    from benchkit.measure.datasets import data_folder, list_datasets
    from benchkit.store.text import format_bytes

    found = list_datasets()
    if as_json:
        print_json([{"name": d.label, "path": str(d.path), "bytes": d.nbytes} for d in found])
        return
    for item in found:
        click.echo(f"{item.label:40} {format_bytes(item.nbytes):>10}  {item.path.name}")
    click.echo(f"{len(found)} datasets in {data_folder()}", err=True)


@data.command("make")
@click.argument("name")
@click.option(
    "--size",
    type=click.Choice(["tiny", "ci", "laptop", "cluster"]),
    default="ci",
    show_default=True,
    help="Named size.",
)
def make_data(name: str, size: str) -> None:
    """Make a dataset, if it is not there yet.

    \b
    Example:
      benchkit data make tpch --size tiny
    """
    import benchkit.measure.recipes  # noqa: F401  (declares the recipes)
    from benchkit.measure.datasets import dataset

    made = dataset(name, size=size)
    click.echo(f"{made.label}  {made.path}")


@data.command("clear")
@click.argument("name", required=False)
def clear_data(name: str | None) -> None:
    """Remove the datasets of a recipe, or all.

    \b
    Example:
      benchkit data clear tpch
    """
    import benchkit.measure.recipes  # noqa: F401  (declares the recipes)
    from benchkit.measure.datasets import clear

    for gone in clear(name):
        click.echo(f"removed {gone.label}")
