"""What test modules of coiled/benchmarks import from their ``conftest`` and ``utils_test``.

The modules run unmodified on any cluster with these two files in place of the suite's own::

    # tests/conftest.py
    from benchkit.pytest_plugin.reference import *
    # tests/utils_test.py
    from benchkit.pytest_plugin.reference import *

`coiled.Cluster` then opens the cluster of `--benchkit-environment`, unless that environment runs
on Coiled itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from dask.utils import format_bytes, parse_bytes
from packaging.version import Version

from benchkit.measure import scale
from benchkit.measure.cluster.description import worker_infos
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.pytest_plugin import coiled_module
from benchkit.pytest_plugin.clusters import (
    ClusterOptions,
    cluster_options,
    open_session_cluster,
    session_environment,
)
from benchkit.pytest_plugin.recording import environment_name
from benchkit.pytest_plugin.session import SESSION

__all__ = [
    "TEST_DIR",
    "WORKFLOW_URL",
    "arr_to_devnull",
    "cluster_memory",
    "downscale_dataframe",
    "dump_cluster_kwargs",
    "load_cluster_kwargs",
    "print_size_info",
    "pytest_addoption",
    "requires_p2p_memory",
    "requires_p2p_rechunk",
    "requires_p2p_shuffle",
    "run_up_to_nthreads",
    "scaled_array_shape",
    "scaled_array_shape_quadratic",
    "timeseries_of_size",
    "wait",
]

requires_p2p_shuffle = requires_p2p_rechunk = requires_p2p_memory = pytest.mark.skipif(
    Version(distributed.__version__) < Version("2023.10.1"),
    reason="this release of distributed has no P2P shuffle in memory",
)


@cache
def _environment() -> Any:
    return session_environment(environment_name(SESSION["config"]))


#: Folder that the paths of tests are relative to.
TEST_DIR = (SESSION["config"].rootpath if SESSION else Path.cwd()) / "tests"
#: Page of the run of GitHub Actions; None elsewhere.
WORKFLOW_URL = (
    f"{os.environ['GITHUB_SERVER_URL']}/{os.environ.get('GITHUB_REPOSITORY', '')}"
    f"/actions/runs/{os.environ.get('GITHUB_RUN_ID', '')}"
    if os.environ.get("GITHUB_SERVER_URL")
    else None
)

# -- clusters -------------------------------------------------------------------------------------


@contextmanager
def _open_cluster(name: str = "", **options: Any) -> Iterator[Any]:
    """Open the cluster of the session's environment; see `open_session_cluster`."""
    with open_session_cluster(_environment(), **options) as cluster:
        yield cluster


def _provide_coiled() -> None:
    """Let `from coiled import Cluster` open the cluster of the session's environment.

    Called when this module is imported: the conftest.py files in folders below import `coiled`
    before pytest calls any hook of this one.
    """
    if ClusterSpec.from_dict(_environment().cluster).class_name.startswith("coiled."):
        return
    coiled_module.provide(Cluster=_open_cluster)
    preload = [*dask.config.get("distributed.worker.preload", []), coiled_module.__name__]
    dask.config.set({"distributed.worker.preload": preload})


if SESSION:  # not where documentation is made of this module
    _provide_coiled()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's option."""
    parser.addoption(
        "--performance-report",
        action="store_true",
        help="Change nothing: `benchkit report run` draws each run.",
    )


def load_cluster_kwargs() -> ClusterOptions:
    """Return the options of clusters by name; see `cluster_options`."""
    return cluster_options(_environment(), SESSION["config"].rootpath)


def dump_cluster_kwargs(kwargs: dict[str, Any], name: str) -> None:
    """Do nothing: a run describes its cluster."""


def cluster_memory(client: distributed.Client) -> int:
    """Return the memory of all workers, in B."""
    return int(sum(worker["memory_limit"] for worker in worker_infos(client).values()))


def run_up_to_nthreads(
    cluster_name: str, nthreads_max: int, reason: str | None = None, as_decorator: bool = True
) -> Any:
    """Skip a test on a cluster of more threads, where data of a fixed size are too small."""
    spec = ClusterSpec.from_dict(_environment().cluster)
    threads = int(spec.kwargs.get("threads_per_worker") or 1)
    too_large = load_cluster_kwargs()[cluster_name].get("n_workers", 1) * threads > nthreads_max
    reason = reason or "cluster too large"
    if as_decorator:
        return pytest.mark.skipif(too_large, reason=reason)
    if too_large:
        pytest.skip(reason)
    return None


# -- sizes of data --------------------------------------------------------------------------------


def scaled_array_shape(
    target_nbytes: float | str,
    shape: Sequence[int | str],
    *,
    dtype: Any = float,
    max_error: float = scale.TOLERANCE,
) -> tuple[int, ...]:
    """Return the shape of an array of about this size; see `benchkit.measure.scale.linear`."""
    nbytes, itemsize = parse_bytes(target_nbytes), np.dtype(dtype).itemsize
    return scale.linear(nbytes, shape, itemsize=itemsize)


def scaled_array_shape_quadratic(
    target_nbytes: float | str,
    baseline_nbytes: float | str,
    shape: Sequence[int | str],
    *,
    dtype: Any = float,
    max_error: float = scale.TOLERANCE,
) -> tuple[int, ...]:
    """Return a shape for quadratic work."""
    target, baseline = parse_bytes(target_nbytes), parse_bytes(baseline_nbytes)
    nbytes = int(baseline * math.sqrt(target / baseline))  # whole bytes, as in the suite
    return scaled_array_shape(nbytes, shape, dtype=dtype)


def timeseries_of_size(
    target_nbytes: float | str, *, seed: int | None = None, **options: Any
) -> Any:
    """Return a Dask DataFrame of about this size; see `benchkit.measure.scale.timeseries`."""
    return scale.timeseries(parse_bytes(target_nbytes), seed=seed or 0, **options)


def downscale_dataframe(ddf: Any, target_memory: float | str) -> Any:
    """Return a share of the partitions for a cluster with less than this memory."""
    memory = cluster_memory(distributed.get_client())
    return scale.downscale(ddf, min(1.0, memory / parse_bytes(target_memory)))


def print_size_info(memory: int, target_nbytes: float, *arrs: da.Array) -> None:
    """Print the sizes of the cluster and of arrays."""
    print(f"Cluster memory: {format_bytes(memory)}, target: {format_bytes(int(target_nbytes))}")
    for number, array in enumerate(arrs, 1):
        parts = (array, array.blocks[(0,) * array.ndim])
        total, chunk = (format_bytes(int(part.nbytes)) for part in parts)
        print(f"Input {number}: {total}, {array.npartitions} chunks of {chunk}")


# -- computation ----------------------------------------------------------------------------------


def wait(thing: Any, client: distributed.Client, timeout: float) -> None:
    """Compute a collection, raise the error of a failed task, and release the results."""
    persisted = thing.persist() if hasattr(thing, "persist") else thing
    try:
        distributed.wait(persisted, timeout=timeout)
        for future in client.futures_of(persisted):
            if future.status in ("error", "cancelled"):
                raise future.exception()
    finally:
        client.cancel(persisted)


def arr_to_devnull(arr: da.Array) -> Any:
    """Return a delayed store of an array that writes nothing."""

    # A local class: it is sent to the workers as code.
    class Discard:
        def __setitem__(self, key: Any, value: Any) -> None:
            pass

    target: Any = Discard()
    return da.store(arr, target, lock=False, compute=False)
