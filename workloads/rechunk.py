"""Rechunk workloads: the same array, cut another way."""

from __future__ import annotations

import dask

from benchkit.measure import expect, random_array, workload
from benchkit.measure.errors import MissingPackage

#: Weights of the second fingerprint repeat after so many rows and columns: primes, so that no
#: chunk of a plausible size can move without a change.
ROW_PERIOD, COLUMN_PERIOD = 97, 89


@workload(
    variants={"method": ["tasks", "p2p-disk", "p2p-memory"]},
    tags=["shuffle", "transfer", "first-twelve[method=p2p-disk]", "quick[method=p2p-disk]"],
    requires=["numpy", "dask.array"],
)
def swap_axes_in_memory(scale, seed, *, method):
    """Rechunk an array from whole columns to whole rows, all of it in memory.

    Every output chunk needs a piece of every input chunk. Stresses the shuffle itself: with
    "tasks" the graph grows with the square of the number of chunks, with P2P only transfer and
    buffers do, on disk or in memory.

    Scale: 0.12 x cluster memory, linear; 18 chunks x the root of the threads each way, so that
    the pieces of a thread are as many on every cluster. About 3 s on 2 x 1 x 1 GiB.
    Check: the sum and a sum weighted by row and column equal those before the swap.
    """
    source, rows = _geometry(scale, seed)
    with _rechunk_by(method):
        return _fingerprint(source.rechunk(rows)).compute()


@swap_axes_in_memory.prepare
def _(client, seed, *, method):
    # The first P2P of a cluster takes seconds for its imports and plugins.
    with _rechunk_by(method):
        random_array((20, 20), chunks=(20, 10), seed=seed).rechunk((10, 20)).sum().compute()


@swap_axes_in_memory.check
def _(result, scale, seed):
    source, _ = _geometry(scale, seed)
    with _rechunk_by("tasks"):
        wanted = _fingerprint(source).compute()
    expect(result[0], close_to=wanted[0], rtol=1e-9, what="sum")
    expect(result[1], close_to=wanted[1], rtol=1e-9, what="sum weighted by position")


def _geometry(scale, seed):
    """Return the array in chunks of whole columns, and the chunks of whole rows."""
    side, _ = scale.linear(0.12, ("x", "x"))
    step = -(-side // max(3, round(18 * scale.threads**0.5)))
    return random_array((side, side), chunks=(side, step), seed=seed), (step, side)


def _fingerprint(array):
    """Return a Dask array of two numbers: the sum, and the sum weighted by position."""
    sums = array.map_blocks(_sums_of_block, dtype=float, new_axis=0, chunks=(2, *_ones(array)))
    return sums.sum(axis=(1, 2))


def _ones(array):
    return tuple((1,) * count for count in array.numblocks)


def _sums_of_block(block, block_info=None):
    import numpy as np

    (top, bottom), (left, right) = block_info[0]["array-location"]
    down = np.arange(top, bottom) % ROW_PERIOD + 1.0
    across = np.arange(left, right) % COLUMN_PERIOD + 1.0
    return np.array([block.sum(), down @ block @ across]).reshape(2, 1, 1)


def _rechunk_by(method):
    """Return a context in which Dask rechunks by this method."""
    kind, _, storage = method.partition("-")
    options = {"array.rechunk.method": kind}
    if storage:
        names = ("distributed.p2p.storage.disk", "distributed.p2p.disk")
        known = [name for name in names if dask.config.get(name, None) is not None]
        if not known and storage == "memory":
            raise MissingPackage(
                "this release of distributed keeps P2P data on disk only: "
                "pip install 'distributed>=2023.11'"
            )
        # Releases that cannot choose refuse P2P unless fusion is off, too.
        options |= {known[0]: storage == "disk"} if known else {"optimization.fuse.active": False}
    return dask.config.set(options)
