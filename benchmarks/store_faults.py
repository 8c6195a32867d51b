"""Print what faults of the operations of a store lose: ``python benchmarks/store_faults.py``.

Options: ``[--times N] [--seed S] [--first NUMBER] [--damage N] [--bucket] [--stop]``. Causes faults
at steps of operations of a store, or with ``--bucket`` in requests to an emulated S3 server, and
damages run files. Ends with exit code 1 if something is lost or not reported.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from validation.store_faults.damage import count_found
from validation.store_faults.harness import folder_harness


def inject_all(
    opened: Callable[[int], AbstractContextManager[Any]],
    numbers: range,
    seed: int,
    *,
    stop: bool,
) -> int:
    """Print the results of injections, perhaps up to a problem; return the number of those."""
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
            if stop and wrong:
                break
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


def damage_all(times: int, seed: int) -> int:
    """Print how many damaged files are found; return the number of those that are not."""
    heads = ("files", "check names it", "open refuses it")
    print(f"\n{'damage of a run file':<22}" + "".join(f"{head:>17}" for head in heads))
    n_wrong = 0
    for kind, n_named, n_refused in count_found(times, seed):
        print(f"{kind:<22}{times:>17}{n_named:>17}{n_refused:>17}", flush=True)
        n_wrong += 2 * times - n_named - n_refused
    return n_wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10_000, help="number of injections")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first injection")
    parser.add_argument("--bucket", action="store_true", help="a store on an emulated S3 server")
    parser.add_argument("--damage", type=int, default=1000, help="damaged files of each kind")
    parser.add_argument("--stop", action="store_true", help="end at the first problem")
    given = parser.parse_args()
    if given.bucket:
        from validation.store_faults.bucket import bucket_harness as opened
    else:
        opened = folder_harness
    numbers = range(given.first, given.first + given.times)
    n_wrong = inject_all(opened, numbers, given.seed, stop=given.stop)
    if given.damage and not given.bucket:
        n_wrong += damage_all(given.damage, given.seed)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
