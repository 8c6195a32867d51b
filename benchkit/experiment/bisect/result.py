"""Result of a bisection, read from its plan and runs: build, probability, size of the change.

This module measures nothing. The command prints the result, and the notebook plots it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.environment_diff import differences
from benchkit.errors import NotEnoughRuns
from benchkit.experiment.bisect.replay import (
    EVENTS,
    PLAN_KEY,
    SKIPPED_FILE,
    replay,
    runs_of,
    search_options,
)
from benchkit.experiment.bisect.search import MIN_FINAL_BLOCKS, Search
from benchkit.experiment.environment.builds import Candidate
from benchkit.experiment.run.plan import read_plan
from benchkit.formatting import counted, format_change
from benchkit.store.store import Store
from benchkit.table import Table
from benchkit.text import html_text

#: A step smaller than this share of the whole change (log scale) is reported as partial.
WHOLE_CHANGE_SHARE = 0.7
#: Maximum characters of a note in a table; `BisectionResult.reasons` has the full text.
MAX_NOTE_CHARACTERS = 100


@dataclass(frozen=True, repr=False)
class BisectionResult:
    """Result of a finished or unfinished bisection."""

    id: str  # Id of the experiment
    store: Store  # Store of the runs
    workload: str  # workload, metric: Measured variant, and the metric that changed
    metric: str
    candidates: Sequence[Candidate]  # Builds to search, the good end first
    search: Search  # Search with all measured blocks
    runs: pd.DataFrame  # Runs of the bisection
    reasons: Mapping[str, str]  # Name of a skipped build -> reason

    @property
    def status(self) -> str:
        """``found``, ``same`` or ``undecided`` (the ends), or ``open`` (more blocks needed)."""
        ends = self.search.ends
        if ends in ("same", "undecided"):
            return ends
        return "found" if self.search.found else "open"

    @property
    def first(self) -> Candidate | None:
        """Most likely first build after the change; None if the ends do not differ."""
        differ = self.search.ends == "differ"
        return self.candidates[self.search.between[1]] if differ else None

    @property
    def last_good(self) -> Candidate | None:
        """Last measurable build before the change; None if the ends do not differ."""
        differ = self.search.ends == "differ"
        return self.candidates[self.search.between[0]] if differ else None

    @property
    def skipped_between(self) -> list[Candidate]:
        """Skipped builds between `last_good` and `first`, which may contain the change."""
        if self.first is None:
            return []
        low, high = self.search.between
        return list(self.candidates[low + 1 : high])

    @property
    def confidence(self) -> float:
        """Probability that the change is between the two builds; NaN if the ends do not differ."""
        return self.search.chance if self.search.ends == "differ" else math.nan

    def change(self, first: Candidate, second: Candidate) -> Mapping[str, Any] | None:
        """Return ratio, interval and verdict of the second build against the first."""
        if self.metric in EVENTS or self.runs.empty:
            return None
        sides = [self.runs[self.runs["arm"] == build.name] for build in (first, second)]
        n_shared = len(set(sides[0]["block"]) & set(sides[1]["block"]))
        try:
            comparison = compare(
                sides[0],
                {second.name: sides[1]},
                metrics=[self.metric],
                # One or two shared blocks are too few to estimate a spread.
                blocked=n_shared >= MIN_FINAL_BLOCKS,
            )
        except NotEnoughRuns:
            return None
        return comparison.frame.iloc[0].to_dict()

    def table(self) -> pd.DataFrame:
        """Return a row per build: title, verdict, probability of the change, runs."""
        chances = self.search.chances if self.search.ends == "differ" else None
        counts = self.search.events
        rows = []
        for position, candidate in enumerate(self.candidates):
            n_runs = int((self.runs["arm"] == candidate.name).sum()) if len(self.runs) else 0
            change = self.change(self.candidates[0], candidate) if n_runs and position else None
            rows.append(
                {
                    "build": candidate.name,
                    "title": candidate.title,
                    "verdict": self._verdict(position),
                    "chance": math.nan if chances is None else float(chances[position]),
                    "runs": n_runs,
                    "failed": int(counts[position, 0]),
                    **{name: math.nan if change is None else float(change[name])
                       for name in ("ratio", "low", "high")},
                    "note": self.reasons.get(candidate.name, ""),
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def _verdict(self, position: int) -> str:
        if position in self.search.skipped:
            return "left out"
        if position == 0 or position == self.search.last:
            is_first = self.first is self.candidates[position] and self.status == "found"
            return "first bad" if is_first else ("bad" if position else "good")
        if self.search.ends != "differ":
            return ""
        if self.status == "found" and position == self.search.between[1]:
            return "first bad"
        p_bad, level = self.search.side(position), self.search.confidence
        return "bad" if p_bad >= level else "good" if 1 - p_bad >= level else ""

    def packages(self) -> pd.DataFrame:
        """Return the packages that differ between the two builds, as recorded in their runs."""
        runs = []
        for build in (self.last_good, self.first):
            name = "" if build is None else build.name
            ids = self.runs.loc[self.runs["arm"] == name, "id"] if len(self.runs) else ()
            runs.append(self.store.load(ids[-1:]))
        rows = differences(*runs)
        return rows[rows["kind"] == "package"].reset_index(drop=True)

    @property
    def compare_command(self) -> str:
        """Shell command that compares the runs of the two builds."""
        if self.first is None or self.last_good is None:
            return ""
        sides = [f"experiment:{self.id},arm:{b.name}" for b in (self.last_good, self.first)]
        metric = "" if self.metric in ("duration", *EVENTS) else f" --metric {self.metric}"
        return (
            f"benchkit compare --store {self.store.path} --baseline {sides[0]} "
            f"--contender {sides[1]}{metric}"
        )

    def sentences(self) -> list[str]:
        """Return the result as text."""
        ends = f"{self.candidates[0].title} and {self.candidates[-1].title}"
        n_blocks = sum(block.builds == (0, self.search.last) for block in self.search.blocks)
        if self.first is None or self.last_good is None:
            change = self.change(self.candidates[0], self.candidates[-1])
            size = f": {_size(change)}" if change else ""
            answer = {
                "same": f"{ends} are the same in {self.metric}",
                "undecided": f"{ends} cannot be distinguished in {self.metric}",
                "open": f"undecided yet whether {ends} differ in {self.metric}",
            }[self.status]
            return [f"{answer}{size}, after {counted(n_blocks, 'block')}"]
        lines = [self._answer()]
        step = self.change(self.last_good, self.first)
        whole = self.change(self.candidates[0], self.candidates[-1])
        if step is not None:
            lines.append(f"{self.metric}: {_size(step)} from {self.last_good.name}")
            if whole is not None and len(self.candidates) > 2:
                lines[-1] += f"; {_size(whole)} between the ends"
                lines += _partial(step, whole, self)
        if self.skipped_between:
            names = ", ".join(build.name for build in self.skipped_between)
            lines.append(f"skipped builds that may contain the change: {names}")
        return lines

    def _answer(self) -> str:
        first, last = self.first, self.last_good
        assert first is not None
        assert last is not None
        probability = f"probability {100 * min(self.confidence, 0.999):.3g} %"
        if self.status == "found":
            return f"first bad: {first.title} ({probability}); last good: {last.title}"
        return f"undecided yet; most likely {first.title} ({probability}), after {last.title}"

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat dictionary per build, for other programs."""
        step: dict[str, Any] = {"step_ratio": None, "step_low": None, "step_high": None}
        first, last = self.first, self.last_good
        if first is not None and last is not None and (change := self.change(last, first)):
            step = {f"step_{name}": float(change[name]) for name in ("ratio", "low", "high")}
        return [
            {
                "bisect": self.id,
                "workload": self.workload,
                "metric": self.metric,
                "status": self.status,
                "confidence": self.confidence,
                "first_bad": None if first is None else first.name,
                "last_good": None if last is None else last.name,
                **step,
                **row,
            }
            for row in self.table().to_dict("records")
        ]

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def steps(self) -> Table:
        """Return the measured and skipped builds as a table for readers."""
        table = self.table()
        table = table[(table["runs"] > 0) | (table["verdict"] == "left out")]
        return Table([_step(row) for row in table.to_dict("records")])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html_text(line)}</p>" for line in self.sentences())
        return lines + self.steps().to_html()


def _step(row: Mapping[str, Any]) -> dict[str, str]:
    has_interval = math.isfinite(row["ratio"]) and math.isfinite(row["low"])
    note = " ".join(str(row["note"]).split())
    return {
        "build": row["title"],
        "runs": str(row["runs"]),
        "failed": str(row["failed"] or ""),
        "against good": format_change(row["ratio"]) if math.isfinite(row["ratio"]) else "",
        "95 % interval": _interval(row) if has_interval else "",
        "verdict": row["verdict"],
        "probability": f"{100 * row['chance']:.1f} %" if math.isfinite(row["chance"]) else "",
        "note": note[: MAX_NOTE_CHARACTERS - 1] + "…" if len(note) > MAX_NOTE_CHARACTERS else note,
    }


def _interval(row: Mapping[str, Any]) -> str:
    return f"{format_change(row['low'])} to {format_change(row['high'])}"


def _size(row: Mapping[str, Any]) -> str:
    """Return a change as text, with its interval and numbers of runs."""
    text = format_change(row["ratio"])
    if math.isfinite(row["low"]) and math.isfinite(row["high"]):
        text += f" ({_interval(row)})"
    return f"{text}, {int(row['n_baseline'])} + {int(row['n_contender'])} runs"


def _partial(
    step: Mapping[str, Any], whole: Mapping[str, Any], result: BisectionResult
) -> list[str]:
    """Return a sentence with the ranges left to search if the step is only part of the change."""
    parts = [row["ratio"] if row["ratio"] > 0 else math.nan for row in (step, whole)]
    ends = [row["high"] if whole["ratio"] > 1 else row["low"] for row in (step, whole)]
    if not all(value > 0 for value in (*parts, *ends)):
        return []
    if abs(math.log(ends[0])) >= WHOLE_CHANGE_SHARE * abs(math.log(parts[1])):
        return []
    assert result.first is not None
    assert result.last_good is not None
    low, high = result.candidates[0].name, result.candidates[-1].name
    rest = []
    if result.last_good.name != low:
        rest.append(f"--good {low} --bad {result.last_good.name}")
    if result.first.name != high:
        rest.append(f"--good {result.first.name} --bad {high}")
    return [f"this is only part of the change; search the rest with {' or '.join(rest)}"]


def read_bisection(store: Store | str | Path, experiment: str = "latest") -> BisectionResult:
    """Return the result of a bisection, finished or not.

    Examples
    --------
    >>> read_bisection("./benchkit-store").table()  # doctest: +SKIP
    """
    run_store = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(run_store, experiment, having=PLAN_KEY)
    stored = plan["words"][PLAN_KEY]
    candidates = [Candidate(**entry) for entry in stored["candidates"]]
    search = Search(len(candidates), **stored["search"], **search_options(stored["metric"]))
    runs = runs_of(run_store, plan["id"], stored.get("ends", ()))
    reasons = replay(search, candidates, runs, stored["metric"])
    with suppress(FileNotFoundError):
        skipped = json.loads(run_store.files.read(f"experiments/{plan['id']}/{SKIPPED_FILE}"))
        reasons = {**skipped, **reasons}
    for position, candidate in enumerate(candidates):
        if candidate.name in reasons:
            search.skip(position)
    workload, metric = stored["workload"], stored["metric"]
    return BisectionResult(
        plan["id"], run_store, workload, metric, candidates, search, runs, reasons
    )
