"""Array workloads: reductions and products of chunked arrays."""

from __future__ import annotations

import time

from benchkit.measure import expect, random_array, workload

#: A little more than memory: what is not let go in time must be spilled.
SUM_FACTOR = 1.1
#: Where the quadratic law meets the linear one: 2 workers x 1 thread x 1 GiB.
DOT_REFERENCE_BYTES = 128 * 2**20


@workload(
    variants={"kind": ["fast-thin", "slow-thin", "slow-square"]},
    tags=["root-tasks", "first-twelve[kind=slow-thin]", "quick[kind=slow-thin]"],
    requires=["numpy", "dask.array"],
)
def basic_sum(scale, *, kind):
    """Sum an array larger than memory along its rows.

    Thin chunks are single columns, so the sum of a chunk does nothing and whole columns are added
    in groups of four; square chunks shrink first. Slow chunks take half a second at the reference.
    Stresses the co-assignment of neighbouring root tasks: where it fails, up to the whole input
    crosses the network (distributed#4864).

    Scale: 1.1 x cluster memory, linear; a chunk is 100 MiB and its nap 0.5 s at the reference,
    both by the grain. About 8 s on 2 x 1 x 1 GiB when slow, 3 s when fast.
    Check: each chunk holds its own number, so a lost, doubled or misplaced one shows.
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
    """Return chunks down, chunks across, and the height and width of a chunk."""
    items = scale.chunk("100 MiB") // 8
    n_chunks = max(2 * scale.threads + 1, round(scale.linear(SUM_FACTOR) / items / 8))
    if kind.endswith("thin"):
        return 1, n_chunks, items, 1
    side = max(3, round(n_chunks**0.5))
    height = round((items * 3350 / 3925) ** 0.5)
    return side, side, height, items // height


def _number_chunk(block, columns, nap_s, block_id=None):
    time.sleep(nap_s)
    # A new array: handing back the input would count its memory twice.
    return block + (block_id[0] * columns + block_id[1] + 1)


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=["transfer", "first-twelve[data=uncompressible]", "quick[data=uncompressible]"],
    requires=["numpy", "dask.array"],
)
def dot_product(scale, seed, *, data):
    """Multiply a square array with its transpose and sum the product.

    Each chunk is needed by a row and a column of products. Stresses transfers between workers and
    the order in which partial products are made and added.

    Scale: quadratic, 1/17 x cluster memory where the laws meet (2 GiB), because work grows with
    the square; about 32 products of two chunks a thread. About 4 s on 2 x 1 x 1 GiB.
    Check: the sum over columns of their sums squared.
    """
    array = _dot_operand(scale, seed, data)
    return (array @ array.T).sum()


@dot_product.check
def _(result, scale, seed, *, data):
    array = _dot_operand(scale, seed, data)
    wanted = (array.sum(axis=0) ** 2).sum().compute()
    expect(float(result), close_to=float(wanted), rtol=1e-9, what="sum of the product")


def _dot_operand(scale, seed, data):
    side, _ = scale.quadratic(1 / 17, DOT_REFERENCE_BYTES, ("x", "x"))
    # Not rounded to whole chunks: the last ones are smaller, as they are in life.
    n_chunks = max(3, round((32 * scale.threads) ** (1 / 3)))
    chunk = max(1, round(side / (n_chunks - 0.5)))
    return random_array((side, side), chunks=(chunk, chunk), data=data, seed=seed)
