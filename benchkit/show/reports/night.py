"""Format a night as Markdown (step summary, mail) and as annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchkit.experiment.nightly.night import Night
from benchkit.show.pages.night import judged_series, page
from benchkit.show.pages.page import site_address
from benchkit.show.render.markdown import no_address, page_markdown
from benchkit.text import cut_markdown, github_text

#: Maximum bytes: GitHub discards step summaries above 1 MiB, which all steps of a job share.
MAX_BYTES = 900_000


def night_markdown(night: Night, metrics: Sequence[str], *, site: str | None = None) -> str:
    """Return the page of a night as Markdown, cut to a maximum size.

    It has a table for each metric with the series that need attention, and links to a site.
    """
    _, series = judged_series(night, metrics)
    href = partial(site_address, site.rstrip("/") + "/") if site else no_address
    return cut_markdown(page_markdown(page(night, series, {"show": "news"}), href), MAX_BYTES)


def workflow_commands(night: Night) -> list[str]:
    """Return a night as workflow commands of GitHub Actions."""
    by_id = {regression.id: regression for regression in night.regressions}
    lines = []
    for event in night.worse:
        regression = by_id.get(str(event["regression"]))
        if regression is not None:
            title = github_text(regression.title, is_property=True)
            lines.append(f"::error title={title}::{github_text(regression.size)}")
    lines += [
        f"::warning title={github_text(str(run['workload']), is_property=True)}::"
        + github_text(f"{run['outcome']}: {str(run.get('error') or '')[:300]}")
        for run in night.failed
    ]
    return lines + [f"::warning::{github_text(text)}" for text in night.failures]
