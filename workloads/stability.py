"""Stability workloads: long runs of many kinds of work on one cluster."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import cache
from uuid import uuid4

from _memory import await_tasks, count_tasks, own_memory

from benchkit.measure import expect, random_array, random_frame, workload
from benchkit.measure.deadline import deadline

#: Longest time of a round: longer ones hang.
ROUND_DEADLINE_S = 30.0
#: Number of different inputs of rounds of a kind; expected results are computed once for each.
N_DATA = 5
#: Largest growth of the memory of a worker in B/s, in the second half of a run of at least LONG_S
#: seconds; in shorter runs it is noise. It grew by 7 MiB per minute with Dask 2026.8 over ten
#: minutes, also without capture: among others, workers keep profiles of 1000 s. Four times that
#: is a leak.
MAX_GROWTH, LONG_S = 28 * 2**20 / 60, 300

#: Text of intended errors, to find them in logs.
INTENDED_ERROR = "fails at its first attempt"


@workload(
    variants={"seconds": [20, 600]},
    tags=["stability", "leak", "ci[seconds=20]", "nightly[seconds=20]"],
    requires=["numpy", "pandas", "dask.array", "dask.dataframe"],
    deadline_s=900,
    version=2,
    metrics={
        "round_rate": "1/s", "slowest_round": "s", "memory_slope": "B/s", "tasks_left": "1"
    },
)  # fmt: skip
def soak(client, scale, seed, prepared, *, seconds):
    """Run small computations of many kinds in random order, and check that nothing is left behind.

    Stresses problems that need time to appear: tasks that are not forgotten, memory that is not
    released, rounds that hang, errors in logs. Kinds: a sum and a product of arrays, a group-by, a
    map of futures, a tree, a scatter with a gather, tasks that fail at first, futures that are
    dropped and cancelled. The duration is fixed, so that the rate of rounds is the metric of speed.
    The memory slope is that of the mean worker in the second half.

    Scale: rounds of 0.02 x cluster memory x fraction, or of 50 tasks, for 20 s (or 600 s) x
    fraction, and each kind at least twice.
    About 21 s on 2 x 1 x 1 GiB.
    Check: the result of each round, by NumPy or in closed form; no round takes longer than 30 s; no
    task is left on the scheduler; no unintended error in the logs; and in 300 s or more, a slope of
    at most 28 MiB per minute: four times that of Dask 2026.8.
    """
    rng = random.Random(seed)
    rounds = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds * scale.fraction or len(rounds) < 2 * len(_KINDS):
        number = len(rounds)
        kind = _order(rng, number)
        began = time.perf_counter()
        with deadline(ROUND_DEADLINE_S, f"round {number} ({kind})"):
            got = _KINDS[kind][0](client, scale, number % N_DATA)
        ended = time.perf_counter()
        memory = client.run(own_memory).values()
        rounds.append(
            {
                "kind": kind,
                "got": got,
                "seconds": ended - began,
                "memory": sum(memory) / len(memory),
                "at": ended - begin,
            }
        )
    return {
        "rounds": rounds,
        "tasks": await_tasks(client, prepared["tasks"]) - prepared["tasks"],
        "errors": list((_errors(client) - prepared["errors"]).elements()),
    }


@soak.prepare
def _(client):
    return {"tasks": client.run_on_scheduler(count_tasks), "errors": _errors(client)}


@soak.check
def _(result, scale, *, seconds):
    import numpy as np

    rounds = result["rounds"]
    # The time is read shortly after the end of the last round.
    expect(rounds[-1]["at"], at_least=0.9 * seconds * scale.fraction, what="seconds")
    expect(len(rounds), at_least=2 * len(_KINDS), what="rounds")
    wanted = cache(lambda kind, number: _KINDS[kind][1](scale, number))
    for number, each in enumerate(rounds):
        what = f"round {number} ({each['kind']})"
        expect(each["got"], close_to=wanted(each["kind"], number % N_DATA), rtol=1e-9, what=what)
        expect(each["seconds"], at_most=ROUND_DEADLINE_S, what=f"seconds of {what}")
    expect(result["tasks"], at_most=0, what="tasks left on the scheduler")
    expect(result["errors"], equals=[], what="errors in logs")
    later = rounds[len(rounds) // 2 :]
    slope = np.polyfit([each["at"] for each in later], [each["memory"] for each in later], 1)[0]
    if rounds[-1]["at"] >= LONG_S:
        expect(slope, at_most=MAX_GROWTH, what="growth of a worker's memory (B/s)")
    return {
        "round_rate": len(rounds) / rounds[-1]["at"],
        "slowest_round": max(each["seconds"] for each in rounds),
        "memory_slope": slope,
        "tasks_left": result["tasks"],
    }


@soak.cleanup
def _(client):
    client.run(_forget_tried)


def _order(rng, number):
    # Each kind runs once before any runs again, so that short runs have all kinds.
    names = sorted(_KINDS)
    return names[number] if number < len(names) else rng.choice(names)


def _errors(client):
    """Return the errors in the logs of all processes, with their number."""
    logs = [client.get_scheduler_logs(), *client.get_worker_logs().values()]
    return Counter(
        line
        for log in logs
        for level, line in log
        if level in ("ERROR", "CRITICAL") and INTENDED_ERROR not in line
    )


def _sum_of_array(client, scale, number):
    return float(_array(scale, number).sum(axis=0).compute().sum())


def _wanted_sum(scale, number):
    return float(_array(scale, number).sum(axis=1).compute().sum())


def _array(scale, number):
    side = max(64, round((scale.linear(0.02) / 8) ** 0.5))
    return random_array((side, side), chunks=(-(-side // 3), -1), seed=number)


def _product_of_arrays(client, scale, number):
    import dask.array as da

    left = _left(scale, number)
    array = da.from_array(left, chunks=-(-len(left) // 2))
    return float((array @ array.T).sum().compute())


def _wanted_product(scale, number):
    return float((_left(scale, number).sum(axis=0) ** 2).sum())


def _left(scale, number):
    import numpy as np

    side = max(32, round((scale.linear(0.01) / 8) ** 0.5) // 4)
    return np.arange(side * side, dtype=float).reshape(side, side) % (number + 7)


def _group_by(client, scale, number):
    return _fingerprint(_frame(scale, number).groupby("int_0")["int_1"].sum().compute())


def _wanted_groups(scale, number):
    plain = _frame(scale, number)[["int_0", "int_1"]].compute()
    return _fingerprint(plain.groupby("int_0")["int_1"].sum())


def _frame(scale, number):
    nbytes = scale.linear(0.01)
    return random_frame(nbytes, {"int": 2, "float": 1}, partition_bytes=nbytes / 4, seed=number)


def _fingerprint(sums):
    return [len(sums), int((sums * (sums.index.to_numpy() + 1)).sum())]


def _map_of_futures(client, scale, number):
    return client.gather(client.map(_square, range(50), pure=False))


def _tree(client, scale, number):
    level = client.map(_square, range(32), pure=False)
    while len(level) > 1:
        level = client.map(_add, level[::2], level[1::2], pure=False)
    return level[0].result()


def _scatter_and_gather(client, scale, number):
    data = [bytes([number]) * (100 + i) for i in range(10)]
    futures = client.scatter(data, hash=False)
    return client.gather(client.map(len, futures, pure=False))


def _failing(client, scale, number):
    # Each worker fails once for a number: this many attempts suffice on any cluster.
    retries = len(client.nthreads()) + 1
    turn = uuid4().hex
    return client.gather(client.map(_fail_first, range(20), turn=turn, retries=retries, pure=False))


def _dropped_and_cancelled(client, scale, number):
    dropped = client.map(_nap, range(20), pure=False)
    cancelled = client.map(_nap, range(20), pure=False)
    client.cancel(cancelled)
    kept = dropped[:3]
    del dropped
    return client.gather(kept)


#: Kind -> function of a round, and function of its expected result.
_KINDS = {
    "sum": (_sum_of_array, _wanted_sum),
    "product": (_product_of_arrays, _wanted_product),
    "groupby": (_group_by, _wanted_groups),
    "map": (_map_of_futures, lambda scale, number: [i * i for i in range(50)]),
    "tree": (_tree, lambda scale, number: sum(i * i for i in range(32))),
    "scatter": (_scatter_and_gather, lambda scale, number: [100 + i for i in range(10)]),
    "failing": (_failing, lambda scale, number: list(range(20))),
    "dropped": (_dropped_and_cancelled, lambda scale, number: [0, 1, 2]),
}


def _square(number):
    return number * number


def _add(first, second):
    return first + second


def _nap(number):
    time.sleep(0.01)
    return number


def _fail_first(number, *, turn):
    """Fail at the first attempt of every fourth number on each worker, which records attempts."""
    from distributed import get_worker

    tried = get_worker().__dict__.setdefault("benchkit_tried", set())
    if number % 4 == 0 and (turn, number) not in tried:
        tried.add((turn, number))
        raise ValueError(f"{number} {INTENDED_ERROR}")
    return number


def _forget_tried(dask_worker):
    vars(dask_worker).pop("benchkit_tried", None)
