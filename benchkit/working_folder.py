"""Find the folder that has ./workloads, ./environments and ./benchkit-store."""

from __future__ import annotations

from pathlib import Path

__all__ = ["working_folder"]


def working_folder() -> Path:
    """Return the working folder, or its parent in a folder of notebooks.

    JupyterLab runs a notebook in the folder of its file; commands run one folder above.

    Returns
    -------
    Path
        A relative path.
    """
    return Path(".." if Path.cwd().name == "notebooks" else ".")
