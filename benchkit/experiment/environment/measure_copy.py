"""Copy what runs in another environment to a folder for the import path of another environment.

The folder of an installed benchkit contains all other packages of its environment, which an arm
must not import. The packages that run there are copied once per state of their source.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path

import benchkit
from benchkit.measure.data.recipe import shipped_recipes
from benchkit.whole_file import drafted
from benchkit.working_folder import cache_folder


def measured_folder() -> Path:
    """Return a folder with only the packages of benchkit that run in other environments.

    These are ``benchkit.measure`` with the recipes, ``benchkit.pytest_plugin``, and
    ``benchkit.simulation``.
    """
    package = Path(benchkit.__file__).parent
    names = ("__init__.py", "_compat/__init__.py", "_compat/distributed_internals.py")
    copied = [package / name for name in names]
    for folder in ("measure", "pytest_plugin", "simulation"):
        copied += sorted(
            path for path in (package / folder).rglob("*") if path.suffix in (".py", ".json")
        )
    files = {file.relative_to(package): file for file in copied}
    files |= {Path("shipped/workloads/_recipes", file.name): file for file in shipped_recipes()}
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"\0{name}\0".encode())
        digest.update(file.read_bytes())
    final = cache_folder() / "measured" / digest.hexdigest()[:16]
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    # FileExistsError: another process made the same folder first.
    with suppress(FileExistsError), drafted(final, replace=False, durable=False) as draft:
        for name, file in files.items():
            target = draft / "benchkit" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    return final
