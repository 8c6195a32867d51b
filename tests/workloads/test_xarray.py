"""The checks of the xarray workloads accept the true result and reject wrong ones."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.wrong_results import (
    FINGERPRINT,
    TINY,
    dask_like,
    entry,
    prove,
    proved_here,
    times,
    wrong_for,
)


def means_with(change):
    """Change the means of the product, which are in arrays or in a frame."""

    def spoil(result):
        if dask_like(result):
            frame = result.compute()
            return FrameOf(frame.assign(uv=change(frame["uv"].to_numpy())))
        return {**result, "uv": change(np.asarray(result["uv"]))}

    return spoil


class FrameOf:
    """Stand-in for a Dask DataFrame: a frame that is already computed."""

    def __init__(self, frame):
        self.frame = frame

    def compute(self):
        return self.frame


WRONG = {
    "xarray.quadratic_mean": {
        "a chunk in ten is lost": means_with(lambda means: means * 0.9),
        "rows are swapped": means_with(lambda means: means.reshape(-1)[::-1].reshape(means.shape)),
        "a cell is far off": means_with(entry(lambda value: value + 1)),
        "not a number": means_with(entry(lambda value: np.nan)),
    },
    "xarray.groupby_reduction": {
        "a cell is off": entry(lambda value: value * (1 + 1e-3)),
        "months are swapped": lambda result: np.asarray(result)[::-1],
        "a month is lost": lambda result: np.asarray(result)[:-1],
        "not a number": times(np.nan),
    },
    "xarray.climatic_mean": FINGERPRINT,
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, wrong_for(variant, WRONG), replace(TINY, fraction=0.1))
