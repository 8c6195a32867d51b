"""Training and test data of a regression."""

from __future__ import annotations

N_FEATURES = 20


def regression(scale, seed):
    """Return persisted features and targets, as ``train`` and ``test``.

    They are 0.01 x cluster memory in total, in 4 chunks per thread; 30 % are test data.
    """
    import dask
    import dask.array as da
    from distributed import wait

    rows = max(2000, scale.linear(0.01) // (8 * N_FEATURES))
    chunk = max(100, rows // (4 * scale.threads))
    x = da.random.default_rng(seed).random((rows, N_FEATURES), chunks=(chunk, N_FEATURES))
    y = 10 * x[:, 0] + 5 * x[:, 1] * x[:, 2] - 3 * x[:, 3]
    # Rows are in random order: take the last 30 %.
    cut = rows * 7 // 10
    persisted = dask.persist(x[:cut], y[:cut], x[cut:], y[cut:])
    wait(persisted)
    return {"train": persisted[:2], "test": persisted[2:]}
