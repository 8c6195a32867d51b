"""Provide a module `coiled` where the package is not installed; also a preload of Dask's workers.

Functions of the reference suite's modules are imported on the workers, too, and with them the
conftest.py files, which import `coiled`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def provide(**attributes: Any) -> None:
    """Let `import coiled` return a module with these attributes."""
    module = ModuleType("coiled", "Provided by benchkit for clusters that do not run on Coiled.")
    module.__dict__.update(attributes, __version__="0")
    sys.modules["coiled"] = module


def dask_setup(worker: Any) -> None:
    """Provide the module to the process of a worker, without clusters."""
    if "coiled" not in sys.modules and find_spec("coiled") is None:
        provide(Cluster=None)
