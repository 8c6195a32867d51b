"""Modules that an environment imports before the workloads, such as another `dask.array`."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import NamedTuple

from benchkit.measure.errors import UsageError

_LINE = re.compile(r"(?P<module>[\w.]+)(?::(?P<function>\w+)| +as +(?P<name>[\w.]+))?")


class Preload(NamedTuple):
    """A module to import; a function of it to call, or another name under which it is imported."""

    module: str
    function: str
    name: str


def parse_preload(line: str) -> Preload:
    """Read MODULE, MODULE:FUNCTION or MODULE as NAME."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise UsageError(f"preload {line!r}: should be MODULE, MODULE:FUNCTION or MODULE as NAME")
    return Preload(*match.groups(default=""))


def import_preload(line: str) -> None:
    """Import a module as a line says.

    With `dask_array as dask.array`, workloads that import `dask.array` get `dask_array`.
    """
    preload = parse_preload(line)
    module = import_module(preload.module)
    if preload.function:
        getattr(module, preload.function)()
    if preload.name:
        parent, _, own = preload.name.rpartition(".")
        sys.modules[preload.name] = module
        if parent:
            setattr(import_module(parent), own, module)
