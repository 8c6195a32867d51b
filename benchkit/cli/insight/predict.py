"""`benchkit whatif` and `simulate`: predict the duration of a run after a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import common, read_numbers, read_pairs, yaml_value
from benchkit.cli.rows import open_store, print_json

if TYPE_CHECKING:
    from benchkit.predict.answer import Answer


def _values(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> list[str] | None:
    """Return the parts of a text with commas: a callback of click."""
    return None if text is None else text.split(",")


_CHANGES = [
    click.option("--workers", metavar="N,...", callback=read_numbers, help="Numbers of workers."),
    click.option("--threads", metavar="N,...", callback=read_numbers,
                 help="Threads of each worker."),
    click.option("--memory", metavar="SIZE,...", callback=_values,
                 help="Memory limit of each worker, such as 4GiB."),
    click.option("--bandwidth", metavar="X,...", callback=_values,
                 help="Bandwidth of each worker's link: a factor such as 2x, or 200MB/s."),
    click.option("--transfers", metavar="FACTOR", type=float,
                 help="Factor of the seconds of transfers; 0: they are free."),
    click.option("--scheduler", metavar="FACTOR", type=float,
                 help="Factor of the seconds for which the scheduler computes, such as 0.1."),
    click.option("--group", "groups", metavar="GROUP=FACTOR", multiple=True,
                 callback=read_pairs,
                 help="Factor of the durations of a task group or prefix; repeatable."),
    click.option("--chunks", metavar="X,...", callback=_values,
                 help="Chunks this many times as large, such as 2x: half as many tasks."),
    click.option("--no-spill", is_flag=True, default=None, help="No task waits for spilled data."),
]  # fmt: skip


def _changes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a change."""
    for option in reversed(_CHANGES):
        command = option(command)
    return command


def _show(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        print_json(answer.to_records())
    else:
        for line in answer.disturbed:
            click.echo(f"{line}\n")
        click.echo(answer.to_table().to_text())
        click.echo(f"\n{answer.sentence}" if answer.sentence else "")


@click.command()
@click.argument("run", default="latest")
@_changes
@click.option(
    "--within", metavar="TIME", help="Fewest workers that end it in this time, such as 60s."
)
@common("store", "json")
def whatif(run: str, store: str | None, as_json: bool, **changes: Any) -> None:
    """Predict the duration of a run after a change.

    Replays the recorded graph of RUN (an id, the beginning of one, or `latest`) with its recorded
    durations and transfers. Several values of an option give one row each; `benchkit simulate` has
    the same options and asks Dask's own scheduler.

    \b
    Examples:
      benchkit whatif latest --workers 4,8,16
      benchkit whatif latest --group "sum=0.5" --transfers 0
      benchkit whatif latest --within 60s --memory 2GiB
    """
    from benchkit.predict.whatif import what_if

    _show(what_if(open_store(store).open(run), **changes), as_json=as_json)


@click.command()
@click.argument("run")
@_changes
@click.option("--set", "config", multiple=True, metavar="KEY=V", callback=read_pairs,
              help="Dask configuration: scheduler.work-stealing=false; V,V sweeps.")  # fmt: skip
@click.option("--draws", default=3, show_default=True, type=click.IntRange(1),
              help="Simulations of each cluster.")  # fmt: skip
@click.option("--figure", metavar="FILE", help="Write the curves to this HTML file.")
@common("environment", "store", "json")
def simulate(
    run: str,
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
    "latest"; graph.NAME, a synthetic graph; or FILE.json, a workflow that another system ran, in
    WfFormat (WfCommons). A run itself is simulated first; if that takes 30 % more or less time than
    the run, nothing is predicted. All simulated runs are stored, marked as simulated.

    \b
    Examples:
      benchkit simulate latest --workers 10,100,1000 --set scheduler.work-stealing=false
      benchkit simulate graph.tree --workers 1,10,100 --figure tree.html
      benchkit simulate latest --set scheduler.worker-saturation=1,1.1,2,inf
    """
    from benchkit.experiment.virtual import api
    from benchkit.store.store import Store

    is_graph = run.startswith("graph.") or run.endswith(".json")
    opened = Store(store) if is_graph else open_store(store)
    answer = api.simulate(
        api.graph_of_name(run) if is_graph else opened.open(run),
        config={name: _read_values(value) for name, value in config.items()},
        environment=environment,
        environment_folders=environment_folders,
        store=opened,
        **options,
    )
    _show(answer, as_json=as_json)
    if figure:
        from benchkit.show.plots.sweep import save_simulation_curves

        save_simulation_curves(answer.table, answer.runs[0].workload, figure)
        click.echo(f"figure: {figure}", err=True)


def _read_values(value: Any) -> Any:
    """Return the values of a text with commas as a list."""
    if not isinstance(value, str) or "," not in value:
        return value
    return [yaml_value(part) for part in value.split(",")]
