"""Page that compares the arms of an experiment, or two sets of runs: verdicts and causes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.compare.compare_runs import check_metrics, compare, compare_experiment
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.errors import BenchkitError
from benchkit.experiment.run.status import OPEN, RUNNING, read_status
from benchkit.formatting import counted
from benchkit.show.dashboard.compare.explanation import cause_of_change
from benchkit.show.dashboard.compare.table import FILTERS, SIDES, filtered_comparison
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.cache import kept, open_store
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.waterfall import waterfall
from benchkit.show.reports import experiment_summary as why
from benchkit.store.schema import METRICS
from benchkit.store.selector import select_runs
from benchkit.store.store import Store

__all__ = ["TITLE", "view"]

TITLE = "Compare"
#: Number of workloads with the largest changes that the page explains.
EXPLAINED = 3
#: Examples of two selections, shown in the form.
EXAMPLES = ("env:main,since:30d", "env:main,tag:variant=A")
#: Largest number of links to pages of two runs.
MOST_PAIRS = 20
#: Number of newest runs per side and workload that explain the difference of two selections.
LATEST = 10


def view(state: dict[str, str]) -> Any:
    """Return the comparison in the address, or the list of experiments.

    Keys: ``experiment=<id>`` or ``baseline=<selection>&contender=<selection>``, and those in
    `benchkit.show.dashboard.compare.table.FILTERS`. ``workload=<name>`` shows the causes of the
    change of this workload in the arm ``arm=<name>``.
    """
    store = open_store()
    if not state.get("experiment") and not (state.get("baseline") and state.get("contender")):
        return _choices(store)
    try:
        check_metrics([state.get("metric") or "duration"])
        make, runs = _comparing(store, state)
        report = make(state.get("metric") or "duration")
    except BenchkitError as error:
        return parts.message("This cannot be compared", str(error), back=True)
    if state.get("workload"):
        whole = {name: state[name] for name in (*SIDES, *FILTERS) if name in state}
        return cause_of_change(store, report, runs, state, address("compare", **whole))
    # Opening runs takes seconds the first time: render the page before.
    causes = pn.Column(
        parts.words("Runs are opened to see where the time went …"),
        sizing_mode="stretch_width",
        tags=["coming"],
    )

    async def explain() -> None:
        causes.param.update(objects=await _causes(store, runs, report), tags=[])

    pn.state.onload(explain)
    return pn.Column(
        parts.head(f"{' and '.join(report.contenders)} against {report.baseline}"),
        *(_interim(store, state["experiment"]) if state.get("experiment") else ()),
        filtered_comparison(make, state, _measured(report, runs)),
        causes,
        sizing_mode="stretch_width",
    )


def _comparing(
    store: Store, state: dict[str, str]
) -> tuple[Callable[[str], Comparison], pd.DataFrame]:
    """Return a cached function from metric to comparison, and the runs of all arms."""
    if state.get("experiment"):
        experiment = state["experiment"]
        runs = store.runs(experiment=f"{experiment}*")

        def compare_in(metric: str) -> Comparison:
            return kept(
                lambda: compare_experiment(runs, experiment, metrics=_with_usual(metric)),
                *("experiment", experiment, metric),
            )

        return compare_in, runs
    one, other = state["baseline"], state["contender"]
    sides = select_runs(store, one), select_runs(store, other)

    def compare_sides(metric: str) -> Comparison:
        return kept(
            lambda: compare(
                sides[0],
                {other: sides[1]},
                metrics=_with_usual(metric),
                names=(one, "contender"),
            ),
            # The hour is part of the key: an age such as 7d is relative to the current time.
            *("selections", one, other, metric, f"{pd.Timestamp.now():%Y-%m-%d %H}"),
        )

    # The page opens runs of changed workloads: the latest runs of each side are enough.
    latest = [
        side[side["outcome"] == "ok"].assign(arm=name).groupby("workload").tail(LATEST)
        for name, side in zip((one, other), sides, strict=True)
    ]
    return compare_sides, pd.concat(latest)


def _with_usual(metric: str) -> tuple[str, ...]:
    """Return a metric and the metrics that are always compared: causes explain the duration."""
    return tuple(dict.fromkeys([metric, "duration", "memory_mean", "memory_peak"]))


def _interim(store: Store, experiment: str) -> list[Any]:
    """Return a message if runs of the experiment are still missing, else nothing."""
    try:
        status = read_status(store, experiment)
    except BenchkitError:  # the store does not contain the plan
        return []
    n_left = status.count(OPEN) + status.count(RUNNING)
    if not (n_left and status.alive):
        return []
    told = f"Interim, {counted(n_left, 'run')} of {len(status.entries)} still to come"
    return [
        parts.way(told, {address("follow", experiment=status.id): "see how far it is"}),
        parts.words(
            "Who looks often is misled more often than the intervals say: wait for the end before "
            "you decide.",
            kind="bad",
        ),
    ]


def _measured(report: Comparison, runs: pd.DataFrame) -> list[str]:
    """Return the measured metrics that have a direction, and the requested metric."""
    has = [name for name in METRICS if worse_direction(name) and name in runs]
    names = [name for name in has if runs[name].notna().any()]
    return list(dict.fromkeys([*names, report.metrics[0]]))


def _choices(store: Store) -> Any:
    """Return the list of experiments, and a form that compares two sets of runs."""
    fields = {
        name: (name.capitalize(), example)
        for name, example in zip(("baseline", "contender"), EXAMPLES, strict=True)
    }
    return pn.Column(
        _experiments(store),
        parts.heading(
            "Any two sets of runs",
            "Words with commas between them, as `benchkit compare` takes them: env, tag, since, "
            "workload, dask and more.",
        ),
        parts.form("compare", fields, "Compare"),
        sizing_mode="stretch_width",
    )


def _experiments(store: Store) -> Any:
    runs = store.runs(columns=["experiment", "arm", "workload", "block", "started", "outcome"])
    runs = runs[runs["experiment"].notna() & runs["arm"].notna()]
    several = runs.groupby("experiment")["arm"].nunique()
    runs = runs[runs["experiment"].isin(several[several > 1].index)]
    if runs.empty:
        return parts.message(
            "No experiments yet",
            "An experiment holds environments against a baseline:",
            "benchkit ab baseline no-stealing -k tag:quick",
        )
    rows = [
        {
            "id": experiment,
            "started": f"{found['started'].min():%Y-%m-%d %H:%M}",
            "arms": ", ".join(dict.fromkeys(found["arm"])),
            "workloads": found["workload"].nunique(),
            "runs": len(found),
            "not ok": int((found["outcome"] != "ok").sum()),
        }
        for experiment, found in runs.groupby("experiment", sort=False)
    ]
    return pn.Column(
        parts.head("Experiments", lines=["Environments that were measured side by side."]),
        parts.links(
            {
                address("compare", experiment=row["id"]): (
                    f"{row['started']}  {row['arms']}: {counted(row['workloads'], 'workload')}, "
                    f"{counted(row['runs'], 'run')}"
                    + (f", {row['not ok']} not ok" if row["not ok"] else "")
                )
                for row in reversed(rows)
            }
        ),
        sizing_mode="stretch_width",
    )


def _side_by_side(runs: pd.DataFrame, report: Comparison) -> list[Any]:
    """Return, per workload, links to the page that compares the first run of each arm."""
    ok = runs[runs["outcome"] == "ok"].sort_values("block")
    first = ok.drop_duplicates(["workload", "arm"]).set_index(["workload", "arm"])["id"]
    ways: dict[str, str] = {}
    n_more = 0
    for row in report.frame.drop_duplicates(["workload", "contender"]).itertuples():
        ends = [(row.workload, report.baseline), (row.workload, row.contender)]
        if not all(end in first.index for end in ends):
            continue
        if len(ways) == MOST_PAIRS:
            n_more += 1
        else:
            link = address("pair", a=first[ends[0]], b=first[ends[1]])
            ways[link] = f"{row.workload}: {report.baseline} and {row.contender}"
    if not ways:
        return []
    told = "The first run of each arm on one axis of time; what changed most comes first."
    if n_more:
        told += f" Those of {n_more} more are linked where a row's cause is told."
    return [parts.heading("Two runs side by side", told), parts.links(ways)]


async def _causes(store: Store, runs: pd.DataFrame, report: Comparison) -> list[Any]:
    """Return explanations of the largest changes, computed without blocking other sessions."""
    name = "\n".join([*report.contenders, report.sentence, *sorted(runs["id"])])

    def causes() -> list[Any]:
        return kept(
            lambda: list(why.explain_changes(store, runs, report, most=EXPLAINED)), "why", name
        )

    def differing() -> dict[str, pd.DataFrame]:
        return kept(lambda: why.arm_differences(store, runs, report), "arms", name)

    content: list[Any] = []
    explained = await _found(causes, "The causes cannot be told", content)
    for row in explained or ():
        content.append(
            parts.heading(f"{row.workload} in {row.contender}", row.explanation.sentence)
        )
        content.append(parts.figure(waterfall(row.explanation)))
    content += _side_by_side(runs, report)
    different = await _found(differing, "What differs cannot be told", content)
    for contender, table in (different or {}).items():
        content.append(parts.heading(f"What differs between {report.baseline} and {contender}"))
        content.append(
            parts.table(table.set_index("kind"), "kind")
            if len(table)
            else parts.words("Nothing that was recorded.")
        )
    return content


async def _found(make: Callable[[], Any], trouble: str, content: list[Any]) -> Any:
    """Return the result of `make`, run in a thread; if it fails, show a message instead."""
    try:
        return await asyncio.to_thread(make)
    except Exception as error:  # damaged runs raise various errors
        content.append(parts.trouble(trouble, error))
        return None
