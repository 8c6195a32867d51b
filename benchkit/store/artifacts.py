"""What is kept beside a run, as it does not belong into its file: dumps, reports, profiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import xarray as xr

__all__ = ["keep_beside", "tell_beside"]


def tell_beside(tree: xr.DataTree, recording: Path, experiment: str, run_id: str) -> None:
    """Write into a run, as attribute ``extras``, where `keep_beside` will put what it has."""
    folder = _folder(experiment, run_id)
    names = [f"{folder}/{extra.name}" for extra in _extras(recording)]
    if names:  # relative to the store
        tree.attrs["extras"] = json.dumps(names)


def keep_beside(recording: Path, root: Any, experiment: str, run_id: str) -> None:
    """Move what a recording holds besides itself into the store, then remove the recording.

    Parameters
    ----------
    recording : Path
        Of a run that is stored already.
    root : path
        The store's folder.
    experiment, run_id : str
        Whose it is.

    Raises
    ------
    OSError
        It cannot be moved; the recording stays, and the next `benchkit store check` tries again.
    """
    for extra in _extras(recording):
        target = Path(root) / _folder(experiment, run_id)
        target.mkdir(parents=True, exist_ok=True)
        shutil.move(str(extra), target / extra.name)
    shutil.rmtree(recording, ignore_errors=True)


def _folder(experiment: str, run_id: str) -> str:
    return f"experiments/{experiment or 'none'}/extras/{run_id}"


def _extras(recording: Path) -> list[Path]:
    """Return what a recording holds besides itself."""
    return sorted(
        extra
        for extra in recording.iterdir()
        if extra.suffix != ".json" and not extra.name.startswith(".")
    )
