"""Weights that interpolate maps to another grid, as one matrix or by axis."""

from __future__ import annotations


def axis_weights(shape, to):
    """Return the weights of interpolation along latitudes and around the globe."""
    import numpy as np

    ratio = {"coarse": 1 / 4, "finer": 5 / 4, "finest": 5 / 2}[to]
    height, width = shape[1:]
    down = np.linspace(0, height - 1, max(2, round(height * ratio)))
    n_around = max(2, round(width * ratio))
    around = np.arange(n_around) * (width / n_around)
    return linear_weights(down, height), linear_weights(around, width)


def linear_weights(places, count):
    """Return a sparse matrix that interpolates values on a circle at these places."""
    import numpy as np
    from scipy import sparse

    low = np.floor(places).astype(int)
    share = places - low
    rows = np.arange(len(places))
    values = np.concatenate([1 - share, share])
    columns = np.concatenate([low % count, (low + 1) % count])
    return sparse.csr_matrix((values, (np.tile(rows, 2), columns)), shape=(len(places), count))


def both_axes(along, around):
    from scipy import sparse

    return sparse.kron(along, around, format="csr")


def interpolated(block, weights, height, width):
    return (weights @ block.reshape(len(block), -1).T).T.reshape(len(block), height, width)


def interpolated_by_axes(block, along, around):
    import numpy as np

    return np.stack([(around @ (along @ each).T).T for each in block])
