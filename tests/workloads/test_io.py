"""The checks of the workloads that read and write files: csv, parquet, zarr, io."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.wrong_results import (
    item,
    nan,
    prove,
    proved_here,
    rows_with,
    swapped_values,
    with_value,
)


def value_off(array):
    array = np.array(array)
    array.flat[0] += 1
    return array


def something_else(mean):
    """Return a wrong mean, also if the right one is NaN."""
    mean = float(mean)
    return 1.0 if np.isnan(mean) else mean * (1 + 1e-6)


def files_with(change):
    """Write a changed copy of the written files to another folder, and return that folder."""

    def spoil(folder):
        target = Path(tempfile.mkdtemp(dir=Path(folder).parent)) / "changed.parquet"
        change(pd.read_parquet(folder)).to_parquet(target)
        return str(target.parent)

    return spoil


WRONG = {
    "csv.to_parquet": {
        "a row is lost": files_with(lambda frame: frame.iloc[1:]),
        "a repeated address was kept": files_with(lambda frame: pd.concat([frame, frame.iloc[:1]])),
        "a float was not cleaned": files_with(lambda frame: frame.assign(column_30=np.nan)),
        "a float lost its fraction": files_with(
            lambda frame: frame.assign(column_30=frame["column_30"].round())
        ),
        "another float was not cleaned": files_with(lambda frame: frame.assign(column_34=np.nan)),
        "floats have changed rows": files_with(
            lambda frame: frame.assign(column_39=frame["column_39"].to_numpy()[::-1])
        ),
    },
    "parquet.read_hive": {
        "a value is of another row": swapped_values("download"),
        "a group is lost": rows_with(lambda frame: frame.iloc[1:]),
        "a text is off": with_value("tile", lambda text: text[1:], row=7),
        "not a number": with_value("tests", nan),
    },
    "parquet.read_spark_like": {
        "a row is not the first": with_value("place", lambda place: place + 1, row=2),
        "a text is of another row": swapped_values("text_0"),
        "a sample is lost": rows_with(lambda frame: frame.iloc[:-1]),
        "a text is missing": with_value("text_3", lambda text: None),
    },
    "parquet.download_throughput": {
        "a file is lost": item("reports", lambda reports: reports[:-1]),
        "a row is lost": item(
            "reports",
            lambda reports: [{**reports[0], "rows": reports[0]["rows"] - 1}, *reports[1:]],
        ),
        "a value is off": item(
            "reports",
            lambda reports: [{**reports[0], "total": reports[0]["total"] + 1}, *reports[1:]],
        ),
        "not a number": item(
            "reports", lambda reports: [{**reports[0], "total": float("nan")}, *reports[1:]]
        ),
    },
    "parquet.small_files": {
        "a file is lost": item("value", lambda total: total - 10),
        "files have changed places": item("product", lambda total: total + 1),
        "not a number": item("value", nan),
    },
    "parquet.column_projection_filter": {
        "a row is lost": item("sums", lambda sums: sums - [0.5, 1, 1]),
        "a row group too much": item("sums", lambda sums: sums * 2),
        "a column is off": item("sums", lambda sums: sums * [1 + 1e-7, 1, 1]),
        "not a number": item("sums", lambda sums: sums * np.nan),
        "less was read than there is": item("nbytes", lambda nbytes: 10),
    },
    "csv.basic": {
        "a row is lost": with_value("count", lambda count: count - 1),
        "a mean is off": with_value("mean", lambda mean: mean + 0.001, row=3),
        "two means are swapped": swapped_values("mean"),
        "a group is lost": rows_with(lambda frame: frame.iloc[1:]),
        "not a number": with_value("mean", nan),
    },
    "zarr.filter_average": {
        "the mean is off": something_else,
        "the values were counted, not averaged": lambda mean: 10**6,
    },
    "zarr.access_slices": {
        "a value is off": lambda parts: [value_off(parts[0]), *parts[1:]],
        "a plane is lost": lambda parts: [*parts[:-1], parts[-1][1:]],
        "a part is lost": lambda parts: parts[1:],
    },
    "zarr.sum_residuals": {
        "a residual is lost": lambda sums: np.asarray(sums) - [100.0, 0],
        "planes have changed places": lambda sums: np.asarray(sums) * [1, 1.001],
        "all is zero": lambda sums: np.zeros(2),
        "not a number": lambda sums: np.asarray(sums) * np.nan,
    },
    "zarr.select_scalar": {
        "one is that of another point": lambda heights: [heights[1], *heights[1:]],
        "two have changed places": lambda heights: [heights[1], heights[0], *heights[2:]],
        "one is lost": lambda heights: heights[1:],
        "one is not a number": lambda heights: [np.nan, *heights[1:]],
    },
    "io.database[job=etl]": {"a row is lost": lambda count: count - 1},
    "io.database": {
        "a row is lost": with_value("count", lambda count: count - 1),
        "a price is off": with_value("sum", lambda total: total + 0.01),
        "a shop is lost": rows_with(lambda frame: frame.iloc[1:]),
        "shops have changed places": swapped_values("sum"),
        "not a number": with_value("sum", nan),
    },
    "io.simulated_store": {
        "an object is lost": item("sums", lambda sums: sums[:-1]),
        "an object is another": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "a failed request was not tried again": item("requests", lambda count: count - 1),
        "bytes were read twice": item("nbytes", lambda nbytes: 2 * nbytes),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)
