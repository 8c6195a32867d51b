"""What differs between the environments of two arms."""

import pandas as pd
import xarray as xr

from benchkit.analysis.compare.environment_diff import _join_one_sided, differences


def test_another_engine_is_a_difference_also_to_a_run_that_names_none():
    old, new, other = (
        xr.DataTree(xr.Dataset(attrs=attrs))
        for attrs in ({}, {"engine": "dask"}, {"engine": "frisky"})
    )

    assert differences([old], [new]).empty
    (row,) = differences([old], [other]).to_dict("records")
    assert list(row.values()) == ["cluster", "engine", "dask", "frisky"]


def test_packages_of_one_side_share_a_row():
    rows = [("package", "dask", "1", "2"), ("config", "a.b", "1", "2")]
    rows += [("package", f"tool-{i}", "1.0", "–") for i in range(8)]
    rows += [("package", "blosc2", "–", "3.0")]
    names = ["kind", "name", "baseline", "contender"]
    found = _join_one_sided(pd.DataFrame(rows, columns=names))

    assert found["name"].tolist() == ["dask", "blosc2", "8 packages of one side", "a.b"]
    (joined,) = found[found["name"] == "8 packages of one side"].to_dict("records")
    assert joined["baseline"].startswith("tool-0 1.0, tool-1 1.0")
    assert joined["contender"] == "–"
