"""The groups of a run file: names, dimensions and units of their variables and coordinates.

The tables `variables.csv` and `coordinates.csv` list them.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchkit.store.tables import read_table

__all__ = ["ACTIVITIES", "COORDINATES", "GROUPS", "Variable"]

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
