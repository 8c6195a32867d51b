"""Memory workloads: memory that is not released, accumulates, or must be moved."""

from __future__ import annotations

import gc
import time

from _task_events import log_number, logged_numbers, new_topic
from _two_workers import two_workers

from benchkit.measure import expect, random_array, workload

#: Sizes of the small objects of `fragmentation` in B, and the share that is kept at first.
SMALLEST, LARGEST = 700, 3700
KEPT_EVERY = 50
PARTS = 6
NAP_S = 0.1
#: Largest growth of a process per repeat of `leak_slope` in B: a small chunk is within the noise.
LEAST_LEAK = 2**22
#: Share of the memory limit that a worker holds when it is retired.
HELD = 0.3


@workload(
    tags=["memory", "allocator", "ci", "nightly"],
    metrics={"memory_freed": "B", "memory_trimmed": "B", "memory_peak": "B", "memory_used": "B"},
)
def fragmentation(client, scale, seed):
    """Fill the workers with small objects, free most, and measure the memory of the processes.

    Some objects are kept, so that the allocator cannot return the memory between them. Stresses the
    allocator: metrics are the growth of the process memory at the peak, when most objects are
    freed, and after a trim of the allocator; and the bytes still in use. Compare settings of the
    allocator in experiments; they apply to new processes only.

    Scale: 0.25 x cluster memory x fraction in objects of 0.7 to 3.7 kB, in 6 parts per worker.
    About 1 s on 2 x 1 x 1 GiB.
    Check: number and bytes of all objects, from the formula of their sizes.
    """
    # Sizes come from a fast formula: drawing random sizes would take most of the time.
    count = _small_objects(scale)
    workers = sorted(client.nthreads())
    before = client.run(_process_memory)
    futures = [
        client.submit(_churn, count, seed, workers=[worker], pure=False) for worker in workers
    ]
    churned = client.gather(futures)
    del futures
    freed = client.run(_process_memory)
    trimmed = client.run(_trim)
    return {
        "churned": churned,
        "before": sum(before.values()),
        "freed": sum(freed.values()),
        "trimmed": sum(trimmed.values()),
    }


@fragmentation.check
def _(result, scale, seed):
    count = _small_objects(scale)
    wanted = sum(_size(i, seed) for part in range(PARTS) for i in _numbers(part, count))
    for one in result["churned"]:
        expect(one["count"], equals=count, what="objects")
        expect(one["nbytes"], equals=wanted, what="bytes of the objects")
    expect(len(result["churned"]), equals=scale.workers, what="workers")
    before = result["before"]
    return {
        "memory_freed": result["freed"] - before,
        "memory_trimmed": result["trimmed"] - before,
        "memory_peak": sum(one["peak"] for one in result["churned"]) - before,
        "memory_used": sum(one["kept"] for one in result["churned"]),
    }


@fragmentation.cleanup
def _(client):
    client.run(_release)


@workload(
    variants={"saturation": ["1.0", "1.1", "inf"]},
    tags=["memory", "root-tasks", "order", "ci[saturation=1.1]", "nightly"],
    requires=["numpy"],
    version=2,
    metrics={"peak_over_ideal": "1"},
)
def root_overproduction(client, scale, seed, *, saturation):
    """Make chunks faster than they are used: slowly and in pairs.

    A scheduler that assigns all root tasks at once fills the memory with their results; one that
    queues them needs two per thread. Stresses the queue of root tasks, with option
    `worker-saturation` (distributed#5555, #6560, #7273). The metric is the peak of bytes held by
    workers relative to the ideal.

    Scale: 20 chunks per thread x fraction, of 1/64 of one thread's memory; a pair takes 0.1 s.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the sum of each pair, by NumPy; at least two chunks were held for each; the scheduler had
    the requested saturation.
    """
    from dask import delayed

    count, length = _roots(scale)
    make, add_pair = delayed(_make, pure=False), delayed(_add_pair, pure=False)
    roots = [make(i, length=length, seed=seed) for i in range(count)]
    # One graph: tasks of later graphs have a lower priority.
    pairs = client.compute([add_pair(*pair) for pair in zip(roots[::2], roots[1::2], strict=True)])
    return {
        "pairs": client.gather(pairs),
        "saturation": client.run_on_scheduler(_saturation),
    }


@root_overproduction.prepare
def _(client, *, saturation):
    return client.run_on_scheduler(_set_saturation, value=float(saturation))


@root_overproduction.check
def _(result, scale, seed, *, saturation):
    expect(result["saturation"], equals=float(saturation), what="saturation of the scheduler")
    count, length = _roots(scale)
    sums = [float(_make(i, length=length, seed=seed).sum()) for i in range(count)]
    wanted = [first + second for first, second in zip(sums[::2], sums[1::2], strict=True)]
    expect([total for total, _, _ in result["pairs"]], close_to=wanted, rtol=1e-9, what="sums")
    held = [held for _, _, held in result["pairs"]]
    expect(held, at_least=2 * 8 * length, what="bytes held with a pair")
    peaks = {}
    for _, where, held in result["pairs"]:
        peaks[where] = max(peaks.get(where, 0), held)
    return {"peak_over_ideal": sum(peaks.values()) / (2 * scale.threads * 8 * length)}


@root_overproduction.cleanup
def _(client, prepared=None):
    if prepared is not None:
        client.run_on_scheduler(_set_saturation, value=prepared)


@workload(
    tags=["memory", "leak", "ci", "nightly"],
    requires=["numpy", "dask.array"],
    metrics={"scheduler_slope": "B", "worker_slope": "B", "tasks_left": "1"},
)
def leak_slope(client, scale, seed, prepared):
    """Repeat the same computation, and measure whether memory grows.

    Stresses the release of tasks, events, logs and data of plugins. The growth of process memory
    per repeat, over the second half, should be about 0 in the scheduler and the mean worker; the
    scheduler of a local cluster shares its process with the client, and is measured with it.

    Scale: 50 repeats x fraction, of 0.02 x cluster memory x fraction each, in chunks of 1/256 of a
    thread's memory.
    About 10 s on 2 x 1 x 1 GiB.
    Check: each repeat gives the same sum, that of the same numbers in another order; no task is
    left on the scheduler; scheduler and mean worker grow by less than a chunk (4 MiB at reference
    memory) per repeat.
    """
    seen = []
    for number in range(_repeats(scale)):
        total = float(_some_array(scale, seed).sum().compute())
        if number % 10 == 0:
            gc.collect()
        workers = client.run(_process_memory).values()
        scheduler = client.run_on_scheduler(_own_memory)
        seen.append((total, scheduler, sum(workers) / len(workers)))
    return {"seen": seen, "tasks": _await_tasks(client, prepared) - prepared}


@leak_slope.prepare
def _(client):
    return client.run_on_scheduler(_count_tasks)


@leak_slope.check
def _(result, scale, seed):
    import numpy as np

    wanted = float(_some_array(scale, seed).sum(axis=0).compute().sum())
    totals, scheduler, worker = zip(*result["seen"], strict=True)
    expect(list(totals), close_to=[wanted] * _repeats(scale), rtol=1e-9, what="sums")
    expect(result["tasks"], at_most=0, what="tasks left on the scheduler")
    half = np.arange(_repeats(scale) // 2)
    slopes = [np.polyfit(half, side[-len(half) :], 1)[0] for side in (scheduler, worker)]
    chunk = max(scale.memory_per_thread / 256, LEAST_LEAK)
    expect(slopes, at_most=chunk, what="bytes that scheduler and worker keep of each repeat")
    return {
        "scheduler_slope": slopes[0],
        "worker_slope": slopes[1],
        "tasks_left": result["tasks"],
    }


@workload(
    tags=["memory", "transfer", "scaling", "ci", "nightly"],
    requires=["numpy"],
    features=["scale"],
    deadline_s=120,
    version=2,
    metrics={"retire_rate": "MiB/s", "recomputed": "1"},
)
def amm_retire(client, scale, seed, prepared):
    """Retire a worker that holds data, and wait until the data is on other workers.

    Stresses the active memory manager: it must copy every result to another worker before this one
    stops, and nothing may be recomputed.

    Scale: 0.3 x one worker's memory x fraction, in arrays of 1/128 of one thread's memory.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the sum of every array afterwards; each was made once; at least half of them were on the
    worker, and it is gone.
    """
    from distributed import wait

    leaving = prepared["leaving"]
    count, length = _held(scale)
    arrays = client.map(
        _make_and_tell, range(count), length=length, seed=seed, topic=prepared["topic"],
        workers=[leaving], allow_other_workers=True, pure=False,
    )  # fmt: skip
    wait(arrays)
    # Other workers may have stolen some tasks.
    leaves = len(client.has_what([leaving])[leaving])
    begin = time.perf_counter()
    client.retire_workers([leaving])
    seconds = time.perf_counter() - begin
    sums = client.gather(client.map(_sum, arrays, pure=False))
    return {
        "sums": sums,
        "leaves": leaves,
        "seconds": seconds,
        "made": logged_numbers(client, prepared["topic"], first=0, stop=count),
        "workers": list(client.nthreads()),
    }


@amm_retire.prepare
def _(client):
    return {"leaving": two_workers(client)[0], "topic": new_topic("retire")}


@amm_retire.check
def _(result, scale, seed, prepared):
    count, length = _held(scale)
    wanted = [float(_make(i, length=length, seed=seed).sum()) for i in range(count)]
    expect(result["sums"], close_to=wanted, rtol=1e-12, what="sums")
    expect(sorted(set(result["made"])), equals=list(range(count)), what="arrays that were made")
    expect(prepared["leaving"] in result["workers"], equals=False, what="the worker is still there")
    recomputed = len(result["made"]) - count
    expect(recomputed, equals=0, what="arrays made again")
    expect(result["leaves"], at_least=count / 2, what="arrays on the worker before it left")
    rate = 8 * result["leaves"] * length / 2**20 / result["seconds"]
    return {"retire_rate": rate, "recomputed": recomputed}


def _small_objects(scale):
    """Return the number of small objects of a worker, divisible by the number of parts."""
    nbytes = 0.25 * scale.memory / scale.workers * scale.fraction
    return max(100, round(nbytes / ((SMALLEST + LARGEST) / 2) / PARTS)) * PARTS


def _numbers(part, count):
    return range(part * count // PARTS, (part + 1) * count // PARTS)


def _size(number, seed):
    return SMALLEST + (number * 7919 + seed * 104729) % (LARGEST - SMALLEST)


def _churn(count, seed):
    """Make all objects, part by part, and free most of them; return their number and bytes."""
    from distributed import get_worker

    seen, nbytes, peak, parts = 0, 0, 0, []
    for part in range(PARTS):
        made = [bytes(_size(number, seed)) for number in _numbers(part, count)]
        seen += len(made)
        nbytes += sum(len(each) for each in made)
        parts.append(made)
        peak = max(peak, _own_memory())
    kept = [each for made in parts for each in made[::KEPT_EVERY]]
    get_worker().benchkit_kept = kept  # between objects that are freed at the return
    return {"count": seen, "nbytes": nbytes, "peak": peak, "kept": sum(map(len, kept))}


def _release(dask_worker):
    vars(dask_worker).pop("benchkit_kept", None)


def _process_memory(dask_worker):
    return _own_memory()


def _own_memory():
    import psutil

    return psutil.Process().memory_info().rss


def _trim(dask_worker):
    import ctypes

    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass  # no GNU C library: both metrics are equal
    return _own_memory()


def _roots(scale):
    count = 2 * max(4, round(10 * scale.threads * scale.fraction))
    return count, int(scale.memory_per_thread / 64 / 8)


def _make(number, *, length, seed):
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def _add_pair(first, second):
    from distributed import get_worker

    worker = get_worker()
    states = list(worker.state.tasks.values())
    held = sum(state.nbytes or 0 for state in states if state.state == "memory")
    time.sleep(NAP_S)
    return float(first.sum() + second.sum()), worker.address, held


def _saturation(dask_scheduler):
    return dask_scheduler.WORKER_SATURATION


def _set_saturation(dask_scheduler, value):
    before = dask_scheduler.WORKER_SATURATION
    dask_scheduler.WORKER_SATURATION = value
    return before


def _some_array(scale, seed):
    side = max(64, round((scale.linear(0.02) / 8) ** 0.5))
    chunk = max(16, round((scale.memory_per_thread / 256 / 8) ** 0.5))
    return random_array((side, side), chunks=(chunk, chunk), seed=seed)


def _repeats(scale):
    return max(10, round(50 * scale.fraction))


def _count_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


def _await_tasks(client, wanted):
    """Wait until the scheduler has at most the wanted number of tasks; return the number."""
    end = time.monotonic() + 5
    while (count := client.run_on_scheduler(_count_tasks)) > wanted and time.monotonic() < end:
        time.sleep(0.05)
    return count


def _held(scale):
    length = int(scale.memory_per_thread / 128 / 8)
    share = HELD * scale.memory / scale.workers * scale.fraction
    return max(4, round(share / 8 / length)), length


def _make_and_tell(number, *, length, seed, topic):
    log_number(topic, number)
    return _make(number, length=length, seed=seed)


def _sum(array):
    return float(array.sum())
