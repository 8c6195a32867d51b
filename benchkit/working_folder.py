"""Find the folder that has ./workloads, ./environments and ./benchkit-store, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "working_folder"]


def working_folder() -> Path:
    """Return the working folder, or its parent in a folder of notebooks.

    JupyterLab runs a notebook in the folder of its file; commands run one folder above.

    Returns
    -------
    Path
        A relative path.
    """
    return Path(".." if Path.cwd().name == "notebooks" else ".")


def cache_folder() -> Path:
    """Return the folder of the cache.

    Returns
    -------
    path
        ``$BENCHKIT_CACHE``, else ``benchkit`` below the user's cache folder.
    """
    own = os.environ.get("BENCHKIT_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "benchkit"
