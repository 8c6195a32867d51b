"""Cause many faults one after the other and print what they lose: used by ``faults.py store``."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["inject_all"]


def inject_all(
    opened: Callable[[int], AbstractContextManager[Any]],
    numbers: range,
    seed: int,
) -> int:
    """Print the results of injections; return the number of those with problems."""
    with opened(seed) as harness:
        text = f"injections {numbers.start} to {numbers.stop - 1}"
        print(f"{len(harness.cases)} cases, seed {seed}, {text}", flush=True)
        start, cpu_start = time.perf_counter(), _cpu_s()
        outcomes, wrong = Counter[tuple[str, str]](), 0
        for number in numbers:
            done = harness.inject(number)
            outcomes[done.case.fault, done.outcome] += 1
            if done.problems or len(numbers) == 1:
                wrong += bool(done.problems)
                print(done)
                print("".join(f"    {text}\n" for text in done.problems), end="", flush=True)
        wall, cpu = time.perf_counter() - start, _cpu_s() - cpu_start
    kinds = ("confirmed", "refused", "killed", "crashed", "hangs", "not reached")
    print(f"\n{'fault':<26}" + "".join(f"{kind:>12}" for kind in kinds))
    for fault in harness.faults:
        print(f"{fault:<26}" + "".join(f"{outcomes[fault, kind]:>12}" for kind in kinds))
    each = f"{wall / len(numbers) * 1e3:.0f} ms each ({cpu / len(numbers) * 1e3:.0f} ms of CPU)"
    print(f"\n{len(numbers)} injections, {wrong} with problems, {each}")
    return wrong


def _cpu_s() -> float:
    return sum(os.times()[:4])
