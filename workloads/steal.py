"""Stealing workloads: tasks that should move from the worker on which they were placed."""

from __future__ import annotations

import threading
import time

from benchkit.measure import expect, workload

SEED = 42
NAP_S = 0.1
#: Duration of a task of `heavy_deps` at reference memory.
HEAVY_NAP_S = 0.2
#: Tasks with fewer inputs are queued on the scheduler, and queued tasks are not stolen.
N_ROOTS = 6
#: Time after which the cluster of `scaling_up` gets its other workers.
GROW_AFTER_S = 1.5
BLOCK_S, EVERY_S = 0.2, 0.3


@workload(tags=["stealing", "overhead", "ci", "nightly"], metrics={"spread": "1"})
def trivial_fanout(client, scale):
    """Use a few arrays in very many tasks that do nothing with them.

    Stresses stealing where it does not pay: every task depends on data on one worker and takes no
    time, so that moving a task costs more than it saves (distributed#6573, #6624).

    Scale: 3000 tasks x fraction, on any cluster; arrays are 1 MiB at reference memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: the result of each task is its number.
    """
    from distributed import wait

    home = min(client.nthreads())
    sizes = [scale.chunk("1 MiB")] * N_ROOTS
    roots = client.map(bytes, sizes, workers=[home], allow_other_workers=True, pure=False)
    futures = client.map(_number, range(_fan(scale)), data=roots, pure=False)
    wait(futures)
    counts = [len(keys) for keys in client.has_what().values()]
    return {"futures": futures, "counts": counts}


@trivial_fanout.check
def _(client, result, scale):
    expect(client.gather(result["futures"]), equals=list(range(_fan(scale))), what="results")
    counts = result["counts"]
    return {"spread": max(counts) / (sum(counts) / len(counts))}


@workload(tags=["stealing", "imbalance", "ci", "nightly"], metrics={"over_ideal": "1"})
def inhomogeneous(client, scale):
    """Run tasks whose durations differ by a factor of 1000, all placed at once.

    Stresses stealing where it pays: the scheduler has one expected duration for all tasks, places
    equal numbers, and some workers get most of the work.

    Scale: 50 sleeps per thread x fraction, log-normal, the longest 1 s.
    About 6 s on 2 x 1 x 1 GiB.
    Check: each task took at least its duration.
    """
    from distributed import wait

    naps = _naps(scale)
    roots = client.map(int, range(N_ROOTS), pure=False)
    begin = time.perf_counter()
    futures = client.map(_nap, naps, after=roots, pure=False)
    wait(futures)
    return {"naps": client.gather(futures), "seconds": time.perf_counter() - begin}


@inhomogeneous.check
def _(result, scale):
    naps = _naps(scale)
    expect(result["naps"], equals=naps, what="naps")
    ideal = max(sum(naps) / scale.threads, max(naps))
    return {"over_ideal": result["seconds"] / ideal}


@workload(tags=["stealing", "scaling", "ci", "nightly"], features=["scale"])
def scaling_up(client, scale):
    """Start with one worker, and add the others when all tasks are placed.

    Stresses stealing to new workers: tasks that were assigned to the first must move, and then
    every task needs the results of its neighbours.

    Scale: 30 sleeps of 0.1 s per thread x fraction; the other workers start after 1.5 s.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the sum of the numbers of all tasks and their neighbours; the other workers started.
    """
    numbers = range(_blocks(scale))
    grow = threading.Timer(GROW_AFTER_S, client.cluster.scale, [scale.workers])
    grow.start()
    try:
        roots = client.map(int, range(N_ROOTS), pure=False)
        once = client.map(_nap_number, numbers, after=roots, pure=False)
        sides = [once[max(i - 1, 0) : i + 2] for i in numbers]
        total = client.submit(sum, client.map(sum, sides, pure=False), pure=False).result()
        return {"total": total, "workers": len(client.has_what())}
    finally:
        grow.cancel()
        client.cluster.scale(scale.workers)


@scaling_up.prepare
def _(client):
    client.cluster.scale(1)
    end = time.monotonic() + 30
    while len(client.nthreads()) != 1:
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not come down to one worker in 30 s")
        time.sleep(0.05)


@scaling_up.check
def _(result, scale):
    count = _blocks(scale)
    # Each number counts three times, except the two at the ends, which have one neighbour.
    wanted = 3 * sum(range(count)) - (count - 1)
    expect(result["total"], equals=wanted, what="sum with neighbours")
    expect(result["workers"], equals=scale.workers, what="workers at the end")


@workload(tags=["stealing", "straggler", "ci", "nightly"], metrics={"share_of_slow": "1"})
def straggler(client, scale, prepared):
    """Run equal tasks while the event loop of one worker is blocked most of the time.

    Stresses stealing from a worker that hardly responds: it takes tasks, finishes them late, and
    its messages are delayed.

    Scale: 60 sleeps of 0.05 s per thread x fraction.
    About 5 s on 2 x 1 x 1 GiB.
    Check: each task ran and returned its number; the share on the slow worker is a metric.
    """
    from distributed import wait

    roots = client.map(int, range(N_ROOTS), pure=False)
    futures = client.map(_nap_where, range(_equal(scale)), after=roots, pure=False)
    wait(futures)
    return {"ran": client.gather(futures), "slow": prepared}


@straggler.prepare
def _(client):
    slow = sorted(client.nthreads())[0]
    client.run(_block_now_and_then, workers=[slow])
    return slow


@straggler.check
def _(result, scale):
    numbers = [number for number, _ in result["ran"]]
    expect(numbers, equals=list(range(_equal(scale))), what="numbers")
    slow = sum(where == result["slow"] for _, where in result["ran"])
    return {"share_of_slow": slow / len(numbers)}


@straggler.cleanup
def _(client):
    # A worker with a blocked event loop may never finish closing.
    client.run(_block_no_more)


@workload(
    variants={"stealing": ["on", "off"]},
    tags=["stealing", "transfer", "nightly", "ci[stealing=on]"],
    metrics={"moved": "MiB", "over_ideal": "1"},
    version=2,
)
def heavy_deps(client, scale, prepared, *, stealing):
    """Run tasks whose large inputs are all on one worker, while the others are idle.

    Stresses the comparison of work with transfer: each task needs a different array, which an idle
    worker must fetch first. The metric is the size of moved inputs, with stealing enabled, and
    disabled for comparison.

    Scale: 40 tasks per thread of the worker with the inputs x fraction, whatever the cluster: a
    third of its memory; a task takes 0.2 s and an input has 32 MiB, both at reference memory.
    About 2 s on 2 x 1 x 1 GiB.
    Check: each task returned the checksum of its input.
    """
    begin = time.perf_counter()
    nap_s = scale.seconds(HEAVY_NAP_S)
    futures = client.map(_nap_checksum, prepared["inputs"], nap_s=nap_s, pure=False)
    reports = client.gather(futures)
    return {"reports": reports, "seconds": time.perf_counter() - begin}


@heavy_deps.prepare
def _(client, scale, *, stealing):
    from distributed import wait

    was_on = client.run_on_scheduler(_set_stealing, stealing == "on")
    home = min(client.nthreads())
    count, nbytes = _heavy(scale), scale.chunk("32 MiB")
    inputs = client.map(_input, range(count), nbytes=nbytes, workers=[home], pure=False)
    wait(inputs)
    return {"inputs": inputs, "home": home, "was_on": was_on}


@heavy_deps.check
def _(result, scale, prepared):
    from zlib import crc32

    count, nbytes = _heavy(scale), scale.chunk("32 MiB")
    sums = [crc32(_input(i, nbytes=nbytes)) for i in range(count)]
    expect([each for each, _ in result["reports"]], equals=sums, what="checksums")
    moved = sum(where != prepared["home"] for _, where in result["reports"])
    ideal = -(-count // scale.threads) * scale.seconds(HEAVY_NAP_S)
    return {"moved": moved * nbytes / 2**20, "over_ideal": result["seconds"] / ideal}


@heavy_deps.cleanup
def _(client, prepared=None):
    if prepared:
        client.run_on_scheduler(_set_stealing, prepared["was_on"])


def _heavy(scale):
    return max(4, round(40 * scale.threads / scale.workers * scale.fraction))


def _input(number, *, nbytes):
    import numpy as np

    return np.random.default_rng(number).bytes(nbytes)


def _nap_checksum(data, *, nap_s):
    from zlib import crc32

    from distributed import get_worker

    time.sleep(nap_s)
    return crc32(data), get_worker().address


async def _set_stealing(on, dask_scheduler):
    """Enable or disable stealing, if the scheduler has the extension; return the last setting."""
    was_on = "stealing" in dask_scheduler.periodic_callbacks
    extension = dask_scheduler.extensions.get("stealing")
    if extension is not None and on != was_on:
        await (extension.start() if on else extension.stop())
    return was_on


def _fan(scale):
    return max(50, round(3000 * scale.fraction))


def _naps(scale):
    import numpy as np

    count = max(8, round(50 * scale.threads * scale.fraction))
    drawn = np.random.default_rng(SEED).lognormal(1, 1.3, count)
    return np.minimum(drawn / 60, 1.0).tolist()


def _blocks(scale):
    return max(4, round(30 * scale.threads * scale.fraction))


def _equal(scale):
    return max(8, round(60 * scale.threads * scale.fraction))


def _number(number, *, data):
    return number


def _nap(seconds, *, after):
    time.sleep(seconds)
    return seconds


def _nap_where(number, *, after):
    from distributed import get_worker

    time.sleep(NAP_S / 2)
    return number, get_worker().address


def _nap_number(number, *, after):
    time.sleep(NAP_S)
    return number


def _block_now_and_then(dask_worker):
    from tornado.ioloop import PeriodicCallback

    callback = PeriodicCallback(lambda: time.sleep(BLOCK_S), EVERY_S * 1000)
    dask_worker.benchkit_straggler = callback
    callback.start()


def _block_no_more(dask_worker):
    callback = getattr(dask_worker, "benchkit_straggler", None)
    if callback is not None:
        callback.stop()
