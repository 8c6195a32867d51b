"""Convert raw columns to Datasets with the types, units and attributes of the schema.

Shared by the modules that turn a recording into the groups of a run file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from benchkit.measure.recording import Recording
from benchkit.store.schema import COORDINATES, GROUPS, Variable
from benchkit.values import clean_text


class Window:
    """Start and end of the measured time, in Unix s of the scheduler's clock."""

    def __init__(self, recording: Recording) -> None:
        state = recording.last("state", {})
        tail = recording.tail
        self.on = first_finite(tail.get("t_on"), state.get("t_on"))
        self.off = first_finite(tail.get("t_off"), state.get("t_off"), state.get("now"))

    @property
    def started(self) -> bool:
        """Whether the clock was started."""
        return bool(np.isfinite(self.on))

    @property
    def duration(self) -> float:
        """Seconds between clock on and clock off."""
        return self.off - self.on

    def seconds(self, times: npt.ArrayLike) -> np.ndarray:
        """Return Unix times as seconds after the start of the clock."""
        return np.asarray(times, float) - self.on


def first_finite(*values: float | None) -> float:
    """Return the first finite number."""
    # returned: NaN if no value is finite.
    for value in values:
        if value is not None and np.isfinite(value):
            return float(value)
    return float("nan")


def columns_of(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return rows as columns."""
    rows = list(rows)
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def shaped(group: str, data: Mapping[str, Any], coordinates: Mapping[str, Any]) -> xr.Dataset:
    """Return the Dataset of a group with the types and attributes of the schema."""
    variables = _arrays(GROUPS[group], data)
    return xr.Dataset(variables, _arrays(chain(*COORDINATES.values()), coordinates))


def _arrays(variables: Iterable[Variable], data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        variable.name: (
            variable.dims,
            _as_type(data[variable.name], variable.dtype),
            variable.attrs,
        )
        for variable in variables
        if variable.name in data
    }


def _as_type(values: Any, dtype: str) -> np.ndarray:
    if dtype == "str":
        return np.asarray([clean_text(value) for value in values], dtype=object)
    return np.asarray(values).astype(dtype)
