"""The run file: one NetCDF4 file per run, readable by all programs that read NetCDF.

Names, encodes and opens the file, and reads its record only. HDF5 written in place is not safe
against a crash (49 of 408 files were unreadable), so `LocalFiles` publishes complete files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import xarray as xr

from benchkit.errors import BenchkitError, UnreadableRun, UsageError
from benchkit.measure.run_ids import id_time, is_id
from benchkit.store.runfile.digest import digest_of, verify
from benchkit.store.runfile.reader import is_own_file, open_verified, read_tree
from benchkit.store.runfile.writer import encode_tree

__all__ = [
    "encode_run",
    "index_record",
    "open_run",
    "read_attribute",
    "read_record",
    "run_name",
    "stored_record",
]


def run_name(run_id: str) -> str:
    """Return the name of a run's file in a store.

    Parameters
    ----------
    run_id : str
        Full id.

    Returns
    -------
    str
        ``runs/<YYYY-MM>/<id>.nc``; the month is that of the id, in UTC.

    Raises
    ------
    ValueError
        `run_id` is not an id, so it must not become part of a path.
    """
    month = datetime.fromtimestamp(id_time(run_id), timezone.utc).strftime("%Y-%m")
    return f"runs/{month}/{run_id}.nc"


def encode_run(tree: xr.DataTree) -> tuple[str, dict[str, Any], bytes]:
    """Return the id, the record and the file content of a run.

    Parameters
    ----------
    tree : DataTree
        The run.

    Returns
    -------
    tuple of str, dict and bytes
        Id, record and NetCDF4 file.

    Raises
    ------
    UsageError
        The tree is not a run: it has no id, no record, or a record of another run.
    """
    run_id = tree.attrs.get("id")
    if not is_id(run_id):
        raise UsageError(f"run with attribute id {run_id!r}: the id must be a UUID of version 7")
    try:
        record = json.loads(tree.attrs["record"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"run {run_id}: attribute record is not JSON") from error
    if not isinstance(record, dict) or record.get("id") != run_id:
        raise UsageError(f"run {run_id}: its record belongs to another run")
    return str(run_id), record, encode_tree(tree)


def open_run(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Open a run file; large variables are read on first use.

    Thread-safe; nothing has to be closed.

    Parameters
    ----------
    path : Path
        The file.
    groups : collection of str, optional
        Read at least these groups; by default all. Few groups take a third of the time.

    Returns
    -------
    DataTree
        The run.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    UnreadableRun
        The file is damaged, or not a run.
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
    return tree


def index_record(record: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the record of a run for the index, with the digest of the file.

    Parameters
    ----------
    record : mapping
        Record of the run.
    data : bytes
        The run file.

    Returns
    -------
    dict
        The record and ``digest``.
    """
    return {**record, "digest": digest_of(data)}


def stored_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file for the index, with the digest of the file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The record and ``digest``.

    Raises
    ------
    UnreadableRun
        The file is damaged or missing, or not a run.
    """
    record = read_record(path)
    try:
        return {**record, "digest": verify(path).digest}
    except FileNotFoundError as error:  # moved meanwhile
        raise UnreadableRun(f"{path}: missing") from error


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The record.

    Raises
    ------
    UnreadableRun
        The file is damaged, or not a run.
    """
    try:
        with open_verified(path) as file:
            record = json.loads(file.attrs["record"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    if not isinstance(record, dict):
        raise UnreadableRun(f"{path}: damaged run file: its record is not a JSON object")
    return record


def read_attribute(path: Path, name: str) -> str | None:
    """Return a root attribute of a run file as text; None if it is missing.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        Name of the attribute.

    Returns
    -------
    str or None
        The value.

    Raises
    ------
    UnreadableRun
        The file is damaged or missing.
    """
    try:
        with open_verified(path) as file:
            value = file.attrs.get(name)
    except (OSError, RuntimeError) as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    return value.decode() if isinstance(value, bytes) else value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
