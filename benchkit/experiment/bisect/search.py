"""Choose the next two builds to compare, until the step of a metric is located.

Takes measured blocks and returns the next pair of builds, as positions in an ordered sequence.
`benchkit.experiment.bisect.session` builds and measures them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.design import LOOKS, equivalence_test, next_step
from benchkit.analysis.effects import compare
from benchkit.analysis.stats.step_posterior import chances_of_place, weight_of_events

Array = NDArray[np.float64]

#: Probability of being before or after the change at which a build needs no more blocks.
DECIDED_PROBABILITY = 0.99
#: Minimum blocks of a build: a single slow run is not a change.
MIN_BLOCKS = 2
#: Minimum blocks of the final two builds as a pair.
MIN_FINAL_BLOCKS = 3
#: Bayes factor at which the event counts of the ends differ.
STRONG_EVIDENCE = 20.0
#: Blocks after which the ends are the same if the bad end has no higher share of events.
MAX_EVENT_BLOCKS = 5
#: Builds of the same code differ by this share: ends that differ by less are the same.
NEGLIGIBLE_CHANGE = 0.01
#: Number of blocks without a usable result after which a build is skipped.
MAX_UNUSABLE_BLOCKS = 2


@dataclass(frozen=True)
class Block:
    """Two builds, measured back to back."""

    builds: tuple[int, int]  # Positions of the builds, the earlier first
    # Metric of each build; NaN if its run has no value.
    values: tuple[float, float] = (math.nan, math.nan)
    # Whether each run had the event that is searched for (timeout, failure); None if unknown.
    events: tuple[bool | None, bool | None] = (False, False)
    number: int = 0


@dataclass
class Search:
    """A bisection that recovers from a wrong step.

    First measure the two ends until they differ; then the build that halves the remaining
    probability, paired with the good end; finally the two remaining builds as a pair.
    """

    n_builds: int  # Number of builds, ends included
    confidence: float = 0.95  # Required probability of the answer
    fewest: int = MIN_BLOCKS  # Minimum number of blocks of a build before the next build is chosen
    max_repeats: int = LOOKS[-1]  # Maximum number of blocks of one pair
    # Ends without a significant difference are the same if they differ by less than this share; so
    # are ends whose difference is significant, but below 1 %.
    same: float = 0.05
    by_events: bool = False  # Search for failures instead of slow runs
    # Runs of equal builds have equal events, as simulations of one draw do: a block decides.
    exact: bool = False
    blocks: list[Block] = field(default_factory=list, init=False)  # Measured blocks
    skipped: set[int] = field(default_factory=set, init=False)  # Builds that cannot be measured
    _cached_chances: tuple[int, Array] = field(default=(-1, np.zeros(0)), init=False, repr=False)

    @property
    def last(self) -> int:
        """Position of the bad end."""
        return self.n_builds - 1

    def add(self, block: Block) -> None:
        """Add a block; skip a build without a usable result in two blocks."""
        self.blocks.append(block)
        for build in block.builds:
            if 0 < build < self.last and self.n_unusable(build) >= MAX_UNUSABLE_BLOCKS:
                self.skipped.add(build)

    def skip(self, build: int) -> None:
        """Exclude a build from the search."""
        self.skipped.add(build)

    def next_pair(self) -> tuple[int, int] | None:
        """Return the two builds to measure next."""
        ends = (0, self.last)
        verdict = self.ends
        if verdict != "differ":
            return ends if verdict == "open" else None
        low, high = self.between
        if self.chance >= self.confidence:
            needed = min(max(MIN_FINAL_BLOCKS, self.fewest), self.max_repeats)
            needed = 0 if self.exact else needed
            return (low, high) if self._n(low, high) < needed else None
        build = self._next_build()
        return None if build is None else (0, build)

    @property
    def ends(self) -> str:
        """State of the comparison of the ends: ``open``, ``differ``, ``same`` or ``undecided``."""
        n_blocks = self._n(0, self.last)
        if self._events_differ():
            return "differ"
        looks = (*(look for look in LOOKS if look < self.max_repeats), self.max_repeats)
        if self.by_events:
            good, bad = self.events[[0, self.last]]
            if n_blocks >= MAX_EVENT_BLOCKS and bad[0] * good.sum() <= good[0] * bad.sum():
                return "same"
            return "undecided" if n_blocks >= looks[-1] else "open"
        reached = [look for look in looks if look <= n_blocks]
        if not reached:
            return "open"
        values = [block.values for block in self.blocks if block.builds == (0, self.last)]
        good, bad = np.array(values[: reached[-1]], float).T
        # A user who bisects expects a difference: do not stop early as undecided (hope=0).
        step = abs(int(next_step([good], [bad], same=self.same, looks=looks, hope=0.0)[0]))
        if step == 1 and equivalence_test(compare([good], [bad]), NEGLIGIBLE_CHANGE)[0]:
            return "same"
        return ("open", "differ", "same", "undecided")[step]

    @property
    def found(self) -> bool:
        """Whether the search has ended with an answer."""
        return self.ends == "differ" and self.chance >= self.confidence and self.next_pair() is None

    @property
    def size(self) -> float:
        """Size of the change between the ends, see `differences`; NaN if unknown."""
        changes = self.differences(0, self.last)
        return float(np.median(changes)) if len(changes) and not self.by_events else math.nan

    @property
    def chances(self) -> Array:
        """Probability of each build to be the first after the change, shape (n_builds,)."""
        if self.exact:
            return self._exact_chances()
        if self._cached_chances[0] != len(self.blocks):
            counts = self.events
            chances = chances_of_place(
                self.n_builds,
                {block.builds: self.differences(*block.builds) for block in self.blocks},
                # Without any timeout, the event counts contain no information.
                counts if self.by_events or counts[:, 0].any() else None,
                size=self.size,
            )
            self._cached_chances = (len(self.blocks), chances)
        return self._cached_chances[1]

    def _exact_chances(self) -> Array:
        """Return equal probabilities from the last build without an event to the first with one."""
        with_event, without = (np.flatnonzero(counts) for counts in self.events.T)
        first = int(with_event.min(initial=self.last))
        before = int(without[without < first].max(initial=0))
        places = np.arange(self.n_builds)
        found: Array = np.where((places > before) & (places <= first), 1 / (first - before), 0.0)
        return found

    @property
    def draw(self) -> int | None:
        """Number of the first block in which the ends differ; None: none, or any will do."""
        numbers = (
            block.number
            for block in self.blocks
            if block.builds == (0, self.last) and block.events[1]
        )
        return next(numbers, None) if self.exact else None

    @property
    def between(self) -> tuple[int, int]:
        """Measurable builds directly before and after the most likely position of the change."""
        edges = self._testable
        chances = self.chances
        shares = [chances[a + 1 : b + 1].sum() for a, b in pairwise(edges)]
        best = int(np.argmax(shares))
        return edges[best], edges[best + 1]

    @property
    def chance(self) -> float:
        """Probability that the change lies between the two builds of `between`."""
        low, high = self.between
        return float(self.chances[low + 1 : high + 1].sum())

    @property
    def events(self) -> NDArray[np.int64]:
        """Number of runs of each build with and without the event, shape (n_builds, 2)."""
        counts = np.zeros((self.n_builds, 2), np.int64)
        for block in self.blocks:
            for build, event in zip(block.builds, block.events, strict=True):
                if event is not None:
                    counts[build, 0 if event else 1] += 1
        return counts

    def differences(self, first: int, second: int) -> Array:
        """Return the differences of a pair of builds, one per block."""
        # returned: (n_blocks,), differences of logarithms if all values are positive; otherwise (a
        # metric can be zero, for example bytes on disk) differences divided by the largest absolute
        # value.
        values = np.array([b.values for b in self.blocks if b.builds == (first, second)], float)
        values = values.reshape(-1, 2)
        values = values[np.isfinite(values).all(axis=1)]
        all_values = np.array([v for b in self.blocks for v in b.values], float)
        if (all_values[np.isfinite(all_values)] > 0).all():
            return np.diff(np.log(values), axis=1).ravel()
        scale = np.nanmax(np.abs(all_values))
        return np.diff(values, axis=1).ravel() / (scale or 1.0)

    def side(self, build: int) -> float:
        """Return the probability that a build lies after the change."""
        return float(self.chances[: build + 1].sum())

    def n_unusable(self, build: int) -> int:
        """Return the number of blocks in which a build has no usable result."""
        return sum(
            event is None or not (event or self.by_events or math.isfinite(value))
            for block in self.blocks
            for position, value, event in zip(block.builds, block.values, block.events, strict=True)
            if position == build
        )

    def is_unusable(self, build: int) -> bool:
        """Return whether a build has at least two blocks and no usable result in any of them."""
        n_blocks = sum(build in block.builds for block in self.blocks)
        return n_blocks >= MAX_UNUSABLE_BLOCKS and self.n_unusable(build) == n_blocks

    @property
    def _testable(self) -> Sequence[int]:
        return [build for build in range(self.n_builds) if build not in self.skipped]

    def _n(self, first: int, second: int) -> int:
        return sum(block.builds == (first, second) for block in self.blocks)

    def _has_room(self, first: int, second: int) -> bool:
        return self._n(first, second) < self.max_repeats

    def _events_differ(self) -> bool:
        good, bad = self.events[[0, self.last]]
        if self.exact:
            return bool(bad[0])
        return bad[0] >= MIN_BLOCKS and weight_of_events(good, bad) >= STRONG_EVIDENCE

    def _next_build(self) -> int | None:
        """Return the build that halves the probability; complete a started build first."""
        p_bad = np.cumsum(self.chances)
        inside = [build for build in self._testable[1:-1] if self._has_room(0, build)]
        if not inside:
            return None
        latest = self.blocks[-1].builds[1]
        if latest in inside and self.blocks[-1].builds[0] == 0:
            decided = abs(p_bad[latest] - 0.5) >= DECIDED_PROBABILITY - 0.5
            if not decided or self._n(0, latest) < (1 if self.exact else self.fewest):
                return latest
        return min(inside, key=lambda build: abs(p_bad[build] - 0.5))
