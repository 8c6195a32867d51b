"""`benchkit store`: look after a store of runs."""

from __future__ import annotations

import sys

import click

from benchkit.cli.options import common, print_json

__all__ = ["store_group"]


@click.group("store")
def store_group() -> None:
    """Look after a store of runs."""


@store_group.command("info")
@common("store", "json")
def store_info(store: str | None, as_json: bool) -> None:
    """Print counts and sizes of a store.

    \b
    Example:
      benchkit store info --json
    """
    from benchkit.store.store import Store
    from benchkit.store.text import format_bytes

    info = Store(store, create=False).info()
    if as_json:
        print_json([info])
    else:
        info["bytes"] = format_bytes(info["bytes"])
        info["outcomes"] = ", ".join(f"{n} {name}" for name, n in info["outcomes"].items()) or "-"
        click.echo("\n".join(f"{name:13} {value}" for name, value in info.items()))


@store_group.command("check")
@common("store", "json")
def store_check(store: str | None, as_json: bool) -> None:
    """Compare the files of a store with its index; list again what a crash left unlisted.

    \b
    Example:
      benchkit store check

    Exit code 3: files are damaged.
    """
    from benchkit.store.store import Store

    report = Store(store, create=False).check()
    print_json([report.to_dict()]) if as_json else click.echo(str(report))
    if not report.healthy:
        sys.exit(3)


@store_group.command("compact")
@common("store", "json")
def store_compact(store: str | None, as_json: bool) -> None:
    """Fold the index of a store into few files.

    \b
    Example:
      benchkit store compact
    """
    from benchkit.store.store import Store

    done = dict(Store(store, create=False).compact())
    if as_json:
        print_json([done])
    else:
        click.echo(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in done.items()))
