"""Find the folder that has ./workloads, ./environments and ./benchkit-store, and the cache."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path


def working_folder() -> Path:
    """Return the working folder, or its parent in a folder of notebooks.

    JupyterLab runs a notebook in the folder of its file; commands run one folder above.
    """
    return Path(".." if Path.cwd().name == "notebooks" else ".")


def cache_folder() -> Path:
    """Return the folder of the cache."""
    own = os.environ.get("BENCHKIT_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "benchkit"


def store_cache_file(kind: str, store: Path | str, suffix: str) -> Path:
    """Return the file of the cache that keeps values of one store."""
    name = sha256(str(store).encode()).hexdigest()[:16]
    return cache_folder() / kind / f"{name}{suffix}"
