"""Datasets of weather, water, climate and satellite images, in sizes for a cluster."""

from __future__ import annotations

import _recipes.archives
import _recipes.rasters  # noqa: F401  (declares the datasets)

from benchkit.measure import dataset

LEVELS = 5
#: Offset of the values of satellite images, and the date of the first image with it.
OFFSET, OFFSET_FROM = 1000, "2022-01-25"
N_IMAGES = 60


def atmosphere(scale):
    """Return fields of 0.2 x cluster memory; an hour of one is 3 MiB at reference memory."""
    latitudes = max(4, round((scale.chunk("3 MiB") / 4 / LEVELS / 2) ** 0.5))
    days = max(2, round(scale.linear(0.05) / 4 / (LEVELS * latitudes * 2 * latitudes) / 24))
    return dataset("era5", days=days, levels=LEVELS, latitudes=latitudes)


def sea_surface(scale):
    """Return temperatures of 0.25 x cluster memory; a map is 721 x 1440 at reference memory."""
    latitudes, moments = _maps(scale, 0.25)
    return dataset("era5_surface", variable="sst", moments=moments, latitudes=latitudes)


def maps_of_the_globe(scale):
    """Return maps of 0.1 x cluster memory; each is 721 x 1440 at reference memory."""
    latitudes, moments = _maps(scale, 0.1)
    return dataset("era5_surface", moments=moments, latitudes=latitudes)


def three_years(scale):
    """Return 4384 maps of 0.005 x cluster memory; a chunk is 8 MiB at reference memory."""
    moments = 4 * (365 + 366 + 365)
    latitudes = max(2, round((scale.linear(0.005) / 4 / moments / 2) ** 0.5))
    steps = max(1, round(scale.chunk("8 MiB") / 4 / latitudes / 2 / latitudes))
    return dataset("era5_surface", moments=moments, latitudes=latitudes, moments_per_chunk=steps)


def water_and_counties(scale):
    """Return depths of 0.1 x cluster memory, 100 days; a chunk is 4.25 MiB at reference memory."""
    return _water(scale.linear(0.1), days=100, ten_days=scale.chunk("4.25 MiB"))


def two_years_of_water(scale):
    """Return depths of 0.04 x cluster memory, 730 days; a chunk is 0.75 MiB at reference memory."""
    return _water(scale.linear(0.04), days=730, ten_days=scale.chunk("0.75 MiB"))


def satellite_images(scale):
    """Return two bands of 0.15 x cluster memory each; a chunk is 4 MiB at reference memory."""
    tile = max(8, round((scale.chunk("4 MiB") / 2) ** 0.5))
    across = max(1, round(scale.linear(0.15) / 2 / N_IMAGES / tile**2))
    return dataset("sentinel", images=N_IMAGES, tile=tile, across=across)


def archive(scale):
    """Return files of 0.1 x cluster memory, two variables; a file is 32 MiB at reference memory."""
    latitudes = max(4, round((scale.chunk("32 MiB") / 4 / 365 / 2) ** 0.5))
    years = max(2, round(scale.linear(0.1) / 4 / 365 / 2 / latitudes**2 / 2))
    return dataset("nex_nc", years=years, latitudes=latitudes)


def _water(nbytes, *, days, ten_days):
    tile = max(4, round((ten_days / 4 / 10) ** 0.5))
    across = max(2, round(nbytes / 4 / days / tile**2 / 2))
    return dataset("nwm", days=days, tile=tile, across=across)


def _maps(scale, share):
    latitudes = max(8, round((scale.chunk(721 * 1440 * 4) / 4 / 2) ** 0.5))
    return latitudes, max(8, round(scale.linear(share) / 4 / 2 / latitudes**2))
