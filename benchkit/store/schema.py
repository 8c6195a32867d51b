"""Tables of the content of a run: its groups, their variables, its metrics and its record.

All code that reads or writes runs iterates over these tables, which are CSV files in `tables`. A
new metric needs a line in `tables/metrics.csv` and a line in `benchkit.store.build.metrics`.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchkit.store.tables import read_table

if TYPE_CHECKING:
    import xarray as xr

#: Limits of a query without other ones: an endless one must not stop the work of a shared machine.
TIMEOUT_S, MEMORY_LIMIT = 120.0, "2GiB"
#: Version of the run file. Files of version 1 have no task graph and nothing from before the first
#: task; those of versions 1 and 2 lack waits for a processor, the client's process, and when call
#: stacks were sampled. Everything else is the same in all.
RUN_FORMAT = 3

#: How a run can end. Only `ok` feeds statistics.
OUTCOMES = ("ok", "wrong_answer", "failed", "timeout", "lost_workers", "infrastructure", "skipped")


@dataclass(frozen=True)
class Metric:
    """A number that describes a run."""

    name: str  # Name of the metric
    units: str  # Unit: s, B, %, USD, or "1" for counts and shares
    long_name: str  # Description for labels
    source: str  # Data from which the metric is computed
    better: str  # Direction of an improvement; "" if there is none
    version: int  # Version of the definition; values of different versions are not compared

    @property
    def attrs(self) -> dict[str, str | int]:
        """Attributes of the metric in the file."""
        return {name: text for name, text in vars(self).items() if name != "name"}


class Metrics(dict[str, Metric]):
    """Metrics by name; also finds, but does not list, those that users define for their runs."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        super().__init__(metrics)
        self.own: dict[str, Metric] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.own

    def __missing__(self, name: str) -> Metric:
        return self.own[name]

    def define(self, definitions: str | None) -> None:
        """Add the users' metrics of a run: a record's field ``own_metrics``.

        One that runs define with different units or directions has none: its values are no longer
        compared with each other.
        """
        for name, about in json.loads(definitions or "{}").items():
            units, better = str(about.get("units", "1")), str(about.get("better", ""))
            title = name.replace("_", " ")
            metric = Metric(name, units, title, "the user's code", better, 1)
            if self.own.setdefault(name, metric) != metric:
                title = f"{title}, defined with different units or directions"
                self.own[name] = Metric(name, "1", title, "the user's code", "", 1)


def _metric(version: str, **texts: str) -> Metric:
    return Metric(version=int(version), **texts)


#: Metrics by name, in the order of tables. Version 2 of a definition: workers of one process count
#: once, memory is sampled by the worker, attempts that failed and waits of seceded tasks are not
#: computing, spilling is read from the fine metrics, and CPU and GIL are weighted by time.
#: Version 3 of the times of spilling: the files of P2P shuffles are left out.
METRICS = Metrics({row["name"]: _metric(**row) for row in read_table("metrics")})

#: The record: one flat JSON object per run, the row of the store's index. Name -> dtype, where
#: `json` is a string that holds JSON. Every metric is a field too (float64, missing if unknown).
RECORD_FIELDS: dict[str, str] = {row["name"]: row["dtype"] for row in read_table("record_fields")}

#: Columns of a table of runs that are computed from the marks, see `benchkit.store.marks`.
MARK_COLUMNS = ("comparable", "reason")

#: Fields of a run that identify a series of runs.
SERIES_FIELDS = ("workload", "environment", "host", "scale", "capture")


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


#: Dimensions of the transfers in files of earlier releases.
MATRIX = {"source", "destination"}


def first_problem(tree: xr.DataTree, record: Mapping[str, Any]) -> str:
    """Return what a run has otherwise than the tables say; names that they lack are not judged."""
    for name, value in record.items():
        expected = _VALUES.get("number" if name in METRICS else RECORD_FIELDS.get(name, ""))
        if expected and value is not None and not isinstance(value, expected[0]):
            return f"{name} of its record is {_shown(value)}, must be {expected[1]}"
    for node in tree.subtree:
        group = node.path[1:]
        for key, variable in node.variables.items():
            name = f"{group}/{key}" if group else str(key)
            # Arithmetic of xarray drops the attributes.
            problem = variable_problem(name, variable, variable.dims, variable.attrs.get("units"))
            if problem:
                return problem
    return ""


def dims_of(name: str, rank: int) -> tuple[Hashable, ...]:
    """Return the dimensions of a variable of this rank, as the tables say."""
    group, _, key = name.rpartition("/")
    if group == "transfers" and rank == 2:
        return tuple(sorted(MATRIX))
    labels = {label: dims for label, dims in _LABELS if label == key}
    dims = _EXPECTED.get(name, _ANY)[2] or labels.get(key) or (key,)
    return dims if len(dims) == rank else ("?",) * rank


def variable_problem(name: str, values: Any, dims: tuple[Hashable, ...], found_units: Any) -> str:
    """Return what a variable has otherwise than the tables say; ``""``: nothing."""
    group, _, key = name.rpartition("/")
    kinds, units, wanted = _EXPECTED.get(name) or _LABELS.get((key, dims)) or _ANY
    # xarray reads texts of which there are none as numbers.
    if values.size and values.dtype.kind not in kinds:
        text = "text" if values.dtype.kind in "OSUT" else f"of type {values.dtype}"
        return f"{name} is {text}, must be {'text' if 'U' in kinds else 'a number'}"
    # Earlier releases wrote transfers as a matrix; `Run` converts it.
    is_matrix = group == "transfers" and not MATRIX.isdisjoint(dims)
    if wanted is not None and dims != wanted and not is_matrix:
        shown, expected = (f"({', '.join(map(str, each))})" for each in (dims, wanted))
        return f"{name} has dimensions {shown}, must be {expected}"
    if None not in (units, found_units) and found_units != units:
        return f"{name} has units {_shown(found_units)}, must be {units!r}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
