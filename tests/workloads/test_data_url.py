"""Workloads read uploaded datasets by URL, and their checks accept the results."""

import pytest
from helpers.wrong_results import VARIANTS, prove

READERS = [
    "csv.basic",
    "df.rideshare_eda",
    "geo.atmospheric_circulation",
    "geo.cloud_optimize",
    "geo.zonal_average",
    "h2o.q1",
    "ml.embarrassingly_parallel",
    "parquet.read_hive",
    "parquet.read_spark_like",
    "tpch.q06",
    "zarr.access_slices",
    "zarr.select_scalar",
]


@pytest.mark.parametrize("name", READERS)
def test_workload_reads_data_from_url(client, name, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_DATA_URL", f"file://{tmp_path}")
    variant = next(each for each in VARIANTS if each.workload.name == name)

    prove(client, variant, {name: {}})

    assert list(tmp_path.glob("*/manifest.json"))
