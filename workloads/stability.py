"""Stability workloads: the same cluster, for long, with all sorts of work."""

from __future__ import annotations

import random
import time

from benchkit.measure import expect, random_array, random_frame, workload

#: A round that takes longer than this hangs.
ROUND_DEADLINE_S = 30.0


@workload(
    tags=["stability", "leak", "ci", "nightly"],
    requires=["numpy", "pandas", "dask.array", "dask.dataframe"],
    deadline_s=300,
    metrics={"slowest_round": "s", "memory_slope": "B/s", "tasks_left": "1"},
)
def soak(client, scale, seed, prepared):
    """Do small pieces of work of many kinds in random order, and see that nothing is left behind.

    Stresses what only shows in time: tasks that are not forgotten, memory that is not given back,
    rounds that hang. Kinds: a sum and a product of arrays, a group-by, a map of futures, a tree, a
    scatter with a gather, tasks that fail at first, futures that are dropped and cancelled.

    Scale: 60 rounds x the fraction, each of 0.02 x cluster memory or 50 tasks.
    About 15 s on 2 x 1 x 1 GiB.
    Check: the answer of each round, by NumPy or in closed form; no round takes longer than 30 s;
    and no task is left on the scheduler.
    """
    rng = random.Random(seed)
    rounds = []
    for number in range(_rounds(scale)):
        # Each kind comes once before any comes again, so that short runs have all.
        kind = _order(rng, number)
        begin = time.perf_counter()
        got, wanted = _KINDS[kind](client, scale, number)
        seconds = time.perf_counter() - begin
        memory = sum(client.run(_process_memory).values())
        rounds.append(
            {
                "kind": kind,
                "got": got,
                "wanted": wanted,
                "seconds": seconds,
                "memory": memory,
                "at": begin,
            }
        )
    return {"rounds": rounds, "tasks": _await_tasks(client, prepared) - prepared}


@soak.prepare
def _(client):
    return client.run_on_scheduler(_count_tasks)


@soak.check
def _(result, scale):
    import numpy as np

    rounds = result["rounds"]
    expect(len(rounds), equals=_rounds(scale), what="rounds")
    for number, each in enumerate(rounds):
        what = f"round {number} ({each['kind']})"
        expect(each["got"], close_to=each["wanted"], rtol=1e-9, what=what)
        expect(each["seconds"], at_most=ROUND_DEADLINE_S, what=f"seconds of {what}")
    expect(result["tasks"], at_most=0, what="tasks left on the scheduler")
    later = rounds[len(rounds) // 2 :]
    slope = np.polyfit([each["at"] for each in later], [each["memory"] for each in later], 1)[0]
    return {
        "slowest_round": max(each["seconds"] for each in rounds),
        "memory_slope": slope,
        "tasks_left": result["tasks"],
    }


def _rounds(scale):
    return max(2 * len(_KINDS), round(60 * scale.fraction))


def _order(rng, number):
    names = sorted(_KINDS)
    return names[number] if number < len(names) else rng.choice(names)


def _sum_of_array(client, scale, number):
    import numpy as np

    side = max(64, round((scale.linear(0.02) / 8) ** 0.5))
    array = random_array((side, side), chunks=(-(-side // 3), -1), seed=number)
    sums = array.sum(axis=0).compute()
    rows = array.sum(axis=1).compute()
    return float(sums.sum()), float(np.sum(rows))


def _product_of_arrays(client, scale, number):
    import dask.array as da
    import numpy as np

    side = max(32, round((scale.linear(0.01) / 8) ** 0.5) // 4)
    left = np.arange(side * side, dtype=float).reshape(side, side) % (number + 7)
    array = da.from_array(left, chunks=-(-side // 2))
    return float((array @ array.T).sum().compute()), float((left.sum(axis=0) ** 2).sum())


def _group_by(client, scale, number):
    frame = random_frame(
        scale.linear(0.01),
        {"int": 2, "float": 1},
        partition_bytes=scale.linear(0.01) / 4,
        seed=number,
    )
    sums = frame.groupby("int_0")["int_1"].sum().compute()
    plain = frame[["int_0", "int_1"]].compute()
    wanted = plain.groupby("int_0")["int_1"].sum()
    weights = sums.index.to_numpy() + 1
    return (
        [len(sums), int((sums * weights).sum())],
        [len(wanted), int((wanted * (wanted.index.to_numpy() + 1)).sum())],
    )


def _map_of_futures(client, scale, number):
    results = client.gather(client.map(_square, range(50), pure=False))
    return results, [i * i for i in range(50)]


def _tree(client, scale, number):
    level = client.map(_square, range(32), pure=False)
    while len(level) > 1:
        level = client.map(_add, level[::2], level[1::2], pure=False)
    return level[0].result(), sum(i * i for i in range(32))


def _scatter_and_gather(client, scale, number):
    data = [bytes([number % 256]) * (100 + i) for i in range(10)]
    futures = client.scatter(data, hash=False)
    back = client.gather(client.map(len, futures, pure=False))
    return back, [len(each) for each in data]


def _failing(client, scale, number):
    # Each worker fails once at a number: so many attempts are enough on any cluster.
    retries = len(client.nthreads()) + 1
    marks = client.map(_fail_first, range(20), turn=number, retries=retries, pure=False)
    return client.gather(marks), list(range(20))


def _dropped_and_cancelled(client, scale, number):
    dropped = client.map(_nap, range(20), pure=False)
    cancelled = client.map(_nap, range(20), pure=False)
    client.cancel(cancelled)
    kept = dropped[:3]
    del dropped
    return client.gather(kept), [0, 1, 2]


_KINDS = {
    "sum": _sum_of_array,
    "product": _product_of_arrays,
    "groupby": _group_by,
    "map": _map_of_futures,
    "tree": _tree,
    "scatter": _scatter_and_gather,
    "failing": _failing,
    "dropped": _dropped_and_cancelled,
}


def _square(number):
    return number * number


def _add(first, second):
    return first + second


def _nap(number):
    time.sleep(0.01)
    return number


def _fail_first(number, *, turn):
    """Fail on the first attempt of every fourth number on each worker, as it remembers them."""
    from distributed import get_worker

    worker = get_worker()
    tried = worker.__dict__.setdefault("benchkit_tried", set())
    if number % 4 == 0 and (turn, number) not in tried:
        tried.add((turn, number))
        raise ValueError(f"{number} fails at its first attempt")
    return number


def _process_memory():
    import psutil

    return psutil.Process().memory_info().rss


def _count_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


def _await_tasks(client, wanted):
    end = time.monotonic() + 10
    while (count := client.run_on_scheduler(_count_tasks)) > wanted and time.monotonic() < end:
        time.sleep(0.05)
    return count
