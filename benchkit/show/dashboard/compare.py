"""Compare: the pages of comparisons, with filters in the address and figures to click."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, compare, compare_experiment
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.environment_diff import arm_differences
from benchkit.analysis.compare.explain import explain_change, explain_changes
from benchkit.analysis.metric_names import check_metrics
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.errors import BenchkitError
from benchkit.experiment.run.plan import read_plan
from benchkit.experiment.run.status import OPEN, RUNNING, read_status
from benchkit.formatting import counted, short_group
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.tables import measured_metrics
from benchkit.show.dashboard.components.widgets import CLICK_HELP, filtered, open_on_run_click
from benchkit.show.dashboard.state.cache import cached, open_run, open_store
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages import comparison as pages
from benchkit.show.pages.comparison import ComparedRuns
from benchkit.show.pages.engines import engines
from benchkit.show.pages.page import Filter, Section
from benchkit.show.render import panel as ui
from benchkit.store.filters import pair_workloads, select_sets
from benchkit.store.store import Store

TITLE = "Compare"
#: Keys of the address that select the runs (SIDES) and that filter the rows (FILTERS).
SIDES = ("experiment", "baseline", "contender")
FILTERS = ("metric", "verdict", "category", "find", "order")
#: Examples of two selections, shown in the form.
EXAMPLES = ("env:main,since:30d", "env:main,tag:variant=A")
#: Columns of the runs that the list reads.
_LISTED = (
    *("experiment", "arm", "workload", "block", "started", "outcome", "quality"),
    *("duration", "host", "n_threads", "memory_limit", "scale"),
)
_NO_CAUSES = "The causes cannot be shown"


def view(state: dict[str, str]) -> Viewable:
    """Return the comparison in the address, or the list of experiments."""
    store = open_store()
    if not state.get("experiment") and not (state.get("baseline") and state.get("contender")):
        return _choices(store)
    metric = state.get("metric") or "duration"
    keys = {name: state[name] for name in SIDES if name in state}
    try:
        check_metrics([metric])
        make, runs = _comparison(store, state)
        data = ComparedRuns(make(metric), runs, keys, _plan(store, state))
    except BenchkitError as error:
        return ui.message("This cannot be compared", str(error), back=True)
    if state.get("workload"):
        filters = {name: state[name] for name in FILTERS if name in state}
        return _change(data, state, address("compare", **keys, **filters))
    return ui.column(
        *(_interim(store, state["experiment"]) if state.get("experiment") else ()),
        _filtered(make, data, state),
        # Opening runs takes seconds the first time.
        ui.deferred(lambda: _details(store, data), _NO_CAUSES),
    )


def _comparison(
    store: Store, state: dict[str, str]
) -> tuple[Callable[[str], Comparison], pd.DataFrame]:
    """Return a cached function from metric to comparison, and the runs of all arms."""
    if state.get("experiment"):
        experiment = state["experiment"]
        runs = pair_workloads(store.runs(experiment=f"{experiment}*"))

        def compare_arms(metric: str) -> Comparison:
            return cached(
                lambda: compare_experiment(runs, experiment, metrics=_with_usual(metric)),
                *("experiment", experiment, metric),
            )

        return compare_arms, runs
    baseline, contender = state["baseline"], state["contender"]
    sets = select_sets(store, [baseline, contender])

    def compare_selections(metric: str) -> Comparison:
        names = (baseline, "contender")
        contenders = {contender: sets[contender]}
        return cached(
            lambda: compare(sets[baseline], contenders, metrics=_with_usual(metric), names=names),
            # The hour is part of the key: an age such as 7d is relative to the current time.
            *("selections", baseline, contender, metric, f"{pd.Timestamp.now():%Y-%m-%d %H}"),
        )

    return compare_selections, pd.concat([side.assign(arm=name) for name, side in sets.items()])


def _plan(store: Store, state: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the plan of the experiment in the address, if the store contains it."""
    with suppress(BenchkitError):
        return read_plan(store, state["experiment"]) if state.get("experiment") else None
    return None


def _with_usual(metric: str) -> tuple[str, ...]:
    """Return the metrics to compare: always the duration, too, which causes explain."""
    return tuple(dict.fromkeys([metric, *DEFAULT_METRICS]))


def _interim(store: Store, experiment: str) -> list[Viewable]:
    """Return a message if runs of the experiment are still missing, else nothing."""
    try:
        status = read_status(store, experiment)
    except BenchkitError:  # the store does not contain the plan
        return []
    n_missing = status.count(OPEN) + status.count(RUNNING)
    if not (n_missing and status.alive):
        return []
    text = f"Interim, {counted(n_missing, 'run')} of {len(status.entries)} still missing"
    return [
        ui.link_line(text, {address("follow", experiment=status.id): "see the progress"}),
        ui.paragraph(ui.INTERIM_WARNING, kind="bad"),
    ]


def _filtered(
    make: Callable[[str], Comparison], data: ComparedRuns, state: Mapping[str, str]
) -> pn.Column:
    """Return filter widgets, and below them the filtered rows and figures.

    Shows the rows of the metric in the address; without it, of all metrics that `make` compares
    by default.
    """
    measured = [name for name in measured_metrics(data.runs) if worse_direction(name)]
    metrics = list(dict.fromkeys([*measured, data.comparison.metrics[0]]))

    def compared(values: Mapping[str, str]) -> Comparison:
        metric = values.get("metric", "")
        return make(metric if metric in metrics else metrics[0])

    def filters(values: Mapping[str, str]) -> list[Filter]:
        return pages.filters(compared(values), metrics, values)

    def content(values: dict[str, str]) -> list[Viewable]:
        comparison = compared(values)
        shown = ComparedRuns(comparison, data.runs, data.keys)
        rows = pages.shown_rows(comparison, values)
        return [
            *ui.page_parts(pages.page(shown, values), href),
            tables.download_button("comparison.csv", lambda: rows.frame, "These rows as CSV", 160),
            *_figures(rows, values["metric"], data.plan),
        ]

    return filtered("compare", filters, content, state, **data.keys)


def _figures(comparison: Comparison, metric: str, plan: Mapping[str, Any] | None) -> list[Viewable]:
    """Return the figures; a click on a dot opens its run."""
    if comparison.frame.empty:
        return []
    sections = pages.figures(comparison, metric, plan)
    figures = [ui.section(section, href, open_on_run_click) for section in sections]
    return [ui.paragraph(CLICK_HELP), *figures]


def _sections(sections: Sequence[Section]) -> list[Viewable]:
    return [ui.section(section, href) for section in sections]


def _details(store: Store, data: ComparedRuns) -> list[Viewable]:
    """Return explanations of the largest changes, pairs of runs, and what the arms are."""
    comparison, runs = data.comparison, data.runs
    key = "\n".join([*comparison.contenders, comparison.sentence, *sorted(runs["id"])])
    arms = (comparison.baseline, comparison.contenders)

    def explanations() -> list[Viewable]:
        found = cached(
            lambda: list(explain_changes(comparison, store.open)), *("explanations", key)
        )
        return _sections(pages.causes(found))

    def differences() -> list[Viewable]:
        found = cached(lambda: arm_differences(runs, *arms, store.open), *("arm differences", key))
        return _sections(pages.differences(comparison.baseline, found))

    def experiment() -> list[Viewable]:
        parts = [pages.outcomes(runs)]
        if data.plan is not None:
            parts += [pages.arms(data.plan), pages.facts(data.plan, runs)]
        return _sections(parts)

    return [
        *ui.guard_parts(explanations, _NO_CAUSES),
        *ui.guard_parts(differences, "The differences cannot be shown"),
        *ui.guard_parts(experiment, "The arms cannot be shown"),
    ]


def _change(data: ComparedRuns, state: Mapping[str, str], back: str) -> Viewable:
    """Return the page that explains the change of the workload and arm in the address."""
    comparison, workload = data.comparison, state["workload"]
    arm = state.get("arm") or comparison.contenders[0]
    if pages.shown_rows(comparison, {"workload": workload, "arm": arm}).frame.empty:
        text = f"The comparison has no {workload!r} in {arm!r} and {comparison.baseline!r}."
        return ui.message("This cannot be explained", text)

    def explanation() -> list[Viewable]:
        sides = data.arm_runs(workload, arm).values()
        found = cached(
            lambda: explain_change(comparison, workload, arm, open_store().open),
            *("cause", arm, comparison.sentence, workload, *sorted(data.runs["id"])),
        )
        groups = [_full_names(str(side["id"].iloc[0])) for side in sides]
        return _sections(pages.explanation(data, found, workload, arm, groups))

    return ui.column(
        *ui.page_parts(pages.change_page(data, workload, arm), href),
        ui.link_line("See also", {back: "the whole comparison"}),
        ui.deferred(explanation, _NO_CAUSES),
    )


def _full_names(run_id: str) -> dict[str, str]:
    """Return a mapping from short name (without Dask's hash) to the first such task group."""
    tree = open_run(run_id).tree
    if "task_groups" not in tree.children:
        return {}
    names = tree["task_groups"].to_dataset()["task_group"].values.astype(str)
    return {short_group(name): str(name) for name in reversed(names)}


def _choices(store: Store) -> pn.Column:
    """Return the list of experiments, and a form that compares two sets of runs."""
    runs = store.runs(columns=_LISTED)
    page = pages.experiments(runs)
    message = ui.message(
        "No experiments yet",
        "An experiment compares environments with a baseline:",
        "benchkit ab baseline no-stealing -k tag:quick",
    )
    fields = dict(baseline=("Baseline", EXAMPLES[0]), contender=("Contender", EXAMPLES[1]))
    return ui.column(
        *(ui.page_parts(page, href) if page.sections else [message]),
        ui.heading(
            "Any two sets of runs",
            "Conditions separated by commas, as for `benchkit compare`: env, tag, since, "
            "workload, dask and more.",
        ),
        ui.form("compare", fields, "Compare"),
        *_sections(engines(runs)),
    )
