"""Arrays: reductions over chunks that stress where root tasks are placed."""

import time

import dask.array as da

from benchkit.measure import expect, workload


@workload(
    category="array",
    variants={"chunks": ["thin", "square"], "slow": [False, True]},
    tags=["root-tasks", "profile:quick"],
    requires=["numpy"],
)
def basic_sum(client, scale, *, chunks, slow):
    """Sum the rows of an array two and a half times as large as the cluster's memory.

    Stresses co-assignment of neighbouring root tasks: without it, up to the whole array crosses
    the network. Slow root tasks (a sleep, and a copy) make a wrong placement cost memory too.

    Scale: 2.5 x cluster memory, linear; a chunk is 1/40 of one thread's memory.
    Check: every row of ones sums to the number of columns.
    """
    side = int((scale.memory_per_thread / 40 / 8) ** 0.5)
    rows = side * 8
    shape = scale.linear(2.5, (rows, "x"))
    block = (rows, max(1, side * side // rows)) if chunks == "thin" else (side, side)
    array = da.ones(shape, chunks=block)
    if slow:
        array = array.map_blocks(_slowly, scale.seconds(0.25), dtype=array.dtype)
    return {"sums": array.sum(axis=1), "columns": shape[1]}


def _slowly(block, seconds):
    time.sleep(seconds)
    return block.copy()


@basic_sum.check
def every_row_has_its_columns(result):
    """Compare the smallest and the largest sum with the number of columns."""
    sums = result["sums"]
    expect(float(sums.min().compute()), equals=float(result["columns"]), what="smallest row sum")
    expect(float(sums.max().compute()), equals=float(result["columns"]), what="largest row sum")
