"""The pages of comparisons: verdicts, figures, causes and arms; one change; all experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchkit.analysis.compare.compare_runs import NULL_ARM
from benchkit.analysis.compare.comparison import Comparison, text_row
from benchkit.analysis.compare.explain import IDLE, UNEXPLAINED, ExplainedChange, Explanation
from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.limits import CAUSES_SHORT
from benchkit.analysis.insight.memory import bytes_as_text
from benchkit.formatting import (
    MISSING,
    ROWS_SHOWN,
    format_change,
    format_count,
    format_outcome,
    format_quantity,
    format_seconds,
    run_limits,
)
from benchkit.show.pages.page import (
    Cell,
    Column,
    Figure,
    Filter,
    Interval,
    Page,
    Row,
    Section,
    Table,
    Target,
    Text,
    cells_table,
    find_filter,
    has_words,
    make_table,
    metric_term,
    select_filter,
    text_table,
)
from benchkit.show.plots.comparison import heat_map, raw_points, waterfall
from benchkit.show.plots.sweep import sweep_plot
from benchkit.store.filters import pair_workloads
from benchkit.store.schema import METRICS
from benchkit.table import Table as TextTable

#: Values of the verdict filter that stand for several verdicts.
VERDICT_GROUPS = ("changed", "worse", "better")
#: Name of an order of rows -> value in the state.
_ORDERS = {"what changed most": "", "change in units of its noise": "noise", "name": "name"}
#: Largest number of rows in the table.
MAX_ROWS = 300
#: Rows of the statistics of each arm.
MAX_NUMBERS = 60
#: Smallest length of the axis of the small figures to either side of the changes, as logarithm.
MIN_REACH = 0.05
_BAR = "less · more"
_TERMS = {
    "change": "of the contender against the baseline and its null arm: the quotient of the two "
    "values, which are geometric means",
    "95% interval": "95 % of such intervals contain the true change; wider for rows selected "
    "because they changed",
    _BAR: "the change with its interval, on a logarithmic axis that all rows share; a mark in the "
    "grey band, which has the width of the interval of the test, is no change",
    "runs": "of the baseline (with the null arm) + of the arm; disturbed: something else used the "
    "machine or the cluster",
    "null": "the baseline against itself, measured in turns with the other arms: noise",
    "noise": "spread of the runs of one arm: coefficient of variation of one run",
}


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison and its runs."""

    comparison: Comparison
    # Of all arms, with the columns of `Store.runs`.
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    keys: Mapping[str, str] = field(default_factory=dict)  # Of its address
    plan: Mapping[str, Any] | None = None  # Of the experiment
    is_interim: bool = False  # Whether runs of the experiment are still missing

    def arm_runs(self, workload: str, contender: str) -> dict[str, pd.DataFrame]:
        """Return the ok runs of a workload by arm, sorted by block, then by start time."""
        runs = pair_workloads(self.runs)
        ok = runs[(runs["workload"] == workload) & (runs["outcome"] == "ok")]
        ok = ok.sort_values([name for name in ("block", "started") if name in ok])
        return {arm: ok[ok["arm"] == arm] for arm in (self.comparison.baseline, contender)}


def page(data: ComparedRuns, state: Mapping[str, str]) -> Page:
    """Return the page of a comparison; `state` has the filters and the order of its rows."""
    comparison = data.comparison
    lines = [comparison.sentence, *(f"Note: {text}" for text in comparison.warnings)]
    sections = [
        *verdict_sections(data, state),
        Section("What moved?", [Text(text) for text in comparison.causes]),
        Section("Which task groups changed?", [Text(text) for text in comparison.group_changes]),
    ]  # fmt: skip
    return Page(comparison.title, lines, [each for each in sections if each.has_content])


def change_page(data: ComparedRuns, workload: str, arm: str) -> Page:
    """Return the page of the change of a workload in an arm, without its causes."""
    title = f"{workload}: {arm} against {data.comparison.baseline}"
    return Page(title, [], verdict_sections(data, {"workload": workload, "arm": arm}))


def filters(
    comparison: Comparison, metrics: Sequence[str], state: Mapping[str, str]
) -> list[Filter]:
    """Return the filters of the rows; `metrics` are those that the reader can choose."""
    frame = comparison.frame
    names = {"time and memory": "", **{METRICS[name].long_name: name for name in metrics}}
    metric = select_filter(state, "metric", "Metric", names)
    own = frame[frame["metric"] == metric.value] if metric.value else frame
    verdicts = dict.fromkeys([*VERDICT_GROUPS, *own["verdict"]])
    counts = {name: int(has_verdict(own, name).sum()) for name in verdicts}
    shown = {f"{name} ({count})": name for name, count in counts.items() if count}
    categories = sorted({category(name) for name in frame["workload"]})
    return [
        metric,
        select_filter(state, "verdict", "Verdict", {"all": "", **shown}),
        select_filter(state, "category", "Category", {"all": "", **{n: n for n in categories}}),
        find_filter(state),
        select_filter(state, "order", "Order", _ORDERS),
    ]


def has_verdict(frame: pd.DataFrame, verdict: str) -> pd.Series:
    """Return which rows have a verdict, or one of a group."""
    if verdict == "better":
        return frame["changed"] & ~frame["worse"]
    return frame[verdict] if verdict in VERDICT_GROUPS else frame["verdict"] == verdict


def category(workload: str) -> str:
    """Return the category of a workload."""
    return workload.partition(".")[0]


def shown_rows(comparison: Comparison, state: Mapping[str, str]) -> Comparison:
    """Return a comparison of the rows that match the filters, in the order of the state."""
    frame = comparison.frame
    keep = pd.Series(True, index=frame.index)
    for key, column in (("metric", "metric"), ("workload", "workload"), ("arm", "contender")):
        if state.get(key):
            keep &= frame[column] == state[key]
    if state.get("verdict"):
        keep &= has_verdict(frame, state["verdict"])
    names = frame["workload"].astype(str)
    if state.get("category"):
        keep &= names.map(category) == state["category"]
    keep &= names.map(lambda name: has_words(name, state.get("find", "")))
    return replace(comparison, frame=_ordered(frame[keep], state.get("order", "")))


def _ordered(frame: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return rows in the requested order; the input has the largest changes first."""
    if order == "name":
        return frame.sort_values(["workload", "contender", "metric"], kind="stable")
    if order == "noise":
        change = np.log(frame["ratio"].where(frame["ratio"] > 0)).abs() / frame["noise"]
        return frame.loc[change.sort_values(ascending=False, kind="stable").index]
    return frame


def verdict_sections(data: ComparedRuns, state: Mapping[str, str]) -> list[Section]:
    """Return the table of verdicts, changed rows first, each with a small figure; and the notes."""
    shown = shown_rows(data.comparison, state)
    place, notes = _axis(shown.frame), _notes(data.comparison, state)
    rows = [
        _verdict_cells(data, row, place, state, notes)
        for row in shown.frame.head(MAX_ROWS).to_dict("records")
    ]
    empty = "No row matches the filters."
    table = cells_table(rows, _TERMS, empty=empty, visible_rows=ROWS_SHOWN)
    terms = {**table.terms, **{name: metric_term(name) for name in shown.frame["metric"].unique()}}
    note = ""
    if not state.get("workload"):
        left_out = data.comparison.frame.drop(shown.frame.index)
        note = _hidden(left_out)
    if len(shown.frame) > MAX_ROWS:
        note += f" The first {MAX_ROWS} of {len(shown.frame)} rows are shown."
    sections = [
        Section("Which changed, and by how much?", replace(table, terms=terms), note.strip()),
        Section("What do the notes mean?", [Text(f"{i}: {text}.") for text, i in notes.items()]),
    ]
    return [each for each in sections if each.has_content]


def _hidden(frame: pd.DataFrame) -> str:
    """Return a sentence with the number of hidden rows of each verdict."""
    counts = frame["verdict"].value_counts()
    texts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"Hidden by the filters: {texts}." if texts else ""


def _notes(comparison: Comparison, state: Mapping[str, str]) -> dict[str, int]:
    """Return the distinct notes of the shown rows, and their numbers in the table."""
    notes = shown_rows(comparison, state).frame["note"].head(MAX_ROWS)
    return {note: i for i, note in enumerate(dict.fromkeys(filter(None, notes)), start=1)}


def _verdict_cells(
    data: ComparedRuns,
    row: Mapping[str, Any],
    place: Callable[[float], float],
    state: Mapping[str, str],
    notes: Mapping[str, int],
) -> dict[str, Cell]:
    """Return a row of the table; its workload leads to the causes of the change."""
    comparison = data.comparison
    texts = text_row(row, comparison)
    keys = {**data.keys, **state, "workload": row["workload"], "arm": row["contender"]}
    tone = "bad" if row["worse"] else "good" if row["changed"] else ""
    interim = " (interim)" if data.is_interim else ""
    interval = texts[f"{comparison.level:.0%} interval"]
    if state.get("metric"):  # the same in every row
        del texts["metric"]
    # A narrow page shows the first columns: what was found is before the values.
    names = [name for name in ("workload", "contender", "metric") if name in texts]
    cells: dict[str, Cell] = {
        **{name: texts.pop(name) for name in names},
        "verdict": Text(f"{texts.pop('verdict')}{interim}", tone),
        _BAR: _bar(row, tone, place, f"{texts['change']}, {interval}"),
        **{
            name: texts.pop(name) for name in ("change", f"{comparison.level:.0%} interval", "runs")
        },
        **texts,
    }
    cells["workload"] = Text(str(cells["workload"]), target=Target("compare", keys))
    if comparison.frame["null_ratio"].notna().any():
        cells["null"] = format_change(row["null_ratio"])
    noise = row["noise"]
    cells["noise"] = f"± {100 * noise:.1f} %" if math.isfinite(noise) else MISSING
    cells["note"] = str(notes.get(row["note"], ""))
    return cells


def _axis(frame: pd.DataFrame) -> Callable[[float], float]:
    """Return the function from a ratio to its place on a logarithmic axis from 0 to 1."""

    def logs(*names: str) -> np.ndarray:
        ratios = frame[[*names]].to_numpy(float).ravel()
        return np.append(np.log(ratios[np.isfinite(ratios) & (ratios > 0)]), 0.0)

    changes, ends = logs("ratio"), logs("low", "high", "selected_low", "selected_high")
    reach = max(float(np.ptp(changes)), MIN_REACH)  # wide intervals must not hide the changes
    first = max(min(ends.min(), changes.min()), changes.min() - reach)
    last = max(min(ends.max(), changes.max() + reach), changes.max(), first + MIN_REACH)

    def place(ratio: float) -> float:
        value = math.log(ratio) if not ratio <= 0 else -math.inf
        return (value - first) / (last - first)

    return place


def _bar(row: Mapping[str, Any], tone: str, place: Callable[[float], float], label: str) -> Cell:
    if not math.isfinite(row["ratio"]):
        return ""
    ends = ("selected_low", "selected_high") if row["changed"] else ("low", "high")
    low, high = (place(row[name]) for name in ends)
    # The width of the interval that the test uses, around no change.
    noise = (row["low"] / row["ratio"], row["high"] / row["ratio"]) if row["ratio"] else (1.0, 1.0)
    places = (place(noise[0]), place(noise[1]))
    return Interval(place(row["ratio"]), low, high, places, place(1.0), tone, label)


def figures(
    comparison: Comparison, metric: str = "", plan: Mapping[str, Any] | None = None
) -> list[Section]:
    """Return the figures of a metric, "": of the first one; with one workload, of every metric."""
    is_one = comparison.frame["workload"].nunique() == 1
    drawn = metric or (None if is_one else comparison.metrics[0])
    points = {arm["name"]: arm.get("point", {}) for arm in (plan or {}).get("arms", ())}
    return [
        *(Section(f"How does the duration depend on {key}?",
                  Figure(partial(sweep_plot, comparison, points, key)))
          for key in (plan or {}).get("words", {}).get("sweeps", {})),
        Section("How certain is a change of more than a given percentage?",
                Figure(partial(heat_map, comparison, drawn)),
                "Red: more than the baseline; blue: less. A cell is the probability that the "
                "change is larger than its percentage: the columns next to the middle show "
                "whether there is any change, however small; a verdict same can be red there. At "
                "most about 5 % of the cells with 95 % are expected to be false."),
        Section("What did each run measure?", Figure(partial(raw_points, comparison, drawn)),
                "Each dot is a run. Two groups of dots in one row are two modes, a single distant "
                "dot is an outlier; an interval shows neither."),
        Section("What are the statistics of each arm?",
                text_table(TextTable.from_frame(comparison.numbers().head(MAX_NUMBERS)))),
    ]  # fmt: skip


def causes(explained: Sequence[ExplainedChange]) -> list[Section]:
    """Return what took the additional seconds of each explained change."""
    return [
        Section(
            f"Where did the time of {each.workload} in {each.contender} go?",
            Figure(partial(waterfall, each.explanation)),
            each.explanation.sentence,
        )
        for each in explained
    ] or [Section("Where did the time go?", [Text("No workload has a changed duration.")])]


def _first_id(side: pd.DataFrame) -> str:
    return str(side["id"].iloc[0]) if len(side) else ""


def differences(baseline: str, tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return what differs between the environments of the arms, by contender."""
    return [
        Section(
            f"What differs between {baseline} and {contender}?",
            text_table(
                TextTable.from_frame(
                    frame.rename(columns={"baseline": baseline, "contender": contender})
                ),
                empty="No recorded difference.",
            ),
        )
        for contender, frame in tables.items()
    ]


def outcomes(runs: pd.DataFrame) -> Section:
    """Return how many runs of each arm ended in which way, and with which limits."""
    texts = [format_outcome(run) for run in runs.to_dict("records")]
    counts = pd.crosstab(runs["arm"].to_numpy(), pd.Series(texts, dtype=object).to_numpy())
    note = "Only runs with the outcome ok have a time."
    return Section("How did the runs end?", text_table(TextTable.from_frame(counts, "arm")), note)


def arms(plan: Mapping[str, Any]) -> Section:
    """Return the definitions of the arms of an experiment."""
    names = ("description", "python", "packages", "dask", "variables", "cluster", "clusters")
    rows = {}
    for arm in plan["arms"]:
        point = arm.get("point", {}).items()
        params = {key.partition(".")[2]: value for key, value in point if key.startswith("param.")}
        rows[arm["name"]] = {"parameters": _yaml_text(params)} | {
            name: _yaml_text(arm["environment"].get(name)) for name in names
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table = table.loc[:, (table != "").any()]
    return Section("How are the arms defined?", text_table(TextTable.from_frame(table, "arm")))


def _yaml_text(value: Any) -> str:
    """Return a part of a definition as one line of YAML; an empty string for an empty value."""
    if not value:
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.strip().removesuffix("...").strip()


def facts(plan: Mapping[str, Any], runs: pd.DataFrame) -> Section:
    """Return what was measured in an experiment, and when, where and at what cost."""
    n_planned, n_done = len(plan["plan"]), len(runs)
    ended = (runs["started"] + pd.to_timedelta(runs["duration"].fillna(0), unit="s")).max()
    skipped = ""
    if plan["words"].get("adaptive") and n_done < n_planned:
        skipped = f"; skipped {n_planned - n_done}: verdict already decided"
    worker_time = runs["worker_seconds"].sum() if "worker_seconds" in runs else 0.0
    cost = runs["cost"].sum(min_count=1) if "cost" in runs else math.nan
    texts = {
        "experiment": plan["id"],
        "command": f"benchkit {plan['words'].get('command', '')}".strip(),
        "started": f"{runs['started'].min():%Y-%m-%d %H:%M} UTC",
        "duration": format_seconds((ended - runs["started"].min()).total_seconds()),
        "runs": f"{n_done} of {n_planned} planned{skipped}",
        "order": plan["order"],
        "machine": ", ".join(sorted(runs["host"].dropna().unique())),
        "worker time": format_seconds(worker_time) if worker_time else "",
        "cost": f"{cost:.2f} USD" if math.isfinite(cost) else "",
    }
    return Section("What was measured?", Table(
        ["", "value"], [Row([name, text]) for name, text in texts.items() if text]))  # fmt: skip


def explanation(
    data: ComparedRuns,
    found: Explanation,
    workload: str,
    arm: str,
    groups: Sequence[Mapping[str, str]],
) -> list[Section]:
    """Return what the change of a workload is made of, and its runs.

    `groups` maps the names of task groups without Dask's hash to full names, in the first run of
    each arm.
    """
    sides = data.arm_runs(workload, arm)
    first = [_first_id(side) for side in sides.values()]
    parts = [
        _part_cells(row, first, groups) for row in found.parts.head(ROWS_SHOWN).to_dict("records")
    ]
    wait = found.causes
    waits = [] if wait is None else [
        {"cause": CAUSES_SHORT[row["cause"]], "mostly in": row["group"], **_difference(row, "s")}
        for row in wait.causes.to_dict("records")
    ]  # fmt: skip
    kinds = [
        {"kind": str(row["kind"]).replace("_", ", "), **_difference(row, "B")}
        for row in found.memory.to_dict("records")
    ]
    sections = [
        Section("Where did the time go?", Figure(partial(waterfall, found)), found.sentence),
        Section("How much time is each part?", replace(cells_table(parts), terms=_PART_TERMS)),
        Section("What did the runs wait for?",
                replace(cells_table(waits), terms={
                    CAUSES_SHORT[name]: text for name, text in CAUSES.items()}),
                "What the next step of the run waited for; seconds of wall time, which sum to all "
                "of it."),
        Section("Where did the memory go?", cells_table(kinds),
                "By kind, at the time of the highest cluster memory; means of all runs."),
        group_memory(found.memory_groups),
        Section("Which runs are these?", make_table(_RUNS, [
            (name, run, _other(first, place)) for place, (name, side) in enumerate(sides.items())
            for run in side.to_dict("records")
        ]), "⇄ compares a run with the first run of the other arm."),
    ]  # fmt: skip
    return [each for each in sections if each.has_content]


def group_memory(difference: pd.DataFrame) -> Section:
    """Return the bytes of results by task group of two runs or arms."""
    note = (
        "Bytes of results, in memory or spilled, replicas included, at the moment when all results "
        "together are largest."
    )
    rows = bytes_as_text(difference.head(ROWS_SHOWN)) if len(difference) else difference
    table = text_table(TextTable.from_frame(rows, "task group"))
    return Section("Which task groups held memory?", table, note)


_PART_TERMS = {
    "part": "an activity of the threads in the task groups of one name; idle: threads without "
    "work; old → new: a group with another name in the contender and the same number of tasks; a "
    "link compares the group in the first run of both arms",
    "difference": "additional seconds of wall time in the arm, means of all runs; thread-seconds "
    "of the part over the number of threads",
    "baseline, contender": "the same seconds of each arm; a link leads to the group in the first "
    "run of the arm",
}


def _part_cells(
    row: Mapping[str, Any], ids: Sequence[str], groups: Sequence[Mapping[str, str]]
) -> dict[str, Cell]:
    """Return one part of a change, with links to its task group in a run of each arm."""
    group, is_group = str(row["group"]), row["group"] not in (IDLE, UNEXPLAINED)
    cells: dict[str, Cell] = {
        "part": f"{row['activity']} in {group}" if is_group else row["activity"],
        **_difference(row, "s"),
    }
    old, _, new = group.partition(" → ")
    n_found = 0
    sides = zip("AB", ("baseline", "contender"), ids, groups, (old, new or old), strict=True)
    for letter, side, run_id, names, short in sides:
        if is_group and short in names:
            n_found += 1
            target = Target("run", {"id": run_id, "group": names[short]})
            cells[side] = Text(str(cells[side]), target=target, title=f"{group} in {letter}")
    if n_found == 2 and not new:
        target = Target("pair", {"a": ids[0], "b": ids[1], "group": group})
        cells["part"] = Text(str(cells["part"]), target=target, title=f"{group} in both")
    return cells


def _difference(row: Mapping[str, Any], units: str) -> dict[str, Cell]:
    """Return a difference, its interval, and the values of both arms."""
    name, suffix = ("seconds", "_s") if units == "s" else ("bytes", "")
    interval = MISSING
    if np.isfinite(row["low"]):
        interval = f"{_signed(row['low'], units)} to {_signed(row['high'], units)}"
    sides = {
        arm: format_quantity(row[f"{arm}{suffix}"], units) for arm in ("baseline", "contender")
    }
    return {"difference": _signed(row[name], units), "interval": interval, **sides}


def _signed(number: float, units: str) -> str:
    return ("+" if number >= 0 else "−") + format_quantity(abs(number), units)


def _other(first: Sequence[str], place: int) -> Callable[[str], dict[str, str]]:
    """Return the pair of a run and the first run of the other arm; A is the baseline."""
    return lambda run: {letter: run if i == place else first[i] for i, letter in enumerate("ab")}


_RUNS = (
    Column("arm", lambda each: each[0]),
    Column("block", lambda each: format_count(each[1].get("block"))),
    Column("started (UTC)", lambda each: Text(
        f"{each[1]['started']:%Y-%m-%d %H:%M:%S}", target=Target("run", {"id": each[1]["id"]}))),
    Column("outcome", lambda each: format_outcome(each[1])),
    Column("wall time", lambda each: format_seconds(each[1].get("duration"))),
    Column("peak memory", lambda each: format_quantity(each[1].get("memory_peak"), "B")),
    Column("compare", lambda each: Text(
        "⇄", target=Target("pair", each[2](each[1]["id"])),
        title=f"compare this run of {each[0]} with the first run of the other arm")),
)  # fmt: skip


def experiments(runs: pd.DataFrame) -> Page:
    """Return the list of experiments with several arms, newest first."""
    runs = runs[runs["experiment"].notna() & runs["arm"].notna()]
    n_arms = runs.groupby("experiment")["arm"].nunique()
    runs = runs[runs["experiment"].isin(n_arms[n_arms > 1].index)]
    parts = list(reversed(list(runs.groupby("experiment", sort=False))))
    line = "Environments that were measured in turns."
    sections = [Section("Which were compared?", make_table(_EXPERIMENTS, parts))]
    return Page("Experiments", [line], [each for each in sections if each.has_content])


def _arm_names(runs: pd.DataFrame) -> str:
    names = [arm for arm in dict.fromkeys(runs["arm"]) if arm != NULL_ARM]
    return f"{', '.join(names[1:]) or NULL_ARM} against {names[0] if names else NULL_ARM}"


def _n_disturbed(runs: pd.DataFrame) -> int:
    return sum("disturbed" in run_limits(run) for run in runs.to_dict("records"))


_EXPERIMENTS = (
    Column("started (UTC)", lambda each: f"{each[1]['started'].min():%Y-%m-%d %H:%M}"),
    Column("arms", lambda each: Text(
        _arm_names(each[1]), target=Target("compare", {"experiment": each[0]}))),
    Column("workloads", lambda each: str(each[1]["workload"].nunique())),
    Column("runs", lambda each: str(len(each[1]))),
    Column("not ok", lambda each: str(int((each[1]["outcome"] != "ok").sum()))),
    Column("disturbed", lambda each: str(_n_disturbed(each[1]) or ""),
           "runs during which something else used the machine or the cluster"),
)  # fmt: skip
