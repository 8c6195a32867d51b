"""Stability workloads: the same cluster, for long, with all sorts of work."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import cache
from uuid import uuid4

from _memory import await_tasks, count_tasks, own_memory

from benchkit.measure import expect, random_array, random_frame, workload
from benchkit.measure.deadline import deadline

#: A round that takes longer than this hangs.
ROUND_DEADLINE_S = 30.0
#: Rounds of a kind work on so many different data, whose answers are then computed once.
N_DATA = 5
#: A worker's memory may grow so fast, in B/s, in the later half of a run of at least so many
#: seconds; in shorter ones it is noise. It grew by 7 MiB a minute with Dask 2026.8 in ten minutes,
#: and as fast in two without capture: among others, workers keep profiles of 1000 s. Four times
#: that is a leak.
STEEPEST, LONG_S = 28 * 2**20 / 60, 300

#: By this an error that a task was meant to raise is known in a log.
MEANT = "fails at its first attempt"


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
    """Do small pieces of work of many kinds in random order, and see that nothing is left behind.

    Stresses what only shows in time: tasks that are not forgotten, memory that is not given back,
    rounds that hang, errors in logs. Kinds: a sum and a product of arrays, a group-by, a map of
    futures, a tree, a scatter with a gather, tasks that fail at first, futures that are dropped and
    cancelled. The clock tells nothing, for it decides when to stop; the rate of rounds does. The
    slope is that of the mean worker's memory in the later half.

    Scale: rounds of 0.02 x cluster memory x the fraction, or of 50 tasks, for 20 s (or 600) x the
    fraction, and each kind at least twice. About 21 s on 2 x 1 x 1 GiB.
    Check: the answer of each round, by NumPy or in closed form; no round takes longer than 30 s; no
    task is left on the scheduler; no error in a log but those that were meant; and in 300 s or
    more, a slope of at most 28 MiB a minute: four times that of Dask 2026.8.
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
    # The clock is looked at a moment after the last round has ended.
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
        expect(slope, at_most=STEEPEST, what="growth of a worker's memory (B/s)")
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
    # Each kind comes once before any comes again, so that short runs have all.
    names = sorted(_KINDS)
    return names[number] if number < len(names) else rng.choice(names)


def _errors(client):
    """Return the errors in the logs of all processes, with how often each is there."""
    logs = [client.get_scheduler_logs(), *client.get_worker_logs().values()]
    return Counter(
        line
        for log in logs
        for level, line in log
        if level in ("ERROR", "CRITICAL") and MEANT not in line
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
    # Each worker fails once at a number: so many attempts are enough on any cluster.
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


#: What a round of each kind does, and what it should give.
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
    """Fail on the first attempt of every fourth number on each worker, as it remembers them."""
    from distributed import get_worker

    tried = get_worker().__dict__.setdefault("benchkit_tried", set())
    if number % 4 == 0 and (turn, number) not in tried:
        tried.add((turn, number))
        raise ValueError(f"{number} {MEANT}")
    return number


def _forget_tried(dask_worker):
    vars(dask_worker).pop("benchkit_tried", None)
