"""Rows to learn from, and rows to try what was learnt."""

from __future__ import annotations

N_FEATURES = 20


def regression(scale, seed):
    """Return features and targets that lie on the workers, as ``train`` and ``test``.

    They are 0.01 x cluster memory in all, in 4 chunks for each thread; 30 % are for the test.
    """
    import dask
    import dask.array as da
    from distributed import wait

    rows = max(2000, scale.linear(0.01) // (8 * N_FEATURES))
    chunk = max(100, rows // (4 * scale.threads))
    x = da.random.default_rng(seed).random((rows, N_FEATURES), chunks=(chunk, N_FEATURES))
    y = 10 * x[:, 0] + 5 * x[:, 1] * x[:, 2] - 3 * x[:, 3]
    # Rows are in no order: the last 30 % are as good as any.
    cut = rows * 7 // 10
    persisted = dask.persist(x[:cut], y[:cut], x[cut:], y[cut:])
    wait(persisted)
    return {"train": persisted[:2], "test": persisted[2:]}
