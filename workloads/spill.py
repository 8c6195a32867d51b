"""Spill workloads: more data than memory."""

from __future__ import annotations

from _failures import set_allowed_failures
from _fingerprints import fingerprint
from _frames import gathered
from _memory import bytes_spilled, bytes_written

from benchkit.measure import expect, random_array, random_frame, workload
from benchkit.measure.cluster.restart import restart_workers

#: Smallest share of the full size at which a cluster of 512 MiB workers spills.
SMALLEST_FRACTION = 0.9
FACTOR = 0.95
#: Smallest share of its input that `dot_product` writes to disk.
DOT_SPILLED = 0.3
ROUNDS = 3
#: Smallest share of both frames that a round of `repeated_merge` writes to disk at full size.
MERGE_SPILLED = 0.1
#: Sizes of the frames of `repeated_merge` relative to cluster memory.
SERIES = (0.1, 0.06)


@workload(
    variants={"data": ["uncompressible", "compressible"], "end": ["release", "keep"]},
    tags=[
        "nightly",
        "memory",
        "disk",
        "first-twelve[data=uncompressible,end=keep]",
        "quick[data=uncompressible,end=keep]",
        "ci[data=uncompressible,end=keep]",
    ],
    requires=["numpy", "dask.array"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    metrics={"spilled_share": "1"},
)
def spilling(client, scale, seed, *, data, end):
    """Persist an array that does not fit into memory, then sum it.

    All chunks are made first, and most are written to disk; then they are read. "release" drops the
    array before the sum is computed, so that chunks are freed as they are read; "keep" holds it, so
    that reading a chunk requires writing another. Stresses the spill buffer, its thresholds and
    serialisation, in small workers, where the margin is smallest.

    Scale: 0.95 x cluster memory, linear, of workers with 512 MiB; a chunk is 1/64 of one thread's
    memory; at least 0.9 of that size, otherwise nothing spills. Needs a disk of twice the data.
    About 8 s on 2 x 1 x 512 MiB.
    Check: the mean is that of the same numbers, drawn again; a kept array has the same fingerprint;
    more than 0.3 of the data was on disk; no worker was lost (`allowed-failures` is 0).
    """
    from distributed import wait

    array = _array(scale, seed, data).persist()
    wait(array)
    spilled = sum(client.run(bytes_spilled).values())
    count, nbytes = array.size, array.nbytes
    total = client.compute(array.sum())
    kept = array if end == "keep" else None
    del array
    return {"mean": total.result() / count, "kept": kept, "spilled_share": spilled / nbytes}


@spilling.prepare
def _(client):
    # A worker that dies of memory is a failure of this workload: do not retry its tasks.
    return client.run_on_scheduler(set_allowed_failures, value=0)


@spilling.check
def _(result, scale, seed, *, data, end):
    expect(result["spilled_share"], at_least=0.3, what="share of the data that was on disk")
    array = _array(scale, seed, data)
    wanted = fingerprint(array).compute()
    expect(result["mean"], close_to=float(wanted[0]) / array.size, rtol=1e-12, what="mean")
    if end == "keep":
        got = fingerprint(result["kept"]).compute()
        expect(got, close_to=wanted, rtol=1e-12, what="sums, plain and by place")
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
    deadline_s=300,
    version=2,
    metrics={"spilled_share": "1"},
)
def dot_product(client, scale, seed, prepared, *, data):
    """Multiply a square array with its transpose, where inputs and products fill the memory.

    Like array.dot_product, but larger relative to the cluster: chunks are spilled between the two
    products that need them. Stresses the choice of spilled chunks, and transfers of spilled data.

    Scale: 0.2 x cluster memory, linear, of workers with 512 MiB, as larger clusters would not spill
    otherwise; run time grows with the square root of the cluster. A chunk is 1/50 of one thread's
    memory; at least 0.9 of that size, otherwise nothing spills. The metric is the share of the
    array that was written to disk.
    About 10 s on 2 x 1 x 512 MiB.
    Check: the sum over columns of their squared sums; at least 0.3 of the array was written.
    """
    array = _dot_operand(scale, seed, data)
    total = float((array @ array.T).sum().compute())
    # Measure now: the check also writes to disk.
    written = sum(client.run(bytes_written).values()) - prepared
    return {"total": total, "spilled_share": written / array.nbytes}


@dot_product.prepare
def _(client):
    return sum(client.run(bytes_written).values())


@dot_product.check
def _(result, scale, seed, *, data):
    share = result["spilled_share"]
    expect(share, at_least=DOT_SPILLED, what="share of the array that was written to disk")
    array = _dot_operand(scale, seed, data)
    wanted = (array.sum(axis=0) ** 2).sum().compute()
    expect(result["total"], close_to=float(wanted), rtol=1e-9, what="sum of the product")
    return {"spilled_share": share}


@workload(
    tags=["nightly", "memory", "shuffle", "restart"],
    requires=["numpy", "pandas", "pyarrow", "dask.dataframe"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    deadline_s=120,
    metrics={"spilled_share": "1"},
)
def repeated_merge(client, scale, seed):
    """Average, merge and average again, with a restart of all workers between rounds.

    Two time series of different lengths are merged on their times as a normal column: all rows
    move. Such rounds once ended in a deadlock (distributed#6110). Stresses restarts, and shuffles
    of more data than a worker keeps in memory.

    Scale: 3 rounds; 0.1 x cluster memory x fraction for the left frame, three fifths of it for the
    right one; a partition is 1/32 of one thread's memory. The metric is the share of both frames
    that a round wrote to disk: 0.6 to 0.8 on this cluster; with 0.25 x it does not end in two
    minutes.
    About 15 s on 2 x 1 x 512 MiB.
    Check: both means of every round, by pandas from the columns of the frames; at 0.9 of the full
    size or more, each round wrote at least 0.1 of the frames.
    """
    means, written = [], 0
    for number in range(ROUNDS):
        if number:
            restart_workers(client, scale.workers, timeout_s=60)
        before = sum(client.run(bytes_written).values())
        left, right = _series(scale, seed)
        first = (left["float_0"] + left["float_1"]).mean().compute()
        merged = left.reset_index().merge(
            right.reset_index(), on=left.index.name or "index", suffixes=("_l", "_r")
        )
        # Use every column, otherwise most of them are not moved.
        columns = [name for name in merged.columns if name.startswith("float")]
        second = merged[columns].sum(axis=1).mean().compute()
        means.append((float(first), float(second)))
        written += sum(client.run(bytes_written).values()) - before
    return {"means": means, "spilled_share": written / ROUNDS / _bytes_of_series(scale)}


@repeated_merge.check
def _(result, scale, seed):
    left, right = (gathered(side) for side in _series(scale, seed))
    both = left.index.intersection(right.index)
    first = left["float_0"].mean() + left["float_1"].mean()
    second = left.loc[both].sum(axis=1).mean() + right.loc[both].sum(axis=1).mean()
    expect(result["means"], close_to=[(first, second)] * ROUNDS, rtol=1e-9, what="means by round")
    # Smaller frames fit into memory.
    least = MERGE_SPILLED if scale.fraction >= SMALLEST_FRACTION else 0
    expect(result["spilled_share"], at_least=least, what="share of the frames written to disk")
    return {"spilled_share": result["spilled_share"]}


def _array(scale, seed, data):
    factor = FACTOR * max(1.0, SMALLEST_FRACTION / scale.fraction)
    chunk = max(64, round((scale.memory_per_thread / 64 / 8) ** 0.5))
    shape = scale.linear(factor, ("x", "x"))
    return random_array(shape, chunks=(chunk, chunk), data=data, seed=seed)


def _dot_operand(scale, seed, data):
    factor = 0.2 * max(1.0, SMALLEST_FRACTION / scale.fraction)
    chunk = max(1, round((scale.memory_per_thread / 50 / 8) ** 0.5))
    shape = scale.linear(factor, ("x", "x"))
    return random_array(shape, chunks=(chunk, chunk), data=data, seed=seed)


def _bytes_of_series(scale):
    return sum(scale.linear(factor) for factor in SERIES)


def _series(scale, seed):
    """Return two frames with the same times, the right one shorter."""
    partition = scale.memory_per_thread / 32
    return [
        random_frame(
            scale.linear(factor), {"float": 4}, partition_bytes=partition, freq="10min", seed=number
        )
        for number, factor in enumerate(SERIES, start=2 * seed)
    ]
