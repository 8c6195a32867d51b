"""Store additional files of a run, which are not in its run file: cluster dumps, reports, profiles.

The folder is ``experiments/<experiment>/extras/<run id>`` of the store.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import xarray as xr

from benchkit.store.runfile import read_record
from benchkit.store.storage import Files, run_name


def artifact_files(files: Files, run_id: str) -> list[Path]:
    """Return the local paths of the additional files of a run, sorted."""
    experiment = read_record(files.path(run_name(run_id))).get("experiment")
    names = sorted(files.walk(_folder(experiment, run_id)))
    files.fetch(names)
    return [files.path(name) for name in names]


def _folder(experiment: str | None, run_id: str) -> str:
    return f"experiments/{experiment or 'none'}/extras/{run_id}"


def record_artifacts(tree: xr.DataTree, recording: Path, experiment: str, run_id: str) -> None:
    """Set the attribute ``extras`` of a run: paths that `move_artifacts` will create."""
    folder = _folder(experiment, run_id)
    names = [f"{folder}/{extra.name}" for extra in _extras(recording)]
    if names:  # relative to the store
        tree.attrs["extras"] = json.dumps(names)


def move_artifacts(recording: Path, files: Files, experiment: str, run_id: str) -> None:
    """Move additional files of a recording into the store, then delete the recording."""
    folder = _folder(experiment, run_id)
    for extra in _extras(recording):
        target = files.workspace(folder)
        target.mkdir(parents=True, exist_ok=True)
        shutil.move(str(extra), target / extra.name)
    files.publish(folder)
    shutil.rmtree(recording, ignore_errors=True)


def _extras(recording: Path) -> list[Path]:
    """Return the files of a recording that are not its own data."""
    return sorted(
        extra
        for extra in recording.iterdir()
        if extra.suffix != ".json" and not extra.name.startswith(".")
    )
