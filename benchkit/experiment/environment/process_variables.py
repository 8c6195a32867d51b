"""Environment variables of a process in which an environment is measured or simulated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.measure_copy import measured_folder
from benchkit.measure.data.other_python import HELPER_VARIABLE

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
