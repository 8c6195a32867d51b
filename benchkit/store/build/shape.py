"""Convert raw columns to Datasets with the types, units and attributes of the schema.

Shared by the modules that turn a recording into the groups of a run file.
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
    """Start and end of the measured time, in Unix s of the scheduler's clock.

    Parameters
    ----------
    recording : Recording
        The recording; values of its tail take precedence over its last state.
    """

    def __init__(self, recording: Recording) -> None:
        state = recording.last("state", {})
        tail = recording.tail
        self.on = first_known(tail.get("t_on"), state.get("t_on"))
        self.off = first_known(tail.get("t_off"), state.get("t_off"), state.get("now"))

    @property
    def started(self) -> bool:
        """Whether the clock was started."""
        return bool(np.isfinite(self.on))

    @property
    def duration(self) -> float:
        """Seconds between clock on and clock off."""
        return self.off - self.on

    def seconds(self, moment: Any) -> Any:
        """Return Unix times as seconds after the start of the clock."""
        return np.asarray(moment, float) - self.on


def first_known(*values: Any) -> float:
    """Return the first finite number; NaN if there is none."""
    for value in values:
        if value is not None and np.isfinite(value):
            return float(value)
    return float("nan")


def shaped(group: str, data: dict[str, Any], coordinates: dict[str, Any]) -> xr.Dataset:
    """Return the Dataset of a group with the types and attributes of the schema.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    data : dict
        Values by name of variable; absent variables are left out of the Dataset.
    coordinates : dict
        Values by name of coordinate.

    Returns
    -------
    Dataset
        Variables and coordinates of the group.
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
