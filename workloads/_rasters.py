"""Weather, water, climate and satellite images that workloads read, by the cluster's size."""

from __future__ import annotations

import _recipes.archives
import _recipes.rasters  # noqa: F401  (declares the datasets)

from benchkit.measure import dataset

LEVELS = 5
#: From this day on, satellite images carry an offset.
OFFSET, OFFSET_FROM = 1000, "2022-01-25"
N_IMAGES = 60


def atmosphere(scale):
    """Return four fields of 0.2 x cluster memory in all; an hour of one is 3 MiB by the grain."""
    latitudes = max(4, round((scale.chunk("3 MiB") / 4 / LEVELS / 2) ** 0.5))
    days = max(2, round(scale.linear(0.05) / 4 / (LEVELS * latitudes * 2 * latitudes) / 24))
    return dataset("era5", days=days, levels=LEVELS, latitudes=latitudes)


def sea_surface(scale):
    """Return temperatures of 0.25 x cluster memory, a moment of 721 x 1440 by the grain."""
    latitudes, moments = _maps(scale, 0.25)
    return dataset("era5_surface", variable="sst", moments=moments, latitudes=latitudes)


def maps_of_the_globe(scale):
    """Return maps of 0.1 x cluster memory, each of 721 x 1440 by the grain."""
    latitudes, moments = _maps(scale, 0.1)
    return dataset("era5_surface", moments=moments, latitudes=latitudes)


def three_years(scale):
    """Return 4384 moments of 0.005 x cluster memory, six hours apart; a chunk is 8 MiB by grain."""
    moments = 4 * (365 + 366 + 365)
    latitudes = max(2, round((scale.linear(0.005) / 4 / moments / 2) ** 0.5))
    steps = max(1, round(scale.chunk("8 MiB") / 4 / latitudes / 2 / latitudes))
    return dataset("era5_surface", moments=moments, latitudes=latitudes, moments_per_chunk=steps)


def water_and_counties(scale):
    """Return depths of 0.1 x cluster memory, 100 days; ten of a tile are 4.25 MiB by the grain."""
    return _water(scale.linear(0.1), days=100, ten_days=scale.chunk("4.25 MiB"))


def two_years_of_water(scale):
    """Return depths of 0.04 x cluster memory, 730 days; ten of a tile are 0.75 MiB by the grain."""
    return _water(scale.linear(0.04), days=730, ten_days=scale.chunk("0.75 MiB"))


def satellite_images(scale):
    """Return two bands of 0.15 x cluster memory each; an image of a tile is 4 MiB by the grain."""
    tile = max(8, round((scale.chunk("4 MiB") / 2) ** 0.5))
    across = max(1, round(scale.linear(0.15) / 2 / N_IMAGES / tile**2))
    return dataset("sentinel", images=N_IMAGES, tile=tile, across=across)


def archive(scale):
    """Return files of two variables, 0.1 x cluster memory in all; one is 32 MiB by the grain."""
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
