"""Tables of the content of a run: its groups, their variables, its metrics and its record.

All code that reads or writes runs iterates over these tables. A new metric needs a line in
`tables/metrics.csv` and a line in `benchkit.store.build.metrics`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from benchkit.store.tables import read_table

#: Limits of a query without other ones: an endless one must not stop the work of a shared machine.
TIMEOUT_S, MEMORY_LIMIT = 120.0, "2GiB"
#: Version of the run file. Files of version 1 have no task graph and nothing from before the first
#: task; those of versions 1 and 2 lack waits for a processor, the client's process, and when call
#: stacks were sampled. Everything else is the same in all.
RUN_FORMAT = 3

#: How a run can end. Only `ok` feeds statistics.
OUTCOMES = ("ok", "wrong_answer", "failed", "timeout", "lost_workers", "infrastructure", "skipped")


@dataclass(frozen=True)
class Metric:
    """A number that describes a run."""

    name: str  # Name of the metric
    units: str  # Unit: s, B, %, USD, or "1" for counts and shares
    long_name: str  # Description for labels
    source: str  # Data from which the metric is computed
    better: str  # Direction of an improvement; "" if there is none
    version: int  # Version of the definition; values of different versions are not compared

    @property
    def attrs(self) -> dict[str, str | int]:
        """Attributes of the metric in the file."""
        return {name: text for name, text in vars(self).items() if name != "name"}


class Metrics(dict[str, Metric]):
    """Metrics by name; also finds, but does not list, those that users define for their runs."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        super().__init__(metrics)
        self.own: dict[str, Metric] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.own

    def __missing__(self, name: str) -> Metric:
        return self.own[name]

    def define(self, definitions: str | None) -> None:
        """Add the users' metrics of a run: a record's field ``own_metrics``.

        One that runs define with different units or directions has none: its values are no longer
        compared with each other.
        """
        for name, about in json.loads(definitions or "{}").items():
            units, better = str(about.get("units", "1")), str(about.get("better", ""))
            title = name.replace("_", " ")
            metric = Metric(name, units, title, "the user's code", better, 1)
            if self.own.setdefault(name, metric) != metric:
                title = f"{title}, defined with different units or directions"
                self.own[name] = Metric(name, "1", title, "the user's code", "", 1)


def _metric(version: str, **texts: str) -> Metric:
    return Metric(version=int(version), **texts)


#: Metrics by name, in the order of tables. Version 2 of a definition: workers of one process count
#: once, memory is sampled by the worker, attempts that failed and waits of seceded tasks are not
#: computing, spilling is read from the fine metrics, and CPU and GIL are weighted by time.
#: Version 3 of the times of spilling: the files of P2P shuffles are left out.
METRICS = Metrics({row["name"]: _metric(**row) for row in read_table("metrics")})

#: The record: one flat JSON object per run, the row of the store's index. Name -> dtype, where
#: `json` is a string that holds JSON. Every metric is a field too (float64, missing if unknown).
RECORD_FIELDS: dict[str, str] = {row["name"]: row["dtype"] for row in read_table("record_fields")}

#: Columns of a table of runs that are computed from the marks, see `benchkit.store.marks`.
MARK_COLUMNS = ("comparable", "reason")
