"""Variables of a process in which an environment is measured, and what it imports of benchkit."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import yaml

import benchkit
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.measure.data.other_python import HELPER_VARIABLE
from benchkit.measure.data.recipe import shipped_recipes
from benchkit.whole_file import drafted
from benchkit.working_folder import cache_folder

#: Variables that belong to one Python environment and break the Python of another.
_PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
#: Prefixes of accounts and credentials; measurements do not depend on them.
_LOGIN_PREFIXES = ("DASK_COILED__", "DASK_GATEWAY__AUTH", "DASK_CLOUDPROVIDER__")


def process_variables(environment: Environment, built: Built, folder: Path) -> dict[str, str]:
    """Return the environment variables of a process; one file holds its Dask configuration.

    A file keeps lists, None and spaces, which ``DASK_*`` variables lose. These would override the
    file, so an arm inherits only login variables. "current" inherits all of them.
    """
    variables = dict(os.environ)
    if environment.name != CURRENT:
        variables = {k: v for k, v in variables.items() if _is_inherited(k)}
        config = folder / "dask.yaml"
        config.write_text(yaml.safe_dump(dict(environment.dask)), encoding="utf-8")
        variables["DASK_CONFIG"] = str(config)
    own = dict(environment.variables)
    if not built.is_own:
        for name in _PYTHON_VARIABLES:
            variables.pop(name, None)
        paths = [str(measured_folder()), own.pop("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        variables["PYTHONNOUSERSITE"] = "1"
        variables[HELPER_VARIABLE] = sys.executable  # makes datasets: arms need no DuckDB
        programs = [str(built.python.parent), variables.get("PATH", os.defpath)]
        variables["PATH"] = os.pathsep.join(programs)
    # Hide messages of the kernel about debuggers and transports.
    variables.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    variables.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")
    return {**variables, **own}


def _is_inherited(name: str) -> bool:
    return not name.startswith("DASK_") or name.startswith(_LOGIN_PREFIXES)


def measured_folder() -> Path:
    """Return a folder with only the packages of benchkit that run in other environments.

    These are ``benchkit.measure`` with the recipes, ``benchkit.pytest_plugin``, and
    ``benchkit.simulation``, copied once per state of their source. The folder of an installed
    benchkit contains all other packages of its environment, which an arm must not import.
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
