"""Run a bisection as an experiment: build on demand, measure blocks of two, keep all runs.

Each block measures two builds back to back in reused kernels, so that a slow minute affects both.
All runs belong to one experiment in the store. Its plan grows during the search; when resumed, it
reads its runs and continues. `benchkit.experiment.bisect.search` chooses the next builds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchkit.errors import BenchkitError, BisectionEndError
from benchkit.experiment.bisect.replay import OUTCOME, SKIPPED_FILE, block_of, replay, runs_of
from benchkit.experiment.bisect.result import BisectionResult
from benchkit.experiment.bisect.search import Search
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.builds import Candidate, CandidateEnvironments
from benchkit.experiment.run.events import Event, Finished
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import Arm, Measurement, block_order
from benchkit.measure.deadline import DEFAULT_DEADLINE_S


@dataclass
class Bisection:
    """Measure pairs of builds until the build that changed a metric is found."""

    experiment: Experiment  # Experiment with one variant, no arms and no repeats
    builds: CandidateEnvironments  # Environments of the arms
    search: Search  # Search that chooses the pairs
    metric: str = "duration"  # Metric that changed, or "outcome"
    # Run ids of the two ends from earlier bisections; these runs are reused.
    ends: Sequence[Sequence[str]] = ()
    # Name of a skipped build -> reason.
    reasons: dict[str, str] = field(default_factory=dict, init=False)
    out_of_budget: bool = field(default=False, init=False)  # Whether the budget ended the bisection

    def __post_init__(self) -> None:
        self._records: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._built: set[int] = set()
        self._n_blocks = self._n_runs = 0
        if not self.ends and not self.experiment.is_stored:
            return
        runs = runs_of(self.experiment.store, self.experiment.id, self.ends)
        if len(runs):
            self.reasons |= replay(self.search, self.candidates, runs, self.metric)
            self._n_blocks = int(runs["block"].max()) + 1
            self._n_runs = int(runs["order"].max()) + 1

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The builds to search, in order."""
        return self.builds.candidates

    def run(
        self, report: Callable[[str], None] = lambda line: None, *, budget_s: float | None = None
    ) -> Iterator[Event]:
        """Measure until the search ends, and yield the events of the experiment."""
        if self.search.next_pair() is None:
            return
        began = time.monotonic()
        for position in (0, self.search.last) if self.search.ends == "open" else ():
            self._build(position, report)
        plan = self._measurements(began, budget_s, report)
        for event in self.experiment.run(plan):
            if isinstance(event, Finished):
                self._records[event.record["block"], event.record["arm"]] = event.record
            yield event

    def result(self) -> BisectionResult:
        """Return the result so far."""
        (variant,) = self.experiment.variants
        store, id_ = self.experiment.store, self.experiment.id
        return BisectionResult(
            id_,
            store,
            variant.name,
            self.metric,
            self.candidates,
            self.search,
            runs_of(store, id_, self.ends),
            self.reasons,
        )

    def _measurements(
        self, began: float, budget_s: float | None, report: Callable[[str], None]
    ) -> Iterator[Measurement]:
        """Yield measurements; choose each pair from all results so far."""
        n_blocks, reported_pair = 0, None
        while (pair := self.search.next_pair()) is not None:
            spent = time.monotonic() - began
            if budget_s is not None and n_blocks and spent * (1 + 1 / n_blocks) > budget_s:
                self.out_of_budget = True
                return
            if not all([self._build(position, report) for position in pair]):
                continue
            names = [self.candidates[position].name for position in pair]
            if pair != reported_pair:
                report(self._describe_pair(pair))
                self.experiment.retire(self.candidates[0].name, *names)
                reported_pair = pair
            block, self._n_blocks, n_blocks = self._n_blocks, self._n_blocks + 1, n_blocks + 1
            self.experiment.draw = self.search.draw
            # Numbered by pair: a pair of every second block would always have the same order.
            n_before = sum(earlier.builds == pair for earlier in self.search.blocks)
            for name in block_order(names, n_before):
                yield self._measurement(block, name)
            self._add_block(pair, block, report)
            report(self._describe_result(pair))

    def _measurement(self, block: int, name: str) -> Measurement:
        (variant,) = self.experiment.variants
        deadline_s = self.experiment.deadline_s or variant.workload.deadline_s or DEFAULT_DEADLINE_S
        order, self._n_runs = self._n_runs, self._n_runs + 1
        return Measurement(order, block, variant.name, name, deadline_s)

    def _build(self, position: int, report: Callable[[str], None]) -> bool:
        """Build a candidate once; skip it if the build fails, raise if it is an end."""
        if position in self._built:
            return True
        candidate = self.candidates[position]
        try:
            environment = self.builds.environment(position)
            build(environment, report=report)
        except BenchkitError as error:
            if position in (0, self.search.last):
                raise
            self._skip(position, str(error), report)
            return False
        arms = [arm for arm in self.experiment.arms if arm.name != candidate.name]
        self.experiment.arms = [*arms, Arm(candidate.name, environment)]
        self._built.add(position)
        return True

    def _skip(self, position: int, reason: str, report: Callable[[str], None]) -> None:
        self.search.skip(position)
        self.reasons[self.candidates[position].name] = reason
        report(f"{self.candidates[position].title}: skipped: {reason}")
        # The store has measured runs only, so the reasons are written to a file.
        name = f"experiments/{self.experiment.id}/{SKIPPED_FILE}"
        self.experiment.store.files.replace(name, json.dumps(self.reasons, indent=1).encode())

    def _add_block(self, pair: tuple[int, int], block: int, report: Callable[[str], None]) -> None:
        """Add a block to the search; skip a build without a usable result, or raise for an end."""
        records = [self._records[block, self.candidates[position].name] for position in pair]
        skipped_before = set(self.search.skipped)
        self.search.add(block_of(pair, records, self.metric))
        for position, record in zip(pair, records, strict=True):
            reason = f"{record['outcome']}: {record.get('error') or f'no {self.metric}'}"
            if position in self.search.skipped - skipped_before:
                self._skip(position, reason, report)
            elif position in (0, self.search.last) and self.search.is_unusable(position):
                end = "good" if position == 0 else "bad"
                hint = "" if self.metric == OUTCOME else "; --metric outcome searches for failures"
                raise BisectionEndError(
                    f"the {end} end, {self.candidates[position].title}, cannot be measured: "
                    f"{reason}{hint}"
                )

    def _describe_pair(self, pair: tuple[int, int]) -> str:
        low, high = (self.candidates[position].name for position in pair)
        if pair == (0, self.search.last) and self.search.ends == "open":
            return f"the two ends, {low} and {high}, until they differ"
        if self.search.chance >= self.search.confidence:
            return f"the last two builds, {low} and {high}, as a pair"
        n_left = int((self.search.chances > 0.001).sum())
        return f"{high} against {low}: {n_left} of {self.search.last} builds remain"

    def _describe_result(self, pair: tuple[int, int]) -> str:
        if pair == (0, self.search.last):
            return f"  the ends {_END_TEXTS[self.search.ends]}"
        name = self.candidates[pair[1]].name
        if pair[1] in self.search.skipped:
            return f"  {name} has no usable result"
        p_bad = self.search.side(pair[1])
        end, probability = ("bad", p_bad) if p_bad > 0.5 else ("good", 1 - p_bad)
        return f"  {name} is like the {end} end, probability {100 * probability:.1f} %"


_END_TEXTS = {
    "open": "do not differ significantly yet",
    "differ": "differ",
    "same": "are the same",
    "undecided": "cannot be distinguished",
}
