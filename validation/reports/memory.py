"""Reports about memory and transfers: spilling, paused workers, results that are kept."""

import threading
import time
from typing import Any

import numpy as np
import psutil
from distributed import get_worker

from validation.reports.client import DISTRIBUTED
from validation.reports.table import pair

#: Workers whose memory holds a third of the array.
SMALL_WORKERS = {"memory_limit": "450 MiB"}


def simulate(number: int) -> np.ndarray:
    """Simulate, and return all steps."""
    return np.random.default_rng(number).random(2_000_000)


def simulate_and_reduce(number: int) -> float:
    """Simulate, and return what is needed of the steps."""
    return last_step(simulate(number))


def last_step(steps: np.ndarray) -> float:
    """Return the last step."""
    return float(steps[-1])


@pair(
    id="futures-keep-results",
    report=(f"{DISTRIBUTED}/issues/3092", f"{DISTRIBUTED}/issues/1799"),
    cause="spill",
    advice="Return only what is needed, or release futures as they finish: futures keep results.",
    wrong=("more threads", "larger tasks", "restart the workers"),
    also=("paused", "disk", "transfer"),
    speedup=1.4,
    cluster=SMALL_WORKERS,
)
class FuturesKeepResults:
    @staticmethod
    def sick(client: Any) -> float:
        futures = client.map(simulate, range(64))
        return round(sum(client.gather(client.map(last_step, futures))), 6)

    @staticmethod
    def mended(client: Any) -> float:
        return round(sum(client.gather(client.map(simulate_and_reduce, range(64)))), 6)


#: Arrays that a process keeps, and what fills them once.
_cache: list[np.ndarray] = []
_once = threading.Semaphore(1)


def fill_cache(number: int) -> int:
    """Keep input data in a cache of the process, up to 88 % of the limit and for 5 s."""
    if _once.acquire(blocking=False):
        limit = get_worker().memory_manager.memory_limit or 0
        missing = 0.88 * limit - psutil.Process().memory_info().rss
        _cache.append(np.ones(int(missing / 8)))
        threading.Timer(5.0, _cache.clear).start()
    time.sleep(0.2)
    return number


def use_file(number: int) -> int:
    """Read only the part of the input that is needed, and keep nothing."""
    time.sleep(0.2)
    return number


@pair(
    id="cache-pauses-workers",
    report=(f"{DISTRIBUTED}/issues/7742", "https://github.com/TimeEval/TimeEval/issues/58"),
    cause="paused",
    advice="Make the cache smaller, or give the workers more memory: above 80 % they pause.",
    wrong=("more threads", "larger chunks", "more tasks at once"),
    also=("spill",),
    speedup=1.5,
    sleeping=True,
    cluster={"memory_limit": "800 MiB"},
)
class CachePausesWorkers:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(fill_cache, range(32))))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(use_file, range(32))))


def frame_of(number: int) -> np.ndarray:
    """Return 24 MB."""
    return np.full((1500, 2000), float(number))


def total(data: np.ndarray) -> float:
    """Return the sum."""
    return float(data.sum())


def total_of_all(arrays: list[np.ndarray]) -> float:
    """Return the sum of many arrays."""
    return sum(map(total, arrays))


@pair(
    id="all-data-to-one-task",
    report=(f"{DISTRIBUTED}/issues/32", f"{DISTRIBUTED}/issues/5611"),
    cause="transfer",
    advice="Reduce each part where it is, then combine the small results.",
    wrong=("more workers", "larger chunks", "a faster network only"),
    also=("gather", "few tasks"),
    speedup=1.3,
)
class AllDataToOneTask:
    @staticmethod
    def sick(client: Any) -> float:
        return client.submit(total_of_all, client.map(frame_of, range(40))).result()

    @staticmethod
    def mended(client: Any) -> float:
        totals = client.map(total, client.map(frame_of, range(40)))
        return client.submit(sum, totals).result()
