"""Recipes of arrays: content of stores, and correctness of known answers in manifests."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from benchkit.measure.data.dataset import clear, dataset


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "data"))


def opened(made, store):
    return xr.open_zarr(made.path / store, consolidated=False).load()


@pytest.mark.parametrize("name", ["cmip", "era5", "era5_surface", "int_cube", "nwm", "sentinel"])
def test_raster_stores_have_zarr_format_2(name):
    made = dataset(name, size="tiny")

    arrays = sorted(made.path.rglob(".zarray"))
    assert arrays
    assert not list(made.path.rglob("zarr.json"))
    # xarray reads a fill value as NaN.
    assert {json.loads(path.read_text())["fill_value"] for path in arrays} == {None}


def test_era5_depends_on_seed_only():
    first = opened(dataset("era5", size="tiny"), "fields.zarr")
    clear("era5")
    again = opened(dataset("era5", size="tiny"), "fields.zarr")
    other = opened(dataset("era5", size="tiny", seed=1), "fields.zarr")

    xr.testing.assert_identical(first, again)
    assert not first["U"].equals(other["U"])
    assert not first["U"].isel(time=0).equals(first["U"].isel(time=1))


def test_era5_manifest_contains_covariances():
    made = dataset("era5", size="tiny", days=2)
    fields, known = opened(made, "fields.zarr").astype(float), opened(made, "expected.zarr")

    assert fields["U"].dims == ("time", "level", "lat", "lon")
    assert list(fields["time"].to_index()[[0, -1]]) == [
        pd.Timestamp("2001-01-01"), pd.Timestamp("2001-01-02 23:00"),
    ]  # fmt: skip
    for a, b in ("UV", "VT", "UW"):
        hourly = xr.cov(fields[a], fields[b], dim="lon", ddof=0)
        daily = hourly.resample(time="1D").mean().to_numpy()
        np.testing.assert_allclose(known[a + b], daily, rtol=1e-12, atol=1e-15)
    # T is correlated with V, and W negatively with U; U and V are independent.
    assert known["VT"].mean() == pytest.approx(1 / 12, rel=0.1)
    assert known["UW"].mean() == pytest.approx(-1 / 12, rel=0.1)
    assert abs(known["UV"].mean()) < 0.01


@pytest.mark.parametrize("variable", ["sst", "t2m"])
def test_era5_surface_has_land_in_sea_temperature(variable):
    made = dataset("era5_surface", variable=variable, moments=10, latitudes=28, moments_per_chunk=4)
    field, known = opened(made, "surface.zarr")[variable], made.manifest["known"]

    assert field.sizes == {"time": 10, "lat": 28, "lon": 56}
    assert field.dtype == "float32"
    missing = np.isnan(field.to_numpy())
    assert (missing == missing[0]).all()
    assert missing[0].sum() == known["missing"]
    assert missing[0].mean() == (pytest.approx(0.25, abs=0.05) if variable == "sst" else 0)
    np.testing.assert_allclose(field.sum(("lat", "lon"), dtype=float), known["sums"], rtol=1e-12)
    assert field["time"].to_index()[1] == pd.Timestamp("2019-01-01 06:00")


def test_nwm_counties_are_stripes_with_shifted_coordinates():
    made = dataset("nwm", size="tiny")
    depth, county = opened(made, "depth.zarr")["depth"], opened(made, "counties.zarr")["county"]

    assert sorted(set(county.to_numpy().ravel())) == list(range(int(county.max()) + 1))
    assert county.max() > 1
    assert not depth["x"].equals(county["x"])
    np.testing.assert_allclose(depth["x"], county["x"], atol=2e-9)
    joined = depth.where((county > 0).to_numpy()).sum(("y", "x"), dtype=float)
    np.testing.assert_allclose(joined, made.manifest["known"]["sums"], rtol=1e-12)


def test_sentinel_bands_are_multiples_except_for_offset():
    made = dataset("sentinel", size="tiny")
    bands, known = opened(made, "bands.zarr"), opened(made, "expected.zarr")["ratio"]

    assert {band.dtype.name for band in bands.values()} == {"uint16"}
    late = bands["time"] >= pd.Timestamp("2022-01-25")
    assert 0 < int(late.sum()) < bands.sizes["time"]
    clean = bands.astype(int) - xr.where(late, 1000, 0)
    has_data = bands["B11"] > 0
    assert float(has_data.mean()) == pytest.approx(0.8, abs=0.01)
    ratio = (clean["B08"] / clean["B11"]).where(has_data).groupby("time.month")
    for edge in (ratio.min(), ratio.max()):
        np.testing.assert_array_equal(edge.transpose("month", "y", "x"), known)


def test_cmip_calendar_has_no_leap_days():
    heights = opened(dataset("cmip", size="tiny"), "zg.zarr")["zg"]

    assert heights.shape == (48, 19, 30, 48)
    assert heights["time"].dt.calendar == "noleap"
    assert set(heights["time"].dt.day.to_numpy()) == {15}
    assert heights["time"].dt.month.to_numpy().tolist() == [*range(1, 13)] * 4
    assert heights["time"].dt.year.to_numpy()[[0, -1]].tolist() == [1850, 1853]


def test_int_cube_manifest_contains_histogram():
    made = dataset("int_cube", size="tiny")
    cube = zarr.open_array(str(made.path / "cube.zarr"), mode="r")[:]

    known = made.manifest["known"]
    assert np.bincount(cube.ravel(), minlength=256).tolist() == known["histogram"]
    assert cube.sum(axis=(1, 2)).tolist() == known["planes"]
