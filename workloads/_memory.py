"""State of workers and scheduler: arrays by number, memory, disk, tasks."""

from __future__ import annotations

import time


def worker_memory(scale):
    """Return the memory of one worker in B."""
    return scale.memory / scale.workers


def drawn(number, *, length, seed):
    """Return the random array of this number, which is the same on every machine."""
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def own_memory():
    """Return the memory of this process in B."""
    import psutil

    return psutil.Process().memory_info().rss


def bytes_spilled(dask_worker):
    """Return the size in memory of the data that a worker has on disk now."""
    return getattr(dask_worker.data, "spilled_total", (0, 0))[0]


def bytes_written(dask_worker):
    """Return the bytes that a worker has written to disk since its start."""
    return getattr(dask_worker.data, "cumulative_metrics", {}).get(("disk-write", "bytes"), 0)


def count_tasks(dask_scheduler):
    """Return the number of tasks on the scheduler."""
    return len(dask_scheduler.tasks)


def await_tasks(client, wanted, timeout_s=10):
    """Wait until the scheduler has at most this many tasks; return the number."""
    end = time.monotonic() + timeout_s
    while (count := client.run_on_scheduler(count_tasks)) > wanted and time.monotonic() < end:
        time.sleep(0.05)
    return count
