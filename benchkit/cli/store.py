"""`benchkit store`: inspect, check, copy, import, export and prune a store of runs."""

from __future__ import annotations

import sys

import click

from benchkit.cli.options import common
from benchkit.cli.rows import open_store, print_json
from benchkit.formatting import counted


@click.group("store")
def store_group() -> None:
    """Manage a store of runs."""


@store_group.command("info")
@common("store", "json")
def store_info(store: str | None, as_json: bool) -> None:
    """Print counts and sizes of a store.

    \b
    Example:
      benchkit store info --json
    """
    from benchkit.formatting import format_bytes

    info = open_store(store).info()
    if as_json:
        print_json([info])
    else:
        info["bytes"] = format_bytes(info["bytes"])
        if "outcomes" in info:
            texts = (f"{n} {name}" for name, n in info["outcomes"].items())
            info["outcomes"] = ", ".join(texts) or "-"
        click.echo("\n".join(f"{name:13} {value}" for name, value in info.items()))
    if "problem" in info:
        sys.exit(3)


@store_group.command("check")
@click.option("--quick", is_flag=True, help="Compare names only; do not read runs that are listed.")
@click.option("--set-aside", is_flag=True, help="Move damaged runs to the folder trash.")
@common("store", "json")
def store_check(quick: bool, set_aside: bool, store: str | None, as_json: bool) -> None:
    """Check a store and index missing runs.

    Reads every file and compares it with its SHA-256 digest.

    \b
    Examples:
      benchkit store check
      benchkit store check --set-aside

    Exit code 3: files are damaged.
    """
    if quick and set_aside:
        raise click.UsageError("--set-aside reads all files: omit --quick")
    report = open_store(store).check(quick=quick, set_aside=set_aside)
    print_json([report.to_dict()]) if as_json else click.echo(str(report))
    if not report.healthy:
        sys.exit(3)


@store_group.command("compact")
@common("store", "json")
def store_compact(store: str | None, as_json: bool) -> None:
    """Merge the index files of a store.

    \b
    Example:
      benchkit store compact
    """
    done = dict(open_store(store).compact())
    if as_json:
        print_json([done])
    else:
        click.echo(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in done.items()))


@store_group.command("copy")
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@common("json")
def store_copy(source: str, destination: str, as_json: bool) -> None:
    """Add the content of a store to another.

    Runs, marks and experiments; nothing is removed there.

    Copy again to add new runs or to complete an interrupted copy.

    \b
    Example:
      benchkit store copy ./from-ci ./benchkit-store
    """
    from benchkit.store.store import Store

    done = Store(source, create=False).copy(destination)
    if as_json:
        print_json([{"copied": done}])
    else:
        click.echo(f"{counted(done, 'new run')} copied to {destination}")


@store_group.command("import")
@click.argument("path", metavar="PATH")
@click.option(
    "--host", metavar="NAME",
    help="One name for all machines of the results: hosted runners have many.",
)  # fmt: skip
@common("quiet", "store", "json")
def store_import(
    path: str, host: str | None, quiet: bool, store: str | None, as_json: bool
) -> None:
    """Import results of other benchmark tools.

    From coiled/benchmarks, asv, pytest-benchmark, CodSpeed or github-action-benchmark; also a
    performance report or a cluster dump of distributed, and runs without a digest.

    PATH is a benchmark.db, a JSON file of pytest-benchmark or CodSpeed, the folder of asv's
    results, the data.js of github-action-benchmark, the HTML page of a performance report, a
    cluster dump (.msgpack.gz, .yaml), a run file that another program wrote (.nc), or a store of a
    benchkit before digests.
    Results that were imported before are skipped, so a later copy adds only new ones. All columns
    of a benchmark.db are kept: `benchkit store export` writes them again. The time of a result of
    asv is that of its commit; when it was measured is the tag `measured`.

    \b
    Examples:
      benchkit store import benchmark.db
      benchkit store import .asv/results
      benchkit store import dask-report.html
    """
    from benchkit.cli.progress import bar
    from benchkit.store.interchange.results import import_results
    from benchkit.store.store import Store

    with bar("importing", quiet=quiet) as update_bar:
        report = import_results(Store(store), path, host=host, progress=update_bar)
    print_json([report.to_dict()]) if as_json else click.echo(str(report))
    if report.added > 1 and not quiet:
        click.echo("`benchkit nightly --no-measure` judges the history", err=True)


@store_group.command("export")
@click.argument("file", metavar="FILE")
@click.option(
    "--runs", "selection", metavar="SEL", help="Runs to export: env:main,since:30d; default: all."
)
@click.option("--format", "form", metavar="NAME", help="Format; default: by the ending of FILE.")
@common("store", "json")
def store_export(
    file: str, selection: str | None, form: str | None, store: str | None, as_json: bool
) -> None:
    """Write runs to a file for other tools.

    \b
    Formats and the endings that select them:
      sqlite            .db, .sqlite: for coiled/benchmarks' tools
      parquet, csv      .parquet, .csv: a row per run
      junit             .xml: JUnit XML, a test case per run
      openmetrics       .om, .prom: for promtool and Prometheus
      pytest-benchmark  its JSON; durations of the latest build
      asv               a folder, as asv's results_dir

    \b
    Examples:
      benchkit store export benchmark.db
      benchkit store export runs.parquet --runs env:main,since:30d
      benchkit store export results.json --format pytest-benchmark
    """
    from benchkit.store.filters import select_runs
    from benchkit.store.interchange.export import export_runs

    run_store = open_store(store)
    selected = select_runs(run_store, selection) if selection else None
    done = export_runs(run_store, file, selected, form=form)
    print_json([{"file": file, "runs": done}]) if as_json else click.echo(
        f"{counted(done, 'run')}: {file}"
    )


@store_group.command("prune")
@click.argument("ids", nargs=-1)
@click.option("--runs", "selection", metavar="SEL", help="Runs to move: env:old,until:365d.")
@click.option("--yes", is_flag=True, help="Move the runs; default: only print what would be moved.")
@common("store", "json")
def store_prune(
    ids: tuple[str, ...], selection: str | None, yes: bool, store: str | None, as_json: bool
) -> None:
    """Move runs to the trash of their store.

    Nothing is deleted.

    \b
    Examples:
      benchkit store prune --runs until:730d
      benchkit store prune 0198f --yes
    """
    from benchkit.errors import UsageError
    from benchkit.formatting import format_bytes
    from benchkit.store.filters import select_runs
    from benchkit.store.storage import run_name

    run_store = open_store(store)
    if bool(ids) == bool(selection):
        raise UsageError("select runs by id, or by --runs SEL such as until:365d")
    chosen = [run_store.resolve(run_id) for run_id in ids]
    if selection:
        chosen = select_runs(run_store, selection)["id"].tolist()
    size = sum(run_store.files.size(run_name(run_id)) for run_id in chosen)
    done = run_store.prune(chosen) if yes else 0
    if as_json:
        print_json([{"runs": len(chosen), "bytes": size, "moved": done}])
    elif yes:
        click.echo(f"{counted(done, 'run')} ({format_bytes(size)}) moved to {run_store.path}/trash")
    else:
        click.echo(
            f"{counted(len(chosen), 'run')} ({format_bytes(size)}) would be moved: --yes moves them"
        )
