"""Scheduler workloads: many tasks that do nothing."""

from __future__ import annotations

import operator
import time

from benchkit.measure import expect, workload

N_CLIENTS = 8
#: How long the scheduler may take to forget what nobody wants any more.
FORGET_S = 60.0
NAP_S = 0.01
ROUNDS = 10
#: A worker that fetches: the size of a result, and the limits of a message and of their number.
RESULT_BYTES, MESSAGE_BYTES, MOST_FETCHES = 10**6, 50 * 10**6, 10


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

    Nothing but overhead: building and sending the graph, the scheduler's transitions, messages to
    and from workers. Time per task should not grow with their number (distributed#5715, #2611).

    Scale: `n` x the fraction, on any cluster: the scheduler is one process. Up to a million
    makes sense with --set. About 1 s per 1000 tasks on 2 x 1 x 1 GiB.
    Check: each task's result is its argument.
    """
    from distributed import wait

    count = _count(scale, n)
    begin = time.perf_counter()
    futures = client.map(_same, range(count), pure=False)
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

    Stresses latency inside the cluster: the graph is sent at once and not fused, so that each
    task waits for a worker's message to the scheduler and one back.

    Scale: 2000 tasks x the fraction, on any cluster.
    About 4 s on 2 x 1 x 1 GiB.
    Check: the last value is the length of the chain.
    """
    name, length = _fresh("link"), _length(scale, 2000)
    # Functions of the standard library: ours would be pickled by value, once for each task.
    graph = {f"{name}-0": (operator.add, 0, 1)}
    for i in range(1, length):
        graph[f"{name}-{i}"] = (operator.add, f"{name}-{i - 1}", 1)
    return client.get(graph, f"{name}-{length - 1}")


@deep_chain.check
def _(result, scale):
    expect(result, equals=_length(scale, 2000), what="last value")


@workload(tags=["overhead", "graph", "ci", "nightly"])
def fan_in_out(client, scale):
    """Run one task, very many that need it, and one that needs them all.

    Stresses the scheduler where one task has thousands of neighbours: what it does for each of
    them must not grow with their number.

    Scale: 3000 tasks x the fraction, on any cluster.
    About 4 s on 2 x 1 x 1 GiB.
    Check: the sum.
    """
    name = _fresh("fan")
    keys = [f"{name}-{i}" for i in range(_length(scale, 3000))]
    graph = {f"{name}-root": (operator.add, 0, 1), f"{name}-sum": (sum, keys)}
    graph.update({key: (operator.add, i, f"{name}-root") for i, key in enumerate(keys)})
    return client.get(graph, f"{name}-sum")


@fan_in_out.check
def _(result, scale):
    count = _length(scale, 3000)
    expect(result, equals=count * (count + 1) // 2, what="sum")


@workload(tags=["overhead", "graph", "transfer", "ci", "nightly"])
def tree(client, scale):
    """Add up numbers in pairs, and their sums in pairs, down to one.

    Stresses placement: pairs should be computed where they meet, or half of all results cross the
    network.

    Scale: 2048 leaves x the fraction, on any cluster.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the sum.
    """
    name = _fresh("tree")
    level = [f"{name}-0-{i}" for i in range(_length(scale, 2048))]
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
    count = _length(scale, 2048)
    expect(result, equals=count * (count + 1) // 2, what="sum")


@workload(tags=["overhead", "graph", "latency", "ci", "nightly"], metrics={"ms_per_round": "ms"})
def recompute_in_memory(client, scale, prepared):
    """Ask again and again for results that the cluster holds already.

    Stresses what is done in vain: 200 tasks that depend on one another are in memory, and
    computing them once more should cost a look (distributed#3293).

    Scale: 10 rounds x the fraction, of 200 tasks on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the values of each round, against the same tasks in plain Python.
    """
    begin = time.perf_counter()
    rounds = [
        client.gather(client.compute(prepared["held"])) for _ in range(_length(scale, ROUNDS))
    ]
    return {"rounds": rounds, "seconds": time.perf_counter() - begin}


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
    return {"held": held, "values": values}


@recompute_in_memory.check
def _(result, scale, prepared):
    count = _length(scale, ROUNDS)
    expect(result["rounds"], equals=[prepared["values"]] * count, what="values")
    return {"ms_per_round": result["seconds"] / count * 1e3}


@workload(tags=["overhead", "memory", "ci", "nightly"], metrics={"us_per_task": "us"})
def release_storm(client, scale, prepared):
    """Let go of very many results at once.

    Stresses forgetting: the scheduler's transitions of each task, the messages to the workers,
    and theirs. The clock stops when the scheduler and all workers know none of them any more.

    Scale: 4000 tasks x the fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: all were known before, and none is afterwards.
    """
    name = prepared["name"]
    known = _known(client, name)
    begin = time.perf_counter()
    for future in prepared["futures"]:
        future.release()
    left = _await_forgotten(client, name)
    return {"known": known, "left": left, "seconds": time.perf_counter() - begin}


@release_storm.prepare
def _(client, scale):
    from distributed import wait

    name = _fresh("release")
    keys = [f"{name}-{i}" for i in range(_length(scale, 4000))]
    futures = client.map(_same, range(len(keys)), key=keys)
    wait(futures)
    return {"name": name, "futures": futures}


@release_storm.check
def _(result, scale):
    count = _length(scale, 4000)
    expect(result["known"][0], equals=count, what="tasks that the scheduler knew")
    expect(result["known"][1], equals=count, what="results that the workers held")
    expect(result["left"], equals=[0, 0], what="tasks still known")
    return {"us_per_task": result["seconds"] / count * 1e6}


@workload(tags=["overhead", "cancel", "ci", "nightly"], metrics={"us_per_task": "us"})
def cancel_storm(client, scale, prepared):
    """Cancel very many tasks at once, most of which wait while a few run.

    Stresses cancellation: what is queued must be forgotten, what runs must be waited for or
    dropped, and the cluster must be of use afterwards.

    Scale: 5000 tasks of 10 ms x the fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: none is known afterwards, all futures say that they were cancelled, and a task that
    is submitted then has its result.
    """
    futures = prepared["futures"]
    begin = time.perf_counter()
    client.cancel(futures)
    left = _await_forgotten(client, prepared["name"])
    seconds = time.perf_counter() - begin
    states = sorted({future.status for future in futures})
    after = client.submit(_inc, 41, pure=False).result(timeout=FORGET_S)
    return {"left": left, "states": states, "after": after, "seconds": seconds}


@cancel_storm.prepare
def _(client, scale):
    name = _fresh("cancel")
    keys = [f"{name}-{i}" for i in range(_length(scale, 5000))]
    futures = client.map(_nap, range(len(keys)), key=keys)
    while not _known(client, name)[0]:
        time.sleep(0.01)
    return {"name": name, "futures": futures}


@cancel_storm.check
def _(result, scale):
    expect(result["left"], equals=[0, 0], what="tasks still known")
    expect(result["states"], equals=["cancelled"], what="states of the futures")
    expect(result["after"], equals=42, what="a task afterwards")
    return {"us_per_task": result["seconds"] / _length(scale, 5000) * 1e6}


@workload(
    tags=["overhead", "client", "ci", "nightly"],
    deadline_s=120,
    metrics={"slowest_over_fastest": "1"},
)
def many_clients(client, scale, prepared):
    """Let eight clients submit tasks at the same time, and wait for them.

    Stresses fairness and the scheduler's bookkeeping by client: each is a connection and a set of
    wanted keys of its own.

    Scale: 500 tasks for each client x the fraction, on any cluster.
    About 5 s on 2 x 1 x 1 GiB.
    Check: each client has its own results, in order.
    """
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    together = Barrier(N_CLIENTS)

    def ask(number, own):
        numbers = range(number * 10_000, number * 10_000 + _length(scale, 500))
        together.wait()
        begin = time.perf_counter()
        results = own.gather(own.map(_same, numbers, pure=False))
        return results, time.perf_counter() - begin

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        told = list(pool.map(ask, range(N_CLIENTS), prepared))
    return {"results": [results for results, _ in told], "seconds": [s for _, s in told]}


@many_clients.prepare
def _(client):
    from distributed import Client

    address, security = client.scheduler.address, client.security
    return [Client(address, security=security, set_as_default=False) for _ in range(N_CLIENTS)]


@many_clients.check
def _(result, scale):
    count = _length(scale, 500)
    wanted = [list(range(i * 10_000, i * 10_000 + count)) for i in range(N_CLIENTS)]
    expect(result["results"], equals=wanted, what="results by client")
    return {"slowest_over_fastest": max(result["seconds"]) / min(result["seconds"])}


@many_clients.cleanup
def _(prepared=()):
    for own in prepared or ():
        own.close()


@workload(tags=["failure", "overhead", "ci", "nightly"], deadline_s=120)
def failing_tasks(client, scale, prepared):
    """Run tasks, every tenth of which fails at its first attempt and may be retried.

    Stresses retries: an error travels to the scheduler, which sends the task once more.

    Scale: 2000 tasks x the fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: all results are there; those that failed were tried twice, and the others once.
    """
    count, workers = _length(scale, 2000), prepared["workers"]
    futures = {}
    # Those that fail stay on one worker, which remembers that they did.
    for place, worker in enumerate(workers):
        numbers = range(10 * place, count, 10 * len(workers))
        failing = client.map(
            _fail_once, numbers, topic=prepared["topic"], workers=[worker], retries=2, pure=False
        )
        futures.update(zip(numbers, failing, strict=True))
    numbers = [i for i in range(count) if i % 10]
    others = client.map(_attempt, numbers, topic=prepared["topic"], retries=2, pure=False)
    futures.update(zip(numbers, others, strict=True))
    return client.gather([futures[i] for i in range(count)])


@failing_tasks.prepare
def _(client):
    return {"topic": _fresh("failing"), "workers": sorted(client.scheduler_info()["workers"])}


@failing_tasks.check
def _(client, result, scale, prepared):
    count = _length(scale, 2000)
    expect(result, equals=list(range(count)), what="results")
    attempts = sorted(number for _, number in client.get_events(prepared["topic"]))
    wanted = sorted([*range(count), *range(0, count, 10)])
    expect(attempts, equals=wanted, what="attempts")


@workload(
    variants={"kind": ["resources", "priority"]},
    tags=["annotations", "latency", "ci[kind=resources]", "nightly"],
    deadline_s=120,
    metrics={"share_of_second": "1", "rank_correlation": "1"},
)
def resources_annotations(client, scale, prepared, *, kind):
    """Run tasks that need a resource of a worker, or that come with priorities.

    Stresses what users ask of the scheduler beside the graph: tasks with a resource run where it
    is, also on a worker that gets it when they are placed already; and urgent tasks come first.

    Scale: 200 tasks of 10 ms x the fraction, and enough for all threads; two workers or more.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each result; no task ran without the resource, and both workers that had it had some
    (where work is stolen);
    or the order of the tasks' starts is that of their priorities (rank correlation).
    """
    numbers = range(_annotated(scale))
    if kind == "priority":
        # All threads are busy while the tasks arrive.
        blockers = client.map(_hold, range(scale.threads), priority=1000, pure=False)
        order = _shuffled(numbers)
        futures = [client.submit(_when, i, priority=-i, pure=False) for i in order]
        told = client.gather(futures)
        client.gather(blockers)
        return {"told": sorted(told)}
    futures = client.map(_when, numbers, resources={prepared["resource"]: 1}, pure=False)
    while not any(future.done() for future in futures):
        time.sleep(0.005)
    client.run(_set_resource, prepared["resource"], 1, workers=[prepared["workers"][1]])
    return {"told": client.gather(futures)}


@resources_annotations.prepare
def _(client, *, kind):
    workers, resource = sorted(client.scheduler_info()["workers"]), _fresh("resource")
    if kind == "resources":
        if len(workers) < 2:
            from benchkit.measure.errors import ClusterTrouble

            raise ClusterTrouble("needs two workers; the cluster has one")
        client.run(_set_resource, resource, 1, workers=workers[:1])
    steals = client.run_on_scheduler(_steals)
    return {"workers": workers[:2], "resource": resource, "steals": steals}


@resources_annotations.check
def _(result, scale, prepared, *, kind):
    import numpy as np

    told = result["told"]
    count = _annotated(scale)
    expect([number for number, _, _ in told], equals=list(range(count)), what="results")
    if kind == "priority":
        began = np.array([moment for _, moment, _ in told])
        ranks = began.argsort().argsort()
        correlation = float(np.corrcoef(ranks, np.arange(count))[0, 1])
        expect(correlation, at_least=0.8, what="rank correlation of starts and priorities")
        return {"share_of_second": float("nan"), "rank_correlation": correlation}
    places = [where for _, _, where in told]
    allowed = prepared["workers"]
    expect(set(places) <= set(allowed), equals=True, what="tasks ran where the resource is")
    if prepared["steals"]:  # what was placed before can come to the second in no other way
        expect(sorted(set(places)), equals=allowed, what="workers that ran the tasks")
    second = places.count(prepared["workers"][1])
    return {"share_of_second": second / count, "rank_correlation": float("nan")}


@workload(
    variants={"workers": [5, 50, 250]},
    tags=["overhead", "cpu", "gate", "nightly", "ci[workers=50]"],
    metrics={"messages": "1"},
)
def worker_state_machine(prepared, *, workers):
    """Drive one worker's state machine through the fetching of very many results.

    Stresses what a worker decides, in pure Python and without a network: from whom to fetch next,
    and what to ask for together. A tenth of the results lie on two workers. The number of
    messages is the same on every machine.

    Scale: 5000 results x the fraction, on 5, 50 or 250 workers that do not exist.
    About 1 s on 2 x 1 x 1 GiB.
    Check: each result was fetched once, from a worker that has it, in messages below the limit.
    """
    from types import SimpleNamespace

    from distributed.worker_state_machine import (
        AcquireReplicasEvent,
        GatherDep,
        GatherDepSuccessEvent,
        WorkerState,
    )

    who_has = prepared["who_has"]
    state = WorkerState(
        address="tcp://192.0.2.0:1",
        validate=False,
        transfer_incoming_count_limit=MOST_FETCHES,
        transfer_message_bytes_limit=MESSAGE_BYTES,
    )
    begin = AcquireReplicasEvent(
        who_has=who_has, nbytes=dict.fromkeys(who_has, RESULT_BYTES), stimulus_id="acquire"
    )
    fetched, to_do = [], list(state.handle_stimulus(begin))
    while to_do:
        instruction = to_do.pop(0)
        if isinstance(instruction, GatherDep):
            keys = sorted(instruction.to_gather)
            fetched.append((instruction.worker, keys))
            done = GatherDepSuccessEvent(
                worker=instruction.worker,
                total_nbytes=instruction.total_nbytes,
                data=dict.fromkeys(keys, 1),
                stimulus_id=f"fetched-{len(fetched)}",
            )
            to_do.extend(state.handle_stimulus(done))
    return SimpleNamespace(fetched=fetched, held=sorted(state.data))


@worker_state_machine.prepare
def _(scale, seed, *, workers):
    import random

    rng = random.Random(seed)
    names = [f"tcp://192.0.2.{1 + i}:1" for i in range(workers)]
    who_has = {}
    for i in range(_length(scale, 5000)):
        who_has[f"result-{i:06d}"] = rng.sample(names, 1 + (i % 10 == 0))
    return {"who_has": who_has}


@worker_state_machine.check
def _(result, prepared):
    who_has = prepared["who_has"]
    expect(result.held, equals=sorted(who_has), what="results held")
    keys = sorted(key for _, keys in result.fetched for key in keys)
    expect(keys, equals=sorted(who_has), what="results fetched")
    right = all(worker in who_has[key] for worker, keys in result.fetched for key in keys)
    expect(right, equals=True, what="results were fetched where they are")
    most = max(len(keys) for _, keys in result.fetched) * RESULT_BYTES
    expect(most, at_most=MESSAGE_BYTES, what="bytes of a message")
    return {"messages": len(result.fetched)}


def _count(scale, n):
    return max(10, round(n * scale.fraction))


def _same(number):
    return number


def _inc(number):
    return number + 1


def _nap(number):
    time.sleep(NAP_S)
    return number


def _attempt(number, *, topic):
    from distributed import get_worker

    get_worker().log_event(topic, number)
    return number


def _fail_once(number, *, topic):
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(topic, number)
    failed = worker.__dict__.setdefault("benchkit_failed", set())
    if (topic, number) not in failed:
        failed.add((topic, number))
        raise ValueError(f"task {number} fails at its first attempt")
    return number


def _length(scale, full):
    return max(10, round(full * scale.fraction))


def _fresh(what):
    """Return a name that no earlier run has used: results of the same key would be reused."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def _known(client, name):
    """Return how many tasks of a name the scheduler knows, and how many results workers hold."""
    in_scheduler = client.run_on_scheduler(_count_tasks, name)
    return [in_scheduler, sum(client.run(_count_results, name).values())]


def _await_forgotten(client, name):
    end = time.perf_counter() + FORGET_S
    while any(known := _known(client, name)) and time.perf_counter() < end:
        time.sleep(0.01)
    return known


def _count_tasks(name, dask_scheduler):
    return sum(key.startswith(name) for key in list(dask_scheduler.tasks) if isinstance(key, str))


def _count_results(name, dask_worker):
    return sum(key.startswith(name) for key in list(dask_worker.data) if isinstance(key, str))


def _hold(number):
    time.sleep(1.0)
    return number


def _when(number):
    from distributed import get_worker

    begin = time.time()
    time.sleep(NAP_S)
    return number, begin, get_worker().address


def _annotated(scale):
    # A few tasks for each thread are sent ahead, whatever their priority.
    return max(100, 25 * scale.threads, _length(scale, 200))


def _steals(dask_scheduler):
    return "stealing" in dask_scheduler.periodic_callbacks


async def _set_resource(name, quantity, dask_worker):
    await dask_worker.set_resources(**{name: quantity})


def _shuffled(numbers):
    import random

    return random.Random(0).sample(list(numbers), len(numbers))
