"""Reports about where and whether tasks may run: restrictions, locks, threads, workers."""

import ctypes
import time
from typing import Any

import numpy as np
from distributed import Lock, Semaphore

from validation.reports.client import DASK, DISTRIBUTED, nap
from validation.reports.table import pair


@pair(
    id="pinned-to-one-worker",
    report=(f"{DISTRIBUTED}/issues/1389", f"{DASK}/issues/6884"),
    cause="restricted",
    advice="Remove workers= (or name all workers that can do it): the other worker is idle.",
    wrong=("more workers", "more threads for all", "larger chunks", "fewer workers"),
    also=("imbalance",),
    sleeping=True,
)
class PinnedToOneWorker:
    @staticmethod
    def sick(client: Any) -> int:
        worker = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
        return sum(client.gather(client.map(nap, range(32), [0.2] * 32, workers=[worker])))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(nap, range(32), [0.2] * 32)))


@pair(
    id="one-resource-for-each-task",
    report=(f"{DASK}/issues/3264", "https://github.com/dask/dask-jobqueue/issues/230"),
    cause="restricted",
    advice="Claim the resource only in tasks that need it, or give workers more of it.",
    wrong=("more threads", "larger chunks", "smaller tasks"),
    sleeping=True,
    cluster={"resources": {"slot": 1}},
)
class OneResourceForEachTask:
    @staticmethod
    def sick(client: Any) -> int:
        futures = client.map(nap, range(28), [0.2] * 28, resources={"slot": 1})
        return sum(client.gather(futures))

    @staticmethod
    def mended(client: Any) -> int:
        needy = client.map(nap, range(4), [0.2] * 4, resources={"slot": 1})
        free = client.map(nap, range(4, 28), [0.2] * 24)
        return sum(client.gather(needy + free))


def convert_in_lock(number: int) -> int:
    """Compute and write while a lock of the file is held."""
    with Lock("file"):
        nap(number, 0.18)
        return nap(number, 0.02)


def convert(number: int) -> int:
    """Compute first, and hold the lock for the write only."""
    nap(number, 0.18)
    with Lock("file"):
        return nap(number, 0.02)


@pair(
    id="work-inside-of-a-lock",
    report=("https://github.com/pydata/xarray/issues/2190", f"{DASK}/issues/1892"),
    cause="lock",
    advice="Hold the lock for the write only, or write one file per task.",
    wrong=("more workers", "more threads", "smaller chunks"),
    speedup=1.7,
    sleeping=True,
)
class WorkInsideOfALock:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(convert_in_lock, range(24))))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(convert, range(24))))


def query_with_permit(number: int) -> int:
    """Query a database that allows one connection."""
    with Semaphore(max_leases=1, name="database"):
        return nap(number, 0.25)


def query_all(numbers: range) -> int:
    """Query the database for many items in one task, so no task waits for another."""
    return sum(nap(number, 0.25) for number in numbers)


@pair(
    id="threads-wait-for-a-semaphore",
    report=f"{DISTRIBUTED}/issues/4104",
    cause="lock",
    advice="Do not wait inside of tasks: limit the queries by a resource, or chain them.",
    wrong=("more queries at once", "more workers", "larger chunks"),
    also=("blocked threads",),
    speedup=1.3,
    sleeping=True,
)
class ThreadsWaitForASemaphore:
    @staticmethod
    def sick(client: Any) -> int:
        queries = client.map(query_with_permit, range(12))
        others = client.map(nap, range(100, 136), [0.25] * 36)
        return sum(client.gather(queries + others))

    @staticmethod
    def mended(client: Any) -> int:
        queries = [client.submit(query_all, range(12))]
        others = client.map(nap, range(100, 136), [0.25] * 36)
        return sum(client.gather(queries + others))


@pair(
    id="workers-come-late",
    report=(f"{DISTRIBUTED}/issues/7093", "https://github.com/dask/dask-drmaa/issues/51"),
    cause="workers late",
    advice="Wait for the workers before the work (wait_for_workers), or raise adapt's minimum.",
    wrong=("larger chunks", "fewer tasks", "a larger maximum"),
    also=("imbalance", "few tasks"),
    speedup=1.3,
    sleeping=True,
    cluster={"n_workers": 1, "adapt": {"minimum": 1, "maximum": 2, "interval": "1s"}},
    mended_cluster={},
)
class WorkersComeLate:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(nap, range(20), [0.4] * 20)))

    mended = sick


def block(number: int) -> np.ndarray:
    """Return 24 MB."""
    return np.full(3_000_000, float(number))


def slow_mean(data: np.ndarray) -> float:
    """Work on a block."""
    time.sleep(0.15)
    return float(data.mean())


@pair(
    id="data-on-one-worker",
    report=f"{DISTRIBUTED}/issues/2316",
    cause="imbalance",
    advice="Load the blocks on all workers (or client.rebalance()); tasks follow the data.",
    wrong=("larger chunks", "more threads", "fewer workers"),
    also=("restricted", "transfer"),
    speedup=1.4,
    sleeping=True,
)
class DataOnOneWorker:
    @staticmethod
    def sick(client: Any) -> float:
        worker = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
        blocks = client.map(block, range(32), workers=[worker], allow_other_workers=False)
        return sum(client.gather(client.map(slow_mean, blocks)))

    @staticmethod
    def mended(client: Any) -> float:
        return sum(client.gather(client.map(slow_mean, client.map(block, range(32)))))


def simulate_with_lock(number: int) -> int:
    """Call a library that sleeps and keeps Python's global lock."""
    ctypes.PyDLL(None).usleep(200_000)
    return number


def simulate(number: int) -> int:
    """Call the same library by a wrapper that releases the lock."""
    ctypes.CDLL(None).usleep(200_000)
    return number


@pair(
    id="library-keeps-the-gil",
    report=(f"{DISTRIBUTED}/issues/2942", f"{DISTRIBUTED}/issues/6325"),
    cause="gil",
    advice="Release the lock in the wrapper of the library, or use workers with one thread.",
    wrong=("more threads", "larger chunks", "a faster scheduler"),
    sleeping=True,
)
class LibraryKeepsTheGil:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(simulate_with_lock, range(24))))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(simulate, range(24))))


def count_words(number: int) -> int:
    """Do pure Python work."""
    words: dict[int, int] = {}
    for step in range(250_000):
        words[(number + step * step) % 97] = words.get(step % 97, 0) + 1
    return len(words)


@pair(
    id="python-on-threads",
    report=(f"{DASK}/issues/4344", "https://github.com/coiled/feedback/issues/238"),
    cause="gil",
    advice="Use one thread per worker and more workers for code that is pure Python.",
    wrong=("more threads", "larger chunks", "fewer workers"),
    speedup=1.2,
    cluster={"n_workers": 1, "threads_per_worker": 4},
    mended_cluster={"n_workers": 4, "threads_per_worker": 1},
)
class PythonOnThreads:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(count_words, range(40))))

    mended = sick
