"""Scheduler workloads: several clients, retries, resources, and the state machine of a worker."""

from __future__ import annotations

import time

from _tasks import count_tasks, fresh, length_of, same
from _timing import timed
from _two_workers import two_workers

from benchkit.measure import expect, workload

N_CLIENTS, N_ROUNDS = 8, 5
NAP_S = 0.01
N_PASSES = 10
#: Options of a worker that fetches: size of a result, and limits of the size and the number of
#: messages. These are the defaults of distributed, fixed here because a state machine without a
#: worker has none, and would request all results from all workers at once.
RESULT_BYTES, MESSAGE_BYTES, MOST_FETCHES = 10**6, 50 * 10**6, 50


@workload(
    category="sched",
    tags=["overhead", "client", "ci", "nightly"],
    deadline_s=120,
    metrics={"us_per_task": "us", "slowest_over_fastest": "1"},
    version=2,
)
def many_clients(client, scale, prepared):
    """Let eight clients submit tasks at the same time, and wait for them, five times.

    Stresses fairness and the data that the scheduler keeps by client: each has a connection and a
    set of wanted keys. Metrics are those of the median round.

    Scale: 5 rounds of 50 tasks per client x fraction, on any cluster.
    About 5 s on 2 x 1 x 1 GiB.
    Check: each client has its own results, in order.
    """
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    together = Barrier(N_CLIENTS)

    def ask(number, own):
        numbers = range(number * 10_000, number * 10_000 + length_of(scale, 50))
        together.wait()
        begin = time.perf_counter()
        results = own.gather(own.map(same, numbers, pure=False))
        return results, time.perf_counter() - begin

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        rounds = [list(pool.map(ask, range(N_CLIENTS), prepared)) for _ in range(N_ROUNDS)]
    return {
        "results": [[results for results, _ in reports] for reports in rounds],
        "seconds": [[seconds for _, seconds in reports] for reports in rounds],
    }


@many_clients.prepare
def _(client):
    from distributed import Client

    address, security = client.scheduler.address, client.security
    return [Client(address, security=security, set_as_default=False) for _ in range(N_CLIENTS)]


@many_clients.check
def _(result, scale):
    import numpy as np

    count = length_of(scale, 50)
    wanted = [list(range(i * 10_000, i * 10_000 + count)) for i in range(N_CLIENTS)]
    expect(result["results"], equals=[wanted] * N_ROUNDS, what="results by round and client")
    fastest, slowest = np.min(result["seconds"], axis=1), np.max(result["seconds"], axis=1)
    return {
        "us_per_task": float(np.median(slowest)) / (N_CLIENTS * count) * 1e6,
        "slowest_over_fastest": float(np.median(slowest / fastest)),
    }


@many_clients.cleanup
def _(prepared=()):
    for own in prepared or ():
        own.close()


@workload(category="sched", tags=["fault", "overhead", "ci", "nightly"], deadline_s=120, version=2)
def failing_tasks(client, scale, prepared):
    """Run tasks, every tenth of which fails at its first attempt and is retried.

    Stresses retries: the scheduler receives the error and sends the task again.

    Scale: 2000 tasks x fraction, on any cluster.
    About 6 s on 2 x 1 x 1 GiB.
    Check: all results; tasks that failed ran twice, the others once.
    """
    count, workers = length_of(scale, 2000), prepared["workers"]
    options = {"name": prepared["name"], "retries": 2, "pure": False}
    futures = {}
    # Failing tasks are restricted to one worker, which records their first attempt.
    for place, worker in enumerate(workers):
        numbers = range(10 * place, count, 10 * len(workers))
        failing = client.map(_attempt, numbers, fails=True, workers=[worker], **options)
        futures.update(zip(numbers, failing, strict=True))
    numbers = [i for i in range(count) if i % 10]
    others = client.map(_attempt, numbers, fails=False, **options)
    futures.update(zip(numbers, others, strict=True))
    results = client.gather([futures[i] for i in range(count)])
    attempts = client.run(_attempts, prepared["name"]).values()
    return {"results": results, "attempts": [number for reports in attempts for number in reports]}


@failing_tasks.prepare
def _(client):
    return {"name": fresh("failing"), "workers": sorted(client.nthreads())}


@failing_tasks.check
def _(result, scale):
    count = length_of(scale, 2000)
    expect(result["results"], equals=list(range(count)), what="results")
    wanted = sorted([*range(count), *range(0, count, 10)])
    expect(sorted(result["attempts"]), equals=wanted, what="attempts")


@workload(
    category="sched",
    variants={"kind": ["resources", "priority"]},
    tags=["annotations", "latency", "ci[kind=resources]", "nightly"],
    deadline_s=120,
    metrics={"share_of_second": "1", "rank_correlation": "1"},
)
def resources_annotations(client, scale, prepared, *, kind):
    """Run tasks that need a resource of a worker, or that have priorities.

    Stresses annotations: tasks with a resource run on workers that have it, also on a worker that
    gets the resource when the tasks are placed already; tasks of high priority run first.

    Scale: 200 tasks of 10 ms, or 25 per thread; two workers or more.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each result; no task ran without the resource, and both workers with the resource ran
    some (if work is stolen); or the order in which tasks start is that of their priorities (rank
    correlation).
    """
    from distributed import Event

    numbers = range(_annotated(scale))
    if kind == "priority":
        # All threads are busy until the scheduler has received every task.
        name = prepared["resource"]
        blockers = [
            client.submit(_hold, name, workers=[address], priority=1000, pure=False)
            for address, threads in client.nthreads().items()
            for _ in range(threads)
        ]
        futures = [
            client.submit(_when, i, key=f"{name}-{i}", priority=-i) for i in _shuffled(numbers)
        ]
        while client.run_on_scheduler(count_tasks, name) < len(futures):
            time.sleep(0.01)
        Event(name).set()
        reports = client.gather(futures)
        client.gather(blockers)
        return {"reports": sorted(reports)}
    futures = client.map(_when, numbers, resources={prepared["resource"]: 1}, pure=False)
    while not any(future.done() for future in futures):
        time.sleep(0.005)
    client.run(_set_resource, prepared["resource"], 1, workers=[prepared["workers"][1]])
    return {"reports": client.gather(futures)}


@resources_annotations.prepare
def _(client, *, kind):
    workers, resource = [], fresh("resource")
    if kind == "resources":
        workers = two_workers(client)
        client.run(_set_resource, resource, 1, workers=workers[:1])
    steals = client.run_on_scheduler(_steals)
    return {"workers": workers, "resource": resource, "steals": steals}


@resources_annotations.check
def _(result, scale, prepared, *, kind):
    import numpy as np

    reports = result["reports"]
    count = _annotated(scale)
    expect([number for number, _, _ in reports], equals=list(range(count)), what="results")
    if kind == "priority":
        began = np.array([moment for _, moment, _ in reports])
        ranks = began.argsort().argsort()
        correlation = float(np.corrcoef(ranks, np.arange(count))[0, 1])
        expect(correlation, at_least=0.8, what="rank correlation of starts and priorities")
        return {"share_of_second": float("nan"), "rank_correlation": correlation}
    places = [where for _, _, where in reports]
    allowed = prepared["workers"]
    expect(set(places) <= set(allowed), equals=True, what="tasks ran where the resource is")
    if prepared["steals"]:  # the only way for placed tasks to reach the second worker
        expect(sorted(set(places)), equals=allowed, what="workers that ran the tasks")
    second = places.count(prepared["workers"][1])
    return {"share_of_second": second / count, "rank_correlation": float("nan")}


@workload(
    category="sched",
    variants={"workers": [5, 49, 50, 250]},
    tags=["overhead", "cpu", "gate", "nightly", "ci[workers=50]"],
    metrics={"us_per_result": "us", "messages": "1"},
    version=2,
)
def worker_state_machine(prepared, *, workers):
    """Drive the state machine of a worker through fetching very many results, ten times.

    Stresses decisions of a worker, in pure Python and without a network: the worker to fetch from
    next, and the results to request together. A tenth of the results is on two workers. A worker
    fetches from at most 50 others at a time, so that 50 reaches this limit and 49 does not. The
    number of messages is the same on every machine.

    Scale: 5000 results x fraction, on 5, 49, 50 or 250 simulated workers.
    About 2 s on 2 x 1 x 1 GiB.
    Check: in every pass, each result was fetched once, from a worker that has it, in messages below
    the limit.
    """
    from types import SimpleNamespace

    passes, seconds = [], []
    for _ in range(N_PASSES):
        state = _a_state()
        fetched, took = timed(_fetch_all, state, prepared["who_has"])
        passes.append(SimpleNamespace(fetched=fetched, held=list(state.data)))
        seconds.append(took)
    return SimpleNamespace(passes=passes, seconds=seconds)


@worker_state_machine.prepare
def _(scale, seed, *, workers):
    import random

    rng = random.Random(seed)
    names = [f"tcp://192.0.2.{1 + i}:1" for i in range(workers)]
    who_has = {}
    for i in range(length_of(scale, 5000)):
        who_has[f"result-{i:06d}"] = rng.sample(names, 1 + (i % 10 == 0))
    return {"who_has": who_has}


@worker_state_machine.check
def _(result, prepared):
    import statistics

    who_has = prepared["who_has"]
    expect(len(result.passes), equals=N_PASSES, what="passes")
    for each in result.passes:
        expect(sorted(each.held), equals=sorted(who_has), what="results held")
        keys = sorted(key for _, keys in each.fetched for key in keys)
        expect(keys, equals=sorted(who_has), what="results fetched")
        right = all(worker in who_has[key] for worker, keys in each.fetched for key in keys)
        expect(right, equals=True, what="results were fetched where they are")
        most = max(len(keys) for _, keys in each.fetched) * RESULT_BYTES
        expect(most, at_most=MESSAGE_BYTES, what="bytes of a message")
    return {
        "us_per_result": statistics.median(result.seconds) / len(who_has) * 1e6,
        "messages": len(result.passes[0].fetched),
    }


def _a_state():
    from distributed.worker_state_machine import WorkerState

    return WorkerState(
        address="tcp://192.0.2.0:1",
        validate=False,
        transfer_incoming_count_limit=MOST_FETCHES,
        transfer_message_bytes_limit=MESSAGE_BYTES,
    )


def _fetch_all(state, who_has):
    """Let a state machine request all results, and reply at once; return the requests by worker."""
    from collections import deque

    from distributed.worker_state_machine import (
        AcquireReplicasEvent,
        GatherDep,
        GatherDepSuccessEvent,
    )

    begin = AcquireReplicasEvent(
        who_has=who_has, nbytes=dict.fromkeys(who_has, RESULT_BYTES), stimulus_id="acquire"
    )
    fetched, to_do = [], deque(state.handle_stimulus(begin))
    while to_do:
        instruction = to_do.popleft()
        if isinstance(instruction, GatherDep):
            fetched.append((instruction.worker, list(instruction.to_gather)))
            done = GatherDepSuccessEvent(
                worker=instruction.worker,
                total_nbytes=instruction.total_nbytes,
                data=dict.fromkeys(instruction.to_gather, 1),
                stimulus_id=f"fetched-{len(fetched)}",
            )
            to_do.extend(state.handle_stimulus(done))
    return fetched


def _attempt(number, *, name, fails):
    """Record the attempt on the worker: a message for each would be timed as well."""
    from distributed import get_worker

    notes = get_worker().__dict__.setdefault(f"benchkit_{name}", {})
    notes[number] = notes.get(number, 0) + 1
    if fails and notes[number] == 1:
        raise ValueError(f"task {number} fails at its first attempt")
    return number


def _attempts(name, dask_worker):
    """Return the numbers of the tasks that ran, once for each attempt; clear the record."""
    notes = dask_worker.__dict__.pop(f"benchkit_{name}", {})
    return [number for number, times in notes.items() for _ in range(times)]


def _hold(name):
    from distributed import Event

    if not Event(name).wait(60):
        raise TimeoutError("the scheduler did not know every task within 60 s")


def _when(number):
    from distributed import get_worker

    begin = time.time()
    time.sleep(NAP_S)
    return number, begin, get_worker().address


def _annotated(scale):
    # A few tasks per thread are sent in advance, independent of priority; and tasks of 2 s are left
    # when the second worker gets its resource.
    return max(200, 25 * scale.threads)


def _steals(dask_scheduler):
    return "stealing" in dask_scheduler.periodic_callbacks


def _shuffled(numbers):
    import random

    return random.Random(0).sample(list(numbers), len(numbers))


async def _set_resource(name, quantity, dask_worker):
    await dask_worker.set_resources(**{name: quantity})
