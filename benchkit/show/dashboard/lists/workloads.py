"""Pages of workloads: the list with median, noise and failures of each, and one workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.regression.status import STATES, series_label
from benchkit.analysis.run.noise import EFFECTS, run_noise
from benchkit.formatting import (
    MISSING,
    NO_FAILURE,
    ROWS_SHOWN,
    counted,
    format_bytes,
    format_outcome,
    format_quantity,
)
from benchkit.measure.workloads import Variant
from benchkit.show.dashboard.components.tables import measured_metrics
from benchkit.show.dashboard.components.widgets import CLICK_HELP, filtered, open_on_run_click
from benchkit.show.dashboard.state.cache import (
    MAX_RUNS_READ,
    newest_attributes,
    newest_since,
    noise_of,
    runs_of_workload,
    runs_table,
    stored_metrics,
    workload_catalogue,
)
from benchkit.show.dashboard.state.nights import (
    all_nights,
    nights_of_workload,
    series_statuses_of,
    shown_metrics,
)
from benchkit.show.dashboard.state.url import address, history_address, href
from benchkit.show.pages.history import run_section
from benchkit.show.pages.page import (
    Cell,
    Filter,
    Section,
    Target,
    Text,
    cells_table,
    find_filter,
    has_words,
    metric_filter,
    metric_term,
    run_text,
    select_filter,
    text_or_missing,
)
from benchkit.show.plots.history import history_plot, sparkline
from benchkit.show.render import panel as ui
from benchkit.store.schema import METRICS
from benchkit.values import decode_json

#: Largest number of runs in a sparkline.
SPARK_RUNS = 120
NOISE_TERMS = {
    "where": "the runs of a row have the same workload, source, scale, machine, cluster and "
    "capture, and are therefore comparable",
    "noise": "random difference between runs: coefficient of variation of one run, from the median "
    "difference of successive comparable runs; needs five runs",
    "runs for 5 %": "runs per side, baseline and contender, that detect a change of 5 % with a "
    "probability of 80 %, at a significance level of 5 %",
}


def noise_text(noise: float) -> str:
    """Return noise as text."""
    # noise: Coefficient of variation; may be NaN.
    if not np.isfinite(noise):
        return MISSING
    percent = noise * 100
    digits = 2 if percent < 1 else 1 if percent < 10 else 0
    return f"± {percent:.{digits}f} %"


def share_text(count: int, total: int) -> str:
    """Return a count and its share as text."""
    return f"{count} ({count / total * 100:.1f} %)" if count else "0"


def needed_text(runs: int) -> str:
    """Return a number of runs as text."""
    return {0: MISSING, -1: "> 1000"}.get(runs, str(runs))


def workload_page(state: dict[str, str]) -> pn.Column:
    """Return the page of a variant."""
    name = state["name"]
    runs = runs_of_workload(name)
    variants = {variant.name: variant for variant in workload_catalogue().variants()}
    siblings = _siblings(name, variants)
    links = {address("workloads", name=sibling): sibling for sibling in siblings}
    variant = variants.get(name)
    if runs.empty and variant is None:
        if siblings:
            line = "Parameters are bound when a workload runs; select a variant:"
            return ui.column(ui.page_head(name, lines=[line]), ui.link_list(links))
        return _unknown(name)
    attributes = newest_attributes(runs)
    metrics = measured_metrics(runs)
    content: list[Viewable] = [*ui.guard_parts(lambda: _head(name, runs, variant, attributes))]
    if metrics:
        content.append(
            filtered(
                "workloads",
                lambda state: [metric_filter(state, metrics)],
                lambda values: [
                    *ui.guard_parts(lambda: _measured(name, runs, values["metric"])),
                    ui.guard(lambda: _runs(runs, values["metric"])),
                ],
                state,
                name=name,
            )
        )
    elif runs.empty:
        content.append(ui.message("Never measured", "Measure it:", f"benchkit run '{name}'"))
    else:
        content += [ui.paragraph("None of its runs has a metric."), _runs(runs, "duration")]
    content += _source(variant, attributes)
    if links.pop(address("workloads", name=name), None) and links:
        below = "The same workload with other parameters."
        content += [ui.heading("Other variants", below), ui.link_list(links)]
    return ui.column(*content)


def _siblings(name: str, variants: Mapping[str, Variant]) -> list[str]:
    base = name.partition("[")[0]
    names = {*variants, *runs_table(["workload"])["workload"].unique()}
    return sorted(sibling for sibling in names if sibling.partition("[")[0] == base)


def _unknown(name: str) -> pn.Column:
    return ui.column(
        ui.message("No such workload", f"Neither measured nor in the catalogue: {name!r}."),
        ui.link_list({address("workloads", show="all"): "All workloads"}),
    )


def _head(
    name: str, runs: pd.DataFrame, variant: Variant | None, attributes: dict[str, Any]
) -> list[Viewable]:
    """Return the head of the page; the description is the author's text."""
    default = variant.workload.description if variant else ""
    description = str(attributes.get("description") or default)
    paragraphs = [" ".join(part.split()) for part in description.split("\n\n") if part.strip()]
    category = variant.workload.category if variant else str(runs["category"].iloc[0])
    state, good = "never measured", True
    figures = {}
    if len(runs):
        outcome = runs["outcome"].iloc[0]
        state, good = f"last run {format_outcome(runs.iloc[0])}", outcome in NO_FAILURE
        n_failed = int((~runs["outcome"].isin(NO_FAILURE)).sum())
        figures = {
            "runs": str(len(runs)),
            "failed": share_text(n_failed, len(runs)),
            "first run (UTC)": str(runs["started"].iloc[-1])[:10],
            "last run (UTC)": str(runs["started"].iloc[0])[:10],
        }
    return [
        ui.page_head(name, state=state, good=good, lines=[f"category {category}"], figures=figures),
        *(ui.paragraph(text, kind="") for text in paragraphs),
        ui.facts(_facts(runs, variant, attributes)),
    ]


def _facts(
    runs: pd.DataFrame, variant: Variant | None, attributes: dict[str, Any]
) -> dict[str, Any]:
    last = runs.iloc[0].to_dict() if len(runs) else {}
    params = decode_json(attributes.get("params") or last.get("params"))
    params = params or (dict(variant.params) if variant else {})
    values = {
        "parameters": ", ".join(f"{key} = {value}" for key, value in params.items()),
        "size": _size(decode_json(attributes.get("sizes")), last),
        "tags": ", ".join(variant.tags) if variant else "",
        "required packages": ", ".join(variant.workload.requires) if variant else "",
        "version": last.get("version", variant.workload.version if variant else ""),
        "source hash": last.get("source_hash", ""),
        "declared in": f"{variant.workload.path}:{variant.workload.line}" if variant else "",
    }
    return {key: value for key, value in values.items() if value not in ("", None)}


def _size(sizes: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Return the limits (memory, threads) and the scale that determine the data size, as text."""
    texts = []
    if sizes.get("memory"):
        texts.append(f"made for {format_bytes(sizes['memory'])} of cluster memory")
    if sizes.get("threads"):
        texts.append(f"{sizes['threads']} threads")
    texts += [f"{key} {value}" for key, value in sizes.items() if key not in ("memory", "threads")]
    scale = last.get("scale")
    if scale is not None and pd.notna(scale):
        texts.append(f"scale {scale:g}")
    return ", ".join(texts)


def _measured(name: str, runs: pd.DataFrame, metric: str) -> list[Viewable]:
    sets = run_noise(runs, metric)
    rows = [_set_cells(row, metric) for row in sets.head(ROWS_SHOWN).to_dict("records")]
    table = cells_table(rows, NOISE_TERMS, empty="No ok run has this metric.")
    note = metric_term(metric)
    if len(sets) > ROWS_SHOWN:
        note += f". {len(sets) - ROWS_SHOWN} older sets of runs are not listed."
    noise = Section("Noise and detectable changes", table, note)
    return [*_over_time(name, runs, metric), ui.section(noise, href)]


def _set_cells(row: Mapping[str, Any], metric: str) -> dict[str, Cell]:
    where = series_label(
        {**row, "environment": "", "host": text_or_missing(row.get("host"))}
    ).strip()
    shape = f"{row['n_workers']:g} workers" if pd.notna(row.get("n_workers")) else ""
    environment = text_or_missing(row.get("environment"))
    return {
        "environment": Text(environment, target=Target("environments", {"name": environment})),
        "where": ", ".join(part for part in (where, shape, f"version {row['version']}") if part),
        "runs ok": str(row["n_runs"]),
        "newest (UTC)": Text(str(row["newest"])[:10], "whole"),
        "median": format_quantity(row["level"], METRICS[metric].units),
        "noise": noise_text(row["noise"]),
        **{
            f"runs for {100 * effect:.0f} %": needed_text(row[f"needed_{effect * 100:.0f}"])
            for effect in EFFECTS
        },
    }


def _over_time(name: str, runs: pd.DataFrame, metric: str) -> list[Viewable]:
    """Return a figure of the nightly series; without nights, a sparkline of the runs."""
    history = nights_of_workload(name)
    series = history.series[history.series["metric"] == metric]
    if len(series):
        row = max(series.index, key=lambda place: np.isfinite(history.values[place]).sum())
        links = {
            history_address(about, metric): f"History in {series_label(about)}"
            for about in series.to_dict("records")
        }
        plot = history_plot(history, int(row), from_zero=False, height=260)
        where = series_label(history.series.iloc[row])
        return [
            ui.heading("Over the nights", f"In {where}. {CLICK_HELP}"),
            ui.figure(open_on_run_click(plot)),
            ui.link_list(links),
        ]
    values = runs[metric].where(runs["outcome"] == "ok").to_numpy(float)[:SPARK_RUNS][::-1]
    label = f"{METRICS[metric].long_name} of the last {values.size} runs of {name}"
    return [
        ui.heading("Over its runs", "There are no nightly runs; these are all runs in order."),
        ui.html_pane(sparkline(values, label=label, width=420, height=60)),
    ]


def _runs(runs: pd.DataFrame, metric: str) -> Viewable:
    return ui.section(run_section(runs, [metric]), href)


def _source(variant: Variant | None, attributes: dict[str, Any]) -> list[Viewable]:
    text = str(attributes.get("source") or "")
    if text:
        return [ui.heading("Source", "As in the newest run."), ui.code_block(text)]
    if variant is not None:
        below = "As in the folder of workloads."
        return [ui.heading("Source", below), ui.code_block(variant.workload.source)]
    return [ui.heading("Source", "The files of its newest runs do not contain it.")]


TITLE = "Workloads"
#: Columns of the runs that the list reads.
_COLUMNS = ("id", "started", "workload", "category", "outcome")
#: Usual largest number of runs per side; a workload that needs more for 5 % is noisy.
MANY_RUNS = 12
_TERMS = {
    "state": "outcome of the newest run; if that is ok and the workload has nightly runs, the most "
    "serious state of its environments on the last night",
    "failed": "runs that are not ok, and their share of all runs; skipped runs are no failures",
    "usual": "median of its newest set of comparable runs",
}


@dataclass(frozen=True)
class Row:
    """Row of the list: one variant."""

    name: str  # name, category: Name and category of the variant
    category: str
    # n_runs, n_failed: Number of runs in the store, and number of failed runs. Skipped runs are not
    # failures.
    n_runs: int = 0
    n_failed: int = 0
    # Record of the newest run; None if the variant has no run.
    last: Mapping[str, Any] | None = field(default=None, repr=False)
    # Most serious state (see `STATES`) of its series on the last night; empty without nights.
    state: str = ""
    # level, noise: Median and coefficient of variation of the newest set of comparable runs; NaN:
    # unknown.
    level: float = float("nan")
    noise: float = float("nan")
    needed: int = 0  # Runs per side that detect a change of 5 %; 0: unknown, -1: more than 1000

    @property
    def failing(self) -> float:
        """Share of failed runs."""
        return self.n_failed / self.n_runs if self.n_runs else 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether detecting a change of 5 % takes more runs than an experiment usually has."""
        return self.needed < 0 or self.needed > MANY_RUNS


#: Label of a filter -> value in the address, and condition on rows.
_SHOWN: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "measured": ("", lambda row: row.n_runs > 0),
    "last run not ok": (
        "failing",
        lambda row: row.last is not None and row.last["outcome"] not in NO_FAILURE,
    ),
    "too noisy for 5 %": ("noisy", lambda row: row.is_noisy),
    "never measured": ("never", lambda row: not row.n_runs),
    "everything": ("all", lambda row: True),
}
#: Label of an order -> value in the address, and sort key.
_ORDERS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "name": ("", lambda row: row.name),
    "noise, highest first": ("noise", lambda row: -np.nan_to_num(row.noise, nan=-1.0)),
    "failures, most first": ("failures", lambda row: (-row.failing, -row.n_runs)),
    "last run, newest first": (
        "newest",
        lambda row: -row.last["started"].timestamp() if row.last is not None else 0.0,
    ),
    "runs, most first": ("runs", lambda row: -row.n_runs),
}


def view(state: dict[str, str]) -> Viewable:
    """Return the list, or the page of one workload."""
    if state.get("name"):
        return workload_page(state)
    if runs_table(_COLUMNS).empty and not workload_catalogue().workloads:
        return ui.message(
            "No workloads yet",
            "There are no runs, and there is no folder of workloads here:",
            "benchkit run -k tag:quick",
        )
    metrics = stored_metrics() or ["duration"]

    def filters(state: Mapping[str, str]) -> list[Filter]:
        metric = metric_filter(state, metrics)
        categories = sorted({row.category for row in workload_rows(metric.value)})
        return [
            metric,
            find_filter(state),
            select_filter(state, "category", "Category", {"all": "", **{n: n for n in categories}}),
            select_filter(state, "show", "Show", {name: key for name, (key, _) in _SHOWN.items()}),
            select_filter(
                state, "order", "Order", {name: key for name, (key, _) in _ORDERS.items()}
            ),
        ]

    return filtered("workloads", filters, _body, state)


def workload_rows(metric: str) -> list[Row]:
    """Return a row per variant of the store and of the catalogue, sorted by name."""
    runs, states = runs_table(_COLUMNS), _states(metric)
    sets = noise_of(metric).drop_duplicates("workload") if len(runs) else pd.DataFrame()
    noise = {row["workload"]: row for row in sets.to_dict("records")}
    rows: dict[str, Row] = {}
    if len(runs):
        grouped = runs.groupby("workload", sort=False)
        n_failed = (~runs["outcome"].isin(NO_FAILURE)).groupby(runs["workload"]).sum()
        n_runs = grouped.size()
        for last in grouped.head(1).to_dict("records"):  # newest run first
            name = str(last["workload"])
            newest_set = noise.get(name, {})
            rows[name] = Row(
                name,
                str(last["category"] if pd.notna(last["category"]) else name.partition(".")[0]),
                int(n_runs[name]),
                int(n_failed[name]),
                last,
                states.get(name, ""),
                float(newest_set.get("level", np.nan)),
                float(newest_set.get("noise", np.nan)),
                int(newest_set.get("needed_5", 0)),
            )
    for variant in workload_catalogue().variants():
        rows.setdefault(variant.name, Row(variant.name, variant.workload.category))
    return [rows[name] for name in sorted(rows)]


def _states(metric: str) -> dict[str, str]:
    """Return the most serious state of each workload's series on the last night."""
    if metric not in shown_metrics():
        return {}
    _, statuses = series_statuses_of(metric)
    return {str(status.about["workload"]): status.state for status in reversed(statuses)}


def _body(values: Mapping[str, str]) -> list[Viewable]:
    metric = values["metric"]
    rows = workload_rows(metric)
    is_shown = next(test for key, test in _SHOWN.values() if key == values["show"])
    order = next(test for key, test in _ORDERS.values() if key == values["order"])
    shown = [
        row
        for row in rows
        if is_shown(row)
        and values["category"] in ("", row.category)
        and has_words(row.name, values["find"])
    ]
    shown.sort(key=order)
    title = f"{counted(sum(row.n_runs > 0 for row in rows), 'workload')} measured"
    lines = [_classes(rows, shown)]
    if newest_since() is not None:
        lines.append(f"Usual values and noise are of the newest {MAX_RUNS_READ:,} runs.")
    head = ui.page_head(title, lines=lines)
    if not shown:
        return [head, ui.message("Nothing to show", "No workload matches the filters.")]
    nightly = set(all_nights().series["workload"])
    terms = {**_TERMS, "usual": f"{_TERMS['usual']}: {metric_term(metric)}", **NOISE_TERMS}
    table = cells_table([_cells(row, metric, nightly) for row in shown], terms)
    return [head, ui.section(Section("Which are they?", table), href)]


def _classes(rows: list[Row], shown: list[Row]) -> str:
    """Return the number of rows of each class, and how many are hidden."""

    def last_outcome_is(outcome: str) -> Callable[[Row], bool]:
        return lambda row: row.last is not None and row.last["outcome"] == outcome

    classes = {
        "last run ok": last_outcome_is("ok"),
        "last run not ok": _SHOWN["last run not ok"][1],
        "last run skipped": last_outcome_is("skipped"),
        "never measured": _SHOWN["never measured"][1],
    }
    names = {row.name for row in shown}
    texts = []
    for label, test in classes.items():
        members = [row.name for row in rows if test(row)]
        n_hidden = sum(name not in names for name in members)
        if members:
            texts.append(f"{len(members)} {label}" + (f" ({n_hidden} hidden)" if n_hidden else ""))
    return ", ".join(texts)


def _cells(row: Row, metric: str, nightly: set[str]) -> dict[str, Cell]:
    """Return the cells of a row."""
    cells: dict[str, Cell] = {
        "workload": Text(row.name, target=Target("workloads", {"name": row.name})),
        "category": row.category,
        "runs": str(row.n_runs),
        "last run (UTC)": MISSING,
        "state": "never measured",
        **dict.fromkeys(("failed", "usual", "noise", "runs for 5 %"), MISSING),
        "nights": "",
    }
    if row.last is None:
        return cells
    outcome, state = row.last["outcome"], row.state
    if state and outcome in NO_FAILURE:
        text, is_bad = " ".join(STATES[state]), state in ("failed", "regressed")
    else:
        text, is_bad = format_outcome(row.last), outcome not in NO_FAILURE
    history = Target("history", {"workload": row.name, "metric": metric})
    return cells | {
        "last run (UTC)": run_text(row.last),
        "state": Text(text, "bad" if is_bad else "soft"),
        "failed": share_text(row.n_failed, row.n_runs),
        "usual": format_quantity(row.level, METRICS[metric].units),
        "noise": noise_text(row.noise),
        "runs for 5 %": needed_text(row.needed),
        "nights": Text("history", "whole", target=history, title=f"history of {row.name}")
        if row.name in nightly
        else "",
    }
