"""The run file: one NetCDF4 file per run, readable by all programs that read NetCDF.

Names, encodes and opens the file, and reads its record only. HDF5 written in place is not safe
against a crash (49 of 408 files were unreadable), so `LocalFiles` publishes complete files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import xarray as xr

from benchkit.errors import BenchkitError, UnreadableRun, UsageError
from benchkit.measure.run_ids import id_time, is_id
from benchkit.store.runfile.digest import digest_of, verify
from benchkit.store.runfile.reader import is_own_file, open_verified, read_tree
from benchkit.store.runfile.writer import encode_tree
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.variables import COORDINATES, GROUPS

__all__ = [
    "accepted_record",
    "encode_run",
    "index_record",
    "open_run",
    "read_attribute",
    "read_record",
    "run_name",
    "stored_record",
]

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


def run_name(run_id: str) -> str:
    """Return the name of a run's file in a store."""
    month = datetime.fromtimestamp(id_time(run_id), timezone.utc).strftime("%Y-%m")
    return f"runs/{month}/{run_id}.nc"


def encode_run(tree: xr.DataTree) -> tuple[str, dict[str, Any], bytes]:
    """Return the id, the record and the file content of a run."""
    run_id = tree.attrs.get("id")
    if not is_id(run_id):
        raise UsageError(f"run with attribute id {run_id!r}: the id must be a UUID of version 7")
    try:
        record = json.loads(tree.attrs["record"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"run {run_id}: attribute record is not JSON") from error
    if not isinstance(record, dict) or record.get("id") != run_id:
        raise UsageError(f"run {run_id}: its record belongs to another run")
    problem = _first_problem(tree, record)
    if problem:
        raise UsageError(f"run {run_id}: {problem}")
    return str(run_id), record, encode_tree(tree)


def _first_problem(tree: xr.DataTree, record: Mapping[str, Any]) -> str:
    """Return what a run has otherwise than the tables say; names that they lack are not judged."""
    for name, value in record.items():
        expected = _VALUES.get("number" if name in METRICS else RECORD_FIELDS.get(name, ""))
        if expected and value is not None and not isinstance(value, expected[0]):
            return f"{name} of its record is {_shown(value)}, must be {expected[1]}"
    for node in tree.subtree:
        group = node.path[1:]
        # Earlier releases wrote transfers as a matrix; `RunTables` converts it.
        is_matrix = group == "transfers" and "source" in node.sizes
        for key, variable in node.variables.items():
            name = f"{group}/{key}" if group else str(key)
            expected_kinds, units, dims = (
                _EXPECTED.get(name) or _LABELS.get((str(key), variable.dims)) or _ANY
            )
            if variable.dtype.kind not in expected_kinds:
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


def open_run(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Open a run file; large variables are read on first use.

    Thread-safe; nothing has to be closed.
    """
    try:
        # h5netcdf takes seven times as long: only for copies that other programs wrote.
        if is_own_file(path):
            tree = read_tree(path, groups)
        else:
            tree = xr.open_datatree(path, engine="h5netcdf")
    except (FileNotFoundError, BenchkitError):
        raise
    except Exception as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    if "record" not in tree.attrs:
        tree.close()
        raise UnreadableRun(f"{path}: a NetCDF file, but not a run of benchkit")
    problem = _first_problem(tree, {})
    if problem:
        raise UnreadableRun(f"{path}: not as a run of this format: {problem}")
    return tree


def index_record(record: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the record of a run for the index, with the digest of the file."""
    return {**record, "digest": digest_of(data)}


def stored_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file for the index, with the digest of the file."""
    record = read_record(path)
    try:
        return {**record, "digest": verify(path).digest}
    except FileNotFoundError as error:  # moved meanwhile
        raise UnreadableRun(f"{path}: missing") from error


def accepted_record(path: Path) -> dict[str, Any]:
    """Return `stored_record` of a file that a store may take: all variables as the tables say."""
    record = stored_record(path)
    problem = _first_problem(open_run(path), record)
    if problem:
        raise UnreadableRun(f"{path}: not as a run of this format: {problem}")
    return record


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file."""
    try:
        with open_verified(path) as file:
            record = json.loads(file.attrs["record"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    if not isinstance(record, dict):
        raise UnreadableRun(f"{path}: damaged run file: its record is not a JSON object")
    return record


def read_attribute(path: Path, name: str) -> str | None:
    """Return a root attribute of a run file as text; None if it is missing."""
    try:
        with open_verified(path) as file:
            value = file.attrs.get(name)
    except (OSError, RuntimeError) as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    return value.decode() if isinstance(value, bytes) else value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
