"""Spill workloads: more data than memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import zlib

from _failures import set_allowed_failures
from _frames import gathered
from _two_workers import two_workers

from benchkit.measure import expect, random_array, random_frame, workload

#: Below this share of the full size a cluster of 512 MiB workers does not spill.
SMALLEST_FRACTION = 0.9
FACTOR = 0.95
#: Where the linear and the quadratic law meet: 2 workers of 512 MiB, a fifth of it.
DOT_REFERENCE_BYTES = int(0.2 * 2**30)
ROUNDS = 3
#: Objects of `bandwidth`, as a share of a worker's memory.
SIZES = {"many-small": 1 / 8192, "few-large": 1 / 32}


@workload(
    variants={"data": ["uncompressible", "compressible"], "end": ["release", "keep"]},
    tags=[
        "nightly",
        "memory",
        "disk",
        "first-twelve[data=uncompressible,end=keep]",
        "quick[data=uncompressible,end=keep]",
    ],
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
    return client.run_on_scheduler(set_allowed_failures, value=0)


@spilling.check
def _(result, *, data):
    filled = {"uncompressible": 1.0, "compressible": 0.5}[data]
    sigma = (filled / 12 / result["count"]) ** 0.5
    expect(result["mean"], close_to=filled / 2, rtol=0, atol=5 * sigma, what="mean")
    expect(result["spilled_share"], at_least=0.3, what="share of the data that was on disk")
    return {"spilled_share": result["spilled_share"]}


@spilling.cleanup
def _(client, prepared=None):
    if prepared is not None:
        client.run_on_scheduler(set_allowed_failures, value=prepared)


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=["memory", "disk", "transfer", "ci[data=uncompressible]", "nightly"],
    requires=["numpy", "dask.array"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    deadline_s=180,
    metrics={"spilled_share": "1"},
)
def dot_product(scale, seed, *, data):
    """Multiply a square array with its transpose, where array and products fill the memory.

    The same as array.dot_product, larger beside the cluster: chunks go to disk between the two
    products that need them. Stresses the choice of what is spilled, and transfers of spilled data.

    Scale: quadratic, 0.2 x cluster memory where the laws meet (two workers of 512 MiB), because
    work grows with the square; 5 chunks a side, and more where 32 products a thread need them.
    About 10 s on 2 x 1 x 512 MiB. The metric is what was written to disk, as a share of the array.
    Check: the sum over columns of their sums squared.
    """
    array = _dot_operand(scale, seed, data)
    return (array @ array.T).sum()


@dot_product.prepare
def _(client):
    return sum(client.run(_bytes_written).values())


@dot_product.check
def _(client, result, scale, seed, prepared, *, data):
    written = sum(client.run(_bytes_written).values()) - prepared
    array = _dot_operand(scale, seed, data)
    wanted = (array.sum(axis=0) ** 2).sum().compute()
    expect(float(result), close_to=float(wanted), rtol=1e-9, what="sum of the product")
    return {"spilled_share": written / array.nbytes}


@workload(
    tags=["nightly", "memory", "shuffle", "restart"],
    requires=["numpy", "pandas", "pyarrow", "dask.dataframe"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    deadline_s=120,
)
def repeated_merge(client, scale, seed):
    """Average, merge, average again, with new workers between rounds.

    Two time series of different length are merged on their times, which are a column like any
    other: all rows move. What counts is survival: such rounds once ended in a deadlock
    (distributed#6110). Stresses restarts, and shuffles of more than a worker keeps in memory.

    Scale: 3 rounds; 0.1 x cluster memory x the fraction on the left, three fifths of it on the
    right; a partition is 1/32 of one thread's memory. About 21 s on 2 x 1 x 512 MiB; with 0.25 x
    it does not end in two minutes there.
    Check: both means of every round, by pandas from the frames' own columns.
    """
    means = []
    for number in range(ROUNDS):
        if number:
            client.restart()
            client.wait_for_workers(scale.workers, timeout=60)
        left, right = _series(scale, seed)
        first = (left["float_0"] + left["float_1"]).mean().compute()
        merged = left.reset_index().merge(
            right.reset_index(), on=left.index.name or "index", suffixes=("_l", "_r")
        )
        # Every column is asked for, or most of them would stay where they are.
        columns = [name for name in merged.columns if name.startswith("float")]
        second = merged[columns].sum(axis=1).mean().compute()
        means.append((float(first), float(second)))
    return means


@repeated_merge.check
def _(result, scale, seed):
    left, right = (gathered(side) for side in _series(scale, seed))
    both = left.index.intersection(right.index)
    first = left["float_0"].mean() + left["float_1"].mean()
    second = left.loc[both].sum(axis=1).mean() + right.loc[both].sum(axis=1).mean()
    expect(result, close_to=[(first, second)] * ROUNDS, rtol=1e-9, what="means by round")


@workload(
    variants={"objects": ["many-small", "few-large"], "data": ["numpy", "text"]},
    tags=["memory", "disk", "serialisation", "ci[objects=few-large,data=numpy]", "nightly"],
    requires=["numpy"],
    metrics={"serialise_rate": "MiB/s", "write_rate": "MiB/s", "read_rate": "MiB/s"},
)
def bandwidth(client, scale, seed, *, objects, data):
    """Write objects to each worker's disk as spilling does, and read them back.

    One task a worker fills a spill buffer of its own, empties it to disk, and takes everything
    out again. Serialisation alone is measured beside it, so that it can be told from the disk.
    Stresses what is paid for each object when they are small, and the disk when they are large;
    texts in objects must be pickled. Reads may come from the operating system's cache.

    Scale: 0.2 x a worker's memory x the fraction for each worker; objects of 1/8192 or 1/32 of it.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of every object is that from before it was written, and all were on disk.
    """
    sizes = _objects(scale, objects)
    futures = [
        client.submit(
            _spill_and_read, *sizes, data=data, seed=[seed, i], workers=[worker], pure=False
        )
        for i, worker in enumerate(sorted(client.nthreads()))
    ]
    return client.gather(futures)


@bandwidth.check
def _(result, scale, *, objects, data):
    count, nbytes = _objects(scale, objects)
    expect(len(result), at_least=1, what="workers")
    for one in result:
        expect(one["count_on_disk"], equals=count, what="objects on disk")
        expect(one["nbytes"], at_least=0.9 * count * nbytes, what="bytes")
        expect(one["after"], equals=one["before"], what="checksums")
        expect(len(one["after"]), equals=count, what="objects")
    mib = [one["nbytes"] / 2**20 for one in result]
    rates = {}
    for step in ("serialise", "write", "read"):
        pairs = zip(mib, result, strict=True)
        rates[f"{step}_rate"] = sum(m / one[f"{step}_s"] for m, one in pairs) / len(mib)
    return rates


@workload(
    tags=["memory", "disk", "transfer", "ci", "nightly"],
    requires=["numpy"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    metrics={"spilled_share": "1"},
)
def unspill_transfer(client, scale, seed):
    """Let one worker ask for data that another has on disk.

    All arrays are made on one worker, more than fit; then another takes each of them once.
    Stresses reading from disk to send, which should not push out again what was read
    (coiled/benchmarks#136).

    Scale: 0.9 x one worker's memory, of 512 MiB, whatever the fraction, or nothing would spill;
    an array is 1/64 of it. About 4 s on 2 x 1 x 512 MiB.
    Check: the sum of every array as the other worker has it is that of the numbers drawn, and
    more than a tenth was on disk.
    """
    from distributed import wait

    source, target = two_workers(client)
    count, length = _far_arrays(scale)
    arrays = client.map(
        _random, range(count), length=length, seed=seed, workers=[source], pure=False
    )
    wait(arrays)
    spilled = sum(client.run(_spilled_bytes, workers=[source]).values())
    sums = client.map(_sum_where, arrays, workers=[target], pure=False)
    return {
        "sums": client.gather(sums),
        "target": target,
        "spilled_share": spilled / (8 * count * length),
    }


@unspill_transfer.check
def _(result, scale, seed):
    count, length = _far_arrays(scale)
    wanted = [float(_random(i, length=length, seed=seed).sum()) for i in range(count)]
    expect([total for total, _ in result["sums"]], close_to=wanted, rtol=1e-12, what="sums")
    where = sorted({address for _, address in result["sums"]})
    expect(where, equals=[result["target"]], what="workers that added up")
    expect(result["spilled_share"], at_least=0.1, what="share of the data that was on disk")
    return {"spilled_share": result["spilled_share"]}


def _array(scale, seed, data):
    factor = FACTOR * max(1.0, SMALLEST_FRACTION / scale.fraction)
    chunk = max(64, round((scale.memory_per_thread / 64 / 8) ** 0.5))
    shape = scale.linear(factor, ("x", "x"))
    return random_array(shape, chunks=(chunk, chunk), data=data, seed=seed)


def _spilled_bytes(dask_worker):
    return getattr(dask_worker.data, "spilled_total", (0, 0))[0]


def _bytes_written(dask_worker):
    """Return what a worker has written to disk in its life; NaN where Dask does not count that."""
    counted = getattr(dask_worker.data, "cumulative_metrics", None)
    if counted is None:
        return float("nan")
    return sum(value for name, value in counted.items() if name == ("disk-write", "bytes"))


def _dot_operand(scale, seed, data):
    side, _ = scale.quadratic(0.2, DOT_REFERENCE_BYTES, ("x", "x"))
    chunk = max(1, round(side / max(4.5, (32 * scale.threads) ** (1 / 3))))
    return random_array((side, side), chunks=(chunk, chunk), data=data, seed=seed)


def _series(scale, seed):
    """Return two frames with the same times, the right one shorter."""
    partition = scale.memory_per_thread / 32
    return [
        random_frame(
            scale.linear(factor), {"float": 4}, partition_bytes=partition, freq="10min", seed=number
        )
        for number, factor in ((2 * seed, 0.1), (2 * seed + 1, 0.06))
    ]


def _objects(scale, objects):
    """Return how many objects a worker gets, and their bytes."""
    memory = scale.memory / scale.workers
    nbytes = int(memory * SIZES[objects])
    return max(4, round(0.2 * memory * scale.fraction / nbytes)), nbytes


def _far_arrays(scale):
    memory = scale.memory / scale.workers
    return round(0.9 * 64), int(memory / 64 / 8)


def _random(number, *, length, seed):
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def _sum_where(array):
    from distributed import get_worker

    return float(array.sum()), get_worker().address


def _spill_and_read(count, nbytes, *, data, seed):
    """Spill objects in this worker and read them back; return seconds and checksums."""
    from distributed import get_worker
    from distributed.protocol import serialize_bytelist
    from distributed.spill import SpillBuffer

    made = {f"object-{i}": _object(nbytes, data, [*seed, i]) for i in range(count)}
    before = [_checksum(made[key]) for key in sorted(made)]
    begin = time.perf_counter()
    parts = [part for value in made.values() for part in serialize_bytelist(value)]
    serialise_s = time.perf_counter() - begin
    size = sum(memoryview(part).nbytes for part in parts)
    del parts
    folder = tempfile.mkdtemp(dir=get_worker().local_directory)
    try:
        buffer = SpillBuffer(folder, target=2**60)
        buffer.update(made)
        keys = sorted(made)
        made.clear()
        begin = time.perf_counter()
        while buffer.fast:
            buffer.evict()
        write_s = time.perf_counter() - begin
        on_disk = sum(len(files) for _, _, files in os.walk(folder))
        begin = time.perf_counter()
        read = [buffer[key] for key in keys]
        read_s = time.perf_counter() - begin
        after = [_checksum(value) for value in read]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "before": before,
        "after": after,
        "count_on_disk": on_disk,
        "nbytes": size,
        "serialise_s": serialise_s,
        "write_s": write_s,
        "read_s": read_s,
    }


def _object(nbytes, data, seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    if data == "numpy":
        return rng.random(nbytes // 8)
    # 12 characters each: a text in an object array takes about 16 B when it is pickled.
    numbers = rng.integers(10**11, 10**12, max(1, nbytes // 14))
    return np.array([str(number) for number in numbers.tolist()], dtype=object)


def _checksum(array):
    if array.dtype == object:
        return zlib.crc32("".join(array.tolist()).encode())
    return zlib.crc32(array.tobytes())
