"""Measure realistic Dask workloads, store the runs and compare them.

Public names are imported on first use (PEP 562), so that importing benchkit in a measured process
loads no other module.

Examples
--------
>>> import benchkit
>>> store = benchkit.Store("./benchkit-store")  # doctest: +SKIP
>>> with benchkit.record(client, workload="etl", store=store) as recorded:  # doctest: +SKIP
...     my_pipeline(client)
>>> recorded.run.task_groups()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Public name -> module that defines it.
_NAMES = {
    "BenchkitError": "benchkit.errors",
    "ClusterSpec": "benchkit.measure.cluster.spec",
    "Run": "benchkit.store.run",
    "Scale": "benchkit.measure.scale",
    "Store": "benchkit.store.store",
    "WrongAnswer": "benchkit.measure.errors",
    "ab": "benchkit.experiment.run.ab",
    "bisect": "benchkit.experiment.bisect.api",
    "compare": "benchkit.analysis.compare.compare_runs",
    "dataset": "benchkit.measure.data.dataset",
    "expect": "benchkit.measure.checks",
    "interleave": "benchkit.experiment.record",
    "nightly": "benchkit.experiment.nightly.nightly",
    "open_cluster": "benchkit.measure.cluster.running",
    "record": "benchkit.experiment.record",
    "run": "benchkit.experiment.run.api",
    "simulate": "benchkit.experiment.virtual.api",
    "timeseries": "benchkit.measure.scale",
    "workload": "benchkit.measure.workloads",
    "workloads": "benchkit.experiment.run.api",
}

#: Public name -> module that it stands for.
_MODULES = {"pages": "benchkit.show.render.notebook", "plots": "benchkit.show.plots"}

__all__ = ["__version__", *sorted([*_NAMES, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("dask-benchkit")
        except metadata.PackageNotFoundError:  # a folder on the path, not an installation
            return "0+unknown"
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%benchkit`` and names of workloads to a notebook: ``%load_ext benchkit``."""
    extension = import_module("benchkit.experiment.ipython")
    extension.add_magic(shell)
    extension.add_completion(shell)
