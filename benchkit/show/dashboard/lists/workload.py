"""Page of one workload: description, runs, noise, and the runs needed to detect a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.regression.status import series_label
from benchkit.analysis.run.noise import EFFECTS, run_noise
from benchkit.formatting import MISSING, format_bytes, format_quantity
from benchkit.measure.workloads import Variant
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.clicks import CLICK_HELP, open_on_run_click
from benchkit.show.dashboard.components.markup import (
    NO_FAILURE,
    link,
    measured_metrics,
    metric_term,
    metric_text,
    outcome_text,
    run_link,
    span,
    text_or_missing,
    tone_of_outcome,
)
from benchkit.show.dashboard.components.widgets import filtered, metric_select
from benchkit.show.dashboard.state.attributes import newest_attributes
from benchkit.show.dashboard.state.cache import runs_of_workload, runs_table, workload_catalogue
from benchkit.show.dashboard.state.nights import nights_of_workload
from benchkit.show.dashboard.state.url import address, history_address
from benchkit.show.plots.history import history_plot
from benchkit.show.plots.sparkline import sparkline
from benchkit.store.schema import METRICS
from benchkit.values import decode_json

__all__ = ["NOISE_TERMS", "needed_text", "noise_text", "share_text", "view"]

#: Largest number of runs in the table.
MAX_RUNS = 30
#: Largest number of runs in a sparkline.
SPARK_RUNS = 120
#: Largest number of listed sets of comparable runs.
MAX_SETS = 20
NOISE_TERMS = {
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


def view(state: dict[str, str]) -> pn.Column:
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
        metric = metric_select(metrics, state.get("metric"))
        content.append(
            filtered(
                "workloads",
                {"metric": metric},
                lambda values: [
                    *ui.guard_parts(lambda: _measured(name, runs, values["metric"])),
                    *ui.guard_parts(lambda: _runs(runs, values["metric"])),
                ],
                name=name,
            )
        )
    elif runs.empty:
        content.append(ui.message("Never measured", "Measure it:", f"benchkit run '{name}'"))
    else:
        content += [ui.paragraph("None of its runs has a metric."), *_runs(runs, "duration")]
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
        state, good = f"last run {outcome_text(outcome)}", outcome in NO_FAILURE
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
        tables.facts(_facts(runs, variant, attributes)),
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
    content = [
        *_over_time(name, runs, metric),
        ui.heading("Noise and detectable changes", metric_term(metric)),
    ]
    if sets.empty:
        return [*content, ui.paragraph("No ok run has this metric.")]
    effects = [f"runs for {effect:.0%}".replace("%", " %") for effect in EFFECTS]
    titles = ["environment", "where", "runs ok", "newest (UTC)", "median", "noise", *effects]
    cells = [_set_cells(row, metric) for row in sets.head(MAX_SETS).to_dict("records")]
    content.append(tables.html_table(titles, cells))
    if len(sets) > MAX_SETS:
        content.append(ui.paragraph(f"{len(sets) - MAX_SETS} older sets of runs are not listed."))
    where = (
        "the runs of a row have the same workload, source, scale, machine, cluster and capture, "
        "and are therefore comparable"
    )
    return [*content, tables.glossary({**NOISE_TERMS, "where": where})]


def _set_cells(row: Mapping[str, Any], metric: str) -> list[str]:
    where = series_label(
        {**row, "environment": "", "host": text_or_missing(row.get("host"))}
    ).strip()
    shape = f"{row['n_workers']:g} workers" if pd.notna(row.get("n_workers")) else ""
    return [
        _environment_link(row),
        ", ".join(part for part in (where, shape, f"version {row['version']}") if part),
        str(row["n_runs"]),
        str(row["newest"])[:10],
        format_quantity(row["level"], METRICS[metric].units),
        noise_text(row["noise"]),
        *(needed_text(row[f"needed_{effect * 100:.0f}"]) for effect in EFFECTS),
    ]


def _environment_link(row: Mapping[str, Any]) -> Markup:
    name = text_or_missing(row.get("environment"))
    return link(name, address("environments", name=name))


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


def _runs(runs: pd.DataFrame, metric: str) -> list[Viewable]:
    shown = runs.head(MAX_RUNS)
    below = f"The newest {len(shown)} of {len(runs)}." if len(runs) > len(shown) else ""
    rows = [
        [
            run_link(run),
            span(outcome_text(run["outcome"]), tone_of_outcome(run["outcome"])),
            metric_text(run, metric),
            _environment_link(run),
            *(text_or_missing(run.get(field)) for field in ("host", "dask", "python")),
        ]
        for run in shown.to_dict("records")
    ]
    titles = ["started (UTC)", "outcome", metric.replace("_", " ")]
    titles += ["environment", "host", "dask", "python"]
    return [ui.heading("Last runs", below), tables.html_table(titles, rows, tight=True)]


def _source(variant: Variant | None, attributes: dict[str, Any]) -> list[Viewable]:
    text = str(attributes.get("source") or "")
    if text:
        return [ui.heading("Source", "As in the newest run."), ui.code_block(text)]
    if variant is not None:
        below = "As in the folder of workloads."
        return [ui.heading("Source", below), ui.code_block(variant.workload.source)]
    return [ui.heading("Source", "The files of its newest runs do not contain it.")]
