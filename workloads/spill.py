"""Spill workloads: more data than memory."""

from __future__ import annotations

from _failures import set_allowed_failures
from _fingerprints import fingerprint
from _frames import gathered
from _memory import bytes_spilled, bytes_written

from benchkit.measure import expect, random_array, random_frame, workload

#: Below this share of the full size a cluster of 512 MiB workers does not spill.
SMALLEST_FRACTION = 0.9
FACTOR = 0.95
#: The least of its operand's bytes that `dot_product` writes to disk.
DOT_SPILLED = 0.3
ROUNDS = 3
#: The least of both frames that a round of `repeated_merge` writes to disk, at full size.
MERGE_SPILLED = 0.1
#: The frames of `repeated_merge` as shares of the cluster's memory.
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
    """Hold an array that does not fit into memory, then sum it.

    First everything is made, and most of it must go to disk; then it is read back. "release"
    drops the array before its sum is fetched, so that chunks are freed as they are read; "keep"
    holds on to it, so that reading one chunk means writing another. Stresses the spill buffer,
    its thresholds and serialisation, in small workers, where the margin is smallest.

    Scale: 0.95 x cluster memory, linear, of workers with 512 MiB; a chunk is 1/64 of one thread's
    memory; not made smaller than 0.9 of that, or nothing would spill. Needs a disk of twice the
    data. About 8 s on 2 x 1 x 512 MiB.
    Check: the mean is that of the same numbers, drawn again; what was kept has each in its place,
    as a fingerprint tells; more than 0.3 of the data was on disk; no task may fail from lost memory
    (`allowed-failures` is 0).
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
    # A worker that dies of memory is a failure of this workload, not something to try again.
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
    """Multiply a square array with its transpose, where array and products fill the memory.

    The same as array.dot_product, larger beside the cluster: chunks go to disk between the two
    products that need them. Stresses the choice of what is spilled, and transfers of spilled data.

    Scale: 0.2 x cluster memory, linear, of workers with 512 MiB, or larger clusters would not
    spill; so the time grows with the square root of the cluster. A chunk is 1/50 of one thread's
    memory; not made smaller than 0.9 of that, or nothing would spill. About 10 s on
    2 x 1 x 512 MiB. The metric is what was written to disk, as a share of the array.
    Check: the sum over columns of their sums squared, and at least 0.3 of the array was written.
    """
    array = _dot_operand(scale, seed, data)
    total = float((array @ array.T).sum().compute())
    # Beside the result, in a moment: later ones would count what the check writes.
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
    """Average, merge, average again, with new workers between rounds.

    Two time series of different length are merged on their times, which are a column like any
    other: all rows move. What counts is survival: such rounds once ended in a deadlock
    (distributed#6110). Stresses restarts, and shuffles of more than a worker keeps in memory.

    Scale: 3 rounds; 0.1 x cluster memory x the fraction on the left, three fifths of it on the
    right; a partition is 1/32 of one thread's memory. About 15 s on 2 x 1 x 512 MiB; with 0.25 x
    it does not end in two minutes there. The metric is what a round wrote to disk, as a share of
    both frames: 0.6 to 0.8 there.
    Check: both means of every round, by pandas from the frames' own columns; at 0.9 of the full
    size or more at least 0.1 of the frames was written, a round.
    """
    means, written = [], 0
    for number in range(ROUNDS):
        if number:
            client.restart()
            client.wait_for_workers(scale.workers, timeout=60)
        before = sum(client.run(bytes_written).values())
        left, right = _series(scale, seed)
        first = (left["float_0"] + left["float_1"]).mean().compute()
        merged = left.reset_index().merge(
            right.reset_index(), on=left.index.name or "index", suffixes=("_l", "_r")
        )
        # Every column is asked for, or most of them would stay where they are.
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
    # Smaller ones fit into memory.
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
