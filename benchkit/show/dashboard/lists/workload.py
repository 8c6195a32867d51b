"""Page of one workload: description, runs, noise, and the runs needed to detect a change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.analysis.regression.status import series_label
from benchkit.analysis.run.noise import EFFECTS
from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, OUTCOME_WORDS, format_bytes, format_quantity
from benchkit.measure.workloads import Variant
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.clicks import CLICKS, linked
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.state.cache import (
    attributes_of,
    nights_of_workload,
    noise_of,
    runs_table,
    workload_catalogue,
)
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape
from benchkit.show.plots.history import history_plot
from benchkit.show.plots.sparkline import sparkline
from benchkit.store.schema import METRICS

__all__ = ["NOISE_TERMS", "needed_text", "noise_text", "share_text", "view"]

#: Largest numbers of runs in the table, runs in a sparkline, and listed sets of runs.
MOST_RUNS, SPARK_RUNS, MOST_SETS = 30, 120, 20
#: Number of newest run files to try for the source, in case a file is damaged.
TRIES = 3
NOISE_TERMS = {
    "noise": "how far one run is from the next by chance: coefficient of variation of one run, "
    "from the median difference of successive comparable runs; five are needed",
    "runs for 5 %": "runs a side, baseline and contender, that see a change of 5 % four times in "
    "five, at a level of 5 %",
}


def noise_text(noise: float) -> str:
    """Return noise as text in percent."""
    if not np.isfinite(noise):
        return MISSING
    percent = noise * 100
    digits = 2 if percent < 1 else 1 if percent < 10 else 0
    return f"± {percent:.{digits}f} %"


def share_text(count: int, among: int) -> str:
    """Return a count and its share in percent as text; "0" if the count is 0."""
    return f"{count} ({count / among * 100:.1f} %)" if count else "0"


def needed_text(runs: int) -> str:
    """Return a number of runs as text; 0 means unknown, -1 means more than 1000."""
    return {0: MISSING, -1: "> 1000"}.get(runs, str(runs))


def view(state: dict[str, str]) -> Any:
    """Return the page of the variant `state["name"]`."""
    name = state["name"]
    all_runs = runs_table()
    runs = all_runs[all_runs["workload"] == name] if len(all_runs) else all_runs
    variants = {variant.name: variant for variant in workload_catalogue().variants()}
    siblings = _siblings(name, all_runs, variants)
    if runs.empty and name not in variants:
        if siblings:
            return pn.Column(
                parts.head(name, lines=["Which one? Its parameters are bound when it runs."]),
                parts.links({address("workloads", name=one): one for one in siblings}),
                sizing_mode="stretch_width",
            )
        return _unknown(name)
    about = _attributes(runs)
    body, last = (pn.Column(sizing_mode="stretch_width", margin=0) for _ in range(2))
    metrics = [m for m in METRICS if m in runs and runs[m].notna().any()]
    content: list[Any] = [_head(name, runs, variants.get(name), about)]
    if metrics:
        metric = state.get("metric") if state.get("metric") in metrics else metrics[0]
        choose = pn.widgets.Select(
            name="Metric", options={METRICS[m].long_name: m for m in metrics}, value=metric,
            width=300,
        )  # fmt: skip

        def draw(*events: Any) -> None:
            body[:] = _measured(name, runs, choose.value)
            last[:] = _runs(runs, choose.value)
            if events:
                remember("workloads", {"name": name, "metric": choose.value})

        draw()
        choose.param.watch(draw, "value")
        content += [choose, body, last]
    elif runs.empty:
        content.append(parts.message("Never measured", "Measure it:", f"benchkit run '{name}'"))
    else:
        content += [parts.words("None of its runs has a metric."), *_runs(runs, "duration")]
    content += _source(variants.get(name), about)
    others = [one for one in siblings if one != name]
    if others:
        content += [
            parts.heading("Other variants", "The same workload with other parameters."),
            parts.links({address("workloads", name=one): one for one in others}),
        ]
    return pn.Column(*content, sizing_mode="stretch_width")


def _siblings(name: str, runs: pd.DataFrame, variants: Mapping[str, Variant]) -> list[str]:
    base = name.partition("[")[0]
    known = {*variants, *(runs["workload"] if len(runs) else ())}
    return sorted(one for one in known if one.partition("[")[0] == base)


def _unknown(name: str) -> Any:
    return pn.Column(
        parts.message("No such workload", f"Neither measured nor in the catalogue: {name!r}."),
        parts.links({address("workloads", show="all"): "All workloads"}),
        sizing_mode="stretch_width",
    )


def _attributes(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes of the newest readable run file; empty if none is readable."""
    for run_id in runs["id"].head(TRIES) if len(runs) else ():
        try:
            return attributes_of(str(run_id))
        except BenchkitError:
            continue
    return {}


def _head(name: str, runs: pd.DataFrame, variant: Variant | None, about: dict[str, Any]) -> Any:
    """Return the head of the page; the description is the author's text."""
    text = str(about.get("description") or (variant.workload.description if variant else ""))
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    state, good = "never measured", True
    tiles = {}
    if len(runs):
        outcome = str(runs["outcome"].iloc[0])
        symbol, words = OUTCOME_WORDS.get(outcome, ("?", outcome))
        state, good = f"last run {symbol} {words}", outcome in ("ok", "skipped")
        n_failed = int((~runs["outcome"].isin(["ok", "skipped"])).sum())
        tiles = {
            "runs": str(len(runs)),
            "failed": share_text(n_failed, len(runs)),
            "first run (UTC)": str(runs["started"].iloc[-1])[:10],
            "last run (UTC)": str(runs["started"].iloc[0])[:10],
        }
    head = parts.head(name, state=state, good=good, lines=[_bound(runs, variant)], tiles=tiles)
    return pn.Column(
        head,
        *(parts.words(text, kind="") for text in paragraphs),
        parts.facts(_facts(runs, variant, about)),
        sizing_mode="stretch_width",
    )


def _bound(runs: pd.DataFrame, variant: Variant | None) -> str:
    category = variant.workload.category if variant else str(runs["category"].iloc[0])
    return f"category {category}"


def _facts(runs: pd.DataFrame, variant: Variant | None, about: dict[str, Any]) -> dict[str, Any]:
    last = runs.iloc[0].to_dict() if len(runs) else {}
    params = json.loads(about.get("params") or "null") or last.get("params")
    params = params or (dict(variant.params) if variant else {})
    sizes = json.loads(about.get("sizes") or "{}")
    told = {
        "parameters": ", ".join(f"{key} = {value}" for key, value in params.items()),
        "size": _size(sizes, last),
        "tags": ", ".join(variant.tags) if variant else "",
        "needs": ", ".join(variant.workload.requires) if variant else "",
        "version": last.get("version", variant.workload.version if variant else ""),
        "source hash": last.get("source_hash", ""),
        "declared in": f"{variant.workload.path}:{variant.workload.line}" if variant else "",
    }
    return {key: value for key, value in told.items() if value not in ("", None)}


def _size(sizes: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Return the limits (memory, threads) and the scale that determine the data size, as text."""
    told = []
    if sizes.get("memory"):
        told.append(f"made for {format_bytes(sizes['memory'])} of cluster memory")
    if sizes.get("threads"):
        told.append(f"{sizes['threads']} threads")
    rest = {key: value for key, value in sizes.items() if key not in ("memory", "threads")}
    told += [f"{key} {value}" for key, value in rest.items()]
    scale = last.get("scale")
    if scale is not None and pd.notna(scale):
        told.append(f"scale {scale:g}")
    return ", ".join(told)


def _measured(name: str, runs: pd.DataFrame, metric: str) -> list[Any]:
    sets = noise_of(metric)
    sets = sets[sets["workload"] == name]
    content = [_over_time(name, runs, metric)]
    content.append(parts.heading("Noise, and what it lets you see", metric_term(metric)))
    if sets.empty:
        content.append(parts.words("No run that ended ok has this metric."))
        return content
    effects = [f"runs for {effect:.0%}".replace("%", " %") for effect in EFFECTS]
    titles = ["environment", "where", "runs ok", "newest (UTC)", "median", "noise", *effects]
    cells = [_set_cells(row, metric) for row in sets.head(MOST_SETS).to_dict("records")]
    content.append(parts.rows(titles, cells))
    if len(sets) > MOST_SETS:
        content.append(parts.words(f"{len(sets) - MOST_SETS} older sets of runs are not listed."))
    terms = {**NOISE_TERMS, "where": "runs of one line agree in workload, source, scale, machine, "
             "cluster and capture, so that they may be held against one another"}  # fmt: skip
    content.append(parts.glossary(terms))
    return content


def _set_cells(row: Mapping[str, Any], metric: str) -> list[str]:
    environment = str(row.get("environment") or MISSING)
    link = address("environments", name=environment)
    where = series_label({**row, "environment": "", "host": row.get("host") or MISSING}).strip()
    shape = f"{row['n_workers']:g} workers" if pd.notna(row.get("n_workers")) else ""
    level = format_quantity(row["level"], METRICS[metric].units)
    return [
        f"<a href='{escape(link)}'>{escape(environment)}</a>",
        escape(", ".join(part for part in (where, shape, f"version {row['version']}") if part)),
        str(row["n_runs"]),
        escape(str(row["newest"])[:10]),
        escape(level),
        noise_text(row["noise"]),
        *(needed_text(row[f"needed_{effect * 100:.0f}"]) for effect in EFFECTS),
    ]


def _over_time(name: str, runs: pd.DataFrame, metric: str) -> Any:
    """Return a figure of the nightly series; without nights, a sparkline of the runs."""
    history = nights_of_workload(name)
    mine = history.series[history.series["metric"] == metric]
    if len(mine):
        row = max(mine.index, key=lambda place: np.isfinite(history.values[place]).sum())
        links = {
            address("history", metric=metric, **{k: one[k] for k in SERIES_FIELDS}):
            f"History in {series_label(one)}"
            for one in mine.to_dict("records")
        }  # fmt: skip
        return pn.Column(
            parts.heading(
                "Over the nights", f"In {series_label(history.series.iloc[row])}. {CLICKS}"
            ),
            parts.figure(linked(history_plot(history, int(row), from_zero=False, height=260))),
            parts.links(links),
            sizing_mode="stretch_width",
        )
    values = runs[metric].where(runs["outcome"] == "ok").to_numpy(float)[:SPARK_RUNS][::-1]
    label = f"{METRICS[metric].long_name} of the last {values.size} runs of {name}"
    return pn.Column(
        parts.heading("Over its runs", "No nights were measured; these are the runs in order."),
        parts.drawing(sparkline(values, label=label, width=420, height=60)),
        sizing_mode="stretch_width",
    )


def _runs(runs: pd.DataFrame, metric: str) -> list[Any]:
    shown = runs.head(MOST_RUNS)
    below = f"The newest {len(shown)} of {len(runs)}." if len(runs) > len(shown) else ""
    cells = []
    for run in shown.to_dict("records"):
        symbol, words = OUTCOME_WORDS.get(str(run["outcome"]), ("?", str(run["outcome"])))
        tone = "soft" if run["outcome"] in ("ok", "skipped") else "bad"
        environment = str(run.get("environment") or MISSING)
        link = address("run", id=run["id"])
        value = run.get(metric)
        value = float(value) if value is not None and pd.notna(value) else float("nan")
        cells.append(
            [
                f"<a href='{escape(link)}'>{escape(str(run['started'])[:16])}</a>",
                f"<span class='{tone}'>{escape(symbol)} {escape(words)}</span>",
                escape(format_quantity(value, METRICS[metric].units)),
                f"<a href='{escape(address('environments', name=environment))}'>"
                f"{escape(environment)}</a>",
                escape(run.get("host") or MISSING),
                escape(run.get("dask") or MISSING),
                escape(run.get("python") or MISSING),
            ]
        )
    titles = ["started (UTC)", "outcome", metric.replace("_", " "), "environment", "host", "dask",
              "python"]  # fmt: skip
    return [parts.heading("Last runs", below), parts.rows(titles, cells, tight=True)]


def _source(variant: Variant | None, about: dict[str, Any]) -> list[Any]:
    text = str(about.get("source") or "")
    if text:
        return [parts.heading("Source", "As the newest run measured it."), parts.source_text(text)]
    if variant is not None:
        below = "As it is in the folder of workloads."
        return [parts.heading("Source", below), parts.source_text(variant.workload.source)]
    return [parts.heading("Source", "No file of its newest runs holds it.")]
