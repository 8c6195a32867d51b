"""Page that compares the arms of an experiment, or two sets of runs: verdicts and causes."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.compare.compare_runs import (
    DEFAULT_METRICS,
    NULL_ARM,
    compare,
    compare_experiment,
)
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.metric_names import check_metrics
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.errors import BenchkitError
from benchkit.experiment.run.status import OPEN, RUNNING, read_status
from benchkit.formatting import counted
from benchkit.show.dashboard.compare.explanation import cause_of_change
from benchkit.show.dashboard.compare.table import FILTERS, SIDES, filtered_comparison
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import link, measured_metrics
from benchkit.show.dashboard.state.cache import cached, open_store
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.waterfall import waterfall
from benchkit.show.reports import experiment_summary
from benchkit.store.selector import pair_workloads, select_sets
from benchkit.store.store import Store

__all__ = ["TITLE", "view"]

TITLE = "Compare"
#: Number of workloads with the largest changes that the page explains.
EXPLAINED = 3
#: Examples of two selections, shown in the form.
EXAMPLES = ("env:main,since:30d", "env:main,tag:variant=A")
#: Largest number of links to pages of two runs.
MAX_PAIRS = 20
#: Number of newest runs per side and workload that explain the difference of two selections.
LATEST = 10
_NO_CAUSES = "The causes cannot be shown"


def view(state: dict[str, str]) -> Viewable:
    """Return the comparison in the address, or the list of experiments."""
    store = open_store()
    if not state.get("experiment") and not (state.get("baseline") and state.get("contender")):
        return _choices(store)
    try:
        check_metrics([state.get("metric") or "duration"])
        make, runs = _comparison(store, state)
        comparison = make(state.get("metric") or "duration")
    except BenchkitError as error:
        return ui.message("This cannot be compared", str(error), back=True)
    if state.get("workload"):
        keys = {name: state[name] for name in (*SIDES, *FILTERS) if name in state}
        return cause_of_change(store, comparison, runs, state, address("compare", **keys))
    return ui.column(
        ui.page_head(comparison.title),
        *(_interim(store, state["experiment"]) if state.get("experiment") else ()),
        filtered_comparison(make, state, _measured(comparison, runs)),
        # Opening runs takes seconds the first time.
        ui.deferred(lambda: _causes(store, runs, comparison), _NO_CAUSES),
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
    a, b = sets[baseline], sets[contender]

    def compare_selections(metric: str) -> Comparison:
        names = (baseline, "contender")
        return cached(
            lambda: compare(a, {contender: b}, metrics=_with_usual(metric), names=names),
            # The hour is part of the key: an age such as 7d is relative to the current time.
            *("selections", baseline, contender, metric, f"{pd.Timestamp.now():%Y-%m-%d %H}"),
        )

    # The page opens runs of changed workloads: the latest runs of each side are enough.
    latest = [
        side[side["outcome"] == "ok"].assign(arm=name).groupby("workload").tail(LATEST)
        for name, side in ((baseline, a), (contender, b))
    ]
    return compare_selections, pd.concat(latest)


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


def _measured(comparison: Comparison, runs: pd.DataFrame) -> list[str]:
    """Return the measured metrics that have a direction, and the requested metric."""
    names = [name for name in measured_metrics(runs) if worse_direction(name)]
    return list(dict.fromkeys([*names, comparison.metrics[0]]))


def _choices(store: Store) -> pn.Column:
    """Return the list of experiments, and a form that compares two sets of runs."""
    fields = dict(
        baseline=("Baseline", EXAMPLES[0]),
        contender=("Contender", EXAMPLES[1]),
    )
    return ui.column(
        *_experiments(store),
        ui.heading(
            "Any two sets of runs",
            "Conditions separated by commas, as for `benchkit compare`: env, tag, since, "
            "workload, dask and more.",
        ),
        ui.form("compare", fields, "Compare"),
    )


def _experiments(store: Store) -> list[Viewable]:
    runs = store.runs(columns=["experiment", "arm", "workload", "block", "started", "outcome"])
    runs = runs[runs["experiment"].notna() & runs["arm"].notna()]
    n_arms = runs.groupby("experiment")["arm"].nunique()
    runs = runs[runs["experiment"].isin(n_arms[n_arms > 1].index)]
    if runs.empty:
        return [
            ui.message(
                "No experiments yet",
                "An experiment compares environments with a baseline:",
                "benchkit ab baseline no-stealing -k tag:quick",
            )
        ]
    rows = []
    for experiment, part in reversed(list(runs.groupby("experiment", sort=False))):
        arms = list(dict.fromkeys(part["arm"]))
        names = [arm for arm in arms if arm != NULL_ARM]
        title = f"{', '.join(names[1:]) or NULL_ARM} against {names[0] if names else NULL_ARM}"
        rows.append(
            [
                f"{part['started'].min():%Y-%m-%d %H:%M}",
                link(title, address("compare", experiment=experiment)),
                str(part["workload"].nunique()),
                str(len(part)),
                str(int((part["outcome"] != "ok").sum())),
            ]
        )
    head = ui.page_head("Experiments", lines=["Environments that were measured in turns."])
    titles = ["started (UTC)", "arms", "workloads", "runs", "not ok"]
    return [head, tables.html_table(titles, rows)]


def _pairs(runs: pd.DataFrame, comparison: Comparison) -> list[Viewable]:
    """Return, per workload, links to the page that compares the first run of each arm."""
    ok = runs[runs["outcome"] == "ok"].sort_values("block")
    first = ok.drop_duplicates(["workload", "arm"]).set_index(["workload", "arm"])["id"]
    baseline = comparison.baseline
    links = {}
    for row in comparison.frame.drop_duplicates(["workload", "contender"]).itertuples():
        sides = [(row.workload, baseline), (row.workload, row.contender)]
        if all(side in first.index for side in sides):
            target = address("pair", a=first[sides[0]], b=first[sides[1]])
            links[target] = f"{row.workload}: {baseline} and {row.contender}"
    if not links:
        return []
    below = "The first run of each arm on one time axis, largest change first."
    if len(links) > MAX_PAIRS:
        below += f" For {len(links) - MAX_PAIRS} more see the causes of a row."
    shown = dict(list(links.items())[:MAX_PAIRS])
    return [ui.heading("Two runs side by side", below), ui.link_list(shown)]


def _causes(store: Store, runs: pd.DataFrame, comparison: Comparison) -> list[Viewable]:
    """Return explanations of the largest changes, pairs of runs, and differences of arms."""
    key = "\n".join([*comparison.contenders, comparison.sentence, *sorted(runs["id"])])

    def explanations() -> Viewable:
        rows = cached(
            lambda: list(
                experiment_summary.explain_changes(store, runs, comparison, most=EXPLAINED)
            ),
            *("explanations", key),
        )
        content: list[Viewable] = []
        for row in rows:
            title = f"{row.workload} in {row.contender}"
            content.append(ui.heading(title, row.explanation.sentence))
            content.append(ui.figure(waterfall(row.explanation)))
        return ui.column(*content)

    def arm_differences() -> Viewable:
        arms = cached(
            lambda: experiment_summary.arm_differences(store, runs, comparison),
            *("arm differences", key),
        )
        content: list[Viewable] = []
        for contender, table in arms.items():
            content.append(ui.heading(f"Differences of {comparison.baseline} and {contender}"))
            titles = ["kind", "name", comparison.baseline, contender]
            rows = table.astype(str).itertuples(index=False, name=None)
            content.append(tables.html_table(titles, rows, empty="No recorded difference."))
        return ui.column(*content)

    return [
        ui.guard(explanations, _NO_CAUSES),
        *_pairs(runs, comparison),
        ui.guard(arm_differences, "The differences cannot be shown"),
    ]
