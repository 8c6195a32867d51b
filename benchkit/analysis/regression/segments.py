"""Find the segments of nightly series: nights whose values are comparable.

A segment starts where the workload or the cluster changed, or where a mark accepts a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.regression.regression import concerns
from benchkit.analysis.run.baseline import COMPARABLE_FIELDS, as_requested, is_different
from benchkit.measure.run_ids import id_time
from benchkit.store.filters import parse_moment
from benchkit.store.schema import SERIES_FIELDS

#: Metric of a mark that accepts a change of the workload's source: the segment continues.
SOURCE = "source_hash"


def find_segments(
    runs: pd.DataFrame,
    keys: pd.DataFrame,
    times: NDArray[np.datetime64],
    marks: Sequence[Mapping[str, Any]],
) -> pd.DataFrame:
    """Return the starts of segments and their reasons."""
    # runs: Runs with the columns `key` (of the series), `night` (position in `times`), `outcome`
    # and those of `COMPARABLE_FIELDS`.
    # times: (nights,), start of each night, ascending.
    # returned: `key`, `night` (the first of the segment), `metric` (empty: all metrics) and
    # `reason`, sorted.
    starts: list[tuple[int, int, str, str]] = []
    accepted = [mark for mark in marks if mark.get("kind") == "accept"]
    fields = {"key", "night", "workers_requested", *SERIES_FIELDS, *COMPARABLE_FIELDS}
    fields.update(name for mark in accepted for name in mark.get("where") or ())
    columns = [name for name in runs if name in fields]
    runs = as_requested(runs.loc[runs["outcome"] == "ok", columns])
    nights = runs.drop_duplicates(["key", "night"], keep="last").sort_values(["key", "night"])
    before = nights.groupby("key")[list(COMPARABLE_FIELDS)].shift()
    first = nights["key"].ne(nights["key"].shift()).to_numpy()
    for name, label in COMPARABLE_FIELDS.items():
        changed = is_different(name, nights[name], before[name]).to_numpy() & ~first
        rows = nights[changed].to_dict("records")
        for row, previous in zip(rows, before.loc[changed, name], strict=True):
            if name == SOURCE and _is_accepted_source(row, times[row["night"]], accepted):
                continue
            reason = label
            if name != SOURCE:
                reason += f" {_value_text(previous)} -> {_value_text(row[name])}"
            starts.append((int(row["key"]), int(row["night"]), "", f"{reason} changed"))
    for mark in accepted:
        if mark.get("metric") == SOURCE:
            continue
        moment = _moment(mark)
        night = int(np.searchsorted(times, moment))
        for row in keys.to_dict("records"):
            if night < len(times) and accepts({**mark, "metric": None}, row):
                reason = f"accepted: {mark.get('reason') or 'no reason given'}"
                starts.append((int(row["key"]), night, str(mark.get("metric") or ""), reason))
    columns = ["key", "night", "metric", "reason"]
    return pd.DataFrame(sorted(starts), columns=columns)


def accepts(mark: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Return whether a mark accepts changes of a series or a regression."""
    return mark.get("kind") == "accept" and concerns(mark, about)


def _value_text(value: Any) -> str:
    """Return a value as text; pandas stores integers with gaps as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_accepted_source(
    row: Mapping[Any, Any], time: np.datetime64, accepted: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether a mark accepts a change of the workload's source on a night."""
    return any(
        mark.get("metric") == SOURCE
        and accepts({**mark, "metric": None}, row)
        and time <= _moment(mark)
        for mark in accepted
    )


def _moment(mark: Mapping[str, Any]) -> np.datetime64:
    """Return the UTC time at which a mark begins to apply: its ``at``, else its creation."""
    if mark.get("at"):
        return np.datetime64(pd.Timestamp(parse_moment(mark["at"])).tz_convert(None), "us")
    return np.datetime64(round(id_time(str(mark["id"])) * 1e6), "us")
