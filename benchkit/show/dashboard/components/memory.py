"""Table of the memory that the results of task groups hold in two runs or arms."""

from __future__ import annotations

import pandas as pd
from panel.viewable import Viewable

from benchkit.analysis.insight.memory_changes import bytes_as_text
from benchkit.show.dashboard.components import tables, ui

__all__ = ["memory_by_group"]

#: Largest number of task groups in the table.
MAX_GROUPS = 30


def memory_by_group(difference: pd.DataFrame) -> list[Viewable]:
    """Return the bytes of results by task group of two runs or arms."""
    if difference.empty:
        return []
    below = (
        "Bytes of results, in memory or spilled, replicas included, at the moment when all results "
        "together are largest."
    )
    rows = bytes_as_text(difference.head(MAX_GROUPS))
    return [
        ui.heading("Which task groups held memory", below),
        tables.table(rows, "task group", sortable=False),
    ]
