"""Page of a running experiment: plan, state of each measurement, interim verdicts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.errors import BenchkitError
from benchkit.experiment.run.plan import read_plan
from benchkit.experiment.run.status import (
    DONE,
    FAILED,
    OPEN,
    RUNNING,
    Status,
    latest_running,
    read_status,
)
from benchkit.formatting import MISSING, format_change, format_seconds
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_terms
from benchkit.show.dashboard.state.cache import kept, open_store
from benchkit.show.dashboard.state.url import address
from benchkit.show.escape import escape
from benchkit.store.store import Store

__all__ = ["FOLLOW_VARIABLE", "TITLE", "view"]

TITLE = "Live"
#: Environment variable with the experiment of `benchkit dashboard --follow`.
FOLLOW_VARIABLE = "BENCHKIT_FOLLOW"
PERIOD_MS = 3000
#: Seconds that sessions share one read status; less than the refresh period.
FRESH_S = 2
#: Symbol and CSS class of each state; the symbol shows the state without colour.
_STATES = {OPEN: ("·", "soft"), RUNNING: ("▶", "busy"), DONE: ("✓", "good"), FAILED: ("✗", "bad")}
_METRICS = ("duration", "memory_mean", "memory_peak")
#: Largest number of workloads shown in the plan.
MOST_WORKLOADS = 60


def view(state: dict[str, str]) -> Any:
    """Return the page of the experiment in ``experiment``, by default the running experiment."""
    body = pn.Column(sizing_mode="stretch_width")
    seen: list[Any] = []
    followed: list[str] = []  # an ended experiment stays on the page until the next starts

    def refresh() -> None:
        try:
            make, signature = _content(state, followed)
            if seen != [signature]:  # update the page only after a change
                body[:] = make()
        except BenchkitError as error:
            signature = str(error)
            if seen != [signature]:
                body[:] = [parts.message("This cannot be followed", str(error))]
        seen[:] = [signature]

    def tick() -> None:
        context = pn.state.curdoc.session_context if pn.state.curdoc else None
        session = getattr(context, "session", None)
        if session is None or session.connection_count:  # a browser is connected
            refresh()

    refresh()
    if pn.state.curdoc is not None:
        pn.state.add_periodic_callback(tick, period=PERIOD_MS)
    return body


def _content(state: dict[str, str], followed: list[str]) -> tuple[Callable[[], list[Any]], Any]:
    """Return a function that makes the content, and a signature that changes with the content."""
    store = open_store()
    asked = state.get("experiment") or os.environ.get(FOLLOW_VARIABLE, "")
    wanted = asked if asked not in ("", "latest") else _running(str(store.path))
    wanted = wanted or "".join(followed)
    if not wanted:
        last = _last(store)
        more = f" The last one was {last[:13]}." if last else ""
        content = [
            parts.message(
                "Nothing is being measured",
                f"This page wakes up when an experiment begins in this store.{more}",
                f"benchkit ab baseline no-stealing -k tag:quick --store {store.path}",
            )
        ]
        if last:
            content.append(
                parts.way(
                    f"Experiment {last[:13]}", {address("follow", experiment=last): "how it went"}
                )
            )
        return lambda: content, ("none", last)
    followed[:] = [wanted]
    status = _status(str(store.path), wanted)
    left = round(status.remaining_seconds / 5) * 5
    signature = (status.id, tuple(status.entries["state"]), status.alive, left)
    return lambda: [*_head(status), _plan(status), *_interim(status)], signature


@pn.cache(max_items=1, ttl=FRESH_S)
def _running(path: str) -> str:
    return latest_running(open_store())


# Shared by sessions, do not modify: reads the plan, the index and the recordings.
@pn.cache(max_items=4, ttl=FRESH_S)
def _status(path: str, experiment: str) -> Status:
    return read_status(open_store(), experiment)


def _last(store: Store) -> str:
    try:
        return str(read_plan(store.path, "latest")["id"])
    except BenchkitError:
        return ""


def _head(status: Status) -> list[Any]:
    done, failed, open_ = (status.count(state) for state in (DONE, FAILED, OPEN))
    total, running = len(status.entries), status.count(RUNNING)
    finished = total > 0 and done + failed == total
    words = "ended" if finished else "running" if status.alive else "stopped"
    now = status.entries[status.entries["state"] == RUNNING]
    line = ", ".join(f"{row.variant} in {row.arm}, block {row.block}" for row in now.itertuples())
    command = str(status.plan.get("words", {}).get("command") or "")
    resume = f"It stopped early: `benchkit ab --resume {status.id[:13]}` goes on with it."
    adaptive = status.plan.get("words", {}).get("adaptive")
    tiles = {
        f"of {total} done": str(done + failed),
        "running": str(running),
        "failed": str(failed),
        "planned": str(open_),
    }
    if status.alive and not finished:
        tiles["left, about" + (", or less" if adaptive else "")] = format_seconds(
            status.remaining_seconds
        )
    head = parts.head(
        f"Experiment {status.id[:13]}",
        state=words,
        good=not failed,
        lines=[f"benchkit {command}" if command else "", f"Now: {line}" if line else ""],
        tiles=tiles,
    )
    return [head] if finished or status.alive else [head, parts.words(resume)]


def _plan(status: Status) -> Any:
    """Return the plan as a table: workloads as rows, arms as columns, one symbol per block."""
    entries = status.entries
    arms = list(dict.fromkeys(entries["arm"]))
    variants = list(dict.fromkeys(entries["variant"]))
    cells = []
    for variant in variants[:MOST_WORKLOADS]:
        row = [escape(variant)]
        for arm in arms:
            mine = entries[(entries["variant"] == variant) & (entries["arm"] == arm)]
            row.append(" ".join(_sign(entry) for entry in mine.sort_values("block").itertuples()))
        cells.append(row)
    legend = ", ".join(f"{symbol} {state}" for state, (symbol, _) in _STATES.items())
    content = [parts.heading("The plan", f"A sign a block: {legend}. A sign leads to its run.")]
    content.append(parts.rows(["workload", *arms], cells))
    if len(variants) > MOST_WORKLOADS:
        content.append(parts.words(f"{len(variants) - MOST_WORKLOADS} more workloads."))
    return pn.Column(*content, sizing_mode="stretch_width")


def _sign(entry: Any) -> str:
    symbol, tone = _STATES[entry.state]
    told = f"block {entry.block}: {entry.outcome.replace('_', ' ') or entry.state}"
    if entry.duration is not None and entry.duration == entry.duration:
        told += f", {format_seconds(entry.duration)}"
    sign = f"<span class='{tone}' title='{escape(told)}'>{symbol}</span>"
    if not entry.run:
        return sign
    link = escape(address("run", id=entry.run))
    return f"<a href='{link}' aria-label='{escape(told)}' style='text-decoration:none'>{sign}</a>"


def _interval(low: float, high: float) -> str:
    return f"{format_change(low)} to {format_change(high)}" if low == low else MISSING


def _interim(status: Status) -> list[Any]:
    """Return the verdicts on the runs so far."""
    if status.runs.empty or status.entries["arm"].nunique() < 2:
        return []
    finished = status.count(OPEN) + status.count(RUNNING) == 0
    title = "Verdicts" if finished else "Verdicts so far (interim)"
    told = (
        "All that was planned is done."
        if finished
        else "Interim: more runs come, and who looks often is misled more often than the "
        "intervals say. Wait for the end before you decide."
    )
    try:
        report = kept(
            lambda: compare_experiment(status.runs, status.id, metrics=_METRICS),
            # The store may contain a newer run than the status.
            *("interim", status.id, str(len(status.runs))),
        )
    except BenchkitError as error:
        return [parts.heading(title, f"Not yet: {error}")]
    rows = [
        {
            "workload": row["workload"],
            "arm": row["contender"],
            "metric": row["metric"],
            "change": format_change(row["ratio"]),
            "interval": _interval(row["low"], row["high"]),
            "verdict": row["verdict"] if finished else f"{row['verdict']} (interim)",
            "runs": f"{row['n_baseline']} + {row['n_contender']}",
        }
        for row in report.frame.to_dict("records")
    ]
    if not rows:
        return [parts.heading(title, "Not yet: no workload ended ok in two arms.")]
    shown = pd.DataFrame(rows).set_index("workload")
    return [
        parts.heading(title, told),
        parts.table(shown, "workload", sortable=False),
        parts.glossary(metric_terms(_METRICS), "What the metrics mean"),
        parts.way(
            "See also",
            {
                address("compare", experiment=status.id): "the comparison in full"
                + ("" if finished else ", as far as it has come")
            },
        ),
    ]
