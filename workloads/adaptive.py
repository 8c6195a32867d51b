"""Adaptive workloads: clusters that grow and shrink with the load."""

from __future__ import annotations

import time

from _task_events import log_number, logged_numbers, logged_times, new_topic
from _two_workers import two_workers

from benchkit.measure import expect, workload

NAP_S = 0.2
TASKS_PER_THREAD = 20
#: Event numbers of the barrier's begin and end; other tasks have numbers from 0 on.
BEGAN, ENDED = -2, -1
#: A single worker takes 8 s for the second map (4 s at a small fraction). Adaptive scaling stops
#: while a worker closes: up to 4 s, until it is killed, if a heartbeat delays its end.
MOST_ALONE_S = 7.5
#: An idle cluster shrinks within 2 s; after this time it never will.
SHRINK_TIMEOUT_S = 30.0
#: Number that scattered inputs add to each result.
OFFSET = 1000
#: Interval of tasks in a stream.
EVERY_S = 0.25
#: Most workers that may start or stop in the second half of a steady stream.
MOST_LATE_CHANGES = 4


@workload(
    tags=["scaling", "first-twelve", "quick", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    version=2,
    metrics={
        "grow_latency": "s",
        "contract_latency": "s",
        "regrow_latency": "s",
        "shrink_latency": "s",
        "worker_seconds_ratio": "1",
    },
)
def expand_contract_expand(client, scale, prepared):
    """Run a wide map, a single task and another wide map, on a cluster that starts without workers.

    The cluster should grow at once, shrink to one worker at the single task (the barrier) without
    losing results that are still needed, grow again, and shrink to zero at the end. The barrier
    waits for the shrink, so that all runs begin the second map alike. Stresses adaptive scaling,
    retirement of workers with data, and start of workers (coiled/benchmarks#134).

    Scale: 20 tasks of 0.2 s per thread, twice: the same seconds on any cluster; at most as many
    workers as the cluster had. About 10 s on 2 x 1 x 1 GiB, mostly waiting.
    Check: sums at the barrier and at the end; no task ran twice; the scheduler had at least two
    workers before the barrier, one at its end, two or more within 7.5 s after it, none at the end.
    """
    count, topic = _count(scale), prepared["topic"]
    begin = time.time()
    _adapt(client, prepared)
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
    _await_workers(client, 0)
    return {
        "sums": sums,
        "begin": begin,
        "end": end,
        "reports": logged_times(client, topic, first=BEGAN, stop=2 * count),
        "changes": _changes(client, since=begin),
    }


@expand_contract_expand.prepare
def _(client, scale):
    two_workers(client)  # a cluster of one worker cannot shrink
    return _no_workers(client, scale)


@expand_contract_expand.check
def _(result, scale):
    count = _count(scale)
    halves = sum(range(count)), sum(range(count, 2 * count))
    expect(result["sums"], equals=list(halves), what="sums at the barrier and at the end")
    ran = sorted(number for _, number in result["reports"])
    expect(ran, equals=[*range(BEGAN, 2 * count)], what="tasks that ran")
    moments = {number: moment for moment, number in result["reports"]}
    began, ended = moments[BEGAN], moments[ENDED]
    history = [(result["begin"], 0)]
    for moment, change in result["changes"]:
        history.append((moment, history[-1][1] + change))
    before = [number for moment, number in history if moment < ended]
    expect(max(before), at_least=2, what="workers before the barrier")
    expect(before[-1], equals=1, what="workers at the end of the barrier")
    again = [moment for moment, number in history if moment > ended and number >= 2]
    alone = min([result["end"], *again]) - ended
    expect(alone, at_most=MOST_ALONE_S, what="seconds of one worker alone after the barrier")
    expect(history[-1][1], equals=0, what="workers at last")
    ideal = 2 * count * NAP_S * scale.workers / scale.threads + ended - began
    return {
        "grow_latency": history[1][0] - result["begin"],
        "contract_latency": ended - began,
        "regrow_latency": alone,
        "shrink_latency": history[-1][0] - result["end"],
        "worker_seconds_ratio": -sum(moment * change for moment, change in result["changes"])
        / ideal,
    }


@workload(
    variants={"inputs": ["plain", "scattered"]},
    tags=["scaling", "latency", "nightly", "ci[inputs=plain]"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"first_start": "s"},
)
def scale_from_zero(client, scale, prepared, *, inputs):
    """Submit tasks to an adaptive cluster that has no workers.

    Stresses the first scale-up: the time until the scheduler requests workers, and until the first
    task runs. Scattering to a cluster without workers fails (distributed#6686, open), therefore the
    scattered variant first submits a task, which starts a worker.

    Scale: 10 tasks of 0.2 s per thread x fraction, on any cluster; at most as many workers as the
    cluster had. About 5 s on 2 x 1 x 1 GiB.
    Check: the result of each task; each ran once.
    """
    begin = time.time()
    _adapt(client, prepared)
    count, topic, offset = _few(scale), prepared["topic"], 0
    if inputs == "scattered":
        woken = client.submit(_nap_topic, -1, topic=topic, pure=False)
        offset = client.scatter(OFFSET, timeout=SHRINK_TIMEOUT_S)
    futures = client.map(_nap_topic, range(count), offset=offset, topic=topic, pure=False)
    results = client.gather(futures)
    if inputs == "scattered":
        woken.result()
    reports = logged_times(client, topic, first=-1, stop=count)
    return {"results": results, "begin": begin, "reports": reports}


@scale_from_zero.check
def _(result, scale, *, inputs):
    scattered = inputs == "scattered"
    offset = OFFSET if scattered else 0
    expect(result["results"], equals=[i + offset for i in range(_few(scale))], what="results")
    ran = sorted(number for _, number in result["reports"])
    wanted = list(range(-1 if scattered else 0, _few(scale)))
    expect(ran, equals=wanted, what="tasks that ran")
    return {"first_start": min(moment for moment, _ in result["reports"]) - result["begin"]}


@workload(
    tags=["scaling", "memory", "transfer", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"shrink_latency": "s"},
)
def retire_with_data(client, scale, prepared):
    """Let an adaptive cluster retire half of its workers while all workers hold results.

    Stresses retirement: results must be copied to the remaining workers before a worker stops, and
    nothing may be recomputed.

    Scale: results of 0.1 x cluster memory x fraction, eight per worker.
    About 1 s on 2 x 1 x 1 GiB.
    Check: a remaining worker holds each result; all checksums; no task ran twice.
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
    _adapt(client, prepared, minimum=prepared["left"])
    shrunk = _await_workers(client, prepared["left"])
    holders = client.who_has(futures)
    return {
        "held": [len(each) for each in holders.values()],
        "sums": client.gather(client.map(_checksum, futures, pure=False)),
        "ran": logged_numbers(client, prepared["topic"], first=0, stop=prepared["count"]),
        "s": shrunk - begin,
    }


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
def _(result, prepared):
    count = prepared["count"]
    expect(len(result["held"]), equals=count, what="keys")
    expect(result["held"], at_least=1, what="workers that hold a key")
    sums = [_checksum(_made(i, prepared["nbytes"])) for i in range(count)]
    expect(result["sums"], equals=sums, what="checksums")
    expect(result["ran"], equals=list(range(count)), what="tasks that ran")
    return {"shrink_latency": result["s"]}


@workload(
    tags=["scaling", "stability", "ci", "nightly"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"changes": "1", "late_changes": "1"},
)
def oscillation(client, scale, prepared):
    """Submit tasks to an adaptive cluster at a constant rate, the capacity of two threads.

    Stresses the damping of adaptive scaling: the load is constant, so the number of workers should
    become constant too (distributed#1604). Metrics: workers started or stopped, in total and in the
    second half.

    Scale: a task of 0.5 s every 0.25 s for 20 s x fraction, on any cluster.
    About 21 s on 2 x 1 x 1 GiB.
    Check: the result of each task; each ran once; at most four workers started or stopped in the
    second half.
    """
    begin, topic = time.time(), prepared["topic"]
    _adapt(client, prepared)
    futures = []
    for number in range(_stream(scale)):
        futures.append(client.submit(_nap_topic, number, nap_s=0.5, topic=topic, pure=False))
        time.sleep(max(0.0, begin + (number + 1) * EVERY_S - time.time()))
    half = begin + _stream(scale) * EVERY_S / 2
    results, end = client.gather(futures), time.time()
    return {
        "results": results,
        "ran": logged_numbers(client, topic, first=0, stop=_stream(scale)),
        "changes": [each for each, _ in _changes(client, since=begin) if each <= end],
        "half": half,
    }


@oscillation.check
def _(result, scale):
    numbers = list(range(_stream(scale)))
    expect(result["results"], equals=numbers, what="results")
    expect(result["ran"], equals=numbers, what="tasks that ran")
    expect(len(result["changes"]), at_least=1, what="workers that came")
    late = sum(moment > result["half"] for moment in result["changes"])
    expect(late, at_most=MOST_LATE_CHANGES, what="workers that came or went in the second half")
    return {"changes": len(result["changes"]), "late_changes": late}


@scale_from_zero.prepare
@oscillation.prepare
def _no_workers(client, scale):
    client.cluster.scale(0)
    _await_workers(client, 0)
    return {"workers": scale.workers, "topic": new_topic("adaptive")}


@expand_contract_expand.cleanup
@scale_from_zero.cleanup
@retire_with_data.cleanup
@oscillation.cleanup
def _restore_workers(client, prepared=None):
    """Stop adaptive scaling and restore the number of workers."""
    if prepared and hasattr(client.cluster, "adapt"):
        workers = prepared["workers"]
        client.cluster.adapt(minimum=workers, maximum=workers).stop()
        client.cluster.scale(workers)


def _adapt(client, prepared, minimum=0):
    client.cluster.adapt(
        minimum=minimum,
        maximum=prepared["workers"],
        interval="100ms",
        target_duration="1s",
        wait_count=3,
    )


def _few(scale):
    return max(4, round(10 * scale.threads * scale.fraction))


def _stream(scale):
    return max(16, round(80 * scale.fraction))


def _nap_topic(number, *, topic, offset=0, nap_s=NAP_S):
    log_number(topic, number)
    time.sleep(nap_s)
    return number + offset


def _filled(number, *, nbytes, topic):
    log_number(topic, number)
    return _made(number, nbytes)


def _made(number, nbytes):
    import numpy as np

    return np.random.default_rng(number).bytes(nbytes)


def _checksum(data):
    from zlib import crc32

    return crc32(data)


def _count(scale):
    return max(10 * scale.threads, round(TASKS_PER_THREAD * scale.threads * scale.fraction))


def _nap(number, *, topic, after=None):
    log_number(topic, number)
    time.sleep(NAP_S)
    return number


def _add_up(numbers, *, topic):
    from distributed import get_client

    log_number(topic, BEGAN)
    _await_workers(get_client(), 1)
    log_number(topic, ENDED)
    return sum(numbers)


def _await_workers(client, count):
    """Wait until the cluster has this number of workers; return the time."""
    end = time.time() + SHRINK_TIMEOUT_S
    while len(client.nthreads()) != count:
        if time.time() > end:
            raise TimeoutError(
                f"the cluster did not come to {count} workers in {SHRINK_TIMEOUT_S:g} s"
            )
        time.sleep(0.05)
    return time.time()


def _changes(client, since):
    """Return the times (s since the epoch) at which workers started (1) and stopped (-1)."""
    counts = {"add-worker": 1, "remove-worker": -1}
    return [
        (moment, counts[event["action"]])
        for moment, event in client.get_events("all")
        if moment >= since and event.get("action") in counts
    ]
