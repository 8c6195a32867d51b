"""Shuffle workloads: rows move to the partition of their key."""

from __future__ import annotations

import os
import time

from _frames import count_by_key, expect_by_key, keyed_frame, shuffle_by
from _shuffle import warm_up_shuffle

from benchkit.measure import expect, random_frame, workload

N_KEYS = 10_000
#: Sleep of each output partition at reference memory.
NAP_S = 0.4
#: Size of the skewed frame relative to cluster memory; share of rows with the hot key; their
#: largest size relative to the memory of a worker, which does not grow with the cluster.
SKEWED, HOT_SHARE, HOT_OF_A_WORKER = 0.08, 0.5, 0.2
ROWS = 1000
REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]


@workload(
    variants={"method": ["tasks", "p2p", "disk"]},
    tags=["shuffle", "transfer", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=[*REQUIRES, "partd"],
)
def plain(scale, seed, *, method):
    """Shuffle a frame by an integer key.

    Each input partition has rows for each output partition. Stresses the shuffle: with "tasks" the
    graph and its splits and merges, with "p2p" transfers and buffers, with "disk" the file system,
    which all workers must share.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each key is in one partition only, with the number of rows and sum of payload of before.
    """
    with shuffle_by(method):
        return count_by_key(_source(scale, seed).shuffle("key")).compute()


@plain.prepare
def _(client):
    warm_up_shuffle()


@plain.check
def _(result, scale, seed):
    expect_by_key(result, _source(scale, seed))


def _source(scale, seed, factor=0.15):
    return keyed_frame(scale, seed, factor=factor, n_keys=N_KEYS)


@workload(
    variants={"method": ["tasks", "p2p"]},
    tags=["shuffle", "memory", "imbalance", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=REQUIRES,
    version=2,
    metrics={"peak_over_mean": "1"},
)
def skew(scale, seed, *, method):
    """Shuffle a frame in which half of the rows have the same key, then count rows by key.

    One output partition is as large as all the others together. Stresses memory: buffers of the
    shuffle increase the peak of one worker long before they increase the run time.

    Scale: 0.08 x cluster memory, linear; a partition is 1/128 of one thread's memory. With more
    than five workers the hot key has fewer rows: a fifth of one worker's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each key is in one partition only, with the number of rows and sum of payload of before;
    the hot key has its share of rows.
    """
    with shuffle_by(method):
        return count_by_key(_skewed(scale, seed).shuffle("key")).compute()


@skew.prepare
def _(client):
    warm_up_shuffle()


@skew.check
def _(client, result, scale, seed):
    peaks = list(client.run(_peak_memory).values())  # before the check uses memory
    expect_by_key(result, _skewed(scale, seed))
    hot = result["rows"].max() / result["rows"].sum()
    expect(float(hot), close_to=_hot_share(scale), rtol=0.05, what="share of the hot key")
    return {"peak_over_mean": max(peaks) * len(peaks) / sum(peaks)}


@workload(
    variants={"method": ["tasks", "p2p"]},
    tags=["shuffle", "overhead", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=REQUIRES,
    version=2,
)
def many_partitions(scale, seed, *, method):
    """Shuffle very many small partitions by an integer key.

    Stresses overhead: the time of "p2p" should grow with the number of partitions n, that of
    "tasks" with n log n.

    Scale: 100 partitions of 1000 rows per thread x fraction.
    About 18 s on 2 x 1 x 1 GiB.
    Check: each key is in one partition only, with the number of rows and sum of payload of before.
    """
    with shuffle_by(method):
        return count_by_key(_crumbs(scale, seed).shuffle("key")).compute()


@many_partitions.prepare
def _(client):
    warm_up_shuffle()


@many_partitions.check
def _(result, scale, seed):
    expect_by_key(result, _crumbs(scale, seed))


@workload(
    tags=["shuffle", "p2p", "fault", "nightly", "ci"],
    requires=REQUIRES,
    features=["nanny"],
    deadline_s=120,
    metrics={"restarts": "1"},
)
def p2p_worker_loss(client, scale, seed, prepared):
    """Shuffle by P2P and kill a worker when half of the input has been transferred.

    The output on the lost worker cannot be recovered in parts: the shuffle must restart with a new
    number, without data of the first attempt. Stresses this restart, and the scheduler's list of
    participating workers.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory, and an output
    partition sleeps 0.4 s at reference memory.
    About 10 s on 2 x 1 x 1 GiB.
    Check: the worker is gone, the shuffle started at least twice, and each key is in one partition
    only, with the number of rows and sum of payload of before.
    """
    with shuffle_by("p2p"):
        shuffled = _source(scale, seed).shuffle("key")
        future = client.compute(count_by_key(shuffled, scale.seconds(NAP_S)))
    runs, is_killed = set(), False
    try:
        while not future.done():
            share, seen = client.run_on_scheduler(_progress)
            runs.update(seen)
            if share >= 0.5 and not is_killed:
                is_killed = True
                client.run(_die_soon, workers=[prepared])
            time.sleep(0.02)
        return {"counts": future.result(), "runs": len(runs)}
    finally:
        future.cancel()


@p2p_worker_loss.prepare
def _(client):
    from benchkit.measure.errors import ClusterError

    warm_up_shuffle()
    if os.getpid() in client.run(os.getpid).values():
        raise ClusterError("a worker is in this process, which would be killed with it")
    return min(client.nthreads())


@p2p_worker_loss.check
def _(client, result, scale, seed, prepared):
    is_left = prepared in client.nthreads()
    expect(is_left, equals=False, what="the killed worker is among the workers")
    expect(result["runs"], at_least=2, what="times that the shuffle began")
    expect_by_key(result["counts"], _source(scale, seed))
    return {"restarts": result["runs"] - 1}


@p2p_worker_loss.cleanup
def _(client, scale):
    client.wait_for_workers(scale.workers, timeout=30)


def _skewed(scale, seed):
    frame = _source(scale, seed, factor=SKEWED)
    return frame.assign(key=frame["key"].where(frame["float_2"] >= _hot_share(scale), -1))


def _hot_share(scale):
    return min(HOT_SHARE, HOT_OF_A_WORKER * scale.memory / scale.workers / scale.linear(SKEWED))


def _crumbs(scale, seed):
    count = max(12, round(100 * scale.threads * scale.fraction))
    partition_bytes = 3 * 8 * ROWS
    frame = random_frame(
        count * partition_bytes, {"float": 3}, partition_bytes=partition_bytes, seed=seed
    )
    return frame.assign(key=(frame["float_0"] * N_KEYS).astype("int64"))


def _peak_memory():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _progress(dask_scheduler):
    """Return the share of finished transfers, and the run numbers of the active shuffles."""
    prefixes = [p for name, p in dask_scheduler.task_prefixes.items() if "transfer" in str(name)]
    counts = [prefix.states for prefix in prefixes]
    total = sum(sum(states.values()) - states["forgotten"] for states in counts)
    done = sum(states["memory"] for states in counts)
    plugin = dask_scheduler.extensions["shuffle"]
    shuffles = getattr(plugin, "active_shuffles", None) or getattr(plugin, "states", {})
    return done / max(1, total), [state.run_id for state in shuffles.values()]


def _die_soon():
    import signal
    import threading

    # Delay the kill until the reply has been sent.
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGKILL]).start()
