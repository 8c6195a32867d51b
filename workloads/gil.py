"""GIL workloads: tasks that hold the global interpreter lock."""

from __future__ import annotations

import time

from benchkit.measure import expect, workload

#: Iterations of one task: about 0.3 s of pure Python.
ITERATIONS = 3_000_000
TASKS_PER_THREAD = 12
#: Data that a worker sends back while tasks run.
PAYLOAD = bytes(range(250)) * 4
#: Interval of these requests.
PAUSE_S = 0.02


@workload(
    tags=["gil", "cpu", "latency", "ci", "nightly"],
    metrics={"iterations_per_thread": "1/s", "ping_median": "ms", "ping_worst": "ms"},
)
def holding(client, scale):
    """Loop in pure Python on every thread, while all workers send back 1 kB on request.

    Stresses the event loop of a worker while tasks hold the GIL: messages wait for the switch
    interval, and the threads of a worker share one interpreter. Compare many workers of one thread
    with few workers of many threads.

    Scale: 12 loops of 3 million iterations per thread x fraction; CPU bound.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the last number of each loop by its closed form, and each reply.
    """
    count = _count(scale)
    begin = time.perf_counter()
    loops = client.map(_loop, range(count), iterations=_iterations(scale), pure=False)
    pings, echoes = [], []
    while not all(loop.done() for loop in loops):
        asked = time.perf_counter()
        echoes.append(client.run(_echo, PAYLOAD))
        pings.append(time.perf_counter() - asked)
        time.sleep(PAUSE_S)
    seconds = time.perf_counter() - begin
    return {"numbers": client.gather(loops), "echoes": echoes, "pings": pings, "seconds": seconds}


@holding.check
def _(result, scale):
    import statistics

    count, iterations = _count(scale), _iterations(scale)
    # The loop adds number + 0, number + 1, ...
    sums = [iterations * number + iterations * (iterations - 1) // 2 for number in range(count)]
    expect(result["numbers"], equals=sums, what="sums of the loops")
    right = all(echo == PAYLOAD for echoes in result["echoes"] for echo in echoes.values())
    expect(right, equals=True, what="echoes are what was sent")
    expect(len(result["echoes"]), at_least=1, what="echoes")
    pings = result["pings"]
    return {
        "iterations_per_thread": count * iterations / result["seconds"] / scale.threads,
        "ping_median": statistics.median(pings) * 1e3,
        "ping_worst": max(pings) * 1e3,
    }


def _count(scale):
    return max(2 * scale.threads, round(TASKS_PER_THREAD * scale.threads * scale.fraction))


def _iterations(scale):
    # A loop shorter than a few switch intervals of 5 ms would delay nothing.
    return max(ITERATIONS // 10, round(ITERATIONS * min(1.0, 2 * scale.fraction)))


def _loop(number, *, iterations):
    total = 0
    for step in range(iterations):
        total += number + step
    return total


def _echo(payload):
    return payload
