"""Weather, water and satellite images that are made of numbers, and what is known of them."""

from __future__ import annotations

from benchkit.measure import random_array

LEVELS = 5
#: From this day on, satellite images carry an offset.
OFFSET, OFFSET_FROM = 1000, "2022-01-25"
N_IMAGES = 60


def hours_from_2001(count):
    import pandas as pd

    return pd.date_range("2001-01-01", periods=count, freq="h")


def hourly_fields(scale, seed):
    """Return four fields by name; two that have something in common with another."""
    height = max(4, round((scale.chunk("6 MiB") / 8 / LEVELS / 2) ** 0.5))
    one_hour = LEVELS * height * 2 * height
    days = max(2, round(scale.linear(0.1) / 8 / one_hour / 24))
    shape, chunks = (24 * days, LEVELS, height, 2 * height), (1, LEVELS, height, 2 * height)
    u, v, t, w = (random_array(shape, chunks=chunks, seed=4 * seed + i) for i in range(4))
    return {"u": u, "v": v, "t": t + v, "w": w - u}


def covariances(u, v, t, w):
    import numpy as np

    fields = {"u": u, "v": v, "t": t, "w": w}
    return np.concatenate(
        [(fields[a] * fields[b]).mean(-1) - fields[a].mean(-1) * fields[b].mean(-1)
         for a, b in ("uv", "vt", "uw")],
        axis=-1,
    )  # fmt: skip


def sea_surface(scale, seed):
    """Return moments of float32, one a chunk, in which about a quarter of the places is land."""
    height = max(8, round((scale.chunk(721 * 1440 * 4) / 4 / 2) ** 0.5))
    shape = (max(8, round(scale.linear(0.25) / 4 / height / 2 / height)), height, 2 * height)
    return random_array(shape, chunks=(1, *shape[1:]), seed=seed).map_blocks(
        without_land, dtype="float32"
    )


def without_land(moment):
    import numpy as np

    down, across = np.indices(moment.shape[1:])
    is_land = (down // 7 + across // 11) % 4 == 0
    return np.where(is_land, np.nan, moment).astype("float32")


def six_hourly(scale, seed):
    """Return three years of moments six hours apart, one of them a leap year."""
    import pandas as pd
    import xarray as xr

    times = pd.date_range("2019-01-01", "2021-12-31 18:00", freq="6h")
    cells = scale.linear(0.01) / 8 / len(times)
    height = max(2, round((cells / 2) ** 0.5))
    steps = max(1, round(scale.chunk("16 MiB") / 8 / height / 2 / height))
    shape, chunks = (len(times), height, 2 * height), (steps, height, 2 * height)
    array = random_array(shape, chunks=chunks, seed=seed)
    return xr.DataArray(array, dims=("time", "lat", "lon"), coords={"time": times})


def water_and_counties(scale, seed):
    """Return depths (time, y, x) and the numbers of counties, stripes between which is nothing."""
    import numpy as np
    import xarray as xr

    n_times = 100
    tile = max(4, round((scale.chunk("8.5 MiB") / 8 / 10) ** 0.5))
    across = max(2, round(scale.linear(0.2) / 8 / n_times / tile**2 / 2))
    shape = (n_times, 2 * tile, across * tile)
    array = random_array(shape, chunks=(10, tile, tile), seed=seed)
    y, x = np.arange(shape[1], dtype=float), np.arange(shape[2], dtype=float)
    depth = xr.DataArray(array, dims=("time", "y", "x"), coords={"y": y, "x": x})
    # Borders are slanted and ignore the tiles.
    down, over = np.indices(shape[1:])
    column = (over + down // 3) * across // (shape[2] + shape[1])
    county = 1 + column + across * (down // max(1, tile - 1))
    county = np.unique(county, return_inverse=True)[1].reshape(county.shape) + 1
    county[(down + over) % 17 == 0] = 0
    counties = xr.DataArray(county, dims=("y", "x"), coords={"y": y + 1e-9, "x": x - 1e-9})
    return depth, counties


def satellite_images(scale):
    """Return the days and two bands of images, four fifths of which hold data at any place."""
    import dask.array as da
    import pandas as pd

    times = pd.date_range("2021-11-02", periods=N_IMAGES, freq="5D")
    tile = max(8, round((scale.chunk("4 MiB") / 2) ** 0.5))
    across = max(1, round(scale.linear(0.15) / 2 / N_IMAGES / tile**2))
    chunks = ((1,) * N_IMAGES, (tile,), (tile,) * across)
    months, is_late = times.month.to_numpy(), (times >= OFFSET_FROM).astype(int)
    bands = [
        da.map_blocks(band, months, is_late, is_b08, dtype="uint16", chunks=chunks)
        for is_b08 in (True, False)
    ]
    return times, *bands


def band(months, is_late, is_b08, block_info=None):
    """Return one image of one band; its values differ from place to place and image to image."""
    import numpy as np

    (number, _), (top, bottom), (left, right) = block_info[None]["array-location"]
    y, x = np.arange(top, bottom)[:, None], np.arange(left, right)
    values = 500 + (y * 31 + x * 17 + number * 101) % 2003
    if is_b08:
        values = values * times_as_much(months[number], y, x)
    has_data = (y + x + number) % 5 > 0
    return np.where(has_data, values + OFFSET * is_late[number], 0).astype("uint16")[None]


def times_as_much(month, y, x):
    return 2 + (month + y // 8 + x // 8) % 4


def off_index(block, months, block_info=None):
    import numpy as np

    _, (top, bottom), (left, right) = block_info[0]["array-location"]
    y, x = np.arange(top, bottom)[:, None], np.arange(left, right)
    ratio = times_as_much(months[:, None, None], y, x)
    return np.nan_to_num(np.abs(block - (ratio - 1) / (ratio + 1)), nan=np.inf)


def maps_of_the_globe(scale, seed):
    height = max(8, round((scale.chunk(721 * 1440 * 8) / 8 / 2) ** 0.5))
    shape = (max(8, round(scale.linear(0.1) / 8 / height / 2 / height)), height, 2 * height)
    return random_array(shape, chunks=(1, *shape[1:]), seed=seed)
