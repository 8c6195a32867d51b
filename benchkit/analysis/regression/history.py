"""Build nightly series of comparable runs, split into segments.

A series is one metric of one workload in one environment on one host; a night is one column.
A change that makes two nights incomparable (another version of the workload, another shape of the
cluster, an accepted change) starts a new segment. Failed runs, and runs that a mark excludes, stay
in the table `History.runs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.changepoint.detect import (
    ChangePoint,
    LatestNight,
    Marks,
    detect_many,
    latest_night,
)
from benchkit.measure.run_ids import id_time
from benchkit.store.index.query import parse_moment, workload_matcher
from benchkit.store.marks import active_marks

__all__ = [
    "SERIES_FIELDS",
    "DEFAULT_METRICS",
    "History",
    "accepts",
    "build_history",
    "night_name",
    "night_times",
]

DEFAULT_METRICS = ("duration", "memory_mean", "memory_peak")
#: Columns that identify a series, in addition to its metric.
SERIES_FIELDS = ("workload", "environment", "host", "scale", "capture")
#: Columns that must be equal for nights to be comparable -> name in the reason of a segment.
_COMPARABLE_FIELDS = {
    "version": "version",
    "source_hash": "source",
    "cluster": "cluster",
    "n_workers": "workers",
    "n_threads": "threads",
    "memory_limit": "memory limit",
}
#: Tags of runs that belong to no night: confirmations and bisections.
NON_NIGHTLY_TAGS = ("confirm", "bisect")
#: Metric of a mark that accepts a change of the workload's source: the segment continues.
SOURCE = "source_hash"


@dataclass(frozen=True, repr=False)
class History:
    """Nightly series of a store.

    Parameters
    ----------
    series : DataFrame
        A row per series: ``workload``, ``category``, ``environment``, ``host``, ``scale``,
        ``capture``, ``metric``, and ``key``, a number for all fields except the metric.
    times : ndarray of datetime64, shape (nights,)
        Start of each night, UTC, ascending.
    values : ndarray of float, shape (series, nights)
        Median of the night's runs that ended ok and that no mark excludes; NaN without runs.
    outcomes : ndarray of str, shape (keys, nights)
        Outcome of the night: one that is not ok, if any, else ok; empty if not measured.
    runs : DataFrame
        All runs of the nights, with ``key`` and ``night`` (positions).
    segments : DataFrame
        Starts of segments: ``key``, ``night``, ``metric`` (empty: all) and ``reason``.
    """

    series: pd.DataFrame
    times: NDArray[np.datetime64]
    values: NDArray[np.float64]
    outcomes: NDArray[np.str_]
    runs: pd.DataFrame
    segments: pd.DataFrame

    def __len__(self) -> int:
        return len(self.series)

    @cached_property
    def restarts(self) -> list[Marks | None]:
        """Starts of segments of each series, as marks for the detector."""
        nights: dict[int, list[tuple[str, int]]] = {}
        for row in self.segments.itertuples():
            nights.setdefault(row.key, []).append((row.metric, row.night))
        restarts: list[Marks | None] = []
        for row in self.series.itertuples():
            times = [
                self.times[night]
                for metric, night in nights.get(row.key, ())
                if metric in ("", row.metric)
            ]
            restarts.append(Marks(restarts=sorted(times)) if times else None)
        return restarts

    @cached_property
    def changes(self) -> list[list[ChangePoint]]:
        """Changes of level in each series, estimated on the night of their detection."""
        if not self.values.size:
            return [[] for _ in range(len(self))]
        return detect_many(self.values, times=self.times, marks=self.restarts)

    def latest_night(self) -> LatestNight:
        """Return the last night of each series relative to its reference."""
        return latest_night(self.values, times=self.times, marks=self.restarts)

    def before(self, night: int) -> History:
        """Return the history up to and including the night at a position."""
        runs = self.runs[self.runs["night"] <= night]
        segments = self.segments[self.segments["night"] <= night]
        times, stop = self.times[: night + 1], night + 1
        return replace(
            self,
            times=times,
            values=self.values[:, :stop],
            outcomes=self.outcomes[:, :stop],
            runs=runs,
            segments=segments,
        )

    def select(self, **about: Any) -> History:
        """Return the series with these values of ``workload=``, ``metric=``, ``host=``, ..."""
        keep = np.ones(len(self), bool)
        for name, wanted in about.items():
            if wanted is not None:
                keep &= (self.series[name] == wanted).to_numpy()
        return replace(
            self, series=self.series[keep].reset_index(drop=True), values=self.values[keep]
        )

    def find(self, about: Mapping[str, Any]) -> int | None:
        """Return the position of the series with these fields, or None."""
        keep = np.ones(len(self), bool)
        for name in (*SERIES_FIELDS, "metric"):
            keep &= (self.series[name] == about[name]).to_numpy()
        return int(np.flatnonzero(keep)[0]) if keep.any() else None

    def ids(
        self, key: int, nights: Sequence[int] | int, *, outcome: str | None = "ok"
    ) -> list[str]:
        """Return the ids of the runs of a key on some nights, oldest first."""
        wanted = [nights] if isinstance(nights, int) else list(nights)
        runs = self.runs
        keep = (runs["key"] == key) & runs["night"].isin(wanted)
        if outcome is not None:
            keep &= (runs["outcome"] == outcome) & runs["comparable"]
        return runs.loc[keep, "id"].tolist()

    def segment_start(self, row: int, night: int) -> int:
        """Return the first night of the segment that contains a night."""
        about = self.series.iloc[row]
        starts = self.segments[
            (self.segments["key"] == about["key"])
            & self.segments["metric"].isin(["", about["metric"]])
            & (self.segments["night"] <= night)
        ]
        return int(starts["night"].max()) if len(starts) else 0

    def __repr__(self) -> str:
        if not len(self.times):
            return "<benchkit.History: empty>"
        first, last = (str(time)[:10] for time in (self.times[0], self.times[-1]))
        return f"<benchkit.History: {len(self)} series, {len(self.times)} nights, {first}..{last}>"


def build_history(
    runs: pd.DataFrame,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    marks: Iterable[Mapping[str, Any]] = (),
) -> History:
    """Return the nightly series in a table of runs.

    Parameters
    ----------
    runs : DataFrame
        As returned by `Store.runs`, which has applied marks that exclude or rename runs.
    metrics : sequence of str
        Each gives one series per key that has values.
    marks : iterable of mapping
        As returned by `Store.marks`; a mark that accepts a change starts a segment.

    Returns
    -------
    History
        Series of all keys and metrics.

    Notes
    -----
    A night is all runs with the same tag ``night``, which `benchkit nightly` sets; runs without
    this tag belong to the UTC day of their start. Runs of A/B experiments with several arms, of
    confirmations and of bisections are excluded.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> build_history(store.runs(), marks=store.marks()).changes  # doctest: +SKIP
    """
    runs = _with_nights(runs)
    times, night = np.unique(runs.pop("moment").to_numpy("datetime64[us]"), return_inverse=True)
    about = list(SERIES_FIELDS)
    groups = runs.groupby(about, dropna=False, sort=True)
    runs["night"], runs["key"] = night.ravel(), groups.ngroup()
    keys = runs.drop_duplicates("key").sort_values("key").reset_index(drop=True)
    segments = _segments(runs, keys, times, list(active_marks(marks)))

    counted = runs[(runs["outcome"] == "ok") & runs["comparable"]]
    chosen = [name for name in metrics if name in counted]
    cells = counted.groupby(["key", "night"])[chosen].median()
    at = cells.index.get_level_values("key"), cells.index.get_level_values("night")
    rows, values = [], []
    for name in chosen:
        matrix = np.full((len(keys), len(times)), np.nan)
        matrix[at] = cells[name].to_numpy(float)
        measured = np.flatnonzero(np.isfinite(matrix).any(axis=1))
        rows.append(keys.loc[measured, ["key", "category", *about]].assign(metric=name))
        values.append(matrix[measured])
    columns = ["key", "category", *about, "metric"]
    series = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)
    stacked = np.concatenate(values) if values else np.empty((0, len(times)))
    order = series.sort_values(["key"], kind="stable").index
    return History(
        series.loc[order].reset_index(drop=True),
        times,
        stacked[order],
        _outcomes(runs, len(keys), len(times)),
        runs,
        segments,
    )


def night_name(time: np.datetime64) -> str:
    """Return the name of a night: ISO 8601, UTC, without a zone."""
    return str(pd.Timestamp(time).isoformat())


def night_times(runs: pd.DataFrame) -> pd.Series:
    """Return the night of each run: its tag ``night``, else the UTC day of its start."""
    tagged = pd.Series([_night(tags) for tags in runs["tags"]], index=runs.index, dtype=object)
    moments = pd.to_datetime(tagged, utc=True, errors="coerce", format="ISO8601")
    return moments.fillna(runs["started"].dt.floor("D")).dt.tz_localize(None)


def _night(tags: Any) -> Any:
    return tags.get("night") if isinstance(tags, Mapping) else None


def accepts(mark: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Whether a mark accepts changes of a series or a regression with these fields."""
    if mark.get("kind") != "accept" or not workload_matcher(str(mark["workload"]))(
        str(about["workload"])
    ):
        return False
    if mark.get("metric") not in (None, about.get("metric")):
        return False
    where = mark.get("where") or {}
    return all(str(about.get(name)) == str(value) for name, value in where.items())


def _with_nights(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a copy with the column ``moment``, without runs that belong to no night."""
    runs = runs.copy()
    for name in (
        *SERIES_FIELDS,
        *_COMPARABLE_FIELDS,
        "category",
        "arm",
        "experiment",
        "packages_hash",
    ):
        if name not in runs:
            runs[name] = None
    if "comparable" not in runs:
        runs["comparable"] = True
    runs["comparable"] = runs["comparable"].astype(bool)
    tags = [t if isinstance(t, Mapping) else {} for t in runs["tags"]]
    tagged = np.array(["night" in t for t in tags], bool)
    excluded = np.array([any(name in t for name in NON_NIGHTLY_TAGS) for t in tags], bool)
    n_arms = runs.groupby("experiment")["arm"].transform("nunique").fillna(0).to_numpy()
    runs = runs[~excluded & (tagged | (n_arms <= 1))].copy()
    runs["moment"] = night_times(runs)
    return runs.reset_index(drop=True)


def _outcomes(runs: pd.DataFrame, n_keys: int, n_nights: int) -> NDArray[np.str_]:
    outcomes = np.full((n_keys, n_nights), "", dtype="<U16")
    # Later rows overwrite earlier rows: sort the most severe outcome last.
    rank = {"skipped": 0, "infrastructure": 1, "ok": 2}
    order = runs["outcome"].map(lambda outcome: rank.get(outcome, 3)).sort_values(kind="stable")
    ranked = runs.loc[order.index]
    outcomes[ranked["key"].to_numpy(int), ranked["night"].to_numpy(int)] = ranked["outcome"]
    return outcomes


def _segments(
    runs: pd.DataFrame,
    keys: pd.DataFrame,
    times: NDArray[np.datetime64],
    marks: Sequence[Mapping[str, Any]],
) -> pd.DataFrame:
    """Return the starts of segments and their reasons."""
    starts: list[tuple[int, int, str, str]] = []
    accepted = [mark for mark in marks if mark.get("kind") == "accept"]
    runs = runs[runs["outcome"] == "ok"]
    nights = runs.drop_duplicates(["key", "night"], keep="last").sort_values(["key", "night"])
    before = nights.groupby("key")[list(_COMPARABLE_FIELDS)].shift()
    first = nights["key"].ne(nights["key"].shift()).to_numpy()
    for name, word in _COMPARABLE_FIELDS.items():
        now, then = nights[name], before[name]
        changed = now.ne(then).fillna(False).to_numpy(bool) & (now.notna() & then.notna())
        for at in np.flatnonzero(changed & ~first):
            row = nights.iloc[at]
            if name == SOURCE and _is_accepted_source(row, times[row["night"]], accepted):
                continue
            reason = word
            if name != SOURCE:
                reason += f" {_value_text(then.iloc[at])} -> {_value_text(now.iloc[at])}"
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


def _value_text(value: Any) -> str:
    """Return a value as text; pandas stores integers with gaps as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_accepted_source(
    row: pd.Series, time: np.datetime64, accepted: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a mark accepts this change of the workload's source."""
    return any(
        mark.get("metric") == SOURCE
        and accepts({**mark, "metric": None}, row)
        and time <= _moment(mark)
        for mark in accepted
    )


def _moment(mark: Mapping[str, Any]) -> np.datetime64:
    """Return the UTC time at which a mark takes effect: its ``at``, else its creation."""
    if mark.get("at"):
        return np.datetime64(pd.Timestamp(parse_moment(mark["at"])).tz_convert(None), "us")
    return np.datetime64(round(id_time(str(mark["id"])) * 1e6), "us")
