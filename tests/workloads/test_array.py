"""The checks of the array workloads accept the true result and reject wrong ones."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from helpers.wrong_results import (
    FINGERPRINT,
    TINY,
    VARIANTS,
    array_with,
    item,
    one_moved,
    prove,
    proved_here,
    times,
    wrong_for,
)


def with_entry(place, change):
    """Change one entry of an array."""

    def spoil(array):
        array = np.array(array)
        array[place] = change(array[place])
        return array

    return spoil


def with_dask_entry(place, change):
    """Change one entry of a Dask array."""

    def spoil(array):
        return da.from_array(with_entry(place, change)(array), chunks=array.chunks)

    return spoil


WRONG = {
    "array.dot_product": FINGERPRINT,
    "array.vorticity": FINGERPRINT,
    "array.double_diff": FINGERPRINT,
    "array.map_overlap_sample": {
        "a value is off": with_entry((3, 7), lambda value: value + 1e-12),
        "rows are swapped": lambda window: np.asarray(window)[::-1],
        "a row is lost": lambda window: np.asarray(window)[:-1],
        "not a number": times(np.nan),
    },
    "array.ols": {
        "a coefficient is off": item("fitted", with_entry(7, lambda value: value + 0.2)),
        "coefficients are swapped": item("fitted", lambda fitted: np.asarray(fitted)[::-1]),
        "half of the residuals are lost": item("unexplained", times(0.5)),
        "not a number": item("unexplained", times(np.nan)),
    },
    "array.tall_skinny_qr": {
        "a value of Q is off": item("q", with_dask_entry((5, 5), lambda value: value + 1e-6)),
        "Q is not of length one": lambda result: {"q": result["q"] * 2, "r": result["r"] / 2},
        "R is no triangle": lambda result: {"q": result["q"][:, ::-1], "r": result["r"][::-1]},
        "not a number": item("q", with_dask_entry((5, 5), lambda value: np.nan)),
    },
    "array.svd_compressed": {
        "a value is off": item("s", with_entry(4, lambda value: value * 1.02)),
        "the largest is lost": item("s", lambda s: np.append(np.asarray(s)[1:], 0.0)),
        "vectors are swapped": item("u", lambda u: u[:, ::-1]),
        "not a number": item("s", times(np.nan)),
    },
    "array.fancy_index": FINGERPRINT,
    "array.percentile_topk": {
        "the median is off": item("percentiles", with_entry(1, lambda value: value + 0.05)),
        "a count is lost": item("counts", with_entry(9, lambda count: count - 1)),
        "a count is in the next bin": item("counts", array_with(one_moved)),
        "numbers are in the wrong bin": item(
            "counts", lambda counts: np.where(np.arange(1000) < 500, 0, 2 * np.asarray(counts))
        ),
        "the largest are not sorted": item("top", lambda top: np.asarray(top)[::-1]),
        "one of them is not among the largest": item("top", with_entry(99, lambda value: 0.5)),
        "the largest is lost": item("top", lambda top: [*top[1:], top[-1] - 1e-9]),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    # By the quadratic law the data of a small cluster are much larger than its memory.
    fraction = 0.01 if variant.params.get("law") == "quadratic" else 0.1
    prove(client, variant, wrong_for(variant, WRONG), replace(TINY, fraction=fraction))


@pytest.mark.parametrize("apart", [1, 83, 97, 83 * 97, 2**13])
@pytest.mark.parametrize("axis", [0, 1])
def test_fingerprint_detects_exchanged_rows(axis, apart):
    (fingerprint,) = {
        each.workload.main.__globals__["fingerprint"]
        for each in VARIANTS
        if each.workload.name == "array.vorticity"
    }
    values = np.random.default_rng(0).random((10_000, 4))
    moved = values.copy()
    moved[[0, apart]] = values[[apart, 0]]

    before, after = (
        fingerprint(da.from_array(array if axis == 0 else array.T, chunks=1000)).compute()
        for array in (values, moved)
    )

    assert after[0] == pytest.approx(before[0], rel=1e-12)
    assert after[1] != pytest.approx(before[1], rel=1e-8)
