"""Rebuild the search of a bisection from its runs in a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchkit.analysis.metric_limits import newest_definitions
from benchkit.experiment.bisect.search import Block, Search
from benchkit.experiment.environment.builds import Candidate
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

#: Names that select the outcome of a run, or the schedule of a simulated one, instead of a number.
OUTCOME, SCHEDULE = "outcome", "schedule"
EVENTS = (OUTCOME, SCHEDULE)
#: Outcomes that count as failures; `skipped` and `infrastructure` are ignored.
FAILURES = ("failed", "wrong_answer", "timeout", "lost_workers")
#: Key of the bisection in the arguments of a stored plan.
PLAN_KEY = "bisection"
#: File next to the plan: the reasons of skipped builds, which have no runs.
SKIPPED_FILE = "left-out.json"


def search_options(metric: str) -> dict[str, bool]:
    """Return the options of a search that follow from the metric."""
    return {"by_events": metric in EVENTS, "exact": metric == SCHEDULE}


def block_of(pair: tuple[int, int], records: Sequence[Mapping[str, Any]], metric: str) -> Block:
    """Return the block of two builds."""
    # returned: Values are NaN and events None where the run has no usable result.
    values = [_value(record, metric) for record in records]
    events = [_event(record, metric) for record in records]
    if metric == SCHEDULE:  # another one than the good build's, with the same draw
        digests = [record.get(SCHEDULE) for record in records]
        known = all(isinstance(digest, str) for digest in digests)
        events = [False, digests[0] != digests[1]] if known else [None, None]
    number = int(records[0].get("block", 0))
    return Block(pair, (values[0], values[1]), (events[0], events[1]), number)


def _event(record: Mapping[str, Any], metric: str) -> bool | None:
    outcome = record.get("outcome")
    if metric == OUTCOME:
        return outcome in FAILURES if outcome in ("ok", *FAILURES) else None
    # A timeout counts as slow; a failure or a wrong answer is neither slow nor fast.
    return {"ok": False, "timeout": True}.get(str(outcome))


def _value(record: Mapping[str, Any], metric: str) -> float:
    value = record.get(metric) if record.get("outcome") == "ok" else None
    return float(value) if isinstance(value, (int, float)) else math.nan


def runs_of(store: Store, experiment: str, ends: Sequence[Sequence[str]] = ()) -> pd.DataFrame:
    """Return the runs of a bisection, after the end blocks reused from earlier bisections."""
    own = store.runs(experiment=experiment)
    if not ends:
        return own
    blocks = {run_id: position for position, pair in enumerate(ends) for run_id in pair}
    reused = store.runs(id=list(blocks))
    reused["block"] = reused["id"].map(blocks).astype("Int64")
    runs = pd.concat([reused, own], ignore_index=True) if len(own) else reused
    (runs,), _ = newest_definitions([runs], list(METRICS))
    return runs


def replay(
    search: Search, candidates: Sequence[Candidate], runs: pd.DataFrame, metric: str
) -> dict[str, str]:
    """Add stored blocks to a search."""
    positions = {candidate.name: position for position, candidate in enumerate(candidates)}
    reasons: dict[str, str] = {}
    if runs.empty:
        return reasons
    for _, block_runs in runs.sort_values("order", kind="stable").groupby("block"):
        # Repeated after an infrastructure failure: use the last record.
        records = {positions[record["arm"]]: record for record in block_runs.to_dict("records")}
        if len(records) == 2:
            low, high = sorted(records)
            search.add(block_of((low, high), (records[low], records[high]), metric))
            for position in {low, high} & search.skipped:
                record = records[position]
                name = candidates[position].name
                reasons.setdefault(name, f"{record['outcome']}: {record['error'] or 'no value'}")
    return reasons
