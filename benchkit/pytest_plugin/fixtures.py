"""Fixtures with the names of coiled/benchmarks' suite: measurement, clusters and storage.

A suite's own fixture of the same name has precedence. Nothing heavy is imported before a fixture
is used.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchkit.pytest_plugin.recording import TestRecorder

#: Seconds until all workers are back; on a machine with many other programs 120 were not enough.
_WORKERS_S = 600

ContextFactory = Callable[..., AbstractContextManager[Any]]

# -- measurement ----------------------------------------------------------------------------------


@pytest.fixture
def test_run_benchmark(benchkit_recorder: TestRecorder) -> TestRecorder | None:
    """Return what records the test; None without `--benchkit`."""
    return benchkit_recorder if benchkit_recorder.enabled else None


@pytest.fixture(scope="session")
def benchmark_db_engine() -> None:
    """Return None: runs are files of a store."""


@pytest.fixture
def benchmark_db_session() -> None:
    """Return None: runs are files of a store."""


@pytest.fixture
def database_table_schema(request: pytest.FixtureRequest) -> SimpleNamespace:
    """Return an object for the attributes that a suite sets on its row; they are not kept."""
    return SimpleNamespace(name=request.node.name, originalname=request.node.originalname)


@pytest.fixture
def span(request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the tasks of the test into a span with its name."""
    from distributed import span as new_span

    with new_span(request.node.name):
        yield


@pytest.fixture
def benchmark_time(benchkit_recorder: TestRecorder) -> AbstractContextManager[Any]:
    """Return a context manager that records its block; without a client only its time."""
    return benchkit_recorder.block()


@pytest.fixture
def auto_benchmark_time(benchmark_time: AbstractContextManager[Any]) -> Iterator[None]:
    """Record the whole test as `benchmark_time` does."""
    with benchmark_time:
        yield


@pytest.fixture
def benchmark_memory(benchkit_recorder: TestRecorder) -> ContextFactory:
    """Return a function of a client: a context manager that records its block."""
    return benchkit_recorder.block


benchmark_task_durations = benchmark_coiled_prometheus = benchmark_all = benchmark_memory


@pytest.fixture
def get_cluster_info() -> ContextFactory:
    """Return a function of a cluster that does nothing: a run describes its cluster anyway."""
    return lambda cluster: nullcontext()


@pytest.fixture
def performance_report() -> ContextFactory:
    """Return a context manager that does nothing: `benchkit report run` draws each run."""
    return nullcontext


@pytest.fixture
def upload_cluster_dump() -> ContextFactory:
    """Return a function of a client that does nothing: a run holds the events of its cluster."""
    return lambda client: nullcontext()


# -- clusters -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def benchkit_environment(pytestconfig: pytest.Config) -> Any:
    """Return the environment of `--benchkit-environment`."""
    from benchkit.measure.errors import BenchkitError
    from benchkit.pytest_plugin.clusters import session_environment

    try:
        return session_environment(pytestconfig.option.benchkit_environment)
    except BenchkitError as error:
        pytest.exit(f"--benchkit-environment: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def cluster_kwargs(benchkit_environment: Any, pytestconfig: pytest.Config) -> Any:
    """Return the options of clusters by name; see `cluster_options`."""
    from benchkit.pytest_plugin.clusters import cluster_options

    return cluster_options(benchkit_environment, pytestconfig.rootpath)


@pytest.fixture(scope="session")
def dask_env_variables() -> dict[str, str]:
    """Return the environment variables that configure Dask."""
    return {name: value for name, value in os.environ.items() if name.startswith("DASK_")}


@pytest.fixture(scope="session")
def github_cluster_tags() -> dict[str, str]:
    """Return variables of GitHub Actions, as tags of clusters."""
    names = ("JOB", "REF", "RUN_ATTEMPT", "RUN_ID", "RUN_NUMBER", "SHA")
    tags = {f"GITHUB_{name}": os.environ.get(f"GITHUB_{name}", "") for name in names}
    return {**tags, "AB_TEST_NAME": os.environ.get("AB_TEST_NAME", "")}


@pytest.fixture(scope="session")
def gh_run_tag() -> str:
    """Return the number of the run of GitHub Actions; empty elsewhere."""
    return os.environ.get("GITHUB_RUN_ID", "")


@pytest.fixture(scope="module")
def small_cluster(
    benchkit_environment: Any, dask_env_variables: dict[str, str], cluster_kwargs: Any
) -> Iterator[Any]:
    """Open a cluster for the tests of a module."""
    from benchkit.pytest_plugin.clusters import open_session_cluster

    options = cluster_kwargs["small_cluster"]
    with open_session_cluster(
        benchkit_environment, environ=dask_env_variables, **options
    ) as cluster:
        yield cluster


@pytest.fixture
def small_client(
    benchkit_environment: Any,
    small_cluster: Any,
    cluster_kwargs: Any,
    benchkit_recorder: TestRecorder,
) -> Iterator[Any]:
    """Return a client of `small_cluster` with fresh workers; the call of the test is recorded."""
    n_workers = cluster_kwargs["small_cluster"]["n_workers"]
    with (
        _fresh_client(small_cluster, n_workers) as dask_client,
        _recorded_client(benchkit_environment, dask_client, benchkit_recorder) as client,
    ):
        yield client


@pytest.fixture
def client(
    request: pytest.FixtureRequest,
    benchkit_environment: Any,
    dask_env_variables: dict[str, str],
    cluster_kwargs: Any,
    benchkit_recorder: TestRecorder,
) -> Iterator[Any]:
    """Return a client of the cluster that ``@pytest.mark.client(name)`` names."""
    from benchkit.pytest_plugin.clusters import open_session_cluster

    marker = request.node.get_closest_marker("client")
    if marker is None or not marker.args:
        pytest.fail("the fixture `client` needs the mark client with the name of a cluster, such "
                    'as @pytest.mark.client("small_cluster")', pytrace=False)  # fmt: skip
    options = cluster_kwargs[marker.args[0]]
    with (
        open_session_cluster(
            benchkit_environment, environ=dask_env_variables, **options
        ) as cluster,
        _fresh_client(cluster, options["n_workers"]) as dask_client,
    ):
        if marker.kwargs.get("upload_file") is not None:
            dask_client.upload_file(marker.kwargs["upload_file"])
        if marker.kwargs.get("worker_plugin") is not None:
            dask_client.register_plugin(marker.kwargs["worker_plugin"])
        with _recorded_client(benchkit_environment, dask_client, benchkit_recorder) as client:
            yield client


@contextmanager
def _fresh_client(cluster: Any, n_workers: int) -> Iterator[Any]:
    from distributed import Client

    from benchkit.measure.cluster.description import worker_infos
    from benchkit.measure.cluster.restart import restart_workers

    with Client(cluster) as client:
        # A worker without a nanny would not return from a restart.
        workers = worker_infos(client)
        if all(worker.get("nanny") for worker in workers.values()):
            restart_workers(client, len(workers), timeout_s=_WORKERS_S)
        if not isinstance(cluster, str):
            cluster.scale(n_workers)
        client.wait_for_workers(n_workers, timeout=_WORKERS_S)
        yield client


@contextmanager
def _recorded_client(environment: Any, client: Any, recorder: TestRecorder) -> Iterator[Any]:
    """Return the client of the test in the engine of the environment; its call is recorded."""
    from benchkit.pytest_plugin.clusters import open_engine

    with open_engine(environment, client, recorder.item) as recorder.client:
        try:
            yield recorder.client
        finally:
            recorder.client = None


@pytest.fixture
def wait_for_workers() -> Callable[[Any, int, float], None]:
    """Return a function of client, number of workers and timeout (s)."""

    def wait(client: Any, n_workers: int, timeout: float) -> None:
        client.wait_for_workers(n_workers, timeout=timeout)

    return wait


@pytest.fixture
def test_name_uuid(request: pytest.FixtureRequest) -> str:
    """Return the name of the test with a unique suffix, for names of clusters and paths."""
    return f"{request.node.originalname}-{uuid.uuid4().hex}"


# -- data -----------------------------------------------------------------------------------------


@pytest.fixture(params=["uncompressible", "compressible"])
def new_array(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function like `dask.array.random.random`; the test runs with both kinds of data."""
    from dask.array.random import random

    if request.param == "uncompressible":
        return random

    def compressible(block: Any) -> Any:
        # A local function: it is sent to the workers as code.
        flat = block.reshape(-1)
        flat[::2] = 0
        return flat.reshape(block.shape)

    def new(*args: Any, **kwargs: Any) -> Any:
        array = random(*args, **kwargs)
        return array.map_blocks(compressible, dtype=array.dtype)

    return new


@pytest.fixture(params=[0.1, 1])
def memory_multiplier(request: pytest.FixtureRequest) -> float:
    """Return the size of the data relative to the memory of the cluster."""
    return request.param


@pytest.fixture(
    params=[
        pytest.param("tasks", marks=pytest.mark.shuffle_tasks),
        pytest.param("p2p", marks=pytest.mark.shuffle_p2p),
    ]
)
def shuffle_method(request: pytest.FixtureRequest) -> str:
    """Return the shuffle method; the test runs with both."""
    return request.param


@pytest.fixture
def configure_shuffling(shuffle_method: str) -> Iterator[None]:
    """Set Dask's shuffle method for the test."""
    import dask

    with dask.config.set({"dataframe.shuffle.method": shuffle_method}):
        yield


@pytest.fixture
def read_parquet_with_pyarrow() -> Iterator[None]:
    """Store strings of pandas with pyarrow, in this process and on the workers."""
    import pandas
    from distributed import WorkerPlugin, get_client

    class SetStringStorage(WorkerPlugin):
        name = "benchkit-string-storage"

        def setup(self, worker: Any) -> None:
            import pandas

            pandas.set_option("string_storage", "pyarrow")

    client = get_client()
    client.register_plugin(SetStringStorage())
    with pandas.option_context("mode.string_storage", "pyarrow"):
        yield
    client.unregister_worker_plugin(SetStringStorage.name)


# -- storage --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def s3_storage_options() -> dict[str, Any]:
    """Return no options: credentials come from the configuration of the file system."""
    return {}


@pytest.fixture(scope="session")
def benchkit_storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a folder for data: in `$BENCHKIT_DATA_URL`, else a temporary folder."""
    from benchkit.measure.data.remote_copy import data_url

    root = data_url()
    return f"{root.rstrip('/')}/pytest" if root else str(tmp_path_factory.mktemp("storage"))


@pytest.fixture(scope="session")
def s3(benchkit_storage: str) -> Any:
    """Return the fsspec file system of `s3_url`."""
    import fsspec

    return fsspec.core.url_to_fs(benchkit_storage)[0]


@pytest.fixture
def s3_factory(benchkit_storage: str) -> Callable[..., Any]:
    """Return a function of options: with options of S3 for public data, else that of `s3_url`."""
    import fsspec

    def make(**options: Any) -> Any:
        if options:  # such as anon=True, which has no meaning for a folder
            return fsspec.filesystem("s3", **options)
        return fsspec.core.url_to_fs(benchkit_storage)[0]

    return make


@pytest.fixture
def s3_url(s3: Any, benchkit_storage: str, test_name_uuid: str) -> Iterator[str]:
    """Create an empty folder, and remove it after the test."""
    url = f"{benchkit_storage}/{test_name_uuid}"
    s3.mkdirs(url, exist_ok=False)
    yield url
    if s3.exists(url):
        s3.rm(url, recursive=True)


@pytest.fixture
def s3_performance_url(s3_url: str) -> str:
    """Return `s3_url`."""
    return s3_url


@pytest.fixture(scope="session")
def s3_scratch(s3: Any, benchkit_storage: str) -> str:
    """Return the URL of the folder of `s3_url`."""
    s3.mkdirs(benchkit_storage, exist_ok=True)
    return benchkit_storage


@pytest.fixture(scope="session")
def gcs(s3: Any) -> Any:
    """Return the file system `s3`: one place for data, whatever its kind."""
    return s3


@pytest.fixture(scope="session")
def s3_performance(s3_scratch: str) -> str:
    """Return `s3_scratch`."""
    return s3_scratch


az = gcs
gcs_scratch = az_scratch = s3_performance
gcs_url = az_url = s3_performance_url
