"""Spill workloads: more data than memory."""

from __future__ import annotations

from benchkit.measure import expect, random_array, workload

#: Below this share of the full size a cluster of 512 MiB workers does not spill.
SMALLEST_FRACTION = 0.9
FACTOR = 0.95


@workload(
    variants={"data": ["uncompressible"], "end": ["release", "keep"]},
    tags=["memory", "disk", "first-twelve[end=keep]", "quick[end=keep]"],
    requires=["numpy", "dask.array"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    metrics={"spilled_share": "1"},
)
def spilling(client, scale, seed, *, data, end):
    """Hold an array that does not fit into memory, then sum it.

    First everything is made, and most of it must go to disk; then it is read back. "release"
    drops the array before its sum is fetched, so that chunks are freed as they are read; "keep"
    holds on to it, so that reading one chunk means writing another. Stresses the spill buffer,
    its thresholds and serialisation, in small workers, where the margin is smallest.

    Scale: 0.95 x cluster memory, linear, of workers with 512 MiB; a chunk is 1/64 of one thread's
    memory; not made smaller than 0.9 of that, or nothing would spill. Needs a disk of twice the
    data. About 8 s on 2 x 1 x 512 MiB.
    Check: the mean is that of uniform numbers within 5 sigma, and more than 0.3 of the data was
    on disk; no task may fail from lost memory (`allowed-failures` is 0).
    """
    from distributed import wait

    array = _array(scale, seed, data).persist()
    wait(array)
    spilled = sum(client.run(_spilled_bytes).values())
    count, nbytes = array.size, array.nbytes
    total = client.compute(array.sum())
    if end == "release":
        del array
    return {"mean": total.result() / count, "count": count, "spilled_share": spilled / nbytes}


@spilling.prepare
def _(client):
    # A worker that dies of memory is a failure of this workload, not something to try again.
    client.run_on_scheduler(_allow_no_failures)


@spilling.check
def _(result, *, data):
    filled = {"uncompressible": 1.0, "compressible": 0.5}[data]
    sigma = (filled / 12 / result["count"]) ** 0.5
    expect(result["mean"], close_to=filled / 2, rtol=0, atol=5 * sigma, what="mean")
    expect(result["spilled_share"], at_least=0.3, what="share of the data that was on disk")
    return {"spilled_share": result["spilled_share"]}


def _array(scale, seed, data):
    factor = FACTOR * max(1.0, SMALLEST_FRACTION / scale.fraction)
    chunk = max(64, round((scale.memory_per_thread / 64 / 8) ** 0.5))
    shape = scale.linear(factor, ("x", "x"))
    return random_array(shape, chunks=(chunk, chunk), data=data, seed=seed)


def _spilled_bytes(dask_worker):
    return getattr(dask_worker.data, "spilled_total", (0, 0))[0]


def _allow_no_failures(dask_scheduler):
    dask_scheduler.allowed_failures = 0
