"""Build nightly series of comparable runs, split into segments.

A series is one metric of one workload in one environment on one host; a night is one column.
A change that makes two nights incomparable (another version of the workload, another cluster, an
accepted change) starts a segment. The table `History.runs` includes failed and excluded runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.changepoint.candidates import LatestNight
from benchkit.analysis.changepoint.weekdays import without_weekdays
from benchkit.analysis.changepoints import ChangePoint, Detection, Detector, Marks
from benchkit.analysis.metric_limits import newest_definitions
from benchkit.analysis.metric_names import check_metrics, define_own_metrics
from benchkit.analysis.regression.nights import future_nights, nightly_runs
from benchkit.analysis.regression.regression import Regression, series_name
from benchkit.analysis.regression.segments import find_segments
from benchkit.analysis.run.baseline import COMPARABLE_FIELDS
from benchkit.formatting import ROWS_SHOWN, counted, format_change, format_quantity
from benchkit.store.marks import active_marks
from benchkit.store.schema import METRICS, SERIES_FIELDS
from benchkit.table import Table

__all__ = [
    "SERIES_FIELDS",
    "DEFAULT_METRICS",
    "History",
    "build_history",
    "night_name",
]

DEFAULT_METRICS = ("duration", "memory_mean", "memory_peak")


@dataclass(frozen=True, repr=False)
class History:
    """Nightly series of a store.

    Parameters
    ----------
    series : DataFrame
        A row per series: ``workload``, ``category``, ``environment``, ``host``, ``scale``,
        ``capture``, ``metric``, and ``key``, a number that the metrics of a workload share.
    times : ndarray of datetime64, shape (nights,)
        Start of each night, UTC, ascending.
    values : ndarray of float, shape (series, nights)
        Median of the night's runs with outcome ok that no mark excludes; NaN without runs.
    outcomes : ndarray of str, shape (keys, nights)
        Most severe outcome of the night; empty if not measured.
    runs : DataFrame
        All runs of the nights, with ``key`` and ``night`` (position in `times`).
    segments : DataFrame
        Starts of segments: ``key``, ``night``, ``metric`` (empty: all) and ``reason``.
    future : tuple of str
        Ids of runs that are left out, because their night is in the future.
    mended : mapping of tuple to sequence of pairs
        Name of a series -> first night and night of recovery of its confirmed regressions.
    whole : History, optional
        The history of which this one has the first nights; its series are read once for all nights.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> build_history(store.runs()).select(workload="array.sum").changes  # doctest: +SKIP
    """

    series: pd.DataFrame
    times: NDArray[np.datetime64]
    values: NDArray[np.float64]
    outcomes: NDArray[np.str_]
    runs: pd.DataFrame
    segments: pd.DataFrame
    future: tuple[str, ...] = ()
    mended: Mapping[tuple[str, ...], Sequence[tuple[str, str]]] = field(default_factory=dict)
    whole: History | None = None

    def __len__(self) -> int:
        return len(self.series)

    @cached_property
    def restarts(self) -> list[Marks | None]:
        """Starts of segments and mended faults of each series, as marks for the detector."""
        restarts: list[Marks | None] = []
        for row, about in zip(
            self.series.itertuples(), self.series.to_dict("records"), strict=True
        ):
            times = [
                self.times[night]
                for metric, night in self._starts.get(row.key, ())
                if metric in ("", row.metric)
            ]
            spans = [
                (np.datetime64(first), np.datetime64(stop))
                for first, stop in self.mended.get(series_name(about), ())
            ]
            has_marks = times or spans
            restarts.append(Marks(restarts=sorted(times), mended=spans) if has_marks else None)
        return restarts

    @cached_property
    def _starts(self) -> dict[int, list[tuple[str, int]]]:
        """Metric (empty: all) and first night of the segments of each key."""
        starts: dict[int, list[tuple[str, int]]] = {}
        for row in self.segments.itertuples():
            starts.setdefault(row.key, []).append((row.metric, row.night))
        return starts

    @cached_property
    def detection(self) -> Detection:
        """Changes of level and the last night."""
        return self._source._detector(self.mended).on(len(self.times) - 1)

    @property
    def _source(self) -> History:
        """The history with all nights of the same series."""
        whole = self.whole
        return whole if whole is not None and whole.series is self.series else self

    def _detector(self, mended: Mapping[tuple[str, ...], Sequence[tuple[str, str]]]) -> Detector:
        """Return the detector of all nights, given the mended faults; the last one is kept."""
        known = self._last_detector
        if not known or known[0][0] != mended:
            values = without_weekdays(self.values, self.times)
            marks = replace(self, mended=mended).restarts
            known[:] = [(dict(mended), Detector(values, times=self.times, marks=marks))]
        return known[0][1]

    @cached_property
    def _last_detector(self) -> list[tuple[dict[tuple[str, ...], Any], Detector]]:
        """The mended faults and the detector of the last call of `_detector`, or none."""
        return []

    @property
    def changes(self) -> list[list[ChangePoint]]:
        """Changes of level in each series, estimated on the night of their detection."""
        return self.detection.changes

    def latest_night(self) -> LatestNight:
        """Return the last night of each series relative to its reference.

        Returns
        -------
        LatestNight
            An element per series.
        """
        return self.detection.latest

    def before(self, night: int) -> History:
        """Return the history up to and including a night.

        Parameters
        ----------
        night : int
            Position of the night.

        Returns
        -------
        History
            With all series, also those without a value.
        """
        stop = night + 1
        runs = self._runs_by_night
        return replace(
            self,
            times=self.times[:stop],
            values=self.values[:, :stop],
            outcomes=self.outcomes[:, :stop],
            runs=runs.iloc[: int(np.searchsorted(runs["night"].to_numpy(), stop))],
            segments=self.segments[self.segments["night"] < stop],
            whole=self._source,
        )

    @cached_property
    def _runs_by_night(self) -> pd.DataFrame:
        """The runs in the order of their nights: those until a night are a slice."""
        if self.runs["night"].is_monotonic_increasing:
            return self.runs
        return self.runs.sort_values("night", kind="stable")

    @property
    def last_runs(self) -> pd.DataFrame:
        """The runs of the last night."""
        return self.runs[self.runs["night"] == len(self.times) - 1]

    def with_mended(self, regressions: Iterable[Regression]) -> History:
        """Return the history with the confirmed regressions that recovered.

        Parameters
        ----------
        regressions : iterable of Regression
            Regressions of the ledger, in any state.

        Returns
        -------
        History
            In which a confirmed fault that was mended is no habit of its series.
        """
        mended: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for each in regressions:
            if each.confirmed and each.state == "recovered" and each.closed is not None:
                spans = mended.setdefault(series_name(each.about), [])
                spans.append((each.night, each.closed))
        return replace(self, mended=mended) if mended else self

    def matching(self, about: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which series have certain values of their fields.

        Parameters
        ----------
        about : mapping
            Column of `series` -> value.

        Returns
        -------
        ndarray of bool, shape (series,)
            True where all values are equal.
        """
        keep = np.ones(len(self), bool)
        for name, value in about.items():
            keep &= (self.series[name] == value).to_numpy()
        return keep

    def select(self, **about: Any) -> History:
        """Return a part of the series.

        Parameters
        ----------
        **about
            Values of the fields: ``workload=``, ``metric=``, ``host=``, ...; None is any value.

        Returns
        -------
        History
            With the same nights and runs.
        """
        keep = self.matching({name: value for name, value in about.items() if value is not None})
        return replace(
            self, series=self.series[keep].reset_index(drop=True), values=self.values[keep]
        )

    def find(self, about: Mapping[str, Any]) -> int | None:
        """Return the position of a series.

        Parameters
        ----------
        about : mapping
            A value for each of `SERIES_FIELDS` and for ``metric``; other keys are ignored.

        Returns
        -------
        int or None
            None if there is no such series.
        """
        return self._places.get(tuple(about[name] for name in (*SERIES_FIELDS, "metric")))

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], int]:
        """Position of each series by the values of `SERIES_FIELDS`, and its metric."""
        columns = (self.series[name].tolist() for name in (*SERIES_FIELDS, "metric"))
        return {name: place for place, name in enumerate(zip(*columns, strict=True))}

    def segments_of(self, row: int) -> pd.DataFrame:
        """Return the starts of the segments of a series.

        Parameters
        ----------
        row : int
            Position of the series.

        Returns
        -------
        DataFrame
            Rows of `segments` in order of nights; the segment of the first night has no row.
        """
        about = self.series.iloc[row]
        keep = self.segments["metric"].isin(["", about["metric"]])
        return self.segments[keep & (self.segments["key"] == about["key"])].sort_values("night")

    def segment_start(self, row: int, night: int) -> int:
        """Return the first night of the segment that contains a night.

        Parameters
        ----------
        row : int
            Position of the series.
        night : int
            Position of the night.

        Returns
        -------
        int
            Position of the first night.
        """
        metric, key = (self.series[name].iloc[row] for name in ("metric", "key"))
        starts = self._starts.get(key, ())
        return max((n for m, n in starts if m in ("", metric) and n <= night), default=0)

    def __repr__(self) -> str:
        return f"<benchkit.History: {self._summary}>"

    @property
    def _summary(self) -> str:
        """The number of series and nights, and the range of dates."""
        if not len(self.times):
            return "empty"
        first, last = (str(time)[:10] for time in (self.times[0], self.times[-1]))
        return f"{len(self)} series, {counted(len(self.times), 'night')}, {first}..{last}"

    def _repr_html_(self) -> str:
        parts = [f"<p>benchkit.History: {self._summary}</p>"]
        if len(self.times):
            parts.append(Table(self._text_rows(), align_numbers=False).to_html())
        if len(self) > ROWS_SHOWN:
            parts.append(f"<p>and {len(self) - ROWS_SHOWN} more series</p>")
        return "".join(parts)

    def _text_rows(self) -> list[dict[str, Any]]:
        """Return a row of text for each of the first series: nights, last night and changes."""
        latest, rows = self.latest_night(), []
        for row, about in enumerate(self.series.head(ROWS_SHOWN).to_dict("records")):
            change = self.changes[row][-1] if self.changes[row] else None
            date = "" if change is None else f" on {str(self.times[change.index])[:10]}"
            value, units = self.values[row, -1], METRICS[about["metric"]].units
            rows.append(
                {
                    **{name: about[name] for name in ("workload", "environment", "host", "metric")},
                    "nights": int(np.isfinite(self.values[row]).sum()),
                    "outcome": str(self.outcomes[about["key"], -1]) or "not measured",
                    "last night": format_quantity(value, units),
                    "change to reference": format_change(latest.ratio[row]),
                    "latest change of level": change and format_change(change.ratio) + date,
                }
            )
        return rows


def build_history(
    runs: pd.DataFrame,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    marks: Iterable[Mapping[str, Any]] = (),
) -> History:
    """Return the nightly series in a table of runs.

    Notes
    -----
    A night is all runs with the same tag ``night``, which `benchkit nightly` sets; runs without
    this tag belong to the UTC day of their start. Runs of A/B experiments with several arms, of
    confirmations and of bisections are excluded, and runs of nights in the future.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> build_history(store.runs(), marks=store.marks()).changes  # doctest: +SKIP
    """
    define_own_metrics(runs)
    metrics = check_metrics(metrics)
    columns = (*SERIES_FIELDS, *COMPARABLE_FIELDS, "category", "packages_hash")
    runs = nightly_runs(runs, columns)
    future = future_nights(runs["moment"])
    left_out = tuple(runs.loc[future, "id"])
    runs = runs[~future].reset_index(drop=True) if left_out else runs
    times, night = np.unique(runs.pop("moment").to_numpy("datetime64[us]"), return_inverse=True)
    fields = list(SERIES_FIELDS)
    groups = runs.groupby(fields, dropna=False, sort=True)
    runs["night"], runs["key"] = night.ravel(), groups.ngroup()
    (runs,), _ = newest_definitions([runs], metrics, by=["key"])
    keys = runs.drop_duplicates("key").sort_values("key").reset_index(drop=True)
    segments = find_segments(runs, keys, times, list(active_marks(marks)))

    chosen = [name for name in metrics if name in runs]
    is_valid = (runs["outcome"] == "ok") & runs["comparable"]
    valid = runs.loc[is_valid, ["key", "night", *chosen]]
    cells = valid.groupby(["key", "night"])[chosen].median()
    at = tuple(cells.index.get_level_values(name).to_numpy() for name in ("key", "night"))
    rows, values = [], []
    for name in chosen:
        matrix = np.full((len(keys), len(times)), np.nan)
        matrix[at] = cells[name].to_numpy(float)
        measured = np.flatnonzero(np.isfinite(matrix).any(axis=1))
        rows.append(keys.loc[measured, ["key", "category", *fields]].assign(metric=name))
        values.append(matrix[measured])
    names = ["key", "category", *fields, "metric"]
    series = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=names)
    stacked = np.concatenate(values) if values else np.empty((0, len(times)))
    order = series.sort_values(["key"], kind="stable").index
    return History(
        series.loc[order].reset_index(drop=True),
        times,
        stacked[order],
        _outcomes(runs, len(keys), len(times)),
        runs,
        segments,
        left_out,
    )


def night_name(time: np.datetime64) -> str:
    """Return the name of a night.

    Examples
    --------
    >>> night_name(np.datetime64("2026-03-01T02:00"))
    '2026-03-01T02:00:00'
    """
    return str(pd.Timestamp(time).isoformat())


def _outcomes(runs: pd.DataFrame, n_keys: int, n_nights: int) -> NDArray[np.str_]:
    outcomes = np.full((n_keys, n_nights), "", dtype="<U16")
    # Later rows overwrite earlier rows: sort the most severe outcome last.
    rank = {"skipped": 0, "infrastructure": 1, "ok": 2}
    codes, names = pd.factorize(runs["outcome"], use_na_sentinel=False)
    severity = np.array([rank.get(name, 3) for name in names], int)
    order = np.argsort(severity[codes], kind="stable")
    keys, nights = (runs[name].to_numpy(int)[order] for name in ("key", "night"))
    outcomes[keys, nights] = np.array(names, outcomes.dtype)[codes[order]]
    return outcomes
