"""Shape raw columns as the schema says: types, units, the clock of a run, text a file can hold.

Shared by those that turn a recording into the groups of a run file; knows no group by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from benchkit.formatting import clean_text
from benchkit.measure.recording import Recording
from benchkit.store.schema import COORDINATE_SOURCES, COORDINATES, GROUPS

__all__ = ["Window", "first_known", "shaped"]


class Window:
    """When the clock ran, in Unix s on the scheduler's clock, and how to count from it."""

    def __init__(self, recording: Recording) -> None:
        state = recording.last("state", {})
        tail = recording.tail
        self.on = first_known(tail.get("t_on"), state.get("t_on"))
        self.off = first_known(tail.get("t_off"), state.get("t_off"), state.get("now"))

    @property
    def started(self) -> bool:
        """Whether the clock was ever started."""
        return bool(np.isfinite(self.on))

    @property
    def duration(self) -> float:
        """Seconds between clock on and clock off."""
        return self.off - self.on

    def seconds(self, moment: Any) -> Any:
        """Return Unix times as seconds after clock on."""
        return np.asarray(moment, float) - self.on


def first_known(*values: Any) -> float:
    """Return the first of these numbers that is one; NaN if none is."""
    for value in values:
        if value is not None and np.isfinite(value):
            return float(value)
    return float("nan")


def shaped(group: str, data: dict[str, Any], coordinates: dict[str, Any]) -> xr.Dataset:
    """Build a group's Dataset in the types and with the attributes of the schema.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    data : dict
        Values by name of variable; one that is not there stays out of the Dataset.
    coordinates : dict
        Values by name of coordinate.
    """
    variables = {
        variable.name: (
            variable.dims,
            _as_type(data[variable.name], variable.dtype),
            variable.attrs,
        )
        for variable in GROUPS[group]
        if variable.name in data
    }
    coords = {}
    for dim, entries in COORDINATES.items():
        for name, dtype, units, long_name in entries:
            if name in coordinates:
                attrs = {"units": units, "long_name": long_name, "source": COORDINATE_SOURCES[dim]}
                coords[name] = (dim, _as_type(coordinates[name], dtype), attrs)
    return xr.Dataset(variables, coords)


def _as_type(values: Any, dtype: str) -> np.ndarray:
    if dtype == "str":
        return np.asarray([clean_text(value) for value in values], dtype=object)
    return np.asarray(values).astype(dtype)
