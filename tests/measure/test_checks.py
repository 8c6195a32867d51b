"""`expect`: the comparison of a result with the known answer."""

import pytest

from benchkit.measure import expect
from benchkit.measure.errors import WrongAnswer


def test_expect_compares_with_none():
    expect(None, equals=None)

    with pytest.raises(WrongAnswer, match=r"^result: 3, expected None$"):
        expect(3, equals=None)
    with pytest.raises(WrongAnswer, match=r"^rows: None, expected 3$"):
        expect(None, equals=3, what="rows")


def test_expect_without_expectation_names_the_arguments():
    with pytest.raises(TypeError, match=r"^expect: pass equals=, close_to=, at_least= or at_most="):
        expect(3)


@pytest.mark.parametrize("kind", ["array of one", "array", "series", "scalar of a series"])
def test_expect_computes_dask_collections(kind):
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    series = dd.from_pandas(pd.Series([2, 2, 2]), npartitions=2)
    value, answer, wrong = {
        "array of one": (da.ones(4, chunks=2).sum(), 4.0, "result: 4, expected 5"),
        "array": (da.ones(2, chunks=1), 1.0, r"result\[0\]: 1, expected 2"),
        "series": (series, 2, r"result\[0\]: 2, expected 3"),
        "scalar of a series": (series.sum(), 6, "result: 6, expected 7"),
    }[kind]

    expect(value, equals=answer)

    with pytest.raises(WrongAnswer, match=f"^{wrong}$"):
        expect(value, equals=answer + 1)
