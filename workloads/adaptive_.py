"""Adaptive workloads: clusters that grow and shrink with the load."""

from __future__ import annotations

import time

from _told import events_told, new_topic, numbers_told, tell

from benchkit.measure import expect, workload

NAP_S = 0.2
BARRIER_S = 4.0
TASKS_PER_THREAD = 20
#: An idle cluster has shrunk after a second or two; longer means that it does not.
SHRINK_TIMEOUT_S = 30.0
#: What scattered inputs add to each result.
OFFSET = 1000
#: Between two tasks of a stream.
EVERY_S = 0.25


@workload(
    tags=["scaling", "first-twelve", "quick", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"grow_latency": "s", "shrink_latency": "s", "worker_seconds_ratio": "1"},
)
def expand_contract_expand(client, scale, prepared):
    """Fan out, meet in one long task, fan out again, on a cluster that starts without workers.

    The cluster should grow at once, fall to one worker at the barrier without losing the results
    that it needs, grow again, and give all workers back at the end. Stresses adaptive scaling,
    the retirement of workers that hold data, and the start of workers (coiled/benchmarks#134).

    Scale: 20 tasks of 0.2 s for each thread, twice, and one of 4 s: seconds, whatever the
    cluster; at most as many workers as it had. About 15 s on 2 x 1 x 1 GiB, most of it waiting.
    Check: the sums at the barrier and at the end, and no task ran twice.
    """
    count, topic = _count(scale), prepared["topic"]
    begin = time.time()
    client.cluster.adapt(
        minimum=0,
        maximum=prepared["workers"],
        interval="100ms",
        target_duration="1s",
        wait_count=3,
    )
    first = client.map(_nap, range(count), topic=topic, pure=False)
    barrier = client.submit(_add_up, first, topic=topic, pure=False)
    del first
    later = range(count, 2 * count)
    second = client.map(_nap, later, topic=topic, after=barrier, pure=False)
    total = client.submit(sum, second, pure=False)
    del second
    sums = client.gather([barrier, total])
    end = time.time()
    del barrier, total
    shrunk = _await_workers(client, 0)
    return {"sums": sums, "begin": begin, "end": end, "shrunk": shrunk}


@expand_contract_expand.prepare
def _(client, scale):
    client.cluster.scale(0)
    _await_workers(client, 0)
    return {"workers": scale.workers, "topic": new_topic("adaptive")}


@expand_contract_expand.check
def _(client, result, scale, prepared):
    count = _count(scale)
    halves = sum(range(count)), sum(range(count, 2 * count))
    expect(result["sums"], equals=list(halves), what="sums at the barrier and at the end")
    ran = numbers_told(client, prepared["topic"], first=-1, stop=2 * count)
    expect(ran, equals=[*range(-1, 2 * count)], what="tasks that ran")
    came, worker_seconds = _worker_times(client, result["begin"], result["shrunk"])
    ideal = (2 * count * NAP_S + BARRIER_S) * scale.workers / scale.threads
    return {
        "grow_latency": came - result["begin"],
        "shrink_latency": result["shrunk"] - result["end"],
        "worker_seconds_ratio": worker_seconds / ideal,
    }


@expand_contract_expand.cleanup
def _(client, prepared=None):
    _give_back(client, prepared)


@workload(
    variants={"inputs": ["plain", "scattered"]},
    tags=["scaling", "latency", "nightly", "ci[inputs=plain]"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"first_start": "s"},
)
def scale_from_zero(client, scale, prepared, *, inputs):
    """Submit tasks to an adaptive cluster that has no workers.

    Stresses the way up: how long until the scheduler asks for workers, and until the first task
    runs on one. Data cannot be scattered to no workers at all (distributed#6686, still open), so
    that the scattered variant sends a task ahead to wake the cluster up.

    Scale: 10 tasks of 0.2 s for each thread x the fraction, whatever the cluster; at most as many
    workers as it had. About 5 s on 2 x 1 x 1 GiB.
    Check: each task's result, and that it ran once.
    """
    begin = time.time()
    client.cluster.adapt(
        minimum=0, maximum=prepared["workers"], interval="100ms", target_duration="1s"
    )
    count, offset = _few(scale), 0
    if inputs == "scattered":
        woken = client.submit(_nap_topic, -1, topic=prepared["topic"], pure=False)
        offset = client.scatter(OFFSET, timeout=SHRINK_TIMEOUT_S)
    futures = client.map(
        _nap_topic, range(count), offset=offset, topic=prepared["topic"], pure=False
    )
    results = client.gather(futures)
    if inputs == "scattered":
        woken.result()
    return {"results": results, "begin": begin}


@scale_from_zero.prepare
def _(client, scale):
    client.cluster.scale(0)
    _await_workers(client, 0)
    return {"workers": scale.workers, "topic": new_topic("adaptive")}


@scale_from_zero.check
def _(client, result, scale, prepared, *, inputs):
    scattered = inputs == "scattered"
    offset = OFFSET if scattered else 0
    expect(result["results"], equals=[i + offset for i in range(_few(scale))], what="results")
    first = -1 if scattered else 0
    ran = events_told(client, prepared["topic"], first=first, stop=_few(scale))
    wanted = list(range(first, _few(scale)))
    expect(sorted(number for _, number in ran), equals=wanted, what="tasks that ran")
    return {"first_start": min(moment for moment, _ in ran) - result["begin"]}


@scale_from_zero.cleanup
def _(client, prepared=None):
    _give_back(client, prepared)


@workload(
    tags=["scaling", "memory", "transfer", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"shrink_latency": "s"},
)
def retire_with_data(client, scale, prepared):
    """Let an adaptive cluster give back half its workers while all of them hold results.

    Stresses retirement: what a worker holds must go to those that stay before it goes, and
    nothing may be computed again.

    Scale: results of 0.1 x cluster memory x the fraction, eight on each worker.
    About 1 s on 2 x 1 x 1 GiB.
    Check: each key is held by one of the workers that are left, its checksum is right, and no
    task ran twice.
    """
    from distributed import wait

    futures = client.map(
        _filled,
        range(prepared["count"]),
        nbytes=prepared["nbytes"],
        topic=prepared["topic"],
        pure=False,
    )
    wait(futures)
    begin = time.time()
    client.cluster.adapt(
        minimum=prepared["left"],
        maximum=prepared["workers"],
        interval="100ms",
        target_duration="1s",
        wait_count=3,
    )
    shrunk = _await_workers(client, prepared["left"])
    holders = client.who_has(futures)
    sums = client.gather(client.map(_checksum, futures, pure=False))
    return {"held": [len(each) for each in holders.values()], "sums": sums, "s": shrunk - begin}


@retire_with_data.prepare
def _(client, scale):
    count = 8 * scale.workers
    return {
        "workers": scale.workers,
        "left": (scale.workers + 1) // 2,
        "count": count,
        "nbytes": max(1000, scale.linear(0.1) // count),
        "topic": new_topic("adaptive"),
    }


@retire_with_data.check
def _(client, result, prepared):
    count = prepared["count"]
    expect(len(result["held"]), equals=count, what="keys")
    expect(result["held"], at_least=1, what="workers that hold a key")
    sums = [_checksum(_made(i, prepared["nbytes"])) for i in range(count)]
    expect(result["sums"], equals=sums, what="checksums")
    ran = numbers_told(client, prepared["topic"], first=0, stop=count)
    expect(ran, equals=list(range(count)), what="tasks that ran")
    return {"shrink_latency": result["s"]}


@retire_with_data.cleanup
def _(client, prepared=None):
    _give_back(client, prepared)


@workload(
    tags=["scaling", "stability", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"changes": "1", "late_changes": "1"},
)
def oscillation(client, scale, prepared):
    """Give an adaptive cluster a steady stream of tasks, as much as two threads can do.

    Stresses the damping of adaptive scaling: the load does not change, so neither should the
    cluster, once it has found its size (distributed#1604). The metrics are the workers that came
    or went, in all and in the second half.

    Scale: a task of 0.5 s every 0.25 s for 20 s x the fraction, whatever the cluster.
    About 21 s on 2 x 1 x 1 GiB.
    Check: each task's result, and that it ran once.
    """
    begin = time.time()
    client.cluster.adapt(
        minimum=0,
        maximum=prepared["workers"],
        interval="100ms",
        target_duration="1s",
        wait_count=3,
    )
    futures = []
    for number in range(_stream(scale)):
        futures.append(
            client.submit(_nap_topic, number, nap_s=0.5, topic=prepared["topic"], pure=False)
        )
        time.sleep(max(0.0, begin + (number + 1) * EVERY_S - time.time()))
    half = begin + _stream(scale) * EVERY_S / 2
    return {"results": client.gather(futures), "times": [begin, half, time.time()]}


@oscillation.prepare
def _(client, scale):
    client.cluster.scale(0)
    _await_workers(client, 0)
    return {"workers": scale.workers, "topic": new_topic("adaptive")}


@oscillation.check
def _(client, result, scale, prepared):
    numbers = list(range(_stream(scale)))
    expect(result["results"], equals=numbers, what="results")
    ran = numbers_told(client, prepared["topic"], first=0, stop=len(numbers))
    expect(ran, equals=numbers, what="tasks that ran")
    begin, half, end = result["times"]
    changes = [
        moment
        for moment, event in client.get_events("all")
        if event.get("action") in ("add-worker", "remove-worker") and begin <= moment <= end
    ]
    expect(len(changes), at_least=1, what="workers that came")
    return {"changes": len(changes), "late_changes": sum(moment > half for moment in changes)}


@oscillation.cleanup
def _(client, prepared=None):
    _give_back(client, prepared)


def _few(scale):
    return max(4, round(10 * scale.threads * scale.fraction))


def _stream(scale):
    return max(16, round(80 * scale.fraction))


def _nap_topic(number, *, topic, offset=0, nap_s=NAP_S):
    tell(topic, number)
    time.sleep(nap_s)
    return number + offset


def _filled(number, *, nbytes, topic):
    tell(topic, number)
    return _made(number, nbytes)


def _made(number, nbytes):
    import numpy as np

    return np.random.default_rng(number).bytes(nbytes)


def _checksum(data):
    from zlib import crc32

    return crc32(data)


def _give_back(client, prepared):
    """Stop adapting, and return to as many workers as there were."""
    if prepared and hasattr(client.cluster, "adapt"):
        workers = prepared["workers"]
        client.cluster.adapt(minimum=workers, maximum=workers).stop()
        client.cluster.scale(workers)


def _count(scale):
    return max(4 * scale.threads, round(TASKS_PER_THREAD * scale.threads * scale.fraction))


def _nap(number, *, topic, after=None):
    tell(topic, number)
    time.sleep(NAP_S)
    return number


def _add_up(numbers, *, topic):
    tell(topic, -1)
    time.sleep(BARRIER_S)
    return sum(numbers)


def _await_workers(client, count):
    """Wait until the cluster has that many workers; return the moment."""
    end = time.time() + SHRINK_TIMEOUT_S
    while len(client.nthreads()) != count:
        if time.time() > end:
            raise TimeoutError(
                f"the cluster did not come to {count} workers in {SHRINK_TIMEOUT_S:g} s"
            )
        time.sleep(0.05)
    return time.time()


def _worker_times(client, begin, end):
    """Return when the first worker came, and the seconds that all of them were there."""
    came = {}
    seconds = 0.0
    for moment, event in client.get_events("all"):
        if moment < begin or moment > end:
            continue
        if event.get("action") == "add-worker":
            came[event["worker"]] = moment
        elif event.get("action") == "remove-worker" and event["worker"] in came:
            seconds += moment - came[event["worker"]]
    return min(came.values()), seconds
