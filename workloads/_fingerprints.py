"""Two numbers that detect wrong or misplaced values of an array."""

from __future__ import annotations

#: 2**64 divided by the golden ratio: its multiples are evenly distributed.
GOLDEN = 0x9E3779B97F4A7C15


def fingerprint(array, begin=None):
    """Return a Dask array of two numbers: the sum, and the sum weighted by position.

    Values are converted to float64. With `begin`, only values from these indices on are included,
    and positions are relative to these indices.
    """
    begin = tuple(begin or (0,) * array.ndim)
    ones = tuple((1,) * count for count in array.numblocks)
    sums = array.map_blocks(_sums_of_block, begin, dtype=float, new_axis=0, chunks=(2, *ones))
    return sums.sum(axis=tuple(range(1, array.ndim + 1)))


def weights(places, axis):
    """Return a weight in [0, 1) for each position along an axis.

    Weights are pseudo-random and differ between axes: periodic or linear weights would not detect
    that chunks were exchanged.
    """
    import numpy as np

    hashed = (np.asarray(places).astype("uint64") + ((axis << 20) + 1)) ** 2 * GOLDEN
    return hashed / 2.0**64


def _sums_of_block(block, begin, block_info=None):
    import numpy as np

    plain = weighted = np.asarray(block)
    edges = block_info[0]["array-location"]
    # Start with the last axis: each product is then along contiguous memory.
    for axis, (low, high) in reversed(list(enumerate(edges))):
        places = np.arange(low, high) - begin[axis]
        counted = (places >= 0).astype(float)
        plain, weighted = plain @ counted, weighted @ (counted * weights(places, axis))
    return np.array([plain, weighted]).reshape(2, *[1] * len(edges))
