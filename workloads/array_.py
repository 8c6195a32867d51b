"""Array workloads: reductions and products of chunked arrays.

Files such as ``array_.py`` end in an underscore because their folder is on `sys.path` during the
import of workloads: ``array.py`` would replace the module of the standard library.
"""

from __future__ import annotations

import time

from _fingerprints import fingerprint, weights

from benchkit.measure import expect, random_array, workload

#: Slightly more than memory: chunks that are not released in time must be spilled.
SUM_FACTOR = 1.1
#: Size at which quadratic and linear scaling are equal: 2 workers x 1 thread x 1 GiB.
DOT_REFERENCE_BYTES = 128 * 2**20
#: The same for `double_diff`: 0.2 x 2 GiB.
DIFF_REFERENCE_BYTES = 0.2 * 2**31
PERCENTILES, N_BINS = [1, 50, 99], 1000


@workload(
    variants={"kind": ["fast-thin", "slow-thin", "slow-square"]},
    tags=[
        "root-tasks",
        "first-twelve[kind=slow-thin]",
        "quick[kind=slow-thin]",
        "nightly",
        "ci[kind=slow-thin]",
    ],
    requires=["numpy", "dask.array"],
)
def basic_sum(scale, *, kind):
    """Sum an array larger than memory along its rows.

    Thin chunks are single columns: summing a chunk does nothing, and whole columns are added in
    groups of four. Square chunks shrink first. Slow chunks take 0.5 s at reference memory. Stresses
    co-assignment of neighbouring root tasks: without it, up to the whole input is transferred
    (distributed#4864).

    Scale: 1.1 x cluster memory, linear; a chunk is 100 MiB and sleeps 0.5 s, both at reference
    memory. About 8 s on 2 x 1 x 1 GiB when slow, 3 s when fast.
    Check: each chunk contains its own number, so that a lost, duplicated or misplaced chunk is
    seen.
    """
    import dask.array as da

    rows, columns, height, width = _sum_geometry(scale, kind)
    nap_s = scale.seconds(0.5) if kind.startswith("slow") else 0.0
    zeros = da.zeros((rows * height, columns * width), chunks=(height, width))
    numbered = zeros.map_blocks(_number_chunk, columns, nap_s, dtype=zeros.dtype)
    return numbered.sum(axis=1)


@basic_sum.check
def _(result, scale, *, kind):
    import numpy as np

    rows, columns, height, width = _sum_geometry(scale, kind)
    numbers = np.arange(1, rows * columns + 1).reshape(rows, columns)
    wanted = np.repeat(numbers.sum(axis=1) * width, height)
    got = np.asarray(result)
    expect(got.shape, equals=wanted.shape, what="shape")
    expect(int((got != wanted).sum()), equals=0, what="rows with a wrong sum")


def _sum_geometry(scale, kind):
    """Return chunks per column, chunks per row, and height and width of a chunk."""
    items = scale.chunk("100 MiB") // 8
    n_chunks = max(2 * scale.threads + 1, round(scale.linear(SUM_FACTOR) / items / 8))
    if kind.endswith("thin"):
        return 1, n_chunks, items, 1
    side = max(3, round(n_chunks**0.5))
    height = round((items * 3350 / 3925) ** 0.5)
    return side, side, height, items // height


def _number_chunk(block, columns, nap_s, block_id=None):
    time.sleep(nap_s)
    # Return a new array: returning the input would count its memory twice.
    return block + (block_id[0] * columns + block_id[1] + 1)


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=[
        "transfer",
        "first-twelve[data=uncompressible]",
        "quick[data=uncompressible]",
        "nightly",
        "ci[data=uncompressible]",
    ],
    requires=["numpy", "dask.array"],
    version=2,
)
def dot_product(scale, seed, *, data):
    """Multiply a square array with its transpose and sum the product, with and without weights.

    Each chunk is an input of a row and a column of products. Stresses transfers between workers and
    the order in which partial products are made and added.

    Scale: quadratic, 1/17 x cluster memory at 2 GiB, because work grows with the square of the
    data; about 32 products of two chunks per thread. About 4 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by row and column, from weighted sums of the columns.
    """
    array = _dot_operand(scale, seed, data)
    return fingerprint(array @ array.T)


@dot_product.check
def _(result, scale, seed, *, data):
    import dask
    import numpy as np

    array = _dot_operand(scale, seed, data)
    places = np.arange(array.shape[0])
    plain = array.sum(axis=0)
    down, across = (weights(places, axis) @ array for axis in (0, 1))
    wanted = dask.compute((plain**2).sum(), (down * across).sum())
    expect(_plain(result), close_to=wanted, rtol=1e-9, what="sums of the product")


def _dot_operand(scale, seed, data):
    side, _ = scale.quadratic(1 / 17, DOT_REFERENCE_BYTES, ("x", "x"))
    # Do not round to whole chunks: as in real data, the last chunks are smaller.
    n_chunks = max(3, round((32 * scale.threads) ** (1 / 3)))
    chunk = max(1, round(side / (n_chunks - 0.5)))
    return random_array((side, side), chunks=(chunk, chunk), data=data, seed=seed)


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=["root-tasks", "memory", "nightly", "ci[data=uncompressible]"],
    requires=["numpy", "dask.array"],
)
def vorticity(scale, seed, *, data):
    """Subtract shifted copies from two velocity fields, slab by slab.

    A row is added by periodic padding, and the axis becomes a single chunk again: each slab is
    independent, but the graph does not show it. Stresses placement of root tasks: slabs that are
    made faster than they are used fill the memory (distributed#6571).

    Scale: 0.35 x cluster memory for each field, linear; a chunk is one slab of 46 MiB at reference
    memory. About 3 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by position, with each slab computed by NumPy.
    """
    import dask.array as da

    u, v, dx, dy = _flow(scale, seed, data)
    up = da.pad(u, ((1, 0), (0, 0), (0, 0)), mode="wrap").rechunk({0: -1})
    vp = da.pad(v, ((1, 0), (0, 0), (0, 0)), mode="wrap").rechunk({0: -1})
    return fingerprint(dx[..., None] * up - dy[..., None] * vp)


@vorticity.check
def _(result, scale, seed, *, data):
    import dask.array as da

    u, v, dx, dy = _flow(scale, seed, data)
    chunks = (dx.shape[0], *u.chunks[1:])
    by_numpy = da.map_blocks(_vorticity_of_slab, u, v, dx.compute(), dy.compute(),
                             dtype=u.dtype, chunks=chunks)  # fmt: skip
    wanted = fingerprint(by_numpy).compute()
    expect(_plain(result), close_to=wanted, rtol=1e-9, what="sums of the vorticity")


def _flow(scale, seed, data):
    """Return velocities and spacings; the spacings differ, otherwise the sums would be about 0."""
    side = max(8, round((scale.chunk("46 MiB") / 8) ** 0.5))
    n_slabs = max(2 * scale.threads + 1, round(scale.linear(0.35) / 8 / side**2))
    shape, chunks = (side, side, n_slabs), (side, side, 1)
    u = random_array(shape, chunks=chunks, data=data, seed=4 * seed)
    v = random_array(shape, chunks=chunks, data=data, seed=4 * seed + 1)
    dx = random_array((side + 1, side), chunks=-1, seed=4 * seed + 2) + 1
    dy = random_array((side + 1, side), chunks=-1, seed=4 * seed + 3)
    return u, v, dx, dy


def _vorticity_of_slab(u, v, dx, dy):
    import numpy as np

    up, vp = (np.concatenate([field[-1:], field]) for field in (u, v))
    return dx[..., None] * up - dy[..., None] * vp


@workload(
    variants={
        "data": ["uncompressible", "compressible"],
        "law": ["quadratic", "linear"],
    },
    tags=["transfer", "nightly", "ci[data=uncompressible,law=quadratic]"],
    requires=["numpy", "dask.array"],
)
def double_diff(scale, seed, *, data, law):
    """Subtract one array from another, shifted by one row and one column.

    The chunks of the two are not aligned, so that an output chunk needs parts of up to four chunks.
    Stresses transfers between neighbours (distributed#6597, coiled/benchmarks#564).

    Scale: 0.2 x cluster memory for each array at 2 GiB, linear (constant run time with co-assigned
    neighbours) or quadratic (constant run time without); a chunk is 20 MiB at reference memory.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by position, from each array alone, without a shift.
    """
    a, b = _shifted_pair(scale, seed, data, law)
    return fingerprint(a[1:, 1:] - b[:-1, :-1])


@double_diff.check
def _(result, scale, seed, *, data, law):
    a, b = _shifted_pair(scale, seed, data, law)
    plus, minus = fingerprint(a, begin=(1, 1)), fingerprint(b[:-1, :-1])
    plus, minus = plus.compute(), minus.compute()
    for got, high, low in zip(_plain(result), plus, minus, strict=True):
        expect(got, close_to=high - low, rtol=0, atol=1e-10 * high, what="sum of the difference")


def _shifted_pair(scale, seed, data, law):
    if law == "linear":
        shape = scale.linear(0.2, ("x", "x"))
    else:
        shape = scale.quadratic(0.2, DIFF_REFERENCE_BYTES, ("x", "x"))
    side = max(16, round((scale.chunk("20 MiB") / 8) ** 0.5))
    # One array is larger: values of equal size would nearly cancel.
    a = random_array(shape, chunks=(side, side), data=data, seed=2 * seed)
    return a, random_array(shape, chunks=(side, side), data=data, seed=2 * seed + 1) / 4


@workload(
    tags=["graph", "latency", "nightly", "ci"],
    requires=["numpy", "dask.array"],
)
def map_overlap_sample(scale, seed):
    """Take 10 x 10 values from the middle of an overlapped array of very many chunks.

    An image viewer does this at each move of the mouse. Stresses building and culling of the graph,
    of which few tasks are left: pure overhead.

    Scale: 80 x 80 chunks of 50 x 50 on any cluster, fewer by the fraction.
    About 6 s on 2 x 1 x 1 GiB.
    Check: the values are those of the source.
    """
    source, window = _viewed(scale, seed)
    return source.map_overlap(_itself, depth=1, boundary="reflect", dtype=source.dtype)[window]


@map_overlap_sample.check
def _(result, scale, seed):
    import numpy as np

    source, window = _viewed(scale, seed)
    expect(np.asarray(result), equals=source[window].compute(), what="window")


def _viewed(scale, seed):
    side = 50 * max(4, round(80 * scale.fraction**0.5))
    middle = slice(side // 2 - 5, side // 2 + 5)  # the corner of four chunks
    return random_array((side, side), chunks=(50, 50), seed=seed), (middle, middle)


def _itself(block):
    return block


@workload(
    variants={"indices": ["sorted", "shuffled", "repeated"]},
    tags=["shuffle", "graph", "nightly", "ci[indices=sorted]"],
    requires=["numpy", "dask.array"],
    version=2,
)
def fancy_index(scale, seed, *, indices):
    """Select as many rows as an array has, by random index, from chunks of rows.

    Indices are sorted with repeats; or a permutation; or unsorted with repeats, where every output
    chunk needs rows of every input chunk. Stresses indexing: number of tasks and transfers.

    Scale: 0.1 x cluster memory, linear, 256 columns; 14.3 chunks x the root of the threads, 64 at
    reference memory: unsorted indices make as many pieces as the square of the number of chunks, so
    that the pieces per thread are the same on every cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: rows contain their number, so that the sum and the sum weighted by position follow from
    the indices.
    """
    rows, chosen = _chosen_rows(scale, seed, indices)
    return fingerprint(rows[chosen])


@fancy_index.check
def _(result, scale, seed, *, indices):
    import numpy as np

    rows, chosen = _chosen_rows(scale, seed, indices)
    down, across = (weights(np.arange(length), axis) for axis, length in enumerate(rows.shape))
    wanted = [float(chosen.sum()) * rows.shape[1], float(down @ chosen) * across.sum()]
    expect(_plain(result), close_to=wanted, rtol=1e-11, what="sums of the rows taken")


def _chosen_rows(scale, seed, indices):
    import dask.array as da
    import numpy as np

    n_rows, width = scale.linear(0.1, ("x", 256))
    n_chunks = max(4, round(14.3 * scale.threads**0.5))
    numbers = da.arange(n_rows, chunks=-(-n_rows // n_chunks), dtype=float)
    rows = numbers[:, None] + da.zeros((n_rows, width), chunks=(numbers.chunks[0], width))
    random = np.random.default_rng(seed)
    if indices == "shuffled":
        return rows, random.permutation(n_rows)
    drawn = random.integers(0, n_rows, n_rows)
    return rows, np.sort(drawn) if indices == "sorted" else drawn


@workload(
    tags=["reduction", "nightly", "ci"],
    requires=["numpy", "dask.array"],
)
def percentile_topk(scale, seed):
    """Compute percentiles, the hundred largest values and a histogram of one long array.

    Three reductions of different shapes share their root tasks. Stresses reductions in which
    partial results are sorted, merged or counted, not added.

    Scale: 0.4 x cluster memory, linear; 32 chunks per thread. About 5 s on 2 x 1 x 1 GiB.
    Check: counts and the hundred largest values are those of the chunks, computed one by one;
    percentiles, which Dask merges from those of chunks, are within 5 sigma of those of a chunk.
    """
    import dask.array as da

    n, rows = _long(scale)
    array = random_array((n,), chunks=rows, seed=seed)
    counts, _ = da.histogram(array, bins=N_BINS, range=(0, 1))
    return {"percentiles": da.percentile(array, PERCENTILES), "top": da.topk(array, 100),
            "counts": counts}  # fmt: skip


@percentile_topk.check
def _(result, scale, seed):
    import dask
    import numpy as np

    n, rows = _long(scale)
    percentiles, top, counts = (
        np.asarray(result[name]) for name in ("percentiles", "top", "counts")
    )
    wanted = [share / 100 for share in PERCENTILES]
    expect(percentiles, close_to=wanted, rtol=0, atol=2.5 / rows**0.5, what="percentiles")
    chunks = random_array((n,), chunks=rows, seed=seed).to_delayed()
    large, counted = zip(
        *dask.compute([dask.delayed(_large_and_counts)(chunk, 400 / n) for chunk in chunks])[0],
        strict=True,
    )
    expect(counts, equals=sum(counted), what="counts")
    expect(top, equals=np.sort(np.concatenate(large))[:-101:-1], what="largest numbers")


def _large_and_counts(chunk, share):
    """Return the values in this largest share, and the histogram."""
    import numpy as np

    return chunk[chunk > 1 - share], np.histogram(chunk, bins=N_BINS, range=(0, 1))[0]


def _long(scale):
    """Return the length of the array and of its chunks."""
    (n,) = scale.linear(0.4, ("x",))
    return n, -(-n // (32 * scale.threads))


def _plain(result):
    import numpy as np

    return np.asarray(result, dtype=float)
