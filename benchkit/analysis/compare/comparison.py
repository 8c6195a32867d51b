"""Result of a comparison of runs, as text and JSON.

`benchkit.analysis.compare.compare_runs` creates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from benchkit.analysis.compare.group_totals import (
    WALL_TIMES,
    changed_rows,
    describe_group_change,
)
from benchkit.analysis.compare.headline import (
    WORK_METRICS,
    is_undecided_by_load,
    sentences,
    suite_changes,
)
from benchkit.analysis.stats.verdicts import Effects
from benchkit.formatting import ROWS_SHOWN, counted, format_change, format_factor, format_quantity
from benchkit.table import Table
from benchkit.values import json_safe

#: Group of entry points whose functions take a `Comparison`: `analysis` imports nothing that draws.
ACCESSORS = "benchkit.comparison_accessors"
#: Fields of the change of all workloads in JSON.
_SUITE_FIELDS = ("ratio", "low", "high", "n_worse", "n_better")
#: A row of a comparison: its number, or the row with the column ``row``.
Row: TypeAlias = "int | Mapping[str, Any] | pd.Series"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Effects of the contenders on each metric, with intervals and verdicts.

    Parameters
    ----------
    frame : DataFrame
        A row per contender, workload and metric; changed rows first, the largest change first.
        ``ratio`` is that of contender to baseline with its interval ``low`` to ``high``;
        ``baseline`` and ``contender_value`` are levels with exactly this ratio: of positive values,
        the geometric mean of the baseline and its null arm, and that times ``ratio``. ``verdict``
        and ``worse`` classify it, ``needed`` is the number of further runs for a verdict. A
        contender that fails in a larger share of its runs has the verdict ``failed`` unless its
        values are worse, and is ``worse``.
        ``q`` is from the evidence of all metrics of the workload, if the report is large enough;
        ``own_q`` is from the row alone, and ``supported_by`` names the metrics to which a listed
        row with a larger ``own_q`` owes its verdict.
        ``null_ratio`` is that of null arm to baseline (NaN without a null arm), ``noise`` the
        coefficient of variation of a run, pooled over the arms (NaN for too few runs). ``cause``
        says what moved, where `benchkit.analysis.compare.explain.with_causes` found it.
    effects : Effects
        The statistics of all rows; ``frame["row"]`` is the index into it.
    baseline, contenders : str, tuple of str
        Names of the arms.
    metrics : tuple of str
        Metrics compared.
    blocked : bool
        Whether runs were compared within the blocks of an experiment.
    warnings : tuple of str
        Conditions that limit the validity of the comparison.
    level, same : float
        Confidence of the intervals; largest relative change that counts as no change.
    composition : DataFrame or None
        Changes of the workloads' task groups, as returned by
        `benchkit.analysis.compare.run_groups.compare_run_groups`; None if the runs were not read.
    _points, _ids : dict of int to dict
        Values and run ids of each row by arm; see `points` and `run_ids`.
    """

    frame: pd.DataFrame
    effects: Effects
    baseline: str
    contenders: tuple[str, ...]
    metrics: tuple[str, ...]
    blocked: bool
    warnings: tuple[str, ...]
    level: float
    same: float
    composition: pd.DataFrame | None = None
    _points: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    _ids: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

    @property
    def worse(self) -> pd.DataFrame:
        """Rows that changed for the worse, and those of contenders that fail more often."""
        return self.frame[self.frame["worse"]]

    @property
    def better(self) -> pd.DataFrame:
        """Rows that changed for the better."""
        return self.frame[self.frame["changed"] & ~self.frame["worse"]]

    @property
    def testable(self) -> bool:
        """Whether any row has the two runs a side that a verdict requires."""
        return bool(self.frame["p"].notna().any())

    @property
    def title(self) -> str:
        """Names of the arms: ``no-stealing against baseline``."""
        *first, last = self.contenders
        names = " and ".join([", ".join(first), last] if first else [last])
        return f"{names} against {self.baseline}"

    @property
    def sentence(self) -> str:
        """Counts of all verdicts, also on task groups and counts; the suite; work if disturbed."""
        return " ".join(sentences(self))

    @property
    def is_worse(self) -> bool:
        """Whether a row, a task group or a count changed for the worse: exit code 1."""
        return bool(len(self.worse)) or any(row["worse"] for row in self.changed_groups)

    @property
    def judges_wall_time(self) -> bool:
        """Whether a metric other than CPU seconds is compared, so that wall time counts at all."""
        return not set(self.metrics) <= set(WORK_METRICS)

    @property
    def causes(self) -> list[str]:
        """What moved in each changed row whose cause is known, in one line each."""
        several = len(self.contenders) > 1
        return [
            f"{row.workload}{f' in {row.contender}' if several else ''}, {row.metric}: {row.cause}"
            for row in self.frame[self.frame["cause"] != ""].itertuples()
        ]

    def points(self, row: Row) -> dict[str, np.ndarray]:
        """Return the values of a row by arm.

        Parameters
        ----------
        row : int or mapping
            A row of `frame`, or its column ``row``.

        Returns
        -------
        dict of str to ndarray
            For ``baseline``, ``contender`` and, if there is one, ``null``. By block if blocked,
            with NaN where a run is missing; else in order of time.
        """
        return self._points[_index(row)]

    def run_ids(self, row: Row) -> dict[str, np.ndarray]:
        """Return the run ids of a row by arm.

        Parameters
        ----------
        row : int or mapping
            As in `points`.

        Returns
        -------
        dict of str to ndarray
            The id of each value of `points`; "" where a run is missing.
        """
        return self._ids[_index(row)]

    def numbers(self) -> pd.DataFrame:
        """Return statistics of each arm as text with units.

        Returns
        -------
        DataFrame
            A row per contender, workload, metric and arm, null arm included: number of runs,
            median, mean and standard deviation.
        """
        rows = []
        for row in self.frame.to_dict("records"):
            for arm, values in self.points(row).items():
                finite = values[np.isfinite(values)]
                statistics = {
                    "median": np.median(finite) if len(finite) else None,
                    "mean": finite.mean() if len(finite) else None,
                    "standard deviation": finite.std(ddof=1) if len(finite) > 1 else None,
                }
                name = {"baseline": self.baseline, "contender": row["contender"]}.get(arm, arm)
                texts = {n: format_quantity(v, row["unit"]) for n, v in statistics.items()}
                rows.append(
                    {
                        **{column: row[column] for column in ("workload", "metric")},
                        "arm": name,
                        "runs": len(finite),
                        **texts,
                    }
                )
        return pd.DataFrame(rows).drop_duplicates(ignore_index=True)

    @property
    def group_changes(self) -> list[str]:
        """A sentence for each changed measure of a task group, the largest changes first."""
        several, rows = len(self.contenders) > 1, self.changed_groups
        lines = [
            (f"{row['contender']}: " if several else "") + describe_group_change(row)
            for row in rows[:ROWS_SHOWN]
        ]
        hidden = len(rows) - len(lines)
        return [*lines, f"and {hidden} more"] if hidden else lines

    @cached_property
    def changed_groups(self) -> list[dict[str, Any]]:
        """Changed measures of task groups and of whole runs, with ``worse`` and ``better``."""
        table = self.composition
        if table is None:
            return []
        return changed_rows(
            table if self.judges_wall_time else table[~table["metric"].isin(WALL_TIMES)]
        )

    def to_table(self, *, all_rows: bool = False) -> str:
        """Return the rows as text.

        Parameters
        ----------
        all_rows : bool, default False
            Include rows with the verdict `same`, which are only counted otherwise.

        Returns
        -------
        str
            Aligned columns.
        """
        frame = self.frame if all_rows else self.frame[self.frame["verdict"] != "same"]
        lines = [_table(replace(self, frame=frame)).to_text()] if len(frame) else []
        hidden = len(self.frame) - len(frame)
        if hidden:
            verb = "is" if hidden == 1 else "are"
            rows = f"and {hidden} that {verb}" if lines else f"{counted(hidden, 'row')} {verb}"
            lines.append(f"{rows} the same within ±{self.same:.0%}")
        if self.group_changes:
            lines += ["", "Task groups that changed:", *self.group_changes]
        return "\n".join([*lines, *([""] if self.causes else []), *self.causes])

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as flat dictionaries.

        Returns
        -------
        list of dict
            JSON types; unknown values are None. ``suite_ratio`` with ``suite_low`` and
            ``suite_high`` is the change of all workloads together in the first metric. Rows with a
            ``group`` follow: the changed measures of task groups, and of whole runs (``group`` is
            empty), with ``worse`` and ``better``.
        """
        suites = {
            suite.contender: {f"suite_{name}": getattr(suite, name) for name in _SUITE_FIELDS}
            for suite in suite_changes(self)
        }
        rows = [
            *({**row, **suites.get(row["contender"], {})} for row in self.frame.to_dict("records")),
            *self.changed_groups,
        ]
        return [json_safe(row) for row in rows]

    def _repr_html_(self) -> str | None:
        """Return the page of the comparison; None, for the text, without packages that draw."""
        with suppress(ImportError):
            for point in entry_points(group=ACCESSORS, name="html"):
                return str(point.load()(self))
        return None

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *self.warnings, self.to_table()])


def _index(row: Row) -> int:
    return int(row["row"] if isinstance(row, (Mapping, pd.Series)) else row)


def text_row(row: Mapping[str, Any], comparison: Comparison) -> dict[str, str]:
    """Return a row of a comparison as text, by title of the column."""
    interval = ""
    if not math.isnan(row["low"]):
        low, high = (
            (row["selected_low"], row["selected_high"])
            if row["changed"]
            else (row["low"], row["high"])
        )
        interval = f"{format_change(low)} to {format_change(high)}"
    verdict = row["verdict"]
    if is_undecided_by_load(row):
        verdict += ": the machine was busy"
    elif verdict == "undecided" and row["needed"] > 0:
        verdict = f"undecided: {counted(row['needed'], 'more run')} needed"
    if row["changed"] and (factor := format_factor(row["ratio"])):
        verdict = f"{factor} {verdict}"
    if row["supported_by"]:
        verdict += f" (with {row['supported_by']})"
    sign = "▲ " if row["worse"] else "▼ " if row["changed"] else ""
    failed = [row["n_failed_baseline"], row["n_failed_contender"]]
    several = len(comparison.contenders) > 1
    names = {
        "workload": str(row["workload"]),
        **({"contender": str(row["contender"])} if several else {}),
        "metric": str(row["metric"]),
    }
    results = {
        "change": format_change(row["ratio"]),
        f"{comparison.level:.0%} interval": interval,
        "verdict": sign + verdict,
        "runs": f"{row['n_baseline']} + {row['n_contender']}"
        + (f", failed {failed[0]} + {failed[1]}" if any(failed) else "")
        + (f", {row['n_disturbed']} disturbed" if row["n_disturbed"] else ""),
    }
    titles = [comparison.baseline, "contender value" if several else comparison.contenders[0]]
    roles = ("baseline", "contender")
    values = {
        f"{title} ({role})" if title in {**names, **results} else title: format_quantity(
            row[column], row["unit"]
        )
        for title, role, column in zip(titles, roles, ("baseline", "contender_value"), strict=True)
    }
    return {**names, **values, **results}


def _table(comparison: Comparison) -> Table:
    return Table([text_row(row, comparison) for row in comparison.frame.to_dict("records")])
