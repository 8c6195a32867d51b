"""When to stop measuring: a budget of time or money, and workloads whose verdict is settled.

Asked before each measurement whether it is still worth it. Blocks are whole or not begun: half a
block would leave a run that nothing can be held against.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchkit.analysis.stats.stopping import LOOKS, next_step
from benchkit.errors import UsageError
from benchkit.experiment.run.estimate import Estimate
from benchkit.experiment.run.plan import NULL_ARM, Measurement

__all__ = ["LOOKS", "StopPolicy", "blocks_within", "parse_budget"]

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
#: Fewer blocks than this are no comparison.
FEWEST_BLOCKS = 2


def parse_budget(text: str) -> tuple[float | None, float | None]:
    """Return a budget as seconds or as USD: ``20m``, ``90s``, ``1h30m``, ``5USD``, ``$2.50``.

    Returns
    -------
    tuple of float or None
        Seconds and USD; one of them is None.

    Raises
    ------
    UsageError
        It is neither.
    """
    money = re.fullmatch(r"\$\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:USD|\$)", text.strip())
    if money:
        return None, float(money[1] or money[2])
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smh])", text.strip())
    if not parts or "".join(a + b for a, b in parts) != re.sub(r"\s", "", text):
        raise UsageError(f"--budget {text!r}: must be a time such as 90s, 20m or 1h30m, or 5USD")
    return sum(float(number) * _UNITS[unit] for number, unit in parts), None


def blocks_within(budget_s: float, block_s: float) -> int:
    """Return how many blocks fit into a budget; two at least, because one tells nothing."""
    return max(FEWEST_BLOCKS, int(budget_s // block_s))


class StopPolicy:
    """Says which measurements are still worth it.

    Parameters
    ----------
    arms : sequence of str
        Names of the arms, the baseline first.
    variants : sequence of str
        Names of the variants.
    estimate : Estimate
        What knows how long one takes.
    budget_s : float, optional
        Seconds after which no block is begun that would not fit.
    budget_usd : float, optional
        The same in money, by what runs cost so far.
    adaptive : bool, default False
        Stop a workload when its verdict is settled, at the looks of `LOOKS`.

    Attributes
    ----------
    n_saved : int
        Runs that were not needed, because the verdict was settled.
    n_over : int
        Runs that the budget left no time for.
    """

    def __init__(
        self,
        arms: Sequence[str],
        variants: Sequence[str],
        estimate: Estimate,
        *,
        budget_s: float | None = None,
        budget_usd: float | None = None,
        adaptive: bool = False,
    ) -> None:
        self.arms, self.variants = list(arms), list(variants)
        self.estimate, self.budget_s, self.adaptive = estimate, budget_s, adaptive
        self.budget_usd = budget_usd
        self.n_saved = self.n_over = 0
        self._costs: list[float] = []
        self._began = time.monotonic()
        self._settled: set[str] = set()
        self._looked: set[int] = set()
        self._begun: set[tuple[int, str]] = set()
        self._durations: dict[tuple[str, str], dict[int, float]] = {}

    def saw(self, record: dict[str, Any]) -> None:
        """Take note of a run."""
        if record.get("cost") is not None and np.isfinite(record["cost"]):
            self._costs.append(float(record["cost"]))
        if record["outcome"] == "ok":
            series = self._durations.setdefault((record["arm"], record["workload"]), {})
            series[int(record["block"])] = float(record["duration"])

    def skip(self, measurement: Measurement) -> bool:
        """Return whether a measurement is not worth it any more."""
        if self.adaptive and measurement.block in LOOKS and measurement.block not in self._looked:
            self._looked.add(measurement.block)
            self._look(measurement.block)
        if measurement.variant in self._settled:
            self.n_saved += 1
            return True
        place = measurement.block, measurement.variant
        if place not in self._begun and not self._fits(measurement):
            self.n_over += 1
            return True
        self._begun.add(place)
        return False

    def _fits(self, measurement: Measurement) -> bool:
        if measurement.block < FEWEST_BLOCKS:
            return True
        if self.budget_usd is not None:
            ahead = len(self.arms) * float(np.mean(self._costs or [0.0]))
            return sum(self._costs) + ahead <= self.budget_usd
        if self.budget_s is None:
            return True
        ahead = len(self.arms) * self.estimate.run_seconds(measurement.variant)
        return time.monotonic() - self._began + ahead <= self.budget_s

    def _look(self, n_blocks: int) -> None:
        """Settle the workloads whose verdict against every contender is found."""
        contenders = [arm for arm in self.arms[1:] if arm != NULL_ARM]
        null = self._matrix(NULL_ARM, n_blocks) if NULL_ARM in self.arms else None
        baseline = self._matrix(self.arms[0], n_blocks)
        found = np.ones(len(self.variants), bool)
        for arm in contenders or [NULL_ARM]:
            steps = next_step(
                baseline,
                self._matrix(arm, n_blocks),
                null=null if contenders else None,
                blocked=True,
            )
            found &= steps != 0
        self._settled |= {
            name for name, is_found in zip(self.variants, found, strict=True) if is_found
        }

    def _matrix(self, arm: str, n_blocks: int) -> np.ndarray:
        """Durations of an arm, shape (variants, blocks); NaN where there is none."""
        values = np.full((len(self.variants), n_blocks), np.nan)
        for row, variant in enumerate(self.variants):
            for block, duration in self._durations.get((arm, variant), {}).items():
                if block < n_blocks:
                    values[row, block] = duration
        return values
