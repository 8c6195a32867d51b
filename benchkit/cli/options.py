"""Options and output that all commands share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import click

__all__ = ["as_json_text", "common", "print_json"]

#: Fields of records that hold JSON as a text, as Parquet and NetCDF do.
_JSON_FIELDS = ("extra_metrics", "params", "tags")


def common(*names: str) -> Callable:
    """Return a decorator that adds the options of these names, as all commands have them."""
    options = {
        "store": [
            click.option(
                "--store",
                metavar="FOLDER",
                help="Store of runs; default $BENCHKIT_STORE, ./benchkit-store.",
            )
        ],
        "workloads": [
            click.option(
                "--workloads",
                "folders",
                multiple=True,
                metavar="DIR",
                help="Folder of workload files; default ./workloads.",
            )
        ],
        "environment": [
            click.option(
                "-e",
                "environment",
                default="current",
                show_default=True,
                metavar="ENV",
                help="Environment.",
            ),
        ],
        "environments": [
            click.option(
                "--environments",
                "environment_folders",
                multiple=True,
                metavar="DIR",
                help="Folder of environment files; default ./environments.",
            ),
        ],
        "select": [
            click.option(
                "-k",
                "expression",
                metavar="EXPR",
                help="Select as pytest does: words, category:, tag:, profile:, and/or/not.",
            )
        ],
        "tag": [click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag of runs.")],
        "json": [click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")],
    }

    def decorate(function: Callable) -> Callable:
        wanted = [*names, *(["environments"] if "environment" in names else [])]
        for name in reversed(wanted):
            for option in reversed(options[name]):
                function = option(function)
        return function

    return decorate


def print_json(rows: list[dict[str, Any]]) -> None:
    """Print rows as one JSON array; what is missing is null, JSON in texts is taken out of them."""
    click.echo(as_json_text(rows))


def as_json_text(rows: list[dict[str, Any]]) -> str:
    """Return rows as the text that `print_json` prints."""
    return json.dumps([_plain(row) for row in rows], default=str, indent=1)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    row = {
        name: json.loads(value) if name in _JSON_FIELDS and isinstance(value, str) else value
        for name, value in row.items()
    }
    # NaN is no JSON: other tools choke on it.
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
