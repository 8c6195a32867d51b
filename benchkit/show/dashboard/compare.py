"""Page that compares the arms of an experiment, or two sets of runs: verdicts and causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.compare.compare_runs import (
    DEFAULT_METRICS,
    NULL_ARM,
    compare,
    compare_experiment,
)
from benchkit.analysis.compare.comparison import Comparison, text_row
from benchkit.analysis.compare.explain import IDLE, MAX_RUNS, UNEXPLAINED, CauseChanges
from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.limits import CAUSES_SHORT
from benchkit.analysis.metric_names import check_metrics
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.errors import BenchkitError
from benchkit.experiment.run.status import OPEN, RUNNING, read_status
from benchkit.formatting import (
    MISSING,
    ROWS_SHOWN,
    counted,
    format_change,
    format_outcome,
    format_quantity,
    format_seconds,
    short_group,
)
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.tables import measured_metrics, memory_by_group, metric_term
from benchkit.show.dashboard.components.widgets import (
    CLICK_HELP,
    filtered,
    find_field,
    open_on_row_click,
    open_on_run_click,
    select,
)
from benchkit.show.dashboard.state.cache import cached, open_run, open_store
from benchkit.show.dashboard.state.url import address
from benchkit.show.pages.page import has_words
from benchkit.show.plots.comparison import forest_plot, heat_map, raw_points, waterfall
from benchkit.show.render import panel as ui
from benchkit.show.render.html import link
from benchkit.show.reports import experiment_summary
from benchkit.store.filters import pair_workloads, select_sets
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

_PART_TITLES = ("part", "difference", "interval", "baseline", "contender", "runs")
_RUN_TITLES = (
    *("arm", "run", "block", "started (UTC)", "outcome"),
    *("wall time", "peak memory", "compare"),
)
_PART_TERMS = {
    "part": "an activity of the threads in the task groups of one name; idle: threads without "
    "work; old → new: a group with another name in the contender and the same number of tasks",
    "difference": "additional seconds of wall time in the arm, means of all runs; thread-seconds "
    "of the part over the number of threads",
    "baseline, contender": "the same seconds of each arm",
    "runs": "the group in the first run of the baseline (A), of the arm (B), and in both",
}


def cause_of_change(
    store: Store, comparison: Comparison, runs: pd.DataFrame, state: Mapping[str, str], back: str
) -> Viewable:
    """Return the page that explains the change of the workload and arm in the address."""
    workload, arm = state["workload"], state.get("arm") or comparison.contenders[0]
    frame, baseline = comparison.frame, comparison.baseline
    rows = frame[(frame["workload"] == workload) & (frame["contender"] == arm)]
    if rows.empty or arm == baseline:
        text = f"The comparison has no {workload!r} in {arm!r} and {baseline!r}."
        return ui.message("This cannot be explained", text)
    return ui.column(
        ui.page_head(
            f"{workload}: {arm} against {baseline}",
            lines=[_verdict_line(row) for row in rows.to_dict("records")],
        ),
        ui.glossary({name: metric_term(name) for name in rows["metric"]}, "What the metrics mean"),
        ui.link_line("See also", {back: "the whole comparison"}),
        ui.deferred(
            lambda: _cause_content(store, comparison, runs, workload, arm),
            "The causes cannot be shown",
        ),
    )


def _verdict_line(row: Mapping[str, Any]) -> str:
    values = [format_quantity(row[name], row["unit"]) for name in ("baseline", "contender_value")]
    change = format_change(row["ratio"])
    return f"{row['metric']}: {row['verdict']}, {' → '.join(values)} ({change})"


def _cause_content(
    store: Store, comparison: Comparison, runs: pd.DataFrame, workload: str, arm: str
) -> list[Viewable]:
    explanation = cached(
        lambda: (
            experiment_summary.explain_change(store, runs, comparison, workload, arm).explanation
        ),
        *("cause", *comparison.contenders, comparison.sentence, workload, arm, *sorted(runs["id"])),
    )
    ok = experiment_summary.ok_runs(runs, workload)
    sides = {name: ok[ok["arm"] == name] for name in (comparison.baseline, arm)}
    first = {name: str(side["id"].iloc[0]) for name, side in sides.items()}
    parts = _part_rows(explanation.parts, list(first.values()))
    return [
        ui.heading("Where the time went", explanation.sentence),
        ui.figure(waterfall(explanation)),
        tables.html_table(_PART_TITLES, parts, tight=True),
        ui.glossary(_PART_TERMS),
        *_part_causes(explanation.causes),
        *_memory_parts(explanation.memory),
        *memory_by_group(explanation.memory_groups),
        ui.heading("Runs of both", "The links to groups above open the first run of each arm."),
        tables.html_table(_RUN_TITLES, _run_rows(sides, first), tight=True),
    ]


def _part_rows(table: pd.DataFrame, ids: list[str]) -> list[list[str]]:
    """Return one row per part, with links to its task group in a run of each arm."""
    groups_of_runs = [_full_names(run_id) for run_id in ids]
    rows = []
    for row in table.head(ROWS_SHOWN).to_dict("records"):
        group, is_group = str(row["group"]), row["group"] not in (IDLE, UNEXPLAINED)
        old, _, new = group.partition(" → ")
        targets = {
            name: address("run", id=run_id, group=groups[short])
            for name, run_id, groups, short in zip(
                "AB", ids, groups_of_runs, (old, new or old), strict=True
            )
            if is_group and short in groups
        }
        if len(targets) == 2 and not new:
            targets["both"] = address("pair", a=ids[0], b=ids[1], group=group)
        links = [link(name, target, label=f"{group} in {name}") for name, target in targets.items()]
        rows.append(
            [
                f"{row['activity']} in {group}" if is_group else row["activity"],
                *_difference(row, "seconds", "s", "_s"),
                Markup(" · ".join(links)),
            ]
        )
    return rows


def _part_causes(changes: CauseChanges | None) -> list[Viewable]:
    """Return the seconds of both arms by cause; nothing for runs without a task graph."""
    if changes is None:
        return []
    rows = [
        [CAUSES_SHORT[row["cause"]], row["group"], *_difference(row, "seconds", "s", "_s")]
        for row in changes.causes.to_dict("records")
    ]
    below = (
        "What the next step of the run waited for; seconds of wall time, which sum to all of it."
    )
    titles = ("cause", "mostly in", *_PART_TITLES[1:-1])
    return [
        ui.heading("What the runs waited for", below),
        tables.html_table(titles, rows, tight=True),
        ui.glossary({CAUSES_SHORT[name]: text for name, text in CAUSES.items()}),
    ]


def _memory_parts(table: pd.DataFrame) -> list[Viewable]:
    """Return the cluster memory of both arms by kind, at the time of the peak."""
    if table.empty:
        return []
    rows = [
        [str(row["kind"]).replace("_", ", "), *_difference(row, "bytes", "B")]
        for row in table.to_dict("records")
    ]
    below = "By kind, at the time of the highest cluster memory; means of all runs."
    titles = ("kind", *_PART_TITLES[1:-1])
    return [ui.heading("Where the memory went", below), tables.html_table(titles, rows, tight=True)]


def _signed(number: float, units: str) -> str:
    return ("+" if number >= 0 else "−") + format_quantity(abs(number), units)


def _difference(row: Mapping[str, Any], name: str, units: str, suffix: str = "") -> list[str]:
    """Return a difference, its interval, and the values of both arms."""
    interval = MISSING
    if np.isfinite(row["low"]):
        interval = f"{_signed(row['low'], units)} to {_signed(row['high'], units)}"
    sides = [format_quantity(row[f"{arm}{suffix}"], units) for arm in ("baseline", "contender")]
    return [_signed(row[name], units), interval, *sides]


def _full_names(run_id: str) -> dict[str, str]:
    """Return a mapping from short name (without Dask's hash) to the first such task group."""
    tree = open_run(run_id).tree
    if "task_groups" not in tree.children:
        return {}
    names = tree["task_groups"].to_dataset()["task_group"].values.astype(str)
    return {short_group(name): str(name) for name in reversed(names)}


def _run_rows(sides: Mapping[str, pd.DataFrame], first: Mapping[str, str]) -> list[list[str]]:
    rows = []
    for arm, side in sides.items():
        for run in side.to_dict("records"):
            run_id, block = str(run["id"]), run.get("block")
            rows.append(
                [
                    arm,
                    link(run_id[:13], address("run", id=run_id)),
                    MISSING if block is None or pd.isna(block) else str(int(block)),
                    f"{run['started']:%Y-%m-%d %H:%M}",
                    format_outcome(run),
                    format_seconds(run.get("duration")),
                    format_quantity(run.get("memory_peak"), "B"),
                    _pair_link(first, arm, run_id),
                ]
            )
    return rows


def _pair_link(first: Mapping[str, str], arm: str, run_id: str) -> Markup:
    """Return a link that compares a run with the first run of the other arm; A is the baseline."""
    a, b = (run_id if name == arm else other for name, other in first.items())
    label = f"compare {run_id[:13]} of {arm} with the first run of the other arm"
    return link("⇄", address("pair", a=a, b=b), label=label)


#: Keys of the address that select the runs (SIDES) and that filter the rows (FILTERS).
SIDES = ("experiment", "baseline", "contender")
FILTERS = ("metric", "verdict", "category", "find", "order")
#: Values of ``verdict`` in the address that stand for several verdicts.
_VERDICT_GROUPS = ("changed", "worse", "better")
#: Label of an order of rows -> value in the address.
_ORDERS = {"what changed most": "", "change in units of its noise": "noise", "name": "name"}
#: Smallest width in pixels of the forest plot with names, the heat map and the raw points.
_MIN_WIDTHS = (420, 260, 260)
#: Largest number of rows in the table.
MAX_ROWS = 300
_TERMS = {
    "change": "of the contender against the baseline and its null arm: the quotient of the two "
    "values, which are geometric means",
    "95% interval": "95 % of such intervals contain the true change; wider for rows selected "
    "because they changed",
    "null": "the baseline against itself, measured in turns with the other arms: noise",
    "noise": "spread of the runs of one arm: coefficient of variation of one run",
    "runs": "of the baseline (with the null arm) + of the arm",
}


def filtered_comparison(
    make: Callable[[str], Comparison], state: Mapping[str, str], metrics: list[str]
) -> pn.Column:
    """Return filter widgets, and below them the filtered rows and figures.

    Shows the rows of the metric in the address; without it, of all metrics that `make` compares
    by default.
    """
    titles = {"time and memory": "", **{METRICS[name].long_name: name for name in metrics}}
    metric = select("Metric", titles, state.get("metric"), width=270)
    comparison = make(str(metric.value) or metrics[0])
    categories = sorted({_category(name) for name in comparison.frame["workload"]})
    category_options = {"all": "", **{name: name for name in categories}}
    verdict = select(
        "Verdict", _verdicts(comparison, str(metric.value)), state.get("verdict"), width=150
    )
    widgets = {
        "metric": metric,
        "verdict": verdict,
        "category": select("Category", category_options, state.get("category"), width=150),
        "find": find_field(state),
        "order": select("Order", _ORDERS, state.get("order"), width=220),
    }
    sides = {name: state[name] for name in SIDES if name in state}

    def content(values: dict[str, str]) -> list[Viewable]:
        comparison = make(values["metric"] or metrics[0])
        options = _verdicts(comparison, values["metric"])
        if options != verdict.options:
            if values["verdict"] not in options.values():
                values["verdict"] = ""
            verdict.param.update(options=options, value=values["verdict"])
        return _body(comparison, values, sides)

    return filtered("compare", widgets, content, **sides)


def _category(workload: str) -> str:
    return workload.partition(".")[0]


def _verdicts(comparison: Comparison, metric: str) -> dict[str, str]:
    """Return the options of the verdict filter: label with number of rows -> address value."""
    frame = comparison.frame
    if metric:
        frame = frame[frame["metric"] == metric]
    names = dict.fromkeys([*_VERDICT_GROUPS, *frame["verdict"]])
    counts = {name: int(_has_verdict(frame, name).sum()) for name in names}
    return {"all": "", **{f"{name} ({count})": name for name, count in counts.items() if count}}


def _has_verdict(frame: pd.DataFrame, verdict: str) -> pd.Series:
    if verdict == "better":
        return frame["changed"] & ~frame["worse"]
    return frame[verdict] if verdict in _VERDICT_GROUPS else frame["verdict"] == verdict


def _body(
    comparison: Comparison, values: Mapping[str, str], sides: Mapping[str, str]
) -> list[Viewable]:
    frame = comparison.frame
    summary = [
        ui.paragraph(comparison.sentence),
        *(ui.paragraph(f"Note: {text}", kind="") for text in comparison.warnings),
    ]
    keep = pd.Series(True, index=frame.index)
    if values["metric"]:
        keep &= frame["metric"] == values["metric"]
    if values["verdict"]:
        keep &= _has_verdict(frame, values["verdict"])
    names = frame["workload"].astype(str)
    if values["category"]:
        keep &= names.map(_category) == values["category"]
    keep &= names.map(lambda name: has_words(name, values["find"]))
    shown = replace(comparison, frame=_ordered(frame[keep], values["order"]))
    note = _hidden(frame[~keep])
    if len(shown.frame) > MAX_ROWS:
        note += f" The first {MAX_ROWS} of {len(shown.frame)} rows are shown."
    if note:
        summary.append(ui.paragraph(note))
    if shown.frame.empty:
        return [*summary, ui.message("Nothing to show", "No row matches the filters.")]
    keys = {**sides, **values}
    return [
        *summary,
        tables.html_table(*_rows(shown, keys), tight=True, visible_rows=ROWS_SHOWN),
        *([ui.paragraph(_notes_text(shown.frame))] if shown.frame["note"].any() else []),
        tables.download_button("comparison.csv", lambda: shown.frame, "These rows as CSV", 160),
        ui.glossary(
            {**_TERMS, **{name: metric_term(name) for name in comparison.metrics}},
            "What the columns and metrics mean",
        ),
        *_figures(shown, values["metric"] or comparison.metrics[0], keys),
    ]


def _ordered(frame: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return rows in the requested order; the input has the largest changes first."""
    if order == "name":
        return frame.sort_values(["workload", "contender", "metric"], kind="stable")
    if order == "noise":
        change = np.log(frame["ratio"].where(frame["ratio"] > 0)).abs() / frame["noise"]
        return frame.loc[change.sort_values(ascending=False, kind="stable").index]
    return frame


def _figures(comparison: Comparison, metric: str, keys: Mapping[str, str]) -> list[Viewable]:
    """Return the forest plot, heat map and raw points with aligned rows of workloads."""

    def cause(workload: str, arm: str) -> str:
        return address("compare", **keys, workload=workload, arm=arm)

    changes = open_on_row_click(forest_plot(comparison, metric), cause)
    probabilities = open_on_row_click(heat_map(comparison, metric, share_y=changes), cause)
    points = open_on_run_click(raw_points(comparison, metric, share_y=changes))
    # Three figures in a row are too narrow for their titles.
    title: Any = changes.title
    text = str(title.text)
    title.text = "Which changed, and by how much?"
    panes = []
    for plot, width in zip((changes, probabilities, points), _MIN_WIDTHS, strict=True):
        pane = ui.figure(plot)
        # The three figures share the width that remains after the names.
        names_width = plot.min_border_left if plot is changes else 0
        # As a style: Panel would make the whole page as wide as the sum of `min_width`.
        pane.styles = {
            **pane.styles, "flex": f"1 1 {names_width}px", "min-width": f"{width}px",
        }  # fmt: skip
        panes.append(pane)
    return [
        ui.paragraph(text),
        pn.Row(*panes, sizing_mode="stretch_width", styles={"overflow-x": "auto"}),
        ui.paragraph(f"{CLICK_HELP} A click on the change of a row opens its causes."),
    ]


def _hidden(frame: pd.DataFrame) -> str:
    """Return a sentence with the number of hidden rows of each verdict."""
    counts = frame["verdict"].value_counts()
    texts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"Hidden by the filters: {texts}." if texts else ""


def _notes(frame: pd.DataFrame) -> dict[int, str]:
    """Return the distinct notes of the rows by their number in the table."""
    return dict(enumerate(dict.fromkeys(note for note in frame["note"] if note), start=1))


def _notes_text(frame: pd.DataFrame) -> str:
    texts = [f"{number}: {note}" for number, note in _notes(frame.head(MAX_ROWS)).items()]
    return f"Notes. {'. '.join(texts)}."


def _rows(comparison: Comparison, keys: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells of the first rows; each workload links to its causes."""
    first = replace(comparison, frame=comparison.frame.head(MAX_ROWS))
    table = comparison_table(first).reset_index()
    # Omit columns that are empty or equal in all rows: they take space from the names.
    is_omitted = {"metric": bool(keys.get("metric")), "note": not table["note"].astype(bool).any()}
    titles = [str(name) for name in table.columns if not is_omitted.get(str(name))]
    rows = []
    arms = first.frame["contender"]
    table["note"] = table["note"].map({text: str(i) for i, text in _notes(first.frame).items()})
    for arm, row in zip(arms, table.to_dict("records"), strict=True):
        target = address("compare", **keys, workload=row["workload"], arm=arm)
        rows.append([link(row["workload"], target), *(str(row[name]) for name in titles[1:])])
    return titles, rows


def comparison_table(comparison: Comparison) -> pd.DataFrame:
    """Return the rows of a comparison as text, changed rows first."""
    has_null = comparison.frame["null_ratio"].notna().any()
    rows = []
    for row in comparison.frame.to_dict("records"):
        noise = row["noise"]
        rows.append(
            {
                **text_row(row, comparison),
                **({"null": format_change(row["null_ratio"])} if has_null else {}),
                "noise": f"± {noise:.1%}".replace("%", " %") if np.isfinite(noise) else MISSING,
                "note": row["note"],
            }
        )
    return pd.DataFrame(rows).set_index("workload")


TITLE = "Compare"
#: Number of workloads with the largest changes that the page explains.
EXPLAINED = 3
#: Examples of two selections, shown in the form.
EXAMPLES = ("env:main,since:30d", "env:main,tag:variant=A")
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
        side[side["outcome"] == "ok"].assign(arm=name).groupby("workload").tail(MAX_RUNS)
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
    fields = dict(baseline=("Baseline", EXAMPLES[0]), contender=("Contender", EXAMPLES[1]))
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
    if len(links) > ROWS_SHOWN:
        below += f" For {len(links) - ROWS_SHOWN} more see the causes of a row."
    shown = dict(list(links.items())[:ROWS_SHOWN])
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
