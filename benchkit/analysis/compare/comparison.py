"""Result of a comparison of runs, as text, Markdown, JSON and HTML.

`benchkit.analysis.compare.compare_runs` creates it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from benchkit.analysis.stats.effects import Effects
from benchkit.formatting import Table, counted, format_change, format_quantity, json_safe

__all__ = ["Comparison"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Effects of the contenders on each metric, with intervals and verdicts.

    Parameters
    ----------
    frame : DataFrame
        A row per contender, workload and metric; changed rows first, largest change first.
        ``ratio`` is contender / baseline with its interval ``low`` to ``high``; ``verdict`` and
        ``worse`` classify it, ``needed`` is the number of further runs for a verdict.
        ``null_ratio`` is the null arm / baseline (NaN without one), ``noise`` the coefficient of
        variation of one run, of all arms together (NaN with too few).
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
    _points: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    _ids: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

    @property
    def worse(self) -> pd.DataFrame:
        """The rows that changed for the worse."""
        return self.frame[self.frame["worse"]]

    @property
    def better(self) -> pd.DataFrame:
        """The rows that changed for the better."""
        return self.frame[self.frame["changed"] & ~self.frame["worse"]]

    @property
    def testable(self) -> bool:
        """Whether any row has the two runs a side that a verdict requires."""
        return bool(self.frame["p"].notna().any())

    @property
    def sentence(self) -> str:
        """Summary of the verdicts in a sentence, with counts."""
        verdicts = self.frame["verdict"].value_counts()
        parts = [f"{len(self.worse)} worse", f"{len(self.better)} better"]
        parts += [
            f"{verdicts[word]} {word}"
            for word in ("same", "undecided", "noise", "failed")
            if word in verdicts
        ]
        n_workloads = self.frame["workload"].nunique()
        runs = self.frame[["n_baseline", "n_contender"]].max()
        return (
            f"Of {counted(len(self.frame), 'comparison')} ({counted(n_workloads, 'workload')}, "
            f"{counted(len(self.metrics), 'metric')}, "
            f"up to {runs['n_baseline']} + {runs['n_contender']} runs): {', '.join(parts)}."
        )

    def points(self, row: Any) -> dict[str, np.ndarray]:
        """Return the values of one row of `frame` by arm: baseline, null (if any), contender.

        In the order of blocks when blocked, NaN where a run is missing; else in order of time.
        """
        return self._points[_number(row)]

    def run_ids(self, row: Any) -> dict[str, np.ndarray]:
        """Return the run id of each value of `points`, by arm; "" where a run is missing."""
        return self._ids[_number(row)]

    def numbers(self) -> pd.DataFrame:
        """Return a row per contender, workload, metric and arm: runs, median, mean, deviation.

        Values are text with units; the null arm has rows of its own.
        """
        rows = []
        for row in self.frame.to_dict("records"):
            for arm, values in self.points(row).items():
                known = values[np.isfinite(values)]
                name = {"baseline": self.baseline, "contender": row["contender"]}.get(arm, arm)
                spread = float(known.std(ddof=1)) if len(known) > 1 else math.nan
                mean = float(known.mean()) if len(known) else math.nan
                middle = float(np.median(known)) if len(known) else math.nan
                rows.append(
                    {
                        "workload": row["workload"],
                        "metric": row["metric"],
                        "arm": name,
                        "runs": len(known),
                        "median": format_quantity(middle, row["unit"]),
                        "mean": format_quantity(mean, row["unit"]),
                        "standard deviation": format_quantity(spread, row["unit"]),
                    }
                )
        return pd.DataFrame(rows).drop_duplicates(ignore_index=True)

    def to_table(self, *, all_rows: bool = False) -> str:
        """Return the rows as text; without `all_rows`, `same` rows are only counted."""
        frame = self.frame if all_rows else self.frame[self.frame["verdict"] != "same"]
        rows = [_text_row(row, self) for row in frame.to_dict("records")]
        lines = [self._table(rows).to_text()] if rows else []
        hidden = len(self.frame) - len(frame)
        if hidden:
            lines.append(f"and {hidden} that are the same within ±{self.same:.0%}")
        return "\n".join(lines)

    def to_markdown(self, *, most_bytes: int = 60_000) -> str:
        """Return the report as Markdown: changed rows first, cut to the size of a GitHub comment.

        Parameters
        ----------
        most_bytes : int, default 60000
            Largest size; GitHub rejects comments above 65,536 characters.
        """
        lines = [self.sentence, "", *(f"> **{text}**" for text in self.warnings), ""]
        rows = [_text_row(row, self) for row in self.frame.to_dict("records")]
        table = self._table(rows).to_markdown().split("\n")
        size = sum(len(line.encode()) + 1 for line in lines)
        for place, line in enumerate(table):
            size += len(line.encode()) + 1
            if size > most_bytes - 100 and place >= 2:
                lines += ["", f"and {len(table) - place} more rows"]
                break
            lines.append(line)
        return "\n".join(lines) + "\n"

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as flat dictionaries; unknown values are None."""
        return [json_safe(row) for row in self.frame.to_dict("records")]

    def _repr_html_(self) -> str:
        rows = [_text_row(row, self) for row in self.frame.to_dict("records")]
        if not rows:
            return f"<p>{html.escape(self.sentence)}</p>"
        warnings = "".join(f"<p><b>{html.escape(text)}</b></p>" for text in self.warnings)
        return f"<p>{html.escape(self.sentence)}</p>{warnings}{self._table(rows).to_html()}"

    def _table(self, rows: list[dict[str, Any]]) -> Table:
        names = [name for name in rows[0] if name != "contender" or len(self.contenders) > 1]
        return Table(rows, names, align_numbers=False)

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *self.warnings, self.to_table()])


def _number(row: Any) -> int:
    return int(row if isinstance(row, (int, np.integer)) else row["row"])


def _text_row(row: Mapping[str, Any], report: Comparison) -> dict[str, str]:
    interval = ""
    if not _is_nan(row["low"]):
        low, high = (
            (row["selected_low"], row["selected_high"])
            if row["changed"]
            else (row["low"], row["high"])
        )
        interval = f"{format_change(low)} to {format_change(high)}"
    verdict = row["verdict"]
    if verdict == "undecided" and row["needed"] > 0:
        verdict = f"undecided: {row['needed']} more would tell"
    sign = "▲ " if row["worse"] else "▼ " if row["changed"] else ""
    failed = row["n_failed_baseline"] + row["n_failed_contender"]
    return {
        "contender": str(row["contender"]),
        "workload": str(row["workload"]),
        "metric": str(row["metric"]),
        report.baseline: format_quantity(row["baseline"], row["unit"]),
        "now": format_quantity(row["contender_value"], row["unit"]),
        "change": format_change(row["ratio"]),
        f"{report.level:.0%} interval": interval,
        "verdict": sign + verdict,
        "runs": f"{row['n_baseline']} + {row['n_contender']}"
        + (f", {failed} failed" if failed else ""),
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


#: Columns that make two sets of runs incomparable when they differ -> name in a warning.
_MACHINE_COLUMNS = {
    "host": "machine",
    "n_threads": "number of threads",
    "memory_limit": "memory limit",
}


def comparison_warnings(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    *,
    name: str,
    null_name: str,
    blocked: bool,
) -> list[str]:
    """Return warnings about the runs of a comparison: excluded, not interleaved, other machine."""
    nulls = {} if null is None else {null_name: null}
    warnings = []
    for arm, runs in {name: baseline, **sets, **nulls}.items():
        if runs.empty:
            continue
        bad = runs.loc[runs["outcome"] != "ok", "outcome"].value_counts()
        if len(bad):
            counts = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in bad.items())
            warnings.append(f"{bad.sum()} of {len(runs)} runs of {arm} left out: {counts}")
    if not blocked:
        warnings.append(
            "these runs were not interleaved: what the machine did in between looks like a change; "
            "`benchkit ab` measures them side by side"
        )
    for contender, runs in sets.items():
        for column, label in _MACHINE_COLUMNS.items():
            if column not in baseline or column not in runs:
                continue
            sides = [set(table[column].dropna()) for table in (baseline, runs)]
            if all(sides) and sides[0] != sides[1]:
                texts = [", ".join(sorted(map(str, side))[:3]) for side in sides]
                warnings.append(f"{label}: {texts[0]} for {name}, {texts[1]} for {contender}")
    return warnings
