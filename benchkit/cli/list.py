"""`benchkit list`: print workloads, environments, runs, metrics or noise as a table or as JSON.

Rows are flat dictionaries, the same for a table and for JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import (
    as_records,
    matching_runs,
    open_store,
    print_json,
    print_json_texts,
    runs_as_json,
)
from benchkit.formatting import format_bytes, format_change, format_seconds, run_limits, short_group
from benchkit.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchkit.store.store import Store

#: Runs shown without --all.
_DEFAULT_RUNS = 30
#: Fields of the runs that the table shows or selects by.
_SHOWN_FIELDS = (
    "id",
    "started",
    "workload",
    "category",
    "environment",
    "arm",
    "outcome",
    "simulated",
    "duration",
    "memory_peak",
    "quality",
    "tags",
    "error",
)
_KINDS = ["workloads", "environments", "runs", "metrics", "noise"]
_EMPTY = {
    "runs": "no runs: `benchkit run` measures some",
    "noise": "no runs: `benchkit ab ENV --null-only --blocks 5` measures the noise",
}


@click.command("list")
@click.argument("what", type=click.Choice(_KINDS), default="workloads")
@click.option("--since", metavar="WHEN", help="Runs started since this time or age, such as 7d.")
@click.option("--outcome", metavar="NAME", help="Runs with this outcome only.")
@click.option(
    "--all", "everything", is_flag=True, help=f"All runs, not only the last {_DEFAULT_RUNS}."
)
@common("store", "workloads", "pytest", "environment", "select", "tag", "json")
def list_command(
    what: str,
    since: str | None,
    outcome: str | None,
    everything: bool,
    store: str | None,
    folders: tuple[str, ...],
    environment: str,
    environment_folders: tuple[str, ...],
    expression: str | None,
    tags: dict[str, str],
    as_json: bool,
) -> None:
    """List workloads, environments, runs, metrics.

    Workloads have the size of their data here. Noise is the difference between runs of the same
    workload, with the number of runs that are needed to detect a change. Saved with --json as
    facts.json next to the workloads, it is used to plan experiments on other machines.

    \b
    Examples:
      benchkit list workloads -k category:array
      benchkit list runs --since 7d --json
      benchkit list noise --json > workloads/facts.json
    """
    shown: Sequence[Mapping[str, Any]]
    empty = ""
    if what == "runs":
        filters = {"since": since, "outcome": outcome, "tags": tags or None}
        if as_json:
            print_json_texts(runs_as_json(store, expression, **filters))
            return
        last, count = _last_runs(store, expression, None if everything else _DEFAULT_RUNS, filters)
        if last.empty:
            from benchkit.store.filters import explain_no_runs

            run_store = open_store(store)
            reason = explain_no_runs(run_store, filters)
            empty = reason or (f"none of {len(run_store)} runs matches" if len(run_store) else "")
        if len(last) < count:
            click.echo(f"the last {_DEFAULT_RUNS} of {count} runs; --all shows all", err=True)
        shown = [_short_run(record) for record in as_records(last)]
    else:
        if what == "workloads":
            rows = _workloads(folders, expression, environment, environment_folders)
        elif what == "environments":
            rows = _environments(environment_folders)
        elif what == "noise":
            rows = _noise(store, expression)
        else:
            rows = metric_rows(store)
        if as_json:
            print_json(rows)
            return
        short = {"workloads": _short_workload, "noise": _short_noise}.get(what)
        shown = rows if short is None else [short(row) for row in rows]
    if not shown:
        click.echo(empty or _EMPTY.get(what, f"no {what}"), err=True)
        return
    on_terminal = sys.stdout.isatty()
    click.echo(Table(shown).to_text(width=get_terminal_size().columns if on_terminal else None))


def _workloads(
    folders: Sequence[str],
    expression: str | None,
    environment: str,
    environment_folders: Sequence[str],
) -> list[dict[str, Any]]:
    """Return a row per variant; broken files are rows too, with their reason."""
    from benchkit.experiment.environment.lookup import as_environment
    from benchkit.experiment.paths import collect_workloads
    from benchkit.experiment.run.data_sizes import size_text
    from benchkit.measure.secrets import redact

    collection = collect_workloads(folders)
    for name in collection.replaced:
        click.echo(f"note: {name} of ./workloads replaces the shipped one", err=True)
    arm = as_environment(environment, environment_folders)
    rows = [
        {
            "name": variant.name,
            "category": variant.workload.category,
            "size": size_text(variant, arm),
            "tags": list(variant.tags),
            "description": variant.workload.description.partition("\n")[0],
            "available": not variant.missing_packages(),
            "reason": ", ".join(variant.missing_packages()),
        }
        for variant in (
            collection.variants() if expression is None else collection.select((), expression)
        )
    ]
    for broken in collection.broken:
        where = f"{broken.path}:{broken.line}"
        empty = {"category": "", "size": "", "tags": [], "description": ""}
        rows.append({"name": where, **empty, "available": False, "reason": broken.reason})
    if not rows:
        collection.require()  # raises an error that names the folders
    redacted: list[dict[str, Any]] = redact(rows)  # at once: what is known is collected once
    return redacted


def _last_runs(
    store: str | None, expression: str | None, limit: int | None, filters: dict[str, Any]
) -> tuple[pd.DataFrame, int]:
    """Return the newest runs with the fields of the table, and the number of all runs."""
    count = None
    if limit is not None and expression is None:
        # All fields of a million runs need 400 MB; their times need 80 MB.
        started = matching_runs(store, columns=["started"], **filters)["started"]
        if len(started) > limit and started.iloc[-limit:].notna().all():
            count, filters = len(started), {**filters, "since": started.iloc[-limit]}
    frame = matching_runs(store, expression, columns=_SHOWN_FIELDS, **filters)
    return frame if limit is None else frame.tail(limit), len(frame) if count is None else count


def _environments(environment_folders: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per environment; the environment of benchkit is first."""
    from benchkit.cli.env import print_replaced
    from benchkit.experiment.environment.describe import environment_rows
    from benchkit.experiment.paths import folders_of

    folders = folders_of("environments", environment_folders)
    print_replaced(folders)
    rows = environment_rows(folders, check=True)
    return [{name: row[name] or "" for name in ("name", "description", "error")} for row in rows]


def metric_rows(store: Store | str | None) -> list[dict[str, Any]]:
    """Return a row per metric, with those that users defined for the runs of a store."""
    from benchkit.analysis.metric_names import define_own_metrics
    from benchkit.store.schema import METRICS
    from benchkit.store.store import Store

    opened = store if isinstance(store, Store) else Store(store)
    define_own_metrics(opened.runs(columns=["own_metrics"]))
    known = {**METRICS, **METRICS.own}
    return [{"name": metric.name, **metric.attrs} for metric in known.values()]


def _noise(store: str | None, expression: str | None) -> list[dict[str, Any]]:
    """Return a row per variant: its duration, its noise and the runs needed to detect changes."""
    from benchkit.experiment.run.estimate import noise_table

    return as_records(noise_table(matching_runs(store, expression)))


def _short_noise(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a variant in the table of noise."""
    has_noise = row["noise"] is not None
    needed = {
        f"runs to see {name.removeprefix('needed_')} %": ("over 1000" if value < 0 else value)
        if has_noise
        else ""
        for name, value in row.items()
        if name.startswith("needed_")
    }
    return {
        "workload": row["workload"],
        "runs": row["n_runs"],
        "usual": format_seconds(row["duration"]),
        "noise of one run": f"{row['noise']:.1%}" if has_noise else "too few runs",
        **needed,
    }


def _short_workload(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a variant in the table of workloads."""
    size, reason = row["size"], row["reason"]
    if reason and row["description"]:  # without a description: the reason why a file is broken
        reason = f"[needs {reason}] "
    return {
        "name": row["name"],
        "size here": size if len(size) <= 24 else f"{size[:23]}…",
        "what it does": reason + row["description"],
        "tags": row["tags"],
    }


def run_row(record: Mapping[str, Any], earlier: pd.DataFrame | None = None) -> dict[str, Any]:
    """Return the row of a run in the table that `benchkit run` prints."""
    return {
        "workload": record["workload"],
        "outcome": _outcome(record),
        "duration": format_seconds(record.get("duration")),
        "change": _change(record, earlier),
        "peak memory": format_bytes(record.get("memory_peak")),
        "biggest task group": _biggest_group(record),
        "error": record.get("error") or "",
        "run": record["id"][:13],
    }


def _outcome(record: Mapping[str, Any]) -> str:
    simulated = ["simulated"] if _is_simulated(record) else []
    limits = ", ".join([*simulated, *run_limits(record)])
    return f"{record['outcome']} ({limits})" if limits else str(record["outcome"])


def _is_simulated(record: Mapping[str, Any]) -> bool:
    """Return whether a record says that its run is simulated; missing values may be NaN."""
    return record.get("simulated") == 1


def _short_run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run in the table of runs."""
    arm, environment = record.get("arm") or "", record.get("environment") or ""
    return {
        "run": record["id"][:13],
        "started": f"{record['started']:%Y-%m-%d %H:%M}" if record.get("started") else "",
        "workload": record["workload"],
        "environment": environment,
        "arm": arm if arm != environment else "",
        "outcome": _outcome(record),
        "duration": format_seconds(record.get("duration")),
        "peak memory": format_bytes(record.get("memory_peak")),
        "tags": ", ".join(f"{k}={v}" for k, v in (record.get("tags") or {}).items()),
        "error": record.get("error") or "",
    }


def _change(record: Mapping[str, Any], earlier: pd.DataFrame | None) -> str:
    """Return the change of the duration; a star marks a change that chance rarely causes."""
    from benchkit.analysis.run.baseline import against_previous

    previous = None if earlier is None else against_previous(earlier, record)
    if previous is None or record["outcome"] != "ok":
        return ""
    star = "*" if previous.unusual else ""
    return f"{format_change(previous.ratio)}{star} ({previous.n_runs})"


def _biggest_group(record: Mapping[str, Any]) -> str:
    """Return the biggest task group without Dask's hash, and its share."""
    name = short_group(record.get("biggest_group") or "")
    share = record.get("biggest_group_share")
    name = name if len(name) <= 44 else f"{name[:21]}…{name[-22:]}"
    return f"{name} {share:.0%}" if name and share is not None else name
