"""Make datasets with the Python of benchkit, if the measured environment has not the packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Path of the Python of benchkit, which has the packages that make datasets.
HELPER_VARIABLE = "BENCHKIT_PYTHON"
#: Script that makes a dataset: `folder` of all datasets, `file` and `name` of the recipe, `params`.
MAKE = """
import json, os, runpy, sys
request = json.load(sys.stdin)
os.environ["BENCHKIT_DATA"] = request["folder"]
sys.path.append(os.path.dirname(request["file"]))
runpy.run_path(request["file"])
from benchkit.measure.data.dataset import dataset
dataset(request["name"], **request["params"])
"""
#: Script that stores the result of a query: `path` and `manifest` of the dataset, `sql`.
ANSWER = """
import json, sys
from pathlib import Path
from benchkit.measure.data.dataset import Dataset
request = json.load(sys.stdin)
Dataset(Path(request["path"]), request["manifest"]).answer(request["sql"])
"""


def run_elsewhere(script: str, request: Mapping[str, Any]) -> bool:
    """Run a script with the Python of benchkit, unless this is that Python."""
    python = os.environ.get(HELPER_VARIABLE)
    if not python or Path(python) == Path(sys.executable):
        return False
    try:
        done = subprocess.run(
            [python, "-c", script], input=json.dumps(request), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0
