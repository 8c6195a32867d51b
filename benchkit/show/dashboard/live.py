"""Page of a running experiment: plan, state of each measurement, interim verdicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import panel as pn
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, compare_experiment
from benchkit.errors import BenchkitError, describe_error
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
from benchkit.formatting import format_seconds
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.state.cache import cached, open_store
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages.comparison import ComparedRuns, verdict_sections
from benchkit.show.render import panel as ui
from benchkit.show.render.html import span
from benchkit.store.store import Store
from benchkit.text import escape

TITLE = "Live"
#: Environment variable with the experiment of `benchkit dashboard --follow`.
FOLLOW_VARIABLE = "BENCHKIT_FOLLOW"
#: Milliseconds between two refreshes of the page.
PERIOD_MS = 3000
#: Seconds that sessions share one read status; less than the refresh period.
STATUS_TTL_S = 2
#: Symbol and CSS class of each state; the symbol shows the state without colour.
_STATES = {
    OPEN: ("·", "soft"), RUNNING: ("▶", "busy"), DONE: ("✓", "good"), "disturbed": ("≈", "good"),
    FAILED: ("✗", "bad"),
}  # fmt: skip
_FAILED = "This experiment cannot be shown"
_NO_UNDERLINE = "style='text-decoration:none'"
#: Largest number of workloads shown in the plan.
MAX_WORKLOADS = 60


def view(state: dict[str, str]) -> pn.Column:
    """Return the page of an experiment, updated while it runs."""
    body = ui.column()
    shown: Any = None
    followed: list[str] = []  # an ended experiment stays on the page until the next starts

    def refresh() -> None:
        nonlocal shown
        try:
            make, signature = _content(state, followed)
        except Exception as error:  # of this refresh: a later one may succeed
            signature = describe_error(error)
            if shown != signature:
                body[:] = [ui.error_message(_FAILED, error)]
        else:
            if shown != signature:  # update the page only after a change
                body[:] = ui.guard_parts(make, _FAILED)
        shown = signature

    def refresh_if_connected() -> None:
        context = pn.state.curdoc.session_context if pn.state.curdoc else None
        session = getattr(context, "session", None)
        if session is None or session.connection_count:
            refresh()

    refresh()
    if pn.state.curdoc is not None:
        pn.state.add_periodic_callback(refresh_if_connected, period=PERIOD_MS)
    return body


def _content(
    state: Mapping[str, str], followed: list[str]
) -> tuple[Callable[[], list[Viewable]], Any]:
    """Return a function that makes the content, and a signature that changes with the content."""
    store = open_store()
    requested = state.get("experiment") or os.environ.get(FOLLOW_VARIABLE, "")
    if requested in ("", "latest"):
        requested = _running(str(store.path)) or "".join(followed)
    if not requested:
        last = _last(store)
        return lambda: _nothing_running(store, last), ("none", last)
    followed[:] = [requested]
    status = _status(str(store.path), requested)
    left = round(status.remaining_seconds / 5) * 5
    signature = (status.id, tuple(status.entries["state"]), status.alive, left)
    return lambda: [*_head(status), *_plan(status), *_interim(status)], signature


def _nothing_running(store: Store, last: str) -> list[Viewable]:
    more = f" The last experiment was {last[:13]}." if last else ""
    content: list[Viewable] = [
        ui.message(
            "No experiment is running",
            f"This page shows the next experiment of this store as soon as it starts.{more}",
            f"benchkit ab baseline no-stealing -k tag:quick --store {store.path}",
        )
    ]
    if last:
        links = {address("follow", experiment=last): "its plan and verdicts"}
        content.append(ui.link_line(f"Experiment {last[:13]}", links))
    return content


@pn.cache(max_items=1, ttl=STATUS_TTL_S)
def _running(path: str) -> str:
    return latest_running(open_store())


# Shared by sessions, do not modify: reads the plan, the index and the recordings.
@pn.cache(max_items=4, ttl=STATUS_TTL_S)
def _status(path: str, experiment: str) -> Status:
    return read_status(open_store(), experiment)


def _last(store: Store) -> str:
    try:
        return str(read_plan(store, "latest")["id"])
    except BenchkitError:
        return ""


def _head(status: Status) -> list[Viewable]:
    done, failed, planned = (status.count(state) for state in (DONE, FAILED, OPEN))
    total, running = len(status.entries), status.count(RUNNING)
    is_finished = total > 0 and done + failed == total
    now = status.entries[status.entries["state"] == RUNNING]
    line = ", ".join(f"{row.variant} in {row.arm}, block {row.block}" for row in now.itertuples())
    words = status.plan.get("words", {})
    command = str(words.get("command") or "")
    figures = {
        f"of {total} done": str(done + failed),
        "running": str(running),
        "failed": str(failed),
        "planned": str(planned),
    }
    if status.alive and not is_finished:
        label = "left, at most about" if words.get("adaptive") else "left, about"
        figures[label] = format_seconds(status.remaining_seconds)
    head = ui.page_head(
        f"Experiment {status.id[:13]}",
        state="ended" if is_finished else "running" if status.alive else "stopped",
        good=not failed,
        lines=[f"benchkit {command}" if command else "", f"Now: {line}" if line else ""],
        figures=figures,
    )
    if is_finished or status.alive:
        return [head]
    resume = f"`benchkit ab --resume {status.id[:13]}` continues it."
    return [head, ui.paragraph(f"The experiment stopped before its end. {resume}")]


def _plan(status: Status) -> list[Viewable]:
    """Return the plan as a table: workloads as rows, arms as columns, one symbol per block."""
    entries = status.entries.sort_values("block", kind="stable")
    arms = list(dict.fromkeys(status.entries["arm"]))
    variants = list(dict.fromkeys(status.entries["variant"]))
    rows = []
    for variant in variants[:MAX_WORKLOADS]:
        row = [variant]
        for arm in arms:
            blocks = entries[(entries["variant"] == variant) & (entries["arm"] == arm)]
            row.append(Markup(" ".join(_symbol(entry) for entry in blocks.itertuples())))
        rows.append(row)
    legend = ", ".join(f"{symbol} {state}" for state, (symbol, _) in _STATES.items())
    content: list[Viewable] = [
        ui.heading("Plan", f"One symbol per block: {legend}. A symbol links to its run."),
        tables.html_table(["workload", *arms], rows),
    ]
    if len(variants) > MAX_WORKLOADS:
        content.append(ui.paragraph(f"{len(variants) - MAX_WORKLOADS} more workloads."))
    return content


def _symbol(entry: Any) -> Markup:
    is_disturbed = entry.state == DONE and "disturbed" in entry.outcome
    symbol, tone = _STATES["disturbed" if is_disturbed else entry.state]
    title = f"block {entry.block}: {entry.outcome or entry.state}"
    if pd.notna(entry.duration):
        title += f", {format_seconds(entry.duration)}"
    mark = span(symbol, tone, title=title)
    if not entry.run:
        return mark
    target = escape(address("run", id=entry.run))
    return Markup(f"<a href='{target}' aria-label='{escape(title)}' {_NO_UNDERLINE}>{mark}</a>")


def _interim(status: Status) -> list[Viewable]:
    """Return the verdicts on the runs so far."""
    if status.runs.empty or status.entries["arm"].nunique() < 2:
        return []
    is_finished = status.count(OPEN) + status.count(RUNNING) == 0
    title = "Verdicts" if is_finished else "Verdicts so far (interim)"
    try:
        comparison = cached(
            lambda: compare_experiment(status.runs, status.id, metrics=DEFAULT_METRICS),
            # The store may contain a newer run than the status.
            *("interim", status.id, str(len(status.runs))),
        )
    except BenchkitError as error:
        return [ui.heading(title, f"Not yet: {error}")]
    if comparison.frame.empty:
        return [ui.heading(title, "Not yet: no workload has an ok run in two arms.")]
    keys = {"experiment": status.id}
    data = ComparedRuns(comparison, status.runs, keys, is_interim=not is_finished)
    text = "the complete comparison" if is_finished else "the comparison of the runs so far"
    return [
        ui.heading(title, "All measurements are done." if is_finished else ui.INTERIM_WARNING),
        *(ui.section(section, href) for section in verdict_sections(data, {})),
        ui.link_line("See also", {address("compare", experiment=status.id): text}),
    ]
