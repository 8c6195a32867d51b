"""Futures workloads: tasks that are submitted one by one, not as one graph."""

from __future__ import annotations

import time

from _tasks import count_tasks, fresh

from benchkit.measure import expect, workload

#: Sleep of each step of a pipeline, and the longest job of a queue, at reference memory.
NAP_S, JOB_S = 0.4, 1.2
#: A queue of jobs must end within 1.15 times the time that jobs of the largest length would take,
#: plus the overhead of very short jobs.
MOST_OF_LONGEST, OVERHEAD_S = 1.15, 5.0
N_ROUNDS = 3
#: Time in which the scheduler must forget cancelled tasks.
FORGET_S = 60.0


@workload(tags=["latency", "overhead", "ci", "nightly"])
def single(client, scale):
    """Submit one small task after another and wait for each.

    Stresses latency: every task is a round trip from client to scheduler to worker and back, and
    nothing runs meanwhile. Noisy; a change of a millisecond in any of the messages is visible.

    Scale: 400 tasks x fraction, on any cluster.
    About 7 s on 2 x 1 x 1 GiB.
    Check: each result is its argument plus one.
    """
    return [client.submit(_inc, i, pure=False).result() for i in range(_singles(scale))]


@single.check
def _(result, scale):
    expect(result, equals=[i + 1 for i in range(_singles(scale))], what="answers")


@workload(
    variants={"kind": ["rootish", "non-rootish"]},
    tags=["overhead", "root-tasks", "nightly", "ci[kind=rootish]"],
)
def large_map(client, scale, *, kind):
    """Map a trivial function over many items.

    Stresses the scheduler: root-like tasks are queued there and sent a few at a time; tasks that
    also need the results of five others are placed by their data, and may be stolen.

    Scale: 4000 tasks x fraction, on any cluster.
    About 12 s on 2 x 1 x 1 GiB.
    Check: the result of each item, once.
    """
    from distributed import wait

    futures = _mapped(client, scale, kind)
    wait(futures)
    return futures


@large_map.check
def _(client, result, scale):
    expect(client.gather(result), equals=[i + 1 for i in range(_count(scale))], what="results")


@workload(tags=["latency", "root-tasks", "ci", "nightly"], metrics={"first_result": "s"}, version=2)
def large_map_first(client, scale):
    """Map a trivial function over many items and wait for the first result, three times.

    Stresses submission: the time until the first task has run when all are submitted at once. The
    remaining tasks are cancelled before the next round, which the metric excludes: it is the time
    to the first result in the median round.

    Scale: 4000 tasks x fraction, on any cluster.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the first result of each round is that of its item.
    """
    import numpy as np
    from distributed import as_completed

    items, answers, seconds = [], [], []
    for _ in range(N_ROUNDS):
        name = fresh("first")
        keys = [f"{name}-{i}" for i in range(_count(scale))]
        begin = time.perf_counter()
        futures = client.map(_inc, range(len(keys)), key=keys)
        first = next(iter(as_completed(futures)))
        seconds.append(time.perf_counter() - begin)
        items.append(keys.index(first.key))
        answers.append(first.result())
        client.cancel(futures)
        _await_forgotten(client, name)
    return {"item": np.array(items), "answer": np.array(answers), "seconds": seconds}


@large_map_first.check
def _(result):
    import statistics

    expect(len(result["item"]), equals=N_ROUNDS, what="rounds")
    expect(result["answer"], equals=result["item"] + 1, what="result of the first that was done")
    return {"first_result": statistics.median(result["seconds"])}


@workload(tags=["memory", "pipeline", "ci", "nightly"], version=2)
def memory_efficient(client, scale, seed):
    """Process many arrays in two slow steps, and release each when it is done.

    Stresses the order of work: a scheduler that finishes started work first needs memory for a few
    arrays, one that makes all inputs first needs memory for all: see metric `memory_peak`.

    Scale: 0.5 x cluster memory in total; an array is 1/32 of one thread's memory. A step sleeps 0.4
    s at reference memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: the mean of all numbers is that of uniform ones within 5 sigma, and all were counted.
    """
    from distributed import as_completed

    count, length = _arrays(scale)
    made = client.map(_make, range(count), length=length, seed=seed, pure=False)
    nap_s = scale.seconds(NAP_S)
    doubled = client.map(_double, made, nap_s=nap_s, pure=False)
    sums = client.map(_sum, doubled, nap_s=nap_s, pure=False)
    del made, doubled
    total, seen = 0.0, 0
    for done in as_completed(sums):
        total += done.result()
        seen += 1
        done.release()
    return {"mean": total / 2 / (count * length), "seen": seen}


@memory_efficient.check
def _(result, scale):
    count, length = _arrays(scale)
    sigma = 5 * (1 / 12 / (count * length)) ** 0.5
    expect(result["seen"], equals=count, what="arrays")
    expect(result["mean"], close_to=0.5, atol=sigma, rtol=0, what="mean")


@workload(tags=["memory", "imbalance", "ci", "nightly"], metrics={"idle_share": "1"}, version=2)
def jobqueue(client, scale, seed):
    """Run independent jobs that allocate memory and take between 0 and 0.3 s.

    Stresses the queue of the scheduler: an idle thread should get its next job at once, whatever
    the lengths of other jobs. Jobs sleep, so that the processor is free; the metric is the share of
    thread time without a job.

    Scale: 40 jobs per thread x fraction; a job has 160 MiB and takes up to 1.2 s, both at reference
    memory. About 7 s on 2 x 1 x 1 GiB.
    Check: each job ran once, for its duration, and held its memory; all ended within 1.15 x the
    time of as many jobs of the largest duration.
    """
    naps = _job_naps(scale, seed)
    begin = time.perf_counter()
    jobs = client.map(_job, range(len(naps)), naps, nbytes=scale.chunk("160 MiB"), pure=False)
    reports = client.gather(jobs)
    return {"reports": reports, "seconds": time.perf_counter() - begin}


@jobqueue.check
def _(result, scale, seed):
    naps, reports = _job_naps(scale, seed), result["reports"]
    expect([number for number, _, _ in reports], equals=list(range(len(naps))), what="jobs")
    held = scale.chunk("160 MiB")
    expect([nbytes for _, nbytes, _ in reports], equals=[held] * len(naps), what="bytes held")
    short = [nap - took for nap, (_, _, took) in zip(naps, reports, strict=True)]
    expect(max(short), at_most=0.001, what="seconds that a job was too short")
    longest = len(naps) / scale.threads * scale.seconds(JOB_S)
    most = MOST_OF_LONGEST * longest + OVERHEAD_S
    expect(result["seconds"], at_most=most, what="seconds until all were done")
    busy = sum(took for _, _, took in reports)
    return {"idle_share": 1 - busy / (result["seconds"] * scale.threads)}


def _singles(scale):
    return max(20, round(400 * scale.fraction))


def _count(scale):
    return max(50, round(4000 * scale.fraction))


def _arrays(scale):
    count = max(6, round(0.5 * 32 * scale.threads * scale.fraction))
    return count, scale.chunk_bytes // 8


def _await_forgotten(client, name):
    end = time.perf_counter() + FORGET_S
    while client.run_on_scheduler(count_tasks, name) and time.perf_counter() < end:
        time.sleep(0.02)


def _mapped(client, scale, kind):
    items = range(_count(scale))
    if kind == "rootish":
        return client.map(_inc, items, pure=False)
    roots = client.map(_inc, range(5), pure=False)
    return client.map(_inc, items, others=roots, pure=False)


def _inc(number, others=()):
    return number + 1


def _job_naps(scale, seed):
    import numpy as np

    count = max(8, round(40 * scale.threads * scale.fraction))
    return np.random.default_rng(seed).uniform(0, scale.seconds(JOB_S), count).tolist()


def _job(number, nap_s, *, nbytes):
    import numpy as np

    begin = time.perf_counter()
    held = np.ones(nbytes, dtype=np.uint8)
    time.sleep(nap_s)
    total = int(held.sum(dtype=np.int64))
    return number, total, time.perf_counter() - begin


def _make(number, *, length, seed):
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def _double(array, *, nap_s):
    time.sleep(nap_s)
    return array * 2


def _sum(array, *, nap_s):
    time.sleep(nap_s)
    return float(array.sum())
