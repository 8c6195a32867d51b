"""Format a night as Markdown (step summary, mail) and as annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import Regression
from benchkit.experiment.nightly.nightly import Night
from benchkit.show import markdown

__all__ = ["night_markdown", "open_series", "workflow_commands"]

#: Maximum bytes: GitHub discards step summaries above 1 MiB, which all steps of a job share.
MOST_BYTES = 900_000


def night_markdown(night: Night, *, most_bytes: int = MOST_BYTES) -> str:
    """Return the results of a night as Markdown, changed rows first, cut to a maximum size.

    Parameters
    ----------
    night : Night
        Return value of `benchkit.nightly`.
    most_bytes : int, default 900000
        Maximum size in bytes; the text ends with the number of lines that do not fit.
    """
    by_id = {one.id: one for one in night.regressions}
    lines = [f"## {markdown.text(night.sentence)}", ""]
    if night.news:
        lines += ["### News", ""]
        rows = [_row(event, by_id.get(str(event.get("regression")))) for event in night.news]
        lines += markdown.table(["", "workload", "metric", "size", "environment", "why"], rows)
    if night.failed:
        lines += ["", "### Runs that failed", ""]
        lines += markdown.table(
            ["workload", "environment", "outcome", "error"],
            [
                (
                    markdown.code(run["workload"]),
                    markdown.code(run.get("environment") or ""),
                    markdown.text(run["outcome"]),
                    markdown.text(str(run.get("error") or "")[:300]),
                )
                for run in night.failed
            ],
        )
    if night.troubles:
        lines += ["", "### Parts that failed", ""]
        lines += [f"- {markdown.text(text)}" for text in night.troubles]
    open_ones = [one for one in night.regressions if one.is_open]
    if open_ones:
        lines += ["", "### Open regressions", ""]
        lines += markdown.table(
            ["workload", "metric", "size", "since", "environment"],
            [
                (
                    markdown.code(one.workload),
                    markdown.code(one.metric),
                    markdown.text(one.size),
                    one.night[:10],
                    markdown.code(one.environment),
                )
                for one in open_ones
            ],
        )
    return markdown.cut(lines, most_bytes)


def open_series(night: Night, history: History, *, most: int = 6) -> list[tuple[str, int]]:
    """Return the title and the series of each open regression, for its figure.

    Parameters
    ----------
    night : Night
        The night; its regressions are ordered newest first.
    history : History
        History that contains the series.
    most : int, default 6
        Maximum number of regressions.

    Returns
    -------
    list of (str, int)
        Title in Markdown and position of the series in the history. Failures have no series.
    """
    found = []
    for one in night.regressions:
        row = history.find(one.about) if one.is_open else None
        if row is not None:
            found.append((f"**{markdown.text(one.title)}**", row))
    return found[:most]


def _row(event: Mapping[str, Any], one: Regression | None) -> tuple[str, ...]:
    ratio = event.get("ratio")
    size = one.size if one is not None else f"{100 * (ratio - 1):+.1f} %" if ratio else ""
    facts = event.get("facts") or {}
    why = facts.get("explanation") or event.get("reason") or ""
    return (
        f"**{event['kind'].replace('_', ' ')}**",
        markdown.code(event["workload"]),
        markdown.code(event["metric"]),
        markdown.text(size),
        markdown.code(event["environment"]),
        markdown.text(why),
    )


def workflow_commands(night: Night) -> list[str]:
    """Return workflow commands: errors for metrics that got worse, warnings for failures."""
    by_id = {one.id: one for one in night.regressions}
    lines = []
    for event in night.worse:
        one = by_id.get(str(event["regression"]))
        if one is not None:
            lines.append(f"::error title={_data(one.title, True)}::{_data(one.size)}")
    lines += [
        f"::warning title={_data(str(run['workload']), True)}::"
        + _data(f"{run['outcome']}: {str(run.get('error') or '')[:300]}")
        for run in night.failed
    ]
    return lines + [f"::warning::{_data(text)}" for text in night.troubles]


def _data(text: str, is_property: bool = False) -> str:
    """Return a text escaped for workflow commands: a line break would start a new command."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text
