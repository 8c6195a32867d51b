"""Options and output that all commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

__all__ = ["common", "print_json"]


def common(*names: str) -> Callable:
    """Return a decorator that adds the options of these names, as all commands have them."""
    options = {
        "store": click.option(
            "--store",
            metavar="FOLDER",
            help="Store of runs; default $BENCHKIT_STORE, ./benchkit-store.",
        ),
        "workloads": click.option(
            "--workloads", "folders", multiple=True, metavar="DIR", help="Folder of workload files."
        ),
        "select": click.option("-k", "expression", metavar="EXPR", help="Select as pytest does."),
        "json": click.option("--json", "as_json", is_flag=True, help="Print a JSON array."),
    }

    def decorate(function: Callable) -> Callable:
        for name in reversed(names):
            function = options[name](function)
        return function

    return decorate


def print_json(rows: list[dict[str, Any]]) -> None:
    """Print rows as one JSON array; what is missing is null."""
    click.echo(json.dumps(rows, default=str, indent=1))
