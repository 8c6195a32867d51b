"""Stop rules of an experiment: a budget of time or money, and workloads with a decided verdict.

The policy decides before each measurement. It skips whole blocks only: a run without the other
arms of its block cannot be compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchkit.analysis.design import LOOKS, next_step
from benchkit.errors import UsageError
from benchkit.experiment.run.estimate import Estimate
from benchkit.experiment.run.plan import NULL_ARM, Measurement

#: Seconds of a unit of time.
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
#: Blocks that a comparison needs at least; the budget never skips them.
MIN_BLOCKS = 2


def parse_budget(text: str) -> tuple[float | None, float | None]:
    """Return a budget as seconds or as USD: ``20m``, ``90s``, ``1h30m``, ``5USD``, ``$2.50``."""
    money = re.fullmatch(r"\$\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:USD|\$)", text.strip())
    if money:
        return None, float(money[1] or money[2])
    parts = re.findall(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(min|[smh])", text.strip())
    if not parts or "".join(a + b for a, b in parts) != re.sub(r"\s", "", text):
        raise UsageError(f"--budget {text!r}: must be a time such as 90s, 20m or 1h30m, or 5USD")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts), None


def blocks_within(budget_s: float, block_s: float) -> int:
    """Return the number of blocks that fit into a budget, `MIN_BLOCKS` at least."""
    return max(MIN_BLOCKS, int(budget_s // block_s))


class StopPolicy:
    """Decide which measurements are skipped."""

    def __init__(
        self,
        arms: Sequence[str],
        variants: Sequence[str],
        estimate: Estimate,
        *,
        budget_s: float | None = None,
        budget_usd: float | None = None,
        adaptive: bool = False,
        min_blocks: int = MIN_BLOCKS,
    ) -> None:
        self.arms, self.variants = list(arms), list(variants)
        self.estimate, self.adaptive, self.min_blocks = estimate, adaptive, min_blocks
        self.budget_s, self.budget_usd = budget_s, budget_usd
        self.n_settled = self.n_over_budget = 0
        self._costs: list[float] = []
        self._started = time.monotonic()
        self._settled: set[str] = set()
        self._evaluated_blocks: set[int] = set()
        self._started_blocks: set[tuple[int, str]] = set()
        self._durations: dict[tuple[str, str], dict[int, float]] = {}

    def record(self, record: dict[str, Any]) -> None:
        """Add cost and duration of a run."""
        if record.get("cost") is not None and np.isfinite(record["cost"]):
            self._costs.append(float(record["cost"]))
        if record["outcome"] == "ok":
            series = self._durations.setdefault((record["arm"], record["workload"]), {})
            series[int(record["block"])] = float(record["duration"])

    def should_skip(self, measurement: Measurement) -> str:
        """Decide whether to skip a measurement, and count it if so."""
        is_look = self.adaptive and measurement.block in LOOKS
        if is_look and measurement.block not in self._evaluated_blocks:
            self._evaluated_blocks.add(measurement.block)
            self._settle(measurement.block)
        if measurement.variant in self._settled:
            self.n_settled += 1
            return "settled"
        block = measurement.block, measurement.variant
        if block not in self._started_blocks and not self._fits(measurement):
            self.n_over_budget += 1
            return "budget"
        self._started_blocks.add(block)
        return ""

    def _fits(self, measurement: Measurement) -> bool:
        if measurement.block < self.min_blocks:
            return True
        if self.budget_usd is not None:
            expected = len(self.arms) * float(np.mean(self._costs or [0.0]))
            return sum(self._costs) + expected <= self.budget_usd
        if self.budget_s is None:
            return True
        expected = len(self.arms) * self.estimate.run_seconds(measurement.variant)
        return time.monotonic() - self._started + expected <= self.budget_s

    def _settle(self, n_blocks: int) -> None:
        """Settle the variants whose verdict is decided against every contender."""
        contenders = [arm for arm in self.arms[1:] if arm != NULL_ARM]
        null = self._matrix(NULL_ARM, n_blocks) if NULL_ARM in self.arms else None
        baseline = self._matrix(self.arms[0], n_blocks)
        decided = np.ones(len(self.variants), bool)
        for arm in contenders or [NULL_ARM]:
            contender = self._matrix(arm, n_blocks)
            steps = next_step(baseline, contender, null=null if contenders else None)
            decided &= steps != 0
        self._settled |= {
            name for name, is_decided in zip(self.variants, decided, strict=True) if is_decided
        }

    def _matrix(self, arm: str, n_blocks: int) -> np.ndarray:
        """Return the durations of an arm, shape (variants, blocks); NaN for missing runs."""
        values = np.full((len(self.variants), n_blocks), np.nan)
        for row, variant in enumerate(self.variants):
            for block, duration in self._durations.get((arm, variant), {}).items():
                if block < n_blocks:
                    values[row, block] = duration
        return values
