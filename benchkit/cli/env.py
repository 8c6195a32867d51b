"""`benchkit env`: list, build, show, compare, import and remove environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import common, complete_names
from benchkit.cli.rows import print_json, print_rows
from benchkit.table import Table

if TYPE_CHECKING:
    from benchkit.experiment.environment.cache import Built
    from benchkit.experiment.environment.environment import Environment


#: Values with more characters are printed below the table of differences.
MAX_CHARACTERS = 60


@click.group()
def env() -> None:
    """Manage packages, settings and clusters."""


def print_replaced(folders: Sequence[Path]) -> None:
    """Print a note for each environment file that another one of the same name replaces."""
    from benchkit.experiment.environment.lookup import environment_files, list_environments

    used = list_environments(folders)
    for path in environment_files(folders):
        if path != used[path.stem]:
            click.echo(f"note: {used[path.stem]} replaces {path}", err=True)


def _load_environment(name: str, folders: tuple[str, ...], *, check: bool = True) -> Environment:
    from benchkit.experiment.environment.lookup import find_environment
    from benchkit.experiment.paths import folders_of

    return find_environment(name, folders_of("environments", folders), check=check)


def _load_valid(name: str, folders: tuple[str, ...]) -> Environment:
    """Return an environment after checking it; its cluster class may be absent here."""
    from benchkit.errors import InvalidEnvironmentError
    from benchkit.experiment.environment.build import find_build
    from benchkit.experiment.environment.validate import check_settings

    try:
        environment = _load_environment(name, folders)
    except InvalidEnvironmentError as error:
        if "cannot be imported" not in str(error):
            raise
        click.echo(f"warning: {error}", err=True)
        return _load_environment(name, folders, check=False)
    built = find_build(environment) if environment.needs_building else None
    if built is not None:
        check_settings(environment, {**built.settings(), "packages": built.packages})
    return environment


@env.command("list")
@common("environments", "json")
def list_env(environment_folders: tuple[str, ...], as_json: bool) -> None:
    """List environments and built versions.

    \b
    Example:
      benchkit env list
    """
    from benchkit.experiment.environment.describe import environment_rows
    from benchkit.experiment.paths import folders_of
    from benchkit.formatting import format_bytes

    searched = folders_of("environments", environment_folders)
    print_replaced(searched)
    rows = environment_rows(searched)
    if as_json:
        print_json(rows)
        return
    labels = {None: "as it is", True: "yes", False: "no"}
    for row in rows:
        row["built"] = "" if row["error"] else labels[row["built"]]
        row["size"] = format_bytes(row.pop("bytes")) if row["bytes"] else ""
    order = ("name", "python", "dask", "built", "size", "description", "error")
    click.echo(Table([{name: row[name] for name in order} for row in rows]).to_text())


@env.command("build")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_names("environments"))
@click.option(
    "--update", is_flag=True, help="Resolve again: use the newest versions of unpinned packages."
)
@common("environments", "json")
def build_env(
    names: tuple[str, ...], update: bool, environment_folders: tuple[str, ...], as_json: bool
) -> None:
    """Build environments and check settings.

    Environments without packages are only checked. A built environment is built again only if a
    local source or a branch has changed.

    \b
    Example:
      benchkit env build release-2023.4.1 previous-release
    """
    from benchkit.experiment.environment.build import build

    rows = []
    for environment in [_load_environment(name, environment_folders) for name in names]:
        built = build(environment, update=update, report=lambda line: click.echo(line, err=True))
        row: dict[str, Any] = {"name": environment.name, "hash": built.hash}
        row["python"] = built.python_version
        row |= {"dask": built.packages.get("dask", ""), "packages": len(built.packages)}
        rows.append(row | {"executable": str(built.python)})
    print_rows(rows, as_json=as_json)


@env.command("show")
@click.argument("name", shell_complete=complete_names("environments"))
@common("environments", "json")
def show_env(name: str, environment_folders: tuple[str, ...], as_json: bool) -> None:
    """Print the content of an environment.

    Settings with default values are printed with --json only.

    \b
    Example:
      benchkit env show no-stealing
    """
    from benchkit.experiment.environment.describe import show_rows

    environment = _load_valid(name, environment_folders)
    rows = show_rows(environment)
    if as_json:
        print_json(rows)
    else:
        _print_sections(rows, own=not environment.needs_building)
    _report_unbuilt(environment)


def _print_sections(rows: list[dict[str, Any]], *, own: bool) -> None:
    """Print rows by kind; shared packages and default settings are only counted."""
    defaults = [row for row in rows if row["kind"] == "config" and row["from"] == "default"]
    shared = [row for row in rows if row["kind"] == "package"] if own else []
    kind = ""
    for row in [row for row in rows if row not in defaults and row not in shared]:
        if row["kind"] != kind:
            kind = row["kind"]
            click.echo(f"{kind}:")
        text = row["name"] if kind == "requirement" else f"{row['name']}: {row['value']}"
        origin = f"  ({row['from']})" if row["from"] and kind != "definition" else ""
        click.echo(f"  {text}{origin}")
    if shared:
        click.echo(f"{len(shared)} packages of this interpreter: --json prints them", err=True)
    if defaults:
        click.echo(f"{len(defaults)} settings have their defaults: --json prints them", err=True)


def _report_unbuilt(*environments: Environment) -> None:
    from benchkit.experiment.environment.build import find_build

    for environment in environments:
        if find_build(environment) is None:
            click.echo(
                f"{environment.name} is not built: `benchkit env build {environment.name}` "
                "makes its packages and defaults available",
                err=True,
            )


@env.command("diff")
@click.argument("a", shell_complete=complete_names("environments"))
@click.argument("b", shell_complete=complete_names("environments"))
@common("environments", "json")
def diff_env(a: str, b: str, environment_folders: tuple[str, ...], as_json: bool) -> None:
    """Print how two environments differ.

    Packages and defaults are compared when both are built.

    \b
    Example:
      benchkit env diff baseline no-stealing
    """
    from benchkit.experiment.environment.describe import differences

    first, second = (_load_valid(name, environment_folders) for name in (a, b))
    rows = differences(first, second)
    if as_json:
        print_json(rows)
    elif rows:
        _print_differences(rows, first.name, second.name)
    else:
        click.echo(f"{first.name} and {second.name} do not differ", err=True)
    _report_unbuilt(first, second)


def _print_differences(rows: list[dict[str, Any]], first: str, second: str) -> None:
    """Print a table, long values below it; packages of only one side are counted."""
    import textwrap

    names = {"a": first, "b": second if second != first else f"{second} (b)"}
    extra = {
        side: [r["name"] for r in rows if r["kind"] == "package" and r[far] is None]
        for side, far in ("ab", "ba")
    }
    shown = [
        {"kind": row["kind"], "name": row["name"]}
        | {names[side]: "–" if row[side] is None else str(row[side]) for side in "ab"}
        for row in rows
        if not (row["kind"] == "package" and None in (row["a"], row["b"]))
    ]
    sides = names.values()
    long = [row for row in shown if max(len(row[name]) for name in sides) > MAX_CHARACTERS]
    short = [row for row in shown if row not in long]
    if short:
        click.echo(Table(short).to_text())
    for row in long:
        click.echo(f"{row['kind']} {row['name']}")
        for name in sides:
            click.echo(textwrap.fill(row[name], 100, initial_indent=f"  {name}: ",
                                     subsequent_indent="    ", break_on_hyphens=False))  # fmt: skip
    for side, packages in extra.items():
        if packages:
            few = ", ".join(packages[:6]) + (", ..." if len(packages) > 6 else "")
            click.echo(f"only {names[side]} has {len(packages)} more packages: {few}")


@env.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--environments",
    "target",
    default="environments",
    metavar="DIR",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Folder for the written files.",
)
@common("json")
def import_env(folder: Path, target: Path, as_json: bool) -> None:
    """Import the AB_*.yaml of coiled/benchmarks.

    Writes an environment file for each name. Files are never overwritten. Entries without an
    equivalent are printed on stderr.

    \b
    Example:
      benchkit env import AB_environments/
    """
    from benchkit.experiment.environment.coiled import ab_command, import_reference

    imported = import_reference(folder, target)
    for environment in imported:
        for warning in environment.warnings:
            click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json([environment.to_dict() for environment in imported])
        return
    for environment in imported:
        click.echo(f"{environment.path}  from {', '.join(environment.sources)}")
    if len(imported) > 1:
        names = [environment.name for environment in imported]
        click.echo(f"compare them: {ab_command(folder, names, target)}", err=True)


@env.command("remove")
@click.argument("names", nargs=-1)
@click.option("--unused", is_flag=True, help="Remove builds that no environment file uses.")
@click.option("--all", "everything", is_flag=True, help="Remove all builds.")
@common("environments", "json")
def remove_env(
    names: tuple[str, ...],
    unused: bool,
    everything: bool,
    environment_folders: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove built environments.

    Environment files are kept, and can be built again. NAMES are names of environments or
    hashes of builds.

    \b
    Example:
      benchkit env remove --unused
    """
    from benchkit.errors import UsageError
    from benchkit.experiment.environment.cache import list_built, remove
    from benchkit.formatting import format_bytes

    if bool(names) + unused + everything != 1:
        raise UsageError("env remove: give names, or --unused, or --all")
    if everything:
        builds = list_built()
    elif unused:
        builds = _unused(environment_folders)
    else:
        builds = [_build_named(name, environment_folders) for name in names]
    builds = list({built.hash: built for built in builds}.values())
    for built in builds:
        remove(built)
        if not as_json:
            dask = f"dask {built.packages.get('dask', '?')}, Python {built.python_version}"
            click.echo(f"removed {built.hash}  {dask}  {format_bytes(built.nbytes)}")
    if as_json:
        print_json([{"hash": built.hash, "bytes": built.nbytes} for built in builds])
    elif not builds:
        click.echo("nothing to remove", err=True)


def _build_named(name: str, environment_folders: tuple[str, ...]) -> Built:
    from benchkit.errors import UsageError
    from benchkit.experiment.environment.build import find_build
    from benchkit.experiment.environment.cache import find_built

    built = find_built(name)
    if built is None:
        environment = _load_environment(name, environment_folders, check=False)
        built = find_build(environment)
        if built is None or built.is_own:
            raise UsageError(f"environment {environment.name!r} is not built: nothing to remove")
    return built


def _unused(environment_folders: tuple[str, ...]) -> list[Built]:
    from benchkit.experiment.environment.cache import list_built
    from benchkit.experiment.environment.describe import environment_rows
    from benchkit.experiment.paths import folders_of

    rows = environment_rows(folders_of("environments", environment_folders))
    used = {row["hash"] for row in rows}
    return [built for built in list_built() if built.hash not in used]
