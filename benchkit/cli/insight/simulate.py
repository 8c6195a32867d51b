"""`benchkit simulate`: predict the duration of a kept run on other clusters."""

from __future__ import annotations

from typing import Any

import click

from benchkit.cli.options import common, read_numbers, read_pairs, yaml_value
from benchkit.cli.rows import open_store, print_json


@click.command()
@click.argument("run")
@click.option("--workers", metavar="N,N", callback=read_numbers, help="Numbers of workers.")
@click.option("--threads", metavar="N,N", callback=read_numbers, help="Threads of each worker.")
@click.option("--memory", metavar="SIZE", help="Memory limit of each worker, such as 4GiB.")
@click.option("--bandwidth", metavar="B/S,B/S", callback=read_numbers,
              help="Bandwidth of each worker's link in B/s.")  # fmt: skip
@click.option("--latency", type=click.FloatRange(0), metavar="S",
              help="Latency of the network in s.")  # fmt: skip
@click.option("--set", "config", multiple=True, metavar="KEY=V", callback=read_pairs,
              help="Dask configuration: scheduler.work-stealing=false; V,V sweeps.")  # fmt: skip
@click.option("--draws", default=3, show_default=True, type=click.IntRange(1),
              help="Simulations of each cluster.")  # fmt: skip
@click.option("--figure", metavar="FILE", help="Write the curves to this HTML file.")
@common("environment", "store", "json")
def simulate(
    run: str,
    memory: str | None,
    config: dict[str, Any],
    figure: str | None,
    environment: str,
    environment_folders: tuple[str, ...],
    store: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate a kept run on other clusters.

    Dask's own scheduler runs in virtual time. RUN is the id of a run, the beginning of one, or
    "latest"; or graph.NAME, a synthetic graph. The run is replayed first; if the replay takes 15 %
    more or less time than the run, nothing is predicted. All simulated runs are stored, marked as
    simulated.

    \b
    Examples:
      benchkit simulate latest --workers 10,100,1000 --set scheduler.work-stealing=false
      benchkit simulate graph.tree --workers 1,10,100 --figure tree.html
      benchkit simulate latest --set scheduler.worker-saturation=1,1.1,2,inf
    """
    from dask.utils import parse_bytes

    from benchkit.errors import UsageError
    from benchkit.experiment.virtual import api
    from benchkit.store.store import Store
    from benchkit.table import Table

    is_graph = run.startswith("graph.")
    opened = Store(store) if is_graph else open_store(store)
    try:
        limit = None if memory is None else int(parse_bytes(memory))
    except ValueError:
        raise UsageError(f"--memory {memory!r}: must be a size, such as 4GiB") from None
    simulation = api.simulate(
        api.graph_of_name(run) if is_graph else opened.open(run),
        memory_limit=limit,
        config={name: _read_values(value) for name, value in config.items()},
        environment=environment,
        environment_folders=environment_folders,
        store=opened,
        **options,
    )
    if as_json:
        print_json(simulation.table.to_dict("records"))
    else:
        click.echo(Table(simulation.rows()).to_text())
        click.echo(f"\nsimulated: {simulation.sentence}")
    if figure:
        from benchkit.show.plots.sweep import save_simulation_curves

        save_simulation_curves(simulation.table, simulation.runs[0].workload, figure)
        click.echo(f"figure: {figure}", err=True)


def _read_values(value: Any) -> Any:
    """Return the values of a text with commas as a list."""
    if not isinstance(value, str) or "," not in value:
        return value
    return [yaml_value(part) for part in value.split(",")]
