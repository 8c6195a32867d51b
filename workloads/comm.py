"""Communication workloads: transfers between client, scheduler and workers."""

from __future__ import annotations

import time
from zlib import crc32

from _tasks import same
from _two_workers import two_workers

from benchkit.measure import expect, workload

MIB = 2**20
N_SMALL, N_LARGE = 2000, 8
#: Transfers of each size.
ROUNDS = 12
#: Repeats of copying arrays to all workers: a single time is too short to measure.
N_COPIES = 8
WAIT_S = 60.0


@workload(
    variants={"pieces": ["large", "small"]},
    tags=["transfer", "client", "nightly", "ci[pieces=small]"],
    metrics={"scatter_rate": "MiB/s", "gather_rate": "MiB/s"},
)
def scatter_gather(client, scale, prepared, *, pieces):
    """Scatter arrays from the client to the workers and gather them.

    Stresses transfers between client and workers: bandwidth with 8 large arrays, time per message
    with 2000 small ones.

    Scale: arrays of 64 MiB or of 32 kiB at reference memory; their number x fraction, on any
    cluster. About 2 s on 2 x 1 x 1 GiB.
    Check: gathered bytes equal those that were sent, in order.
    """
    begin = time.perf_counter()
    futures = client.scatter(prepared, hash=False)
    middle = time.perf_counter()
    back = client.gather(futures)
    end = time.perf_counter()
    return {"back": back, "seconds": [middle - begin, end - middle]}


@scatter_gather.prepare
def _(scale, seed, *, pieces):
    import numpy as np

    count, nbytes = _pieces(scale, pieces)
    return list(np.random.default_rng(seed).integers(0, 256, (count, nbytes), dtype=np.uint8))


@scatter_gather.check
def _(result, scale, prepared, *, pieces):
    import numpy as np

    back = result["back"]
    expect(len(back), equals=len(prepared), what="arrays")
    same = [np.array_equal(a, b) for a, b in zip(back, prepared, strict=True)]
    expect(same, equals=[True] * len(prepared), what="array is what was sent")
    total = sum(array.nbytes for array in prepared) / MIB
    scattered_s, gathered_s = result["seconds"]
    return {"scatter_rate": total / scattered_s, "gather_rate": total / gathered_s}


def _pieces(scale, pieces):
    if pieces == "large":
        return max(2, round(N_LARGE * scale.fraction)), scale.chunk("64 MiB")
    return max(100, round(N_SMALL * scale.fraction)), scale.chunk("32 KiB")


@workload(
    tags=["transfer", "latency", "ci", "nightly"],
    metrics={"latency": "ms", "bandwidth": "MiB/s", "logged_bandwidth": "MiB/s"},
    version=2,
)
def worker_to_worker(client, scale, prepared):
    """Make arrays on one worker and use them on another, in sizes from 1 kB to 64 MiB.

    Stresses transfers of dependencies. A linear fit of seconds over bytes gives the latency of a
    task that needs a result of another worker, and the bandwidth between two workers; the transfer
    logs of the workers give the bandwidth as they measure it. The tasks only return the length of
    their input: reading it would count as transfer.

    Scale: eight sizes up to 64 MiB at reference memory, each 12 times x fraction.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the checksum of each array on its destination; the transfer log contains all bytes.
    """
    from distributed import wait

    source, target = prepared["workers"]
    seconds, arrays = [], []
    for number, nbytes in enumerate(_sizes(scale)):
        for turn in range(_rounds(scale)):
            made = client.submit(_bytes, number, turn, nbytes, workers=[source], pure=False)
            wait(made)
            begin = time.perf_counter()
            client.submit(len, made, workers=[target], pure=False).result()
            seconds.append(time.perf_counter() - begin)
            arrays.append(made)
    return {"seconds": seconds, "futures": arrays}


@worker_to_worker.prepare
def _(client):
    source, target = two_workers(client)
    return {"workers": [source, target], "before": _received(client, source, target)}


@worker_to_worker.check
def _(client, result, scale, prepared):
    import numpy as np

    rounds, sizes = _rounds(scale), _sizes(scale)
    sent = [(i, turn, nbytes) for i, nbytes in enumerate(sizes) for turn in range(rounds)]
    # The arrays are still on their destination and need no second transfer.
    sums = client.map(crc32, result["futures"], workers=prepared["workers"][1:], pure=False)
    wanted = [crc32(_bytes(*each)) for each in sent]
    expect(client.gather(sums), equals=wanted, what="checksums")
    nbytes, busy_s = np.subtract(
        _received(client, *prepared["workers"]), prepared["before"]
    ).tolist()
    expect(nbytes, at_least=rounds * sum(sizes), what="bytes in the log of transfers")
    # Medians exclude slow moments of the machine.
    medians = np.median(np.reshape(result["seconds"], (len(sizes), rounds)), axis=1)
    slope, latency = np.polyfit(sizes, medians, 1, w=1 / medians)
    return {
        "latency": latency * 1e3,
        "bandwidth": 1 / max(slope, 1e-12) / MIB,
        "logged_bandwidth": nbytes / MIB / busy_s,
    }


def _sizes(scale):
    import numpy as np

    return np.geomspace(1000, scale.chunk("64 MiB"), 8).astype(int).tolist()


def _rounds(scale):
    return max(3, round(ROUNDS * scale.fraction))


@workload(
    variants={"how": ["broadcast", "replicate"]},
    tags=["transfer", "memory", "amm", "nightly", "ci[how=broadcast]"],
    deadline_s=120,
    metrics={"copy_rate": "MiB/s", "reduce_time": "s"},
    version=3,
)
def broadcast_replicate(client, scale, prepared, *, how):
    """Copy arrays of three sizes to every worker, then let the memory manager remove the copies.

    Stresses copies of data: scatter with `broadcast=True`, from the client to all workers, or
    `replicate` of results of one worker; then the active memory manager, which keeps one copy of
    each.

    Scale: arrays of 4, 64 and 256 MiB at reference memory x fraction; 8 times. Each is copied to
    every worker, so that the time grows with the number of workers.
    About 3 s on 2 x 1 x 1 GiB.
    Check: every worker has each array, one worker at the end, and its bytes are correct.
    """
    reports = {"most": [], "left": [], "copying": [], "reducing": []}
    for _ in range(N_COPIES):
        futures, seconds = _uncopied(client, prepared, how), []
        for i, array in enumerate(prepared["arrays"]):
            begin = time.perf_counter()
            if how == "broadcast":
                (futures[i],) = client.scatter([array], broadcast=True, hash=False)
            else:
                client.replicate(futures[i])
            seconds.append(time.perf_counter() - begin)
        reports["copying"].append(seconds)
        reports["most"] += _copies(client, futures)
        begin = time.perf_counter()
        reports["left"] += _reduced(client, futures)
        reports["reducing"].append(time.perf_counter() - begin)
    return {**reports, "futures": futures}


@broadcast_replicate.prepare
def _(client, scale, seed, *, how):
    import numpy as np

    rng = np.random.default_rng(seed)
    sizes = [scale.chunk("4 MiB"), scale.chunk("64 MiB"), scale.chunk("256 MiB")]
    arrays = [rng.bytes(max(1024, int(nbytes * scale.fraction))) for nbytes in sizes]
    workers = sorted(client.nthreads())
    sent = client.scatter(arrays, workers=workers[:1], hash=False) if how == "replicate" else []
    running = client.amm.running()
    # A running memory manager would remove copies while they are made.
    client.amm.stop()
    return {"arrays": arrays, "sent": sent, "running": running, "workers": workers}


@broadcast_replicate.check
def _(client, result, prepared):
    import numpy as np

    arrays, n_workers = prepared["arrays"], len(prepared["workers"])
    n = N_COPIES * len(arrays)
    expect(result["most"], equals=[n_workers] * n, what="copies of each array")
    expect(result["left"], equals=[1] * n, what="copies left of each array")
    sums = client.gather(client.map(crc32, result["futures"], pure=False))
    expect(sums, equals=[crc32(array) for array in arrays], what="checksums")
    # Median of each size.
    copied_s = float(np.median(result["copying"], axis=0).sum())
    total = n_workers * sum(map(len, arrays)) / MIB
    return {
        "copy_rate": total / copied_s,
        "reduce_time": float(np.median(result["reducing"])),
    }


@broadcast_replicate.cleanup
def _(client, prepared=None):
    if prepared and prepared["running"]:
        client.amm.start()


def _uncopied(client, prepared, how):
    """Return new results with the arrays on the first worker, if they are to be replicated.

    The scheduler regards a copy as removed when it requests the removal, while the worker may
    remove the next copy instead: no result is replicated twice.
    """
    from distributed import wait

    if how == "broadcast":
        return [None] * len(prepared["arrays"])
    futures = client.map(same, prepared["sent"], workers=prepared["workers"][:1], pure=False)
    wait(futures)
    return futures


def _reduced(client, futures):
    """Let the memory manager keep one copy of each result; return the number of copies left."""
    end = time.perf_counter() + WAIT_S
    client.amm.run_once()
    while max(left := _copies(client, futures)) > 1 and time.perf_counter() < end:
        time.sleep(0.01)
        client.amm.run_once()
    return left


def _bytes(number, turn, nbytes):
    import numpy as np

    return np.random.default_rng([number, turn]).bytes(nbytes)


def _received(client, source, target):
    """Return the bytes that the target received from the source by its log, and the seconds."""
    return client.run(_log_of_transfers, source, workers=[target])[target]


def _log_of_transfers(source, dask_worker):
    log = [entry for entry in dask_worker.transfer_incoming_log if entry["who"] == source]
    return [sum(entry["total"] for entry in log), sum(entry["duration"] for entry in log)]


def _copies(client, futures):
    return [len(holders) for holders in client.who_has(futures).values()]
