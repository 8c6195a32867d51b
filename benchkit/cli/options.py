"""Options and output that all commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import CompletionItem

from benchkit.errors import MissingExtra
from benchkit.formatting import json_safe

__all__ = ["as_json_text", "common", "print_json"]

#: Fields of records that hold JSON as a text, as Parquet and NetCDF do.
_JSON_FIELDS = ("extra_metrics", "params", "tags")


class CaptureLevel(click.ParamType):
    """A level of capture, and what is kept beside the run."""

    name = "capture"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the value if it can be meant."""
        from benchkit.measure.artifacts import parse_capture

        parse_capture(str(value))
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Complete levels, and extras after a plus."""
        from benchkit.measure.artifacts import EXTRAS, LEVELS

        head, plus, last = incomplete.rpartition("+")
        known = EXTRAS if plus else LEVELS
        return [CompletionItem(head + plus + word) for word in known if word.startswith(last)]


def _into_environment(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Hand a choice to the processes that measure, by the variable of its name."""
    name = str(parameter.envvar)
    before = os.environ.get(name)
    if not value:
        return
    from benchkit.measure.prometheus.session import SCRAPE, VARIABLE, Prometheus

    chosen = str(value).strip()
    Prometheus(**{"url" if name == VARIABLE else "match": chosen})
    if chosen == SCRAPE and not find_spec("prometheus_client"):
        raise MissingExtra("prometheus", "prometheus-client")
    os.environ[name] = chosen

    def restore() -> None:
        os.environ.pop(name, None)
        os.environ.update({name: before} if before is not None else {})

    context.call_on_close(restore)


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
        "capture": [
            click.option(
                "--capture",
                type=CaptureLevel(),
                default="full",
                show_default=True,
                metavar="LEVEL[+EXTRA]",
                help="How much is watched: full, light or off; and what is kept beside the run: "
                "performance-report, cluster-dump, memray.",
            )
        ],
        "prometheus": [
            click.option(
                "--prometheus",
                envvar="BENCHKIT_PROMETHEUS",
                metavar="URL|scrape",
                expose_value=False,
                callback=_into_environment,
                help="Keep what this Prometheus server knows of each run, or scrape scheduler and "
                "workers; default $BENCHKIT_PROMETHEUS.",
            ),
            click.option(
                "--prometheus-match",
                envvar="BENCHKIT_PROMETHEUS_MATCH",
                metavar="SELECTOR",
                expose_value=False,
                callback=_into_environment,
                help="The cluster's series on that server, if not told by where it serves HTTP.",
            ),
        ],
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
    return json_safe(row)
