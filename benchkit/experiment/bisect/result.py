"""Result of a bisection, read from its plan and runs: build, probability, size of the change.

This module measures nothing. The command prints the result, the notebook plots it, and a resumed
bisection starts from it.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.environment_diff import differences
from benchkit.errors import NotEnoughRuns
from benchkit.experiment.bisect.candidates import Candidate
from benchkit.experiment.bisect.search import CONFIRMING, Block, Search
from benchkit.experiment.run.plan import read_plan
from benchkit.formatting import format_change
from benchkit.store.store import Store

__all__ = [
    "KEPT",
    "LEFT_OUT",
    "OUTCOME",
    "BisectionResult",
    "block_of",
    "read_bisection",
    "replay",
    "runs_of",
]

#: Name of the metric that selects the outcome of a run instead of a number.
OUTCOME = "outcome"
#: Outcomes that count as failures; `skipped` and `infrastructure` are ignored.
FAILURES = ("failed", "wrong_answer", "timeout", "lost_workers")
#: Data of a bisection other than runs: key of the plan's words, and file next to the plan.
KEPT, LEFT_OUT = "bisection", "left-out.json"
#: A step smaller than this share of the whole change (log scale) is reported as partial.
MOST = 0.7
#: Maximum characters of a note in a table; `BisectionResult.reasons` has the full text.
MOST_NOTE = 100


@dataclass(frozen=True, repr=False)
class BisectionResult:
    """Result of a finished or unfinished bisection.

    Attributes
    ----------
    id : str
        Id of the experiment.
    store : Store
        Store of the runs.
    workload, metric : str
        Measured variant, and the metric that changed.
    candidates : sequence of Candidate
        Builds to search, the good end first.
    search : Search
        Search with all measured blocks.
    runs : DataFrame
        Runs of the bisection.
    reasons : dict of str to str
        Name of a skipped build -> reason.
    """

    id: str
    store: Store
    workload: str
    metric: str
    candidates: Sequence[Candidate]
    search: Search
    runs: pd.DataFrame
    reasons: Mapping[str, str]

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
    def untold(self) -> list[Candidate]:
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
        """Return ratio, interval and verdict of the second build against the first, from all runs.

        Returns
        -------
        mapping or None
            A row of `benchkit.analysis.compare.comparison.Comparison.frame`; None for outcomes and
            for too few runs.
        """
        if self.metric == OUTCOME or self.runs.empty:
            return None
        sides = [self.runs[self.runs["arm"] == build.name] for build in (first, second)]
        n_shared = len(set(sides[0]["block"]) & set(sides[1]["block"]))
        try:
            report = compare(
                sides[0],
                {second.name: sides[1]},
                metrics=[self.metric],
                # One or two shared blocks are too few to estimate a spread.
                blocked=n_shared >= CONFIRMING,
            )
        except NotEnoughRuns:
            return None
        return report.frame.iloc[0].to_dict()

    def table(self) -> pd.DataFrame:
        """Return a row per build: title, verdict, probability of the change, runs.

        Returns
        -------
        DataFrame
            Columns ``build``, ``title``, ``verdict`` (good, first bad, bad, left out, or "" if
            unknown), ``chance``, ``runs``, ``failed``, ``ratio``, ``low``, ``high``
            (against the good end) and ``note``.
        """
        chances = self.search.chances if self.search.ends == "differ" else None
        counts = self.search.events
        rows = []
        for place, candidate in enumerate(self.candidates):
            n_runs = int((self.runs["arm"] == candidate.name).sum()) if len(self.runs) else 0
            change = self.change(self.candidates[0], candidate) if n_runs and place else None
            rows.append(
                {
                    "build": candidate.name,
                    "title": candidate.title,
                    "verdict": self._verdict(place),
                    "chance": math.nan if chances is None else float(chances[place]),
                    "runs": n_runs,
                    "failed": int(counts[place, 0]),
                    **{name: math.nan if change is None else float(change[name])
                       for name in ("ratio", "low", "high")},
                    "note": self.reasons.get(candidate.name, ""),
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def _verdict(self, place: int) -> str:
        if place in self.search.skipped:
            return "left out"
        if place == 0 or place == self.search.last:
            only = self.first is self.candidates[place] and self.status == "found"
            return "first bad" if only else ("bad" if place else "good")
        if self.search.ends != "differ":
            return ""
        if self.status == "found" and place == self.search.between[1]:
            return "first bad"
        after = self.search.side(place)
        level = self.search.confidence
        return "bad" if after >= level else "good" if 1 - after >= level else ""

    def packages(self) -> pd.DataFrame:
        """Return the packages that differ between the two builds, as recorded in their runs."""
        runs = []
        for build in (self.last_good, self.first):
            name = "" if build is None else build.name
            ids = self.runs.loc[self.runs["arm"] == name, "id"] if len(self.runs) else ()
            runs.append(self.store.load(ids[-1:]))
        found = differences(*runs)
        return found[found["kind"] == "package"].reset_index(drop=True)

    @property
    def compare_command(self) -> str:
        """Shell command that compares the runs of the two builds."""
        if self.first is None or self.last_good is None:
            return ""
        sides = [f"experiment:{self.id},arm:{b.name}" for b in (self.last_good, self.first)]
        metric = "" if self.metric in ("duration", OUTCOME) else f" --metric {self.metric}"
        return (
            f"benchkit compare --store {self.store.path} --baseline {sides[0]} "
            f"--contender {sides[1]}{metric}"
        )

    def sentences(self) -> list[str]:
        """Return the result as sentences, the answer first."""
        ends = f"{self.candidates[0].title} and {self.candidates[-1].title}"
        n_blocks = sum(block.builds == (0, self.search.last) for block in self.search.blocks)
        if self.first is None or self.last_good is None:
            change = self.change(self.candidates[0], self.candidates[-1])
            size = f": {_size(change)}" if change else ""
            what = {
                "same": f"{ends} are the same in {self.metric}",
                "undecided": f"{ends} cannot be told apart in {self.metric}",
                "open": f"it is not known yet whether {ends} differ in {self.metric}",
            }[self.status]
            return [f"{what}{size}, after {n_blocks} blocks"]
        lines = [self._answer()]
        step = self.change(self.last_good, self.first)
        whole = self.change(self.candidates[0], self.candidates[-1])
        if step is not None:
            lines.append(f"{self.metric}: {_size(step)} from {self.last_good.name}")
            if whole is not None and len(self.candidates) > 2:
                lines[-1] += f"; {_size(whole)} between the ends"
                lines += _partial(step, whole, self)
        if self.untold:
            names = ", ".join(build.name for build in self.untold)
            lines.append(f"it may as well have come with one that was left out: {names}")
        return lines

    def _answer(self) -> str:
        first, last = self.first, self.last_good
        assert first is not None
        assert last is not None
        sure = f"{100 * min(self.confidence, 0.999):.3g} % sure"
        if self.status == "found":
            return f"first bad: {first.title} ({sure}); last good: {last.title}"
        return f"not sure yet; most likely {first.title} ({sure}) after {last.title}"

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat dictionary per build, for other programs."""
        step: dict[str, Any] = {"step_ratio": None, "step_low": None, "step_high": None}
        first, last = self.first, self.last_good
        if first is not None and last is not None and (found := self.change(last, first)):
            step = {f"step_{name}": float(found[name]) for name in ("ratio", "low", "high")}
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

    def steps(self) -> pd.DataFrame:
        """Return the measured and skipped builds as formatted text with units.

        Returns
        -------
        DataFrame
            Texts, in columns ``build``, ``runs``, ``failed``, ``against good``,
            ``95 % interval``, ``verdict``, ``came with it`` and ``note``.
        """
        table = self.table()
        table = table[(table["runs"] > 0) | (table["verdict"] == "left out")]
        return pd.DataFrame([_step(row) for row in table.to_dict("records")])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.sentences())
        return lines + self.steps().to_html(index=False)


def _step(row: Mapping[str, Any]) -> dict[str, str]:
    known, interval = math.isfinite(row["ratio"]), math.isfinite(row["low"])
    note = " ".join(str(row["note"]).split())
    return {
        "build": row["title"],
        "runs": str(row["runs"]),
        "failed": str(row["failed"] or ""),
        "against good": format_change(row["ratio"]) if known else "",
        "95 % interval": f"{format_change(row['low'])} to {format_change(row['high'])}"
        if known and interval
        else "",
        "verdict": row["verdict"],
        "came with it": f"{100 * row['chance']:.1f} %" if math.isfinite(row["chance"]) else "",
        "note": note if len(note) <= MOST_NOTE else f"{note[: MOST_NOTE - 1]}…",
    }


def _size(row: Mapping[str, Any]) -> str:
    """Return a change as text, with its interval and numbers of runs."""
    text = format_change(row["ratio"])
    if math.isfinite(row["low"]) and math.isfinite(row["high"]):
        text += f" ({format_change(row['low'])} to {format_change(row['high'])})"
    return f"{text}, {int(row['n_baseline'])} + {int(row['n_contender'])} runs"


def _partial(
    step: Mapping[str, Any], whole: Mapping[str, Any], found: BisectionResult
) -> list[str]:
    """Return a sentence with the ranges left to search if the step is only part of the change."""
    parts = [row["ratio"] if row["ratio"] > 0 else math.nan for row in (step, whole)]
    ends = [row["high"] if whole["ratio"] > 1 else row["low"] for row in (step, whole)]
    if not all(value > 0 for value in (*parts, *ends)):
        return []
    if abs(math.log(ends[0])) >= MOST * abs(math.log(parts[1])):
        return []
    assert found.first is not None
    assert found.last_good is not None
    low, high = found.candidates[0].name, found.candidates[-1].name
    rest = []
    if found.last_good.name != low:
        rest.append(f"--good {low} --bad {found.last_good.name}")
    if found.first.name != high:
        rest.append(f"--good {found.first.name} --bad {high}")
    return [f"that is not all of it: there is more to find between {' or '.join(rest)}"]


def block_of(pair: tuple[int, int], records: Sequence[Mapping[str, Any]], metric: str) -> Block:
    """Return the block of two builds, from the records of their runs."""
    values = [_value(record, metric) for record in records]
    events = [_event(record, metric) for record in records]
    return Block(pair, (values[0], values[1]), (events[0], events[1]))


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
    """Return the runs of a bisection, after the end blocks reused from earlier bisections.

    Parameters
    ----------
    store : Store
        Store of the runs.
    experiment : str
        Id of the bisection.
    ends : sequence of pairs of str
        Run ids from `benchkit.experiment.bisect.reuse.earlier_ends`; they are the first blocks.
    """
    own = store.runs(experiment=experiment)
    if not ends:
        return own
    blocks = {run_id: place for place, pair in enumerate(ends) for run_id in pair}
    taken = store.runs(id=list(blocks))
    taken["block"] = taken["id"].map(blocks).astype("Int64")
    return pd.concat([taken, own], ignore_index=True) if len(own) else taken


def replay(
    search: Search, candidates: Sequence[Candidate], runs: pd.DataFrame, metric: str
) -> dict[str, str]:
    """Add stored blocks to a search; return the reasons of skipped builds by name."""
    places = {candidate.name: place for place, candidate in enumerate(candidates)}
    reasons: dict[str, str] = {}
    if runs.empty:
        return reasons
    for _, mine in runs.sort_values("order", kind="stable").groupby("block"):
        # Repeated after an infrastructure failure: use the last record.
        records = {places[record["arm"]]: record for record in mine.to_dict("records")}
        if len(records) == 2:
            low, high = sorted(records)
            search.saw(block_of((low, high), (records[low], records[high]), metric))
            for place in {low, high} & search.skipped:
                record = records[place]
                name = candidates[place].name
                reasons.setdefault(name, f"{record['outcome']}: {record['error'] or 'no value'}")
    return reasons


def read_bisection(store: Store | str | Path, experiment: str = "latest") -> BisectionResult:
    """Return the result of a bisection, finished or not.

    Parameters
    ----------
    store : Store or path
        Store of the plan and the runs.
    experiment : str
        Experiment id, the beginning of one, or "latest".

    Raises
    ------
    UsageError
        The store has no such bisection.

    Examples
    --------
    >>> read_bisection("./benchkit-store").table()  # doctest: +SKIP
    """
    home = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(home.path, experiment, having=KEPT)
    kept = plan["words"][KEPT]
    candidates = [Candidate(**entry) for entry in kept["candidates"]]
    search = Search(len(candidates), by_events=kept["metric"] == OUTCOME, **kept["search"])
    runs = runs_of(home, plan["id"], kept.get("ends", ()))
    reasons = replay(search, candidates, runs, kept["metric"])
    aside = Path(home.path) / "experiments" / plan["id"] / LEFT_OUT
    if aside.exists():
        reasons = {**json.loads(aside.read_text(encoding="utf-8")), **reasons}
    for place, candidate in enumerate(candidates):
        if candidate.name in reasons:
            search.skip(place)
    return BisectionResult(
        plan["id"], home, kept["workload"], kept["metric"], candidates, search, runs, reasons
    )
