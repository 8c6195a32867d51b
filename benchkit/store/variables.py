"""The groups of a run file: names, dimensions and units of their variables and coordinates.

The tables `variables.csv` and `coordinates.csv` list them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.tables import read_table

#: Activities that the seconds of a worker thread are split into, in the order plots stack them.
#: "failed": attempts that ended in an error; "seceded": the wait of tasks that left their thread.
ACTIVITIES = (
    "compute",
    "transfer",
    "disk-read",
    "disk-write",
    "serialize",
    "deserialize",
    "failed",
    "seceded",
    "other",
)


@dataclass(frozen=True)
class Variable:
    """A variable or coordinate of a run file."""

    name: str  # Name within its group
    dims: tuple[str, ...]  # Names of the dimensions
    units: str  # Unit in the notation of UDUNITS; "1" for counts and indices, "" for texts
    long_name: str  # Description for labels
    source: str  # Part of Dask or of the system that reports the values
    dtype: str  # NumPy type code, or "str"

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the variable in the file."""
        return {"units": self.units, "long_name": self.long_name, "source": self.source}


def _read(table: str, key: str) -> dict[str, tuple[Variable, ...]]:
    """Return the variables of a table by the value of a column."""
    variables: dict[str, tuple[Variable, ...]] = {}
    for row in read_table(table):
        group = row.pop(key)
        dims = tuple(row.pop("dims", group).split())
        variables[group] = (*variables.get(group, ()), Variable(dims=dims, **row))
    return variables


#: Variables by group of the run file. Times are seconds since the measurement started, on the
#: scheduler's clock; the root attribute `clock_on` is that start as Unix time.
GROUPS = _read("variables", "group")

#: Coordinates by dimension. `time` has no entry of its own dim.
COORDINATES = _read("coordinates", "dim")


# -- what a store accepts -------------------------------------------------------------------------

#: Types of the values of a record by their kind in the table, and how a message names them.
_NUMBER = (int, float)
_VALUES: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "json": ((str, dict, list), "JSON"),
    "time": ((str,), "a time, as text"),
    "int": (_NUMBER, "a number"),
    "float": (_NUMBER, "a number"),
    "number": (_NUMBER, "a number"),
}
#: NumPy kinds by the kind in the table: counts are kept as float where some are missing.
_KINDS = {"f": "fiu", "i": "iub", "u": "iub", "s": "OSUT"}
_Expected = tuple[str, "str | None", "tuple[str, ...] | None"]
_ANY: _Expected = ("OSUTbiufcmM", None, None)
#: NumPy kinds, units and dimensions of a variable by group and name.
_EXPECTED: dict[str, _Expected] = {
    f"{group}/{v.name}": (_KINDS[v.dtype[0]], v.units, v.dims)
    for group, variables in GROUPS.items()
    for v in variables
}
_EXPECTED |= {name: ("fiu", metric.units, ()) for name, metric in METRICS.items()}
#: The same of coordinates, by name and dimensions.
_LABELS: dict[tuple[str, tuple[Hashable, ...]], _Expected] = {
    (v.name, v.dims): (_KINDS[v.dtype[0]], v.units, v.dims)
    for variables in COORDINATES.values()
    for v in variables
}


def first_problem(tree: xr.DataTree, record: Mapping[str, Any]) -> str:
    """Return what a run has otherwise than the tables say; names that they lack are not judged."""
    for name, value in record.items():
        expected = _VALUES.get("number" if name in METRICS else RECORD_FIELDS.get(name, ""))
        if expected and value is not None and not isinstance(value, expected[0]):
            return f"{name} of its record is {_shown(value)}, must be {expected[1]}"
    for node in tree.subtree:
        group = node.path[1:]
        # Earlier releases wrote transfers as a matrix; `Run` converts it.
        is_matrix = group == "transfers" and "source" in node.sizes
        for key, variable in node.variables.items():
            name = f"{group}/{key}" if group else str(key)
            expected_kinds, units, dims = (
                _EXPECTED.get(name) or _LABELS.get((str(key), variable.dims)) or _ANY
            )
            # xarray reads texts of which there are none as numbers.
            if variable.size and variable.dtype.kind not in expected_kinds:
                text = "text" if variable.dtype.kind in "OSUT" else f"of type {variable.dtype}"
                return (
                    f"{name} is {text}, must be {'text' if 'U' in expected_kinds else 'a number'}"
                )
            if dims is not None and variable.dims != dims and not is_matrix:
                shown, wanted = (f"({', '.join(map(str, d))})" for d in (variable.dims, dims))
                return f"{name} has dimensions {shown}, must be {wanted}"
            found = variable.attrs.get("units")  # arithmetic of xarray drops the attributes
            if None not in (units, found) and found != units:
                return f"{name} has units {_shown(found)}, must be {units!r}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
