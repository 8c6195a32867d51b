"""The command `benchkit`: groups the subcommands, and shows every refusal in one line."""

from __future__ import annotations

import sys

import click

from benchkit import __version__
from benchkit.cli.data import data
from benchkit.cli.options import common, print_json
from benchkit.errors import BenchkitError

__all__ = ["benchkit", "main"]

INTERRUPTED = 130
THINGS = ["workloads", "environments", "runs", "metrics"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="benchkit")
def benchkit() -> None:
    """Measure Dask workloads, keep the runs, and see where the time went."""


def main() -> None:
    """Run the command line; refusals are one line on stderr and their exit code."""
    try:
        benchkit.main(standalone_mode=False)
    except BenchkitError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted: what was measured is kept", err=True)
        sys.exit(INTERRUPTED)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)


@benchkit.command("list")
@click.argument(
    "what", type=click.Choice(["workloads", "environments", "runs", "metrics"]), default="workloads"
)
@common("store", "workloads", "select", "json")
def list_things(
    what: str, store: str | None, folders: tuple[str, ...], expression: str | None, as_json: bool
) -> None:
    r"""List workloads, environments, runs or metrics.

    \b
    Example:
      benchkit list workloads -k category:array
    """
    from benchkit.cli import listing

    rows = {
        "workloads": lambda: listing.workloads(folders, expression),
        "environments": listing.environments,
        "runs": lambda: listing.runs(store),
        "metrics": listing.metrics,
    }[what]()
    print_json(rows) if as_json else click.echo(listing.as_table(rows))


@benchkit.command()
@click.argument("names", nargs=-1)
@click.option("-n", "repeats", default=1, show_default=True, type=click.IntRange(1))
@click.option("-e", "environment", default="current", show_default=True, help="Environment.")
@click.option("--environments", "environment_folders", multiple=True, metavar="DIR")
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True))
@click.option("--capture", default="full", type=click.Choice(["full", "light", "off"]))
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag the runs.")
@common("store", "workloads", "select", "json")
def run(
    names: tuple[str, ...],
    repeats: int,
    environment: str,
    environment_folders: tuple[str, ...],
    scale: float,
    capture: str,
    tags: tuple[str, ...],
    store: str | None,
    folders: tuple[str, ...],
    expression: str | None,
    as_json: bool,
) -> None:
    r"""Measure workloads, print a table, keep the runs.

    \b
    Example:
      benchkit run sched.task_throughput -n 3
    """
    from benchkit.cli.measuring import measure_all

    pairs = dict(tag.partition("=")[::2] for tag in tags)
    records = measure_all(
        names=names,
        expression=expression,
        repeats=repeats,
        environment=environment,
        environment_folders=environment_folders,
        folders=folders,
        store=store,
        scale=scale,
        capture=capture,
        tags=pairs,
        say=lambda text: click.echo(text, err=True),
    )
    if as_json:
        print_json(records)
    else:
        from benchkit.cli import listing

        click.echo(listing.as_table([listing.run_row(record) for record in records]))
    if any(record["outcome"] not in ("ok", "skipped") for record in records):
        sys.exit(3)


@benchkit.group("store")
def store_group() -> None:
    """Look after a store of runs."""


@store_group.command("info")
@common("store", "json")
def store_info(store: str | None, as_json: bool) -> None:
    """Print counts and sizes of a store."""
    from benchkit.store.store import Store

    info = Store(store, create=False).info()
    if as_json:
        print_json([info])
    else:
        click.echo("\n".join(f"{name:13} {value}" for name, value in info.items()))


@store_group.command("check")
@common("store", "json")
def store_check(store: str | None, as_json: bool) -> None:
    """Compare the files of a store with its index; list again what a crash left unlisted."""
    from benchkit.store.store import Store

    report = Store(store, create=False).check()
    print_json([report.to_dict()]) if as_json else click.echo(str(report))
    if not report.healthy:
        sys.exit(3)


@store_group.command("compact")
@common("store", "json")
def store_compact(store: str | None, as_json: bool) -> None:
    """Fold the index of a store into few files."""
    from benchkit.store.store import Store

    done = dict(Store(store, create=False).compact())
    print_json([done]) if as_json else click.echo(str(done))


benchkit.add_command(data)
