"""Adaptive workloads: clusters that grow and shrink with the load."""

from __future__ import annotations

import time

from benchkit.measure import expect, workload

NAP_S = 0.2
BARRIER_S = 4.0
TASKS_PER_THREAD = 20
#: What each task reports to, so that one that runs twice is seen.
TOPIC = "benchkit-adaptive-ran"
#: An idle cluster has shrunk after a second or two; longer means that it does not.
SHRINK_TIMEOUT_S = 30.0


@workload(
    tags=["scaling", "first-twelve", "quick"],
    features=["adaptive"],
    deadline_s=120,
    metrics={"grow_latency": "s", "shrink_latency": "s", "worker_seconds_ratio": "1"},
)
def expand_contract_expand(client, scale, prepared):
    """Fan out, meet in one long task, fan out again, on a cluster that starts without workers.

    The cluster should grow at once, fall to one worker at the barrier without losing the results
    that it needs, grow again, and give all workers back at the end. Stresses adaptive scaling,
    the retirement of workers that hold data, and the start of workers.

    Scale: 20 tasks of 0.2 s for each thread, twice, and one of 4 s: seconds, whatever the
    cluster; at most as many workers as it had. About 15 s on 2 x 1 x 1 GiB, most of it waiting.
    Check: the sums at the barrier and at the end, and no task ran twice.
    """
    count = _count(scale)
    begin = time.time()
    client.cluster.adapt(
        minimum=0,
        maximum=prepared,
        interval="100ms",
        target_duration="1s",
        wait_count=3,
    )
    first = client.map(_nap, range(count), pure=False)
    barrier = client.submit(_add_up, first, pure=False)
    del first
    second = client.map(_nap, range(count, 2 * count), after=barrier, pure=False)
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
    return scale.workers


@expand_contract_expand.check
def _(client, result, scale):
    count = _count(scale)
    halves = sum(range(count)), sum(range(count, 2 * count))
    expect(result["sums"], equals=list(halves), what="sums at the barrier and at the end")
    ran = sorted(number for _, number in client.get_events(TOPIC))
    expect(ran, equals=[*range(-1, 2 * count)], what="tasks that ran")
    came, worker_seconds = _worker_times(client, result["begin"], result["shrunk"])
    ideal = (2 * count * NAP_S + BARRIER_S) * scale.workers / scale.threads
    return {
        "grow_latency": came - result["begin"],
        "shrink_latency": result["shrunk"] - result["end"],
        "worker_seconds_ratio": worker_seconds / ideal,
    }


@expand_contract_expand.cleanup
def _(client, prepared=0):
    if hasattr(client.cluster, "adapt"):
        client.cluster.adapt(minimum=prepared, maximum=prepared).stop()
        client.cluster.scale(prepared)


def _count(scale):
    return max(4 * scale.threads, round(TASKS_PER_THREAD * scale.threads * scale.fraction))


def _nap(number, after=None):
    from distributed import get_worker

    get_worker().log_event(TOPIC, number)
    time.sleep(NAP_S)
    return number


def _add_up(numbers):
    from distributed import get_worker

    get_worker().log_event(TOPIC, -1)
    time.sleep(BARRIER_S)
    return sum(numbers)


def _await_workers(client, count):
    """Wait until the cluster has that many workers; return the moment."""
    end = time.time() + SHRINK_TIMEOUT_S
    while len(client.sync(client.scheduler.identity)["workers"]) != count:
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
