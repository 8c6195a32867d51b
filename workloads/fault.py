"""Fault workloads: workers that die, hang or run out of memory during work."""

from __future__ import annotations

import math
import os
import signal
import time

from _failures import set_allowed_failures
from _task_events import log_number, logged_workers, new_topic

from benchkit.measure import expect, workload

NAP_S = 0.1
#: Duration of a task of `worker_kill` at reference memory.
MAKE_S = 0.4
#: Duration and share of memory for which a worker is filled.
FULL_S, FULL = 3.0, 0.86
#: Workers that may die during a task before the task fails, in `nanny_restart`.
ALLOWED_FAILURES = 1
RECOVERY_TIMEOUT_S = 60.0


@workload(
    tags=["fault", "recompute", "ci", "nightly"],
    requires=["numpy"],
    features=["nanny"],
    deadline_s=120,
    version=2,
    metrics={"recomputed": "1", "keys_lost": "1", "time_lost": "s"},
)
def worker_kill(client, scale, seed, prepared):
    """Kill a worker when a third of a map is done; its results must be computed again.

    Stresses detection of lost results by the scheduler, their recomputation, and the restart of a
    worker. Metrics: recomputed tasks, lost results, and the time in excess of an undisturbed map.

    Scale: 30 tasks per thread x fraction; a task takes 0.4 s at reference memory, with a result of
    1/128 of a thread's memory. About 5 s on 2 x 1 x 1 GiB.
    Check: the sum of every result; only results that the dead worker held or computed were
    recomputed, and all that it held were.
    """
    from distributed import as_completed

    count, length = _tasks(scale)
    options = {"length": length, "seed": seed, "nap_s": scale.seconds(MAKE_S), "topic": prepared}
    begin = time.perf_counter()
    futures = client.map(_make_slowly, range(count), **options, pure=False)
    for done, _ in enumerate(as_completed(futures), 1):
        if done >= count // 3:
            break
    victim, held = max(client.has_what().items(), key=lambda each: (len(each[1]), each[0]))
    _kill(client, victim)
    sums = client.gather(client.map(_sum, futures, pure=False))
    seconds = time.perf_counter() - begin
    held = set(map(str, held))  # old schedulers return names of keys
    return {
        "sums": sums,
        "ran": logged_workers(client, prepared, first=0, stop=count),
        "victim": victim,
        "lost": [number for number, future in enumerate(futures) if str(future.key) in held],
        "seconds": seconds,
    }


@worker_kill.prepare
def _():
    return new_topic("fault")


@worker_kill.check
def _(result, scale, seed):
    count, length = _tasks(scale)
    wanted = [float(_array(i, length, seed).sum()) for i in range(count)]
    expect(result["sums"], close_to=wanted, rtol=1e-12, what="sums")
    numbers = [number for number, _ in result["ran"]]
    begun = {number for number, worker in result["ran"] if worker == result["victim"]}
    again = sorted(number for number in set(numbers) if numbers.count(number) > 1)
    lost = set(result["lost"])
    expect(len(lost), at_least=1, what="results lost")
    expect(lost - set(again), equals=set(), what="results lost that were not made again")
    expect(set(again) - begun, equals=set(), what="tasks that ran again for no reason")
    expect(len(numbers), equals=count + len(again), what="runs of tasks")
    ideal = count * scale.seconds(MAKE_S) / scale.threads
    return {
        "recomputed": len(again),
        "keys_lost": len(lost),
        "time_lost": result["seconds"] - ideal,
    }


@worker_kill.cleanup
def _(client, scale):
    client.wait_for_workers(scale.workers, timeout=RECOVERY_TIMEOUT_S)


@workload(
    tags=["fault", "memory", "pause", "ci", "nightly"],
    requires=["numpy"],
    features=["nanny"],
    deadline_s=120,
    metrics={"paused_time": "s", "share_of_full": "1"},
)
def pause(client, scale):
    """Fill the memory of one worker for 3 s with data unknown to Dask, while tasks run.

    The worker should pause, the others do its work, and it should resume when the memory is free.
    Stresses the memory monitor, stealing from a paused worker, and recovery.

    Scale: 60 tasks of 0.1 s per thread x fraction; the worker is filled to 0.86 x its memory limit.
    About 8 s on 2 x 1 x 1 GiB.
    Check: the result of each task; the scheduler saw the worker paused, and later running.
    """
    full = sorted(client.nthreads())[0]
    count = max(20, round(60 * scale.threads * scale.fraction))
    client.run(_fill, share=FULL, workers=[full])
    begin = time.perf_counter()
    futures = client.map(_nap_where, range(count), pure=False)
    statuses = []
    while time.perf_counter() < begin + FULL_S:
        statuses.append((time.perf_counter(), _status(client, full)))
        time.sleep(0.02)
    client.run(_empty, workers=[full])
    while (status := _status(client, full)) != "running":
        statuses.append((time.perf_counter(), status))
        if time.perf_counter() > begin + FULL_S + RECOVERY_TIMEOUT_S:
            break
        time.sleep(0.02)
    ran = client.gather(futures)
    return {"ran": ran, "statuses": statuses, "full": full, "last": status}


@pause.check
def _(result, scale):
    count = max(20, round(60 * scale.threads * scale.fraction))
    expect([number for number, _ in result["ran"]], equals=list(range(count)), what="results")
    paused = [moment for moment, status in result["statuses"] if status == "paused"]
    expect(len(paused), at_least=1, what="moments at which the worker was seen paused")
    expect(result["last"], equals="running", what="status of the worker at the end")
    on_full = sum(where == result["full"] for _, where in result["ran"])
    return {"paused_time": max(paused) - min(paused), "share_of_full": on_full / count}


@pause.cleanup
def _(client):
    client.run(_empty)


@workload(
    tags=["fault", "memory", "restart", "ci", "nightly"],
    features=["nanny"],
    deadline_s=180,
    metrics={"attempts": "1", "recovery_time": "s", "given_up": "1"},
)
def nanny_restart(client, scale, prepared):
    """Run one task that needs more memory than there is, while other tasks run.

    The nanny kills its worker, the task is tried on another worker, and fails when that died too.
    Stresses the memory monitor of the nanny, the count of failures of a task, and the restart of
    workers.

    Scale: 40 tasks of 0.1 s per thread x fraction, and the one large task; `allowed-failures` is 1.
    About 10 s on 2 x 1 x 1 GiB.
    Check: the large task fails with KilledWorker at its second attempt; the other tasks succeed,
    except those that can have been on both dead workers (a metric); all workers restart.
    """
    from distributed import KilledWorker, wait

    large_task = client.submit(_eat, topic=prepared["topic"], pure=False)
    time.sleep(2 * NAP_S)  # it must start first: Dask also suspects tasks that wait on its worker
    count = _others(scale)
    others = client.map(_nap_number, range(count), pure=False, retries=3)
    wait(large_task)
    end = time.perf_counter()
    wait(others)  # also results that were lost with the second worker
    error = large_task.exception()
    client.wait_for_workers(scale.workers, timeout=RECOVERY_TIMEOUT_S)
    return {
        "killed": isinstance(error, KilledWorker),
        "results": [None if each.status == "error" else each.result() for each in others],
        "attempts": len(client.get_events(prepared["topic"])),
        "recovery_time": time.perf_counter() - end,
        "workers": len(client.nthreads()),
    }


@nanny_restart.prepare
def _(client):
    before = client.run_on_scheduler(set_allowed_failures, value=ALLOWED_FAILURES)
    saturation = client.run_on_scheduler(_saturation)
    return {"before": before, "saturation": saturation, "topic": new_topic("fault")}


@nanny_restart.check
def _(result, scale, prepared):
    expect(result["killed"], equals=True, what="the greedy task ends as KilledWorker")
    results = result["results"]
    expect(len(results), equals=_others(scale), what="number of the others")
    # Dask suspects all tasks that are assigned to a worker that dies, and fails those that were on
    # both. These are at most as many as a worker gets at once; all, if the scheduler has no queue.
    at_once = math.ceil(min(len(results), prepared["saturation"] * scale.threads / scale.workers))
    suspected = sum(found is None for found in results)
    wanted = [number if found is not None else None for number, found in enumerate(results)]
    expect(results, equals=wanted, what="results of the others")
    expect(suspected, at_most=at_once, what="others that were given up")
    expect(result["attempts"], equals=ALLOWED_FAILURES + 1, what="attempts at the greedy task")
    expect(result["workers"], equals=scale.workers, what="workers at the end")
    return {
        "attempts": result["attempts"],
        "recovery_time": result["recovery_time"],
        "given_up": suspected,
    }


@nanny_restart.cleanup
def _(client, prepared=None):
    if prepared is not None:
        client.run_on_scheduler(set_allowed_failures, value=prepared["before"])


def _saturation(dask_scheduler):
    return dask_scheduler.WORKER_SATURATION


def _tasks(scale):
    count = max(12, round(30 * scale.threads * scale.fraction))
    return count, int(scale.memory_per_thread / 128 / 8)


def _others(scale):
    return max(10, round(40 * scale.threads * scale.fraction))


def _make_slowly(number, *, length, seed, nap_s, topic):
    log_number(topic, number)
    time.sleep(nap_s)
    return _array(number, length, seed)


def _array(number, length, seed):
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def _sum(array):
    return float(array.sum())


def _kill(client, worker):
    """Kill the process of a worker through its nanny, which starts another."""
    client.run(_kill_child, workers=[worker], nanny=True)


def _kill_child(dask_worker):
    os.kill(dask_worker.pid, signal.SIGKILL)


def _nap_where(number):
    from distributed import get_worker

    time.sleep(NAP_S)
    return number, get_worker().address


def _nap_number(number):
    time.sleep(NAP_S)
    return number


def _status(client, worker):
    return client.run_on_scheduler(_status_on_scheduler, worker=worker)


def _status_on_scheduler(dask_scheduler, worker):
    state = dask_scheduler.workers.get(worker)
    return state.status.name if state is not None else "gone"


def _fill(dask_worker, share):
    import numpy as np
    import psutil

    used = psutil.Process().memory_info().rss
    wanted = int(share * dask_worker.memory_manager.memory_limit) - used
    # Ones, not zeros: pages that are never written use no memory.
    dask_worker.benchkit_filling = np.ones(max(1, wanted), dtype="u1")


def _empty(dask_worker):
    dask_worker.benchkit_filling = None


def _eat(*, topic):
    """Allocate memory step by step until the process is killed."""
    import numpy as np
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(topic, worker.address)
    time.sleep(3 * NAP_S)  # the event must be sent before the worker dies
    limit = worker.memory_manager.memory_limit
    allocated = []
    for _ in range(150):
        allocated.append(np.ones(limit // 100, dtype="u1"))
        time.sleep(NAP_S / 5)
    time.sleep(RECOVERY_TIMEOUT_S / 4)
    return len(allocated)
