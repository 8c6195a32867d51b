"""Linear algebra on arrays that are tall, wide or both."""

from __future__ import annotations

from benchkit.measure import expect, random_array, workload


@workload(
    category="array",
    tags=["reduction", "nightly", "ci"],
    requires=["numpy", "scipy", "dask.array"],
)
def ols(scale, seed):
    """Fit a linear model by ordinary least squares and compute its residuals.

    X'X and X'y are reduced over all rows and solved; the residuals need all rows a second time.
    Stresses memory that is held between two passes over the same data, and reductions.

    Scale: 0.2 x cluster memory, linear, 50 columns; a chunk is 50 MiB at reference memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: coefficients are within 5 / sqrt(rows) of the true ones; the variance of the residuals is
    that of the noise.
    """
    import dask.array as da

    x, y, _ = _regression(scale, seed)
    fitted = da.linalg.solve(x.T @ x, x.T @ y)
    return {"fitted": fitted, "unexplained": ((y - x @ fitted) ** 2).sum()}


@ols.check
def _(result, scale, seed):
    import numpy as np

    x, _, known = _regression(scale, seed)
    n_rows, n_columns = x.shape
    fitted = np.asarray(result["fitted"], dtype=float)
    expect(fitted, close_to=known, rtol=0, atol=5 / n_rows**0.5, what="coefficients")
    variance = float(result["unexplained"]) / (n_rows - n_columns)
    spread = 5 * (2 / n_rows) ** 0.5
    expect(variance, close_to=1.0, rtol=0, atol=spread, what="variance of the residuals")


def _regression(scale, seed):
    import dask.array as da
    import numpy as np

    shape = scale.linear(0.2, ("x", 50))
    rows = max(100, scale.chunk("50 MiB") // 8 // 50)
    random = da.random.default_rng(seed)
    x = random.standard_normal(shape, chunks=(rows, 50))
    noise = random.standard_normal(shape[0], chunks=rows)
    known = np.linspace(-1, 1, 50)
    return x, x @ known + noise, known


@workload(
    category="array",
    tags=["reduction", "order", "nightly", "ci"],
    requires=["numpy", "dask.array"],
)
def tall_skinny_qr(scale, seed):
    """Factor a tall matrix into orthogonal columns and a triangle (QR).

    Each block is factored, the triangles are stacked and factored again, and the blocks are
    multiplied with the result. Stresses priorities: blocks wait for the stacked triangles, and the
    scheduler must not make more blocks than fit into memory.

    Scale: 0.2 x cluster memory, linear, 100 columns; 20 blocks per thread.
    About 4 s on 2 x 1 x 1 GiB.
    Check: Q R equals the matrix within 1e-8 in every block; Q'Q is the identity within 1e-8.
    """
    import dask.array as da

    q, r = da.linalg.qr(_tall(scale, seed))
    return {"q": q, "r": r}


@tall_skinny_qr.check
def _(result, scale, seed):
    import dask
    import numpy as np

    matrix, q, r = _tall(scale, seed), result["q"], result["r"]
    error, gram, r = dask.compute(abs(q @ r - matrix).max(), q.T @ q, r)
    expect(float(error), at_most=1e-8, what="largest difference between QR and the matrix")
    off = np.abs(gram - np.eye(len(gram))).max()
    expect(float(off), at_most=1e-8, what="largest difference between Q'Q and one")
    expect(np.abs(np.tril(r, -1)).max(), at_most=0.0, what="below R's diagonal")


def _tall(scale, seed):
    shape = scale.linear(0.2, ("x", 100))
    rows = max(100, -(-shape[0] // (20 * scale.threads)))
    return random_array(shape, chunks=(rows, 100), seed=seed)


@workload(
    category="array",
    tags=["reduction", "order", "nightly", "ci"],
    requires=["numpy", "dask.array"],
)
def svd_compressed(scale, seed):
    """Compute the ten largest singular values of a tall matrix by random projection.

    Blocks are projected, factored as in `tall_skinny_qr`, and read again. Stresses deep trees of
    small tasks next to large blocks, and their order.

    Scale: 0.15 x cluster memory, linear, 64 columns; 20 blocks per thread.
    About 6 s on 2 x 1 x 1 GiB.
    Check: the singular values of the matrix halve from one to the next: the first ten are correct
    to 1 %, and the factors reproduce the matrix except for the other values.
    """
    import dask.array as da

    u, s, v = da.linalg.svd_compressed(_known_spectrum(scale)[0], k=10, n_power_iter=0, seed=seed)
    return {"u": u, "s": s, "v": v}


@svd_compressed.check
def _(result, scale):
    import dask
    import numpy as np

    matrix, spectrum = _known_spectrum(scale)
    u, s, v = result["u"], result["s"], result["v"]
    found = np.asarray(s, dtype=float)
    expect(found, close_to=spectrum[:10], rtol=0.01, what="singular values")
    wrong, norm = dask.compute((((u * found) @ v - matrix) ** 2).sum(), (matrix**2).sum())
    # Singular values halve: all after the tenth are less than 1/500 of the norm.
    expect(float((wrong / norm) ** 0.5), at_most=0.002, what="norm of what is left out")


def _known_spectrum(scale):
    """Return a matrix with 64 singular values, each half of the one before, and those values."""
    import dask.array as da
    import numpy as np

    n_rows, n_columns = scale.linear(0.15, ("x", 64))
    rows = max(100, -(-n_rows // (20 * scale.threads)))
    spectrum = 0.5 ** np.arange(n_columns)
    right = _cosines(np.arange(n_columns), n_columns, n_columns)
    lengths = (*[rows] * (n_rows // rows), *[n_rows % rows] * (n_rows % rows > 0))
    matrix = da.map_blocks(
        _cosine_rows, n_rows=n_rows, right=spectrum[:, None] * right.T, dtype=float,
        chunks=(lengths, (n_columns,)),
    )  # fmt: skip
    return matrix, spectrum


def _cosine_rows(n_rows, right, block_info=None):
    import numpy as np

    first, last = block_info[None]["array-location"][0]
    return _cosines(np.arange(first, last), n_rows, len(right)) @ right


def _cosines(numbers, n_rows, n_columns):
    """Return rows of the discrete cosine transform, whose columns are orthonormal."""
    import numpy as np

    angles = np.pi / n_rows * (numbers[:, None] + 0.5) * np.arange(n_columns)
    values = np.cos(angles) * (2 / n_rows) ** 0.5
    values[:, 0] /= 2**0.5
    return values
