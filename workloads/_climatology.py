"""Climatology for each hour and day of the year, with NumPy."""

from __future__ import annotations

#: Days of the window of a climatology, and of a leap year.
WINDOW, DAYS = 61, 366
HOURS = (0, 6, 12, 18)


def climatology_of_block(block):
    """Return the climatology of a DataArray (time, lat, lon), by hour and day."""
    import xarray as xr

    means = climatology(block.to_numpy(), block["time"].to_index())
    return xr.DataArray(means, dims=("hour", "day", "lat", "lon"), coords={"hour": list(HOURS)})


def climatology(values, time):
    """Return the weighted means (hour, day, ...) of values (time, ...)."""
    import numpy as np

    years = sorted(set(time.year))
    calendar = np.empty((len(years), len(HOURS), DAYS, *values.shape[1:]))
    for number, year in enumerate(years):
        for place, hour in enumerate(HOURS):
            chosen = values[(time.year == year) & (time.hour == hour)]
            calendar[number, place, : len(chosen)] = chosen
            calendar[number, place, len(chosen) :] = chosen[-1]
    weights, moved = triangle(), np.eye(DAYS)
    smooth = sum(
        weight * np.roll(moved, shift, axis=1)
        for weight, shift in zip(weights, range(-(WINDOW // 2), WINDOW // 2 + 1), strict=True)
    )
    return np.einsum("de,he...->hd...", smooth / weights.sum(), calendar.mean(axis=0))


def triangle():
    """Return the weights of the days of a window."""
    import numpy as np

    return 1 - np.abs(np.arange(WINDOW) - WINDOW // 2) / (WINDOW // 2 + 1)
