"""From tables of runs to a report: which workloads changed, by how much, and how sure that is.

Tables as `Store.runs` gives them in, a `Report` out. Knows which runs count and which belong to one
block; the statistics are `benchkit.analysis.effects`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchkit.analysis.effects import Comparison
from benchkit.analysis.effects import compare as compare_arrays
from benchkit.errors import NotEnoughRuns, UsageError, did_you_mean
from benchkit.store.schema import METRICS
from benchkit.store.text import format_change, format_quantity

__all__ = [
    "DEFAULT_METRICS",
    "Report",
    "check_metrics",
    "compare",
    "compare_experiment",
]

DEFAULT_METRICS = ("duration", "memory_mean", "memory_peak")
NULL_ARM = "null"
_ORDER = {"changed": 0, "noise": 1, "undecided": 2, "same": 3, "failed": 0}


def check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return names of metrics; ``all`` stands for every one that has a better direction.

    Raises
    ------
    UsageError
        There is no such metric.
    """
    if list(metrics) == ["all"]:
        return tuple(name for name, metric in METRICS.items() if metric.better)
    for name in metrics:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS, "see `benchkit list metrics`")
            raise UsageError(f"no metric named {name!r}: {hint}")
    return tuple(dict.fromkeys(metrics))


@dataclass(frozen=True, repr=False)
class Report:
    """What changed between a baseline and its contenders.

    Attributes
    ----------
    frame : DataFrame
        A row per contender, workload and metric; what changed first, the largest change on top.
        ``ratio`` is contender / baseline with its interval ``low`` to ``high``; ``verdict`` and
        ``worse`` say what it means, ``needed`` how many more runs would tell.
    effects : Comparison
        The statistics of all rows; ``frame["row"]`` is the index into it.
    baseline, contenders : str, tuple of str
        Names of the arms.
    metrics : tuple of str
        What was judged.
    blocked : bool
        Whether runs were compared within the blocks of an experiment.
    warnings : tuple of str
        What a reader must know before believing anything.
    """

    frame: pd.DataFrame
    effects: Comparison
    baseline: str
    contenders: tuple[str, ...]
    metrics: tuple[str, ...]
    blocked: bool
    warnings: tuple[str, ...]
    level: float
    same: float
    _points: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

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
        """Whether any row has the two runs a side that a verdict takes."""
        return bool(self.frame["p"].notna().any())

    @property
    def sentence(self) -> str:
        """The finding in a sentence, with its counts."""
        verdicts = self.frame["verdict"].value_counts()
        parts = [f"{len(self.worse)} worse", f"{len(self.better)} better"]
        parts += [
            f"{verdicts[word]} {word}"
            for word in ("same", "undecided", "noise", "failed")
            if word in verdicts
        ]
        n_workloads = self.frame["workload"].nunique()
        runs = self.frame[["n_baseline", "n_contender"]].max()
        what = "comparison" if len(self.frame) == 1 else "comparisons"
        return (
            f"Of {len(self.frame)} {what} ({n_workloads} workloads, {len(self.metrics)} metrics, "
            f"up to {runs['n_baseline']} + {runs['n_contender']} runs): {', '.join(parts)}."
        )

    def points(self, row: Any) -> dict[str, np.ndarray]:
        """Return the values of one row of `frame` by arm: baseline, null (if any), contender.

        In the order of blocks when blocked, NaN where a run is missing; else in order of time.
        """
        return self._points[int(row["row"] if not isinstance(row, (int, np.integer)) else row)]

    def numbers(self) -> pd.DataFrame:
        """Return a row per contender, workload, metric and arm: runs, median, mean, deviation.

        As text with units; the null arm apart from the baseline.
        """
        rows = []
        for row in self.frame.to_dict("records"):
            for arm, values in self.points(row).items():
                known = values[np.isfinite(values)]
                name = {"baseline": self.baseline, "contender": row["contender"]}.get(arm, arm)
                spread = float(known.std(ddof=1)) if len(known) > 1 else math.nan
                mean = float(known.mean()) if len(known) else math.nan
                rows.append(
                    {
                        "workload": row["workload"],
                        "metric": row["metric"],
                        "arm": name,
                        "runs": len(known),
                        "median": format_quantity(_median(known), row["unit"]),
                        "mean": format_quantity(mean, row["unit"]),
                        "standard deviation": format_quantity(spread, row["unit"]),
                    }
                )
        return pd.DataFrame(rows).drop_duplicates(ignore_index=True)

    def to_table(self, *, all_rows: bool = False) -> str:
        """Return the rows as text; without `all_rows` those that are the same are counted only."""
        frame = self.frame if all_rows else self.frame[self.frame["verdict"] != "same"]
        rows = [_text_row(row, self) for row in frame.to_dict("records")]
        names = list(rows[0]) if rows else []
        if len(self.contenders) == 1 and rows:
            names.remove("contender")
        cells = [names, *([row[name] for name in names] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        lines = [
            "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
            for line in cells
            if line
        ]
        hidden = len(self.frame) - len(frame)
        if hidden:
            lines.append(f"and {hidden} that are the same within ±{self.same:.0%}")
        return "\n".join(lines)

    def to_markdown(self, *, most_bytes: int = 60_000) -> str:
        """Return the report as Markdown: changed rows first, cut to what a comment may hold.

        Parameters
        ----------
        most_bytes : int, default 60000
            GitHub refuses comments above 65,536 characters.
        """
        lines = [self.sentence, "", *(f"> **{text}**" for text in self.warnings), ""]
        rows = [_text_row(row, self) for row in self.frame.to_dict("records")]
        names = [n for n in rows[0] if n != "contender" or len(self.contenders) > 1]
        lines += [f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
        size = sum(len(line.encode()) + 1 for line in lines)
        for place, row in enumerate(rows):
            cells = (row[name].replace("|", "\\|").replace("<", "&lt;") for name in names)
            line = f"| {' | '.join(cells)} |"
            size += len(line.encode()) + 1
            if size > most_bytes - 100:
                lines += ["", f"and {len(rows) - place} more rows"]
                break
            lines.append(line)
        return "\n".join(lines) + "\n"

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as flat dictionaries; what is not known is None."""
        return [
            {name: None if _is_nan(value) else _plain(value) for name, value in row.items()}
            for row in self.frame.to_dict("records")
        ]

    def _repr_html_(self) -> str:
        rows = [_text_row(row, self) for row in self.frame.to_dict("records")]
        if not rows:
            return f"<p>{html.escape(self.sentence)}</p>"
        names = [n for n in rows[0] if n != "contender" or len(self.contenders) > 1]
        head = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td style='text-align:left'>{html.escape(row[name])}</td>" for name in names
            )
            + "</tr>"
            for row in rows
        )
        warnings = "".join(f"<p><b>{html.escape(text)}</b></p>" for text in self.warnings)
        return (
            f"<p>{html.escape(self.sentence)}</p>{warnings}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *self.warnings, self.to_table()])


def compare(
    baseline: pd.DataFrame,
    contender: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    null: pd.DataFrame | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    blocked: bool | None = None,
    level: float = 0.95,
    same: float = 0.05,
    names: tuple[str, str] = ("baseline", "contender"),
) -> Report:
    """Compare runs with the runs of a baseline, workload by workload.

    Parameters
    ----------
    baseline : DataFrame
        Runs as `Store.runs` gives them. Only those that ended ok, and that no mark sets aside,
        feed the statistics; the others are counted.
    contender : DataFrame or mapping of str to DataFrame
        Runs in question; several sets by their names.
    null : DataFrame, optional
        The baseline once more. It buys power, and shows what noise does.
    metrics : sequence of str
        What to judge; ``["all"]`` is every metric that has a better direction.
    blocked : bool, optional
        Whether runs of one block belong together; by default they do when all come from one
        experiment.
    level, same : float
        See `benchkit.analysis.effects.compare`.
    names : tuple of str
        What to call baseline and contender.

    Returns
    -------
    Report

    Raises
    ------
    NotEnoughRuns
        Baseline and contenders have no workload in common that has a value of a metric.
    UsageError
        There is no such metric.

    Examples
    --------
    >>> store = benchkit.Store()  # doctest: +SKIP
    >>> benchkit.compare(store.runs(variant="A"), store.runs(variant="B"))  # doctest: +SKIP
    """
    chosen = check_metrics(metrics)
    sets = dict(contender) if isinstance(contender, Mapping) else {names[1]: contender}
    everything = [baseline, *sets.values(), *([null] if null is not None else [])]
    if blocked is None:
        blocked = _one_experiment(everything)
    rows = _rows(baseline, sets, null, chosen, blocked)
    if not rows:
        raise NotEnoughRuns(
            f"{names[0]} and {', '.join(sets)} have no workload in common that was measured"
        )
    effects = compare_arrays(
        _stack([row["points"]["baseline"] for row in rows]),
        _stack([row["points"]["contender"] for row in rows]),
        null=None if null is None else _stack([row["points"]["null"] for row in rows]),
        blocked=blocked,
        family=[row["metric"] for row in rows],
        level=level,
        same=same,
    )
    frame = _frame(rows, effects)
    warnings = [text for text in effects.warnings if "have no value" not in text]
    return Report(
        frame=frame,
        effects=effects,
        baseline=names[0],
        contenders=tuple(sets),
        metrics=chosen,
        blocked=blocked,
        warnings=(
            *warnings,
            *_left_out(baseline, sets, null, names[0]),
            *_apart(blocked),
            *_elsewhere(baseline, sets, names[0]),
        ),
        level=level,
        same=same,
        _points={index: row["points"] for index, row in enumerate(rows)},
    )


def compare_experiment(
    runs: pd.DataFrame, experiment: str, *, baseline: str | None = None, **options: Any
) -> Report:
    """Compare the arms of an experiment.

    Parameters
    ----------
    runs : DataFrame
        Runs of a store; those of other experiments are left alone.
    experiment : str
        Id of the experiment, or the beginning of it.
    baseline : str, optional
        Name of the arm that the others are held against; by default the first that ran.
    **options
        As for `compare`.

    Raises
    ------
    NotEnoughRuns
        The experiment has no runs, or only one arm.
    UsageError
        It has no arm of that name.
    """
    mine = runs[runs["experiment"].fillna("").str.startswith(experiment)] if len(runs) else runs
    if mine.empty:
        raise NotEnoughRuns(f"experiment {experiment!r} has no runs yet")
    arms = list(dict.fromkeys(mine.sort_values("order")["arm"]))
    if baseline is not None and baseline not in arms:
        hint = did_you_mean(baseline, arms, f"it has {', '.join(arms)}")
        raise UsageError(f"experiment {experiment!r} has no arm named {baseline!r}: {hint}")
    first = baseline or next((arm for arm in arms if arm != NULL_ARM), arms[0])
    others = [arm for arm in arms if arm not in (first, NULL_ARM)]
    sets = {arm: mine[mine["arm"] == arm] for arm in others}
    null = mine[mine["arm"] == NULL_ARM]
    if not sets and len(null):  # the baseline against itself is all there is
        sets, null = {NULL_ARM: null}, null.iloc[:0]
    if not sets:
        raise NotEnoughRuns(f"experiment {experiment!r} has only the arm {first!r} so far")
    return compare(
        mine[mine["arm"] == first],
        sets,
        null=null if len(null) else None,
        names=(first, "contender"),
        **options,
    )


def _counts(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that feed statistics."""
    if runs.empty:
        return runs
    keep = runs["outcome"] == "ok"
    if "comparable" in runs:
        keep &= runs["comparable"].astype(bool)
    return runs[keep]


def _one_experiment(tables: Sequence[pd.DataFrame]) -> bool:
    """Whether all runs come from one experiment and know their block."""
    seen: set[Any] = set()
    for table in tables:
        if table.empty:
            continue
        if "experiment" not in table or table["block"].isna().any():
            return False
        if _counts(table).duplicated(["workload", "block"]).any():
            return False  # several runs in one place, such as those of the null arm
        seen |= set(table["experiment"].fillna(""))
    return len(seen) == 1 and "" not in seen


def _values(runs: pd.DataFrame, metric: str, n_blocks: int | None) -> np.ndarray:
    """Return the values of one workload and metric: by block, or in order of time."""
    if runs.empty or metric not in runs:
        return np.full(n_blocks or 0, np.nan)
    values = runs[metric].astype(float).to_numpy()
    if n_blocks is None:
        return values[np.isfinite(values)]
    placed = np.full(n_blocks, np.nan)
    placed[runs["block"].astype(int).to_numpy()] = values
    return placed


def _rows(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    metrics: Sequence[str],
    blocked: bool,
) -> list[dict[str, Any]]:
    rows = []
    tables = [baseline, *sets.values(), *([null] if null is not None else [])]
    n_blocks = None
    if blocked:
        n_blocks = 1 + int(max(table["block"].max() for table in tables if len(table)))
    left = _by_workload(_counts(baseline))
    middle = _by_workload(_counts(null)) if null is not None else {}
    nothing = baseline.iloc[:0]
    for name, table in sets.items():
        right = _by_workload(_counts(table))
        tried = set(baseline["workload"]) & set(table["workload"])
        for workload in sorted(tried):
            for metric in metrics:
                points = {
                    "baseline": _values(left.get(workload, nothing), metric, n_blocks),
                    "contender": _values(right.get(workload, nothing), metric, n_blocks),
                }
                if not any(np.isfinite(values).any() for values in points.values()):
                    continue
                if null is not None:
                    points["null"] = _values(middle.get(workload, nothing), metric, n_blocks)
                rows.append(
                    {
                        "contender": name,
                        "workload": workload,
                        "metric": metric,
                        "unit": METRICS[metric].units,
                        "better": METRICS[metric].better,
                        "n_failed_baseline": _n_failed(baseline, workload),
                        "n_failed_contender": _n_failed(table, workload),
                        "points": points,
                    }
                )
    return rows


def _by_workload(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if runs.empty:
        return {}
    return {str(name): group for name, group in runs.groupby("workload", sort=False)}


def _n_failed(runs: pd.DataFrame, workload: str) -> int:
    mine = runs[runs["workload"] == workload]
    return int((~mine["outcome"].isin(["ok", "skipped", "infrastructure"])).sum())


def _stack(rows: Sequence[np.ndarray]) -> np.ndarray:
    width = max((len(row) for row in rows), default=0)
    stacked = np.full((len(rows), max(width, 1)), np.nan)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def _frame(rows: Sequence[dict[str, Any]], effects: Comparison) -> pd.DataFrame:
    frame = pd.DataFrame([{k: v for k, v in row.items() if k != "points"} for row in rows])
    frame["row"] = range(len(rows))
    frame["baseline"] = [_median(row["points"]["baseline"]) for row in rows]
    frame["contender_value"] = [_median(row["points"]["contender"]) for row in rows]
    for name in ("ratio", "low", "high", "p", "q", "needed", "selected_low", "selected_high"):
        frame[name] = getattr(effects, name)
    for name in ("hodges_lehmann", "null_moved", "n_baseline", "n_contender"):
        frame[name] = getattr(effects, name)
    nulls = [_null_interval(row["points"]) for row in rows]
    for index, name in enumerate(("null_ratio", "null_low", "null_high")):
        frame[name] = [interval[index] for interval in nulls]
    frame["changed"] = effects.changed
    more = effects.ratio > 1
    lower, higher = frame["better"] == "lower", frame["better"] == "higher"
    frame["worse"] = frame["changed"] & ((more & lower) | (~more & higher))
    is_time = (frame["metric"] == "duration").to_numpy()
    verdict = np.array(effects.verdict, dtype=object)
    verdict[is_time & (verdict == effects.words[0])] = "faster"
    verdict[is_time & (verdict == effects.words[1])] = "slower"
    frame["verdict"] = verdict.astype(str)
    frame["note"] = effects.notes
    rank = frame["verdict"].map(_ORDER).fillna(0)
    size = -np.abs(np.log(frame["ratio"].where(frame["ratio"] > 0)))
    order = pd.DataFrame({"rank": rank, "worse": ~frame["worse"], "size": size})
    return frame.loc[order.sort_values(["rank", "worse", "size"], kind="stable").index].reset_index(
        drop=True
    )


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def _null_interval(points: Mapping[str, np.ndarray]) -> tuple[float, float, float]:
    """Return the null arm / baseline with its interval: Welch's t on logarithms."""
    nothing = math.nan, math.nan, math.nan
    if "null" not in points:
        return nothing
    sides = [values[np.isfinite(values)] for values in (points["null"], points["baseline"])]
    if any(len(side) < 2 or (side <= 0).any() for side in sides):
        return nothing
    first, second = (np.log(side) for side in sides)
    change = float(first.mean() - second.mean())
    a, b = (float(side.var(ddof=1)) / len(side) for side in (first, second))
    if not a + b > 0:
        return math.exp(change), math.exp(change), math.exp(change)
    df = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    half = float(stats.t.ppf(0.975, df)) * math.sqrt(a + b)
    return math.exp(change), math.exp(change - half), math.exp(change + half)


def _left_out(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    name: str,
) -> list[str]:
    """Say which runs do not count, by arm and outcome."""
    found = []
    arms = {name: baseline, **sets, **({NULL_ARM: null} if null is not None else {})}
    for arm, runs in arms.items():
        if runs.empty:
            continue
        bad = runs.loc[runs["outcome"] != "ok", "outcome"].value_counts()
        if len(bad):
            what = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in bad.items())
            found.append(f"{bad.sum()} of {len(runs)} runs of {arm} left out: {what}")
    return found


def _apart(blocked: bool) -> list[str]:
    if blocked:
        return []
    return [
        "these runs were not interleaved: what the machine did in between looks like a change; "
        "`benchkit ab` measures them side by side"
    ]


#: What makes runs incomparable, whatever was changed on purpose.
_PLACE = {"host": "machine", "n_threads": "number of threads", "memory_limit": "memory limit"}


def _elsewhere(baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame], name: str) -> list[str]:
    """Say when arms ran on different machines or clusters of another size."""
    found = []
    for contender, runs in sets.items():
        for field_name, words in _PLACE.items():
            if field_name not in baseline or field_name not in runs:
                continue
            sides = [set(table[field_name].dropna()) for table in (baseline, runs)]
            if all(sides) and sides[0] != sides[1]:
                texts = [", ".join(sorted(map(str, side))[:3]) for side in sides]
                found.append(f"{words}: {texts[0]} for {name}, {texts[1]} for {contender}")
    return found


def _text_row(row: Mapping[str, Any], report: Report) -> dict[str, str]:
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


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
