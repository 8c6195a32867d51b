"""Format a night as Markdown (step summary, mail) and as annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import Regression
from benchkit.experiment.nightly.night import Night
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

    Returns
    -------
    str
        Markdown.
    """
    by_id = {regression.id: regression for regression in night.regressions}
    lines = [f"## {markdown.text(night.sentence)}", ""]
    if night.changes:
        lines += ["### Changes", ""]
        rows = [_row(event, by_id.get(str(event.get("regression")))) for event in night.changes]
        lines += markdown.table(
            ["event", "workload", "metric", "size", "environment", "cause"], rows
        )
    if night.failed:
        lines += ["", "### Failed runs", ""]
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
    if night.failures:
        lines += ["", "### Failed steps", ""]
        lines += [f"- {markdown.text(text)}" for text in night.failures]
    if night.limits:
        lines += ["", "### Limits of the runs", ""]
        lines += [f"- {markdown.text(text)}" for text in night.limits]
    open_regressions = [regression for regression in night.regressions if regression.is_open]
    if open_regressions:
        lines += ["", "### Open regressions", ""]
        lines += markdown.table(
            ["workload", "metric", "size", "since", "environment"],
            [
                (
                    markdown.code(each.workload),
                    markdown.code(each.metric),
                    markdown.text(each.size),
                    each.night[:10],
                    markdown.code(each.environment),
                )
                for each in open_regressions
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
    series = []
    for regression in night.regressions:
        row = history.find(regression.about) if regression.is_open else None
        if row is not None:
            series.append((f"**{markdown.text(regression.title)}**", row))
    return series[:most]


def _row(event: Mapping[str, Any], regression: Regression | None) -> tuple[str, ...]:
    ratio = event.get("ratio")
    size = f"{100 * (ratio - 1):+.1f} %" if ratio else ""
    if regression is not None:
        size = regression.size
    cause = (event.get("facts") or {}).get("explanation") or event.get("reason") or ""
    return (
        f"**{event['kind'].replace('_', ' ')}**",
        markdown.code(event["workload"]),
        markdown.code(event["metric"]),
        markdown.text(size),
        markdown.code(event["environment"]),
        markdown.text(cause),
    )


def workflow_commands(night: Night) -> list[str]:
    """Return a night as workflow commands of GitHub Actions.

    Parameters
    ----------
    night : Night
        Return value of `benchkit.nightly`.

    Returns
    -------
    list of str
        One error for each metric that got worse, one warning for each failed run or step.
    """
    by_id = {regression.id: regression for regression in night.regressions}
    lines = []
    for event in night.worse:
        regression = by_id.get(str(event["regression"]))
        if regression is not None:
            title = _escape(regression.title, True)
            lines.append(f"::error title={title}::{_escape(regression.size)}")
    lines += [
        f"::warning title={_escape(str(run['workload']), True)}::"
        + _escape(f"{run['outcome']}: {str(run.get('error') or '')[:300]}")
        for run in night.failed
    ]
    return lines + [f"::warning::{_escape(text)}" for text in night.failures]


def _escape(text: str, is_property: bool = False) -> str:
    """Return a text escaped for workflow commands: a line break would start a new command."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text
