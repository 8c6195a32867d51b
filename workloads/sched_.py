"""Scheduler workloads: many tasks that do nothing."""

from __future__ import annotations

import operator
import time

from _tasks import count_tasks, fresh, length_of, same

from benchkit.measure import expect, workload

#: Time in which the scheduler must forget unneeded tasks.
FORGET_S = 60.0
NAP_S = 0.01
ROUNDS = 10
N_BATCHES = 5


@workload(
    variants={"n": [1000, 5000]},
    tags=[
        "overhead",
        "futures",
        "first-twelve[n=5000]",
        "quick[n=5000]",
        "nightly",
        "ci[n=1000]",
    ],
    metrics={"us_per_task": "us"},
)
def task_throughput(client, scale, *, n):
    """Run many tasks that return their argument, submitted at once.

    Stresses overhead only: building and sending the graph, transitions in the scheduler, and
    messages to and from workers. Time per task should not grow with their number (distributed#5715,
    #2611).

    Scale: `n` x fraction, on any cluster: the scheduler is one process. Up to a million is useful
    with --set. About 1 s per 1000 tasks on 2 x 1 x 1 GiB.
    Check: the result of each task is its argument.
    """
    from distributed import wait

    count = _count(scale, n)
    begin = time.perf_counter()
    futures = client.map(same, range(count), pure=False)
    wait(futures)
    return {"futures": futures, "seconds": time.perf_counter() - begin}


@task_throughput.check
def _(client, result, scale, *, n):
    count = _count(scale, n)
    expect(client.gather(result["futures"]), equals=list(range(count)), what="results")
    return {"us_per_task": result["seconds"] / count * 1e6}


@workload(tags=["overhead", "graph", "latency", "ci", "nightly"])
def deep_chain(client, scale):
    """Run a chain of increments, each of which needs the one before.

    Stresses latency inside the cluster: the graph is sent at once and not fused, so that each task
    waits for a message from worker to scheduler and one back.

    Scale: 2000 tasks x fraction, on any cluster.
    About 14 s on 2 x 1 x 1 GiB.
    Check: the last value is the length of the chain.
    """
    name, length = fresh("link"), length_of(scale, 2000)
    # Functions of the standard library: functions of this file are pickled by value for each task.
    graph = {f"{name}-0": (operator.add, 0, 1)}
    for i in range(1, length):
        graph[f"{name}-{i}"] = (operator.add, f"{name}-{i - 1}", 1)
    return client.get(graph, f"{name}-{length - 1}")


@deep_chain.check
def _(result, scale):
    expect(result, equals=length_of(scale, 2000), what="last value")


@workload(tags=["overhead", "graph", "ci", "nightly"])
def fan_in_out(client, scale):
    """Run one task, very many that need it, and one that needs them all.

    Stresses the scheduler where one task has thousands of dependents: its work for each of them
    must not grow with their number.

    Scale: 3000 tasks x fraction, on any cluster.
    About 4 s on 2 x 1 x 1 GiB.
    Check: the sum.
    """
    name = fresh("fan")
    keys = [f"{name}-{i}" for i in range(length_of(scale, 3000))]
    graph = {f"{name}-root": (operator.add, 0, 1), f"{name}-sum": (sum, keys)}
    graph.update({key: (operator.add, i, f"{name}-root") for i, key in enumerate(keys)})
    return client.get(graph, f"{name}-sum")


@fan_in_out.check
def _(result, scale):
    count = length_of(scale, 3000)
    expect(result, equals=count * (count + 1) // 2, what="sum")


@workload(tags=["overhead", "graph", "transfer", "ci", "nightly"])
def tree(client, scale):
    """Add numbers in pairs, and their sums in pairs, until one is left.

    Stresses placement: pairs should be computed where both inputs are, otherwise half of all
    results are transferred.

    Scale: 2048 leaves x fraction, on any cluster.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the sum.
    """
    name = fresh("tree")
    level = [f"{name}-0-{i}" for i in range(length_of(scale, 2048))]
    graph = {key: (operator.add, i, 1) for i, key in enumerate(level)}
    height = 0
    while len(level) > 1:
        height += 1
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [f"{name}-{height}-{i}" for i in range(len(pairs))]
        graph.update({key: (sum, pair) for key, pair in zip(level, pairs, strict=True)})
    return client.get(graph, level[0])


@tree.check
def _(result, scale):
    count = length_of(scale, 2048)
    expect(result, equals=count * (count + 1) // 2, what="sum")


@workload(
    version=3,
    tags=["overhead", "graph", "latency", "ci", "nightly"],
    metrics={"ms_per_round": "ms"},
)
def recompute_in_memory(client, scale, prepared):
    """Submit repeatedly a graph whose results are in the memory of the cluster.

    Stresses avoidable work: the results of 200 dependent tasks are in memory, so that submitting
    their graph again should only need a lookup (distributed#3293).

    Scale: 10 rounds x fraction, of 200 tasks on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the values of each round, by the same tasks in plain Python; the workers ran no task.
    """
    begin = time.perf_counter()
    rounds = [
        client.gather(client.compute(prepared["tasks"])) for _ in range(length_of(scale, ROUNDS))
    ]
    seconds = time.perf_counter() - begin
    ran = sum(client.run(_executed).values()) - prepared["executed"]
    return {"rounds": rounds, "ran": ran, "seconds": seconds}


@recompute_in_memory.prepare
def _(client, seed):
    import random

    import dask
    from distributed import wait

    rng = random.Random(seed)
    tasks = [dask.delayed(int, pure=False)(rng.randrange(1000)) for _ in range(10)]
    rng = random.Random(seed)
    values = [rng.randrange(1000) for _ in range(10)]
    while len(tasks) < 200:
        chosen = [rng.randrange(len(tasks)) for _ in range(5)]
        tasks.append(dask.delayed(max, pure=False)([tasks[i] for i in chosen]))
        values.append(max(values[i] for i in chosen))
    held = client.persist(tasks)
    wait(held)
    executed = sum(client.run(_executed).values())
    return {"tasks": tasks, "held": held, "values": values, "executed": executed}


@recompute_in_memory.check
def _(result, scale, prepared):
    count = length_of(scale, ROUNDS)
    expect(result["rounds"], equals=[prepared["values"]] * count, what="values")
    expect(result["ran"], equals=0, what="tasks that ran again")
    return {"ms_per_round": result["seconds"] / count * 1e3}


@workload(tags=["overhead", "memory", "ci", "nightly"], metrics={"us_per_task": "us"}, version=2)
def release_storm(client, prepared):
    """Release very many results at once, five times.

    Stresses the release of tasks: transitions of each task in the scheduler, messages to the
    workers, and transitions there. A batch ends when the scheduler and all workers have forgotten
    its tasks; the metric is the median of the batches.

    Scale: 5 batches of 2000 tasks x fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: all tasks of a batch are on the scheduler before, and none afterwards.
    """
    reports = {"known": [], "left": [], "seconds": []}
    for name, futures in prepared.items():
        reports["known"].append(_known(client, name))
        begin = time.perf_counter()
        for future in futures:
            future.release()
        reports["left"].append(_left_of(client, name))
        reports["seconds"].append(time.perf_counter() - begin)
    return reports


@release_storm.prepare
def _(client, scale):
    from distributed import wait

    numbers = range(length_of(scale, 2000))
    batches = {}
    for name in (fresh("release") for _ in range(N_BATCHES)):
        batches[name] = client.map(same, numbers, key=[f"{name}-{i}" for i in numbers])
        wait(batches[name])
    return batches


@release_storm.check
def _(result, scale):
    import statistics

    count = length_of(scale, 2000)
    expect(result["known"], equals=[[count, count]] * N_BATCHES, what="tasks and results known")
    expect(result["left"], equals=[[0, 0]] * N_BATCHES, what="tasks still known")
    return {"us_per_task": statistics.median(result["seconds"]) / count * 1e6}


@workload(tags=["overhead", "cancel", "ci", "nightly"], metrics={"us_per_task": "us"}, version=2)
def cancel_storm(client, scale, prepared):
    """Cancel very many tasks at once, most of which wait while a few run.

    Stresses cancellation: queued tasks must be forgotten, running ones awaited or dropped, and the
    cluster must work afterwards.

    Scale: 5000 tasks of 10 ms x fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: no task is on the scheduler afterwards, all futures are cancelled, and a task that is
    submitted then succeeds.
    """
    futures = prepared["futures"]
    begin = time.perf_counter()
    client.cancel(futures)
    left = _left_of(client, prepared["name"])
    seconds = time.perf_counter() - begin
    states = sorted({future.status for future in futures})
    after = client.submit(_inc, 41, pure=False).result(timeout=FORGET_S)
    return {"left": left, "states": states, "after": after, "seconds": seconds}


@cancel_storm.prepare
def _(client, scale):
    name = fresh("cancel")
    keys = [f"{name}-{i}" for i in range(length_of(scale, 5000))]
    futures = client.map(_nap, range(len(keys)), key=keys)
    while not _known(client, name)[0]:
        time.sleep(0.01)
    return {"name": name, "futures": futures}


@cancel_storm.check
def _(result, scale):
    expect(result["left"], equals=[0, 0], what="tasks still known")
    expect(result["states"], equals=["cancelled"], what="states of the futures")
    expect(result["after"], equals=42, what="a task afterwards")
    return {"us_per_task": result["seconds"] / length_of(scale, 5000) * 1e6}


def _count(scale, n):
    return max(10, round(n * scale.fraction))


def _inc(number):
    return number + 1


def _nap(number):
    time.sleep(NAP_S)
    return number


def _known(client, name):
    """Return the numbers of tasks of a name on the scheduler and of their results on workers."""
    in_scheduler = client.run_on_scheduler(count_tasks, name)
    return [in_scheduler, sum(client.run(_count_results, name).values())]


def _left_of(client, name):
    """Wait until scheduler and workers have forgotten tasks of a name; return the numbers left.

    Each process waits by itself, because repeated requests would delay the release.
    """
    in_scheduler = client.run_on_scheduler(_left_in_scheduler, name)
    return [in_scheduler, sum(client.run(_left_on_worker, name).values())]


async def _left_in_scheduler(name, dask_scheduler):
    await _until_none(dask_scheduler.tasks, name)
    return count_tasks(name, dask_scheduler)


async def _left_on_worker(name, dask_worker):
    await _until_none(dask_worker.data, name)
    return _count_results(name, dask_worker)


async def _until_none(keys, name):
    import asyncio

    end = time.perf_counter() + FORGET_S
    # The search ends at the first match.
    while any(str(key).startswith(name) for key in keys) and time.perf_counter() < end:
        await asyncio.sleep(0.002)


def _count_results(name, dask_worker):
    return sum(key.startswith(name) for key in list(dask_worker.data) if isinstance(key, str))


def _executed(dask_worker):
    return dask_worker.state.executed_count
