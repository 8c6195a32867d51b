"""The measured side of benchkit in a folder of its own, for the path of another environment.

Beside an installed benchkit lie all other packages of its environment; an arm must see none of
them. So `benchkit/measure` is copied, once for each state of its source.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from uuid import uuid4

import benchkit
from benchkit.experiment.environment.cache import cache_folder

__all__ = ["measured_folder"]


def measured_folder() -> Path:
    """Return a folder whose ``benchkit`` is this one's measured side and nothing else."""
    package = Path(benchkit.__file__).parent
    files = [package / "__init__.py", *sorted((package / "measure").rglob("*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"\0{file.relative_to(package)}\0".encode())
        digest.update(file.read_bytes())
    final = cache_folder() / "measured" / digest.hexdigest()[:16]
    if final.is_dir():
        return final
    draft = final.with_name(f".draft-{uuid4().hex}")
    for file in files:
        target = draft / "benchkit" / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    try:
        os.rename(draft, final)
    except OSError:
        # Somebody else was faster, with the same content.
        shutil.rmtree(draft, ignore_errors=True)
        if not final.is_dir():
            raise
    return final
