"""Parts that pages of nights share: the sparkline of a series, and the message without nights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from panel.viewable import Viewable

from benchkit.analysis.changepoint.rule import MAX_REFERENCE_NIGHTS
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.status import SeriesStatus
from benchkit.formatting import format_change
from benchkit.show.dashboard.components import ui
from benchkit.show.dashboard.components.markup import NO_FAILURE, Markup
from benchkit.show.plots.history import sparkline

#: Number of nights in a sparkline by default: those of a reference.
SPARK_NIGHTS = MAX_REFERENCE_NIGHTS


def series_sparkline(
    status: SeriesStatus, history: History, n_nights: int = SPARK_NIGHTS
) -> Markup:
    """Return the last nights of a series, with changes of level and failures."""
    values = history.values[status.row, -n_nights:]
    skipped = len(history.times) - values.size
    changes: Sequence[tuple[int, int]] = [
        (change.index - skipped, change.direction)
        for change in history.changes[status.row]
        if change.index >= skipped
    ]
    outcomes = history.outcomes[int(status.about["key"]), -n_nights:]
    failed = np.flatnonzero(~np.isin(outcomes, ("", *NO_FAILURE))).tolist()
    label = f"{status.about['workload']}, {values.size} nights: {status.label}"
    if np.isfinite(status.ratio):
        label += f", {format_change(status.ratio)}"
    if status.since:
        label += f" since {status.since}"
    worse = worse_direction(str(status.about["metric"]))
    return Markup(sparkline(values, changes, worse=worse, failed=failed, label=label))


def no_nights(shows: str, *, title: str = "No nights yet", before: str = "") -> Viewable:
    """Return the message with the command that measures a night."""
    text = f"{before} Measure a selection every night, then this page shows {shows}:".strip()
    return ui.message(title, text, "benchkit nightly -k profile:nightly")
