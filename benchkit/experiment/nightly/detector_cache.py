"""Keep the states of nightly series in the cache, so that a night costs the same at any age."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from importlib.resources import files
from zipfile import BadZipFile

import numpy as np

from benchkit.analysis.changepoint.checkpoints import ARRAYS, Checkpoints
from benchkit.analysis.changepoint.state import Events
from benchkit.store.store import Store
from benchkit.whole_file import write_whole
from benchkit.working_folder import store_cache_file

__all__ = ["read_checkpoints", "write_checkpoints"]

_EVENTS = [field.name for field in fields(Events)]


def read_checkpoints(store: Store) -> Checkpoints | None:
    """Return the states of the series of a store after its last judged night."""
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):
        with np.load(store_cache_file("detector", store.path, ".npz")) as arrays:
            if str(arrays["rules"]) == _rules():
                events = Events(*(arrays[f"events_{name}"] for name in _EVENTS))
                return Checkpoints(events, *(arrays[name] for name in ARRAYS))
    return None


def write_checkpoints(store: Store, checkpoints: Checkpoints) -> None:
    """Keep the states of the series of a store; those of earlier nights are replaced."""
    arrays = {name: getattr(checkpoints, name) for name in ARRAYS}
    arrays |= {f"events_{name}": getattr(checkpoints.events, name) for name in _EVENTS}
    buffer = io.BytesIO()
    np.savez(buffer, rules=np.array(_rules()), **arrays)
    with suppress(OSError):  # without a cache the next night replays all nights
        write_whole(store_cache_file("detector", store.path, ".npz"), buffer.getvalue())


def _rules() -> str:
    """Return a digest of the code that made a state: another rule finds other changes."""
    folder = files("benchkit.analysis.changepoint")
    names = ("rule.py", "scan.py", "state.py", "checkpoints.py")
    return sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()
