"""Tests of other projects become runs with `pytest --benchkit`."""

import re
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.commands import run_forked, run_python

from benchkit.store.store import Store

ROOT = Path(__file__).parent.parent
SUITE = """
import sys

import pytest


@pytest.fixture(scope="module")
def small_client():
    from dask.distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False) as it:
        yield it


@pytest.mark.benchkit
@pytest.mark.parametrize("n", [3])
def test_marked(small_client, n):
    assert small_client.submit(sum, range(n)).result() == 3


def test_block(small_client, benchkit_record):
    small_client.submit(sum, range(9), pure=False).result()
    with benchkit_record(small_client) as recorded:
        small_client.submit(sum, range(5), pure=False).result()


@pytest.mark.benchkit
def test_skipped(small_client):
    pytest.skip("no bucket")


@pytest.mark.benchkit
def test_failing(small_client):
    assert small_client.submit(sum, range(2)).result() == 7


def test_other():
    pass
"""
LAZY = """
import sys

import pytest


@pytest.mark.benchkit
def test_marked(benchkit_record):
    with benchkit_record() as recorded:
        recorded.metric("rows", 5)
    assert recorded.run is None
    assert not [name for name in sys.modules if name.split(".")[0] in ("dask", "distributed")]
    assert {name for name in sys.modules if name.startswith("benchkit.")} == {
        "benchkit.pytest_plugin",
        "benchkit.pytest_plugin.fixtures",
        "benchkit.pytest_plugin.recording",
        "benchkit.pytest_plugin.session",
    }
"""
#: A module in the style of coiled/benchmarks' suite.
REFERENCE = """
import uuid

import dask.array as da
import pytest
from coiled import Cluster
from dask.distributed import Client

from ..conftest import dump_cluster_kwargs, requires_p2p_rechunk
from ..utils_test import cluster_memory, run_up_to_nthreads, scaled_array_shape, wait


@pytest.fixture(scope="module")
def own_cluster(dask_env_variables, cluster_kwargs, github_cluster_tags):
    kwargs = dict(
        name=f"own-{uuid.uuid4().hex[:8]}",
        environ={**dask_env_variables, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "7"},
        tags=github_cluster_tags,
        **cluster_kwargs["own_cluster"],
    )
    dump_cluster_kwargs(kwargs, "own")
    with Cluster(**kwargs) as cluster:
        yield cluster


@pytest.fixture
def own_client(own_cluster, cluster_kwargs, benchmark_all, wait_for_workers):
    n_workers = cluster_kwargs["own_cluster"]["n_workers"]
    with Client(own_cluster) as client:
        own_cluster.scale(n_workers)
        wait_for_workers(client, n_workers, timeout=600)
        with benchmark_all(client):
            yield client


@pytest.mark.parametrize("divisor", [500])
@requires_p2p_rechunk
def test_sum(small_client, new_array, divisor):
    shape = scaled_array_shape(cluster_memory(small_client) // divisor, ("x", "1MiB"))
    wait(new_array(shape, chunks="2MiB").sum(), small_client, 60)


@run_up_to_nthreads("small_cluster", 1, reason="fixed dataset")
def test_too_large(small_client):
    raise NotImplementedError


def test_own(own_client):
    assert own_client.run_on_scheduler(
        lambda dask_scheduler: dask_scheduler.allowed_failures
    ) == 7


def test_wrong(own_client):
    assert own_client.submit(sum, range(3)).result() == 4


@pytest.mark.client("third_cluster")
def test_named(client, s3_url, s3, s3_factory):
    url = f"{s3_url}/data.zarr"
    assert len(client.scheduler_info()["workers"]) == 1
    with s3.open(f"{s3_url}/file", "w") as file:
        file.write("x")
    assert len(s3_factory().ls(s3_url)) == 1
    public = s3_factory(anon=True)
    assert "s3" in public.protocol
    assert public.storage_options == {"anon": True}


def test_storage(s3, s3_scratch, s3_performance, gcs, gcs_scratch, gcs_url, az, az_scratch, az_url,
                 span, database_table_schema):
    assert s3 is gcs is az
    assert s3_scratch == s3_performance == gcs_scratch == az_scratch
    assert s3.exists(gcs_url) and gcs_url == az_url and gcs_url.startswith(s3_scratch)
    assert database_table_schema.originalname == "test_storage"
    database_table_schema.n_workers = 1


def test_known(known):
    import dask
    from pathlib import Path

    preload = dask.config.get("distributed.worker.preload")
    assert preload == ["benchkit.pytest_plugin.coiled_module"]
    folder = Path(__file__).parents[1]
    assert known == (folder, "https://forge.example/team/suite/actions/runs/7", False)


def test_time_only(benchmark_time):
    import time

    with benchmark_time:
        time.sleep(0.2)
"""
#: A conftest.py in a folder of coiled/benchmarks' suite, imported before pytest is configured.
FOLDER_CONFTEST = """
import coiled
import pytest

from ..conftest import TEST_DIR, WORKFLOW_URL


@pytest.fixture
def test_run_benchmark(test_run_benchmark, benchmark_db_session, benchmark_db_engine):
    assert benchmark_db_session is benchmark_db_engine is None
    yield test_run_benchmark


@pytest.fixture
def benchmark_all(benchmark_memory, benchmark_time, get_cluster_info, test_run_benchmark):
    def benchmark(client):
        assert coiled.Cluster and not hasattr(coiled, "function")
        return benchmark_memory(client)

    yield benchmark


@pytest.fixture
def known(request):
    return TEST_DIR, WORKFLOW_URL, request.config.getoption("--performance-report")
"""
ENVIRONMENT = """
cluster:
  n_workers: 2
  threads_per_worker: 1
  memory_limit: 2 GiB
  processes: false
clusters:
  third_cluster:
    n_workers: 1
"""


#: Of a pytest that loads no other plugin, in a workflow.
VARIABLES = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "GITHUB_SERVER_URL": "https://forge.example",
    "GITHUB_REPOSITORY": "team/suite",
    "GITHUB_RUN_ID": "7",
}


def run(folder, text, *options, python=run_forked):
    (folder / "test_suite.py").write_text(text)
    words = ("pytest", "-p", "benchkit.pytest_plugin", "--strict-markers", *options)
    return python(words, folder, **VARIABLES)


def new_python(words, folder, **variables):
    """Run a module in a new interpreter, which has imported nothing."""
    return run_python(["-m", *words], folder, **variables)


@pytest.mark.slow
def test_plugin_keeps_marked_tests_and_blocks_as_runs(tmp_path):
    done = run(
        tmp_path, SUITE, "--benchkit", "--benchkit-store", "kept", "--benchkit-environment", "main"
    )

    assert "1 failed, 3 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "benchkit: 4 runs stored; `benchkit list runs` lists them" in done.stdout
    runs = Store(tmp_path / "kept").runs().set_index("workload")
    assert runs["outcome"].to_dict() == {
        "test_suite.py::test_marked[3]": "ok",
        "test_suite.py::test_block": "ok",
        "test_suite.py::test_failing": "wrong_answer",
        "test_suite.py::test_skipped": "skipped",
    }
    assert set(runs["environment"]) == {"main"}
    assert runs.loc["test_suite.py::test_block", "n_tasks"] == 1


def test_plugin_without_option_records_and_imports_nothing(tmp_path):
    done = run(tmp_path, LAZY, python=new_python)

    assert "1 passed" in done.stdout, done.stdout
    assert [path.name for path in tmp_path.iterdir() if "store" in path.name] == []


#: Tests that open a client of their own, in every way, or none.
SHAPES = """
import unittest

import pytest
from dask.distributed import Client
from distributed.utils_test import gen_cluster

OPTIONS = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "processes": False}


@pytest.mark.benchkit
class TestClass:
    def test_no_client(self):
        sum(range(9))

    def test_own_client(self):
        with Client(**OPTIONS) as client:
            client.submit(sum, [1, 2]).result()

    def test_failure_with_own_client(self):
        with Client(**OPTIONS) as client:
            assert client.submit(sum, [1, 2]).result() == 4

    def test_client_that_stays_open(self):
        client = Client(**OPTIONS)
        client.submit(sum, [1, 2]).result()
        client.shutdown()

    @pytest.mark.anyio
    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_coroutine(self, anyio_backend):
        async with Client(asynchronous=True, **OPTIONS) as client:
            await client.submit(sum, [1, 2])


@pytest.mark.benchkit
@gen_cluster(client=True)
async def test_gen_cluster(c, s, a, b):
    assert await c.submit(sum, [1, 2]) == 3


@gen_cluster(client=True)
async def test_block(c, s, a, b, benchkit_record):
    async with benchkit_record(c) as recorded:
        recorded.metric("rows", 2)
        await c.gather(c.map(abs, range(5)))


@pytest.mark.benchkit
class TestCase(unittest.TestCase):
    def test_failure(self):
        self.assertEqual(1, 2)


@pytest.mark.benchkit
class TestAsyncCase(unittest.IsolatedAsyncioTestCase):
    async def test_own_client(self):
        async with Client(asynchronous=True, **OPTIONS) as client:
            await client.submit(sum, [1, 2])
"""


@pytest.mark.slow
def test_plugin_records_the_first_client_of_each_shape_of_test(tmp_path):
    plugins = ["-p", "anyio", "-p", "xdist", "-n", "2"]
    done = run(tmp_path, SHAPES, *plugins, "--benchkit", "--benchkit-store", "kept")

    assert "2 failed, 7 passed" in done.stdout, done.stdout + done.stderr
    assert "benchkit: -n 2: clusters on one machine disturb each other" in done.stdout
    runs = Store(tmp_path / "kept").runs(parallel="2")
    runs["test"] = runs["workload"].str.partition("::")[2]
    assert runs.set_index("test")[["outcome", "n_tasks"]].fillna(0).T.to_dict("list") == {
        "TestClass::test_no_client": ["ok", 0],
        "TestClass::test_own_client": ["ok", 1],
        "TestClass::test_failure_with_own_client": ["wrong_answer", 1],
        "TestClass::test_client_that_stays_open": ["ok", 1],
        "test_gen_cluster": ["ok", 1],
        "TestClass::test_coroutine[asyncio]": ["ok", 1],
        "test_block": ["ok", 5],
        "TestCase::test_failure": ["wrong_answer", 0],
        "TestAsyncCase::test_own_client": ["ok", 1],
    }
    assert runs["experiment"].nunique() == 1
    assert not list((tmp_path / "kept" / "tmp" / "recordings").iterdir())


def test_plugin_shows_an_error_of_benchkit_in_one_line(tmp_path):
    (tmp_path / "taken").touch()
    text = "import pytest\n@pytest.mark.benchkit\ndef test(): pass"
    done = run(tmp_path, text, "--benchkit", "--benchkit-store", "taken")

    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("taken: a file, not a store") == 2  # and in the summary
    assert "Traceback" not in done.stdout
    assert "exception" not in done.stdout


def reference_suite(folder):
    """Write a suite like coiled/benchmarks', with benchkit's conftest and helpers."""
    (folder / "environments").mkdir()
    (folder / "environments" / "small.yaml").write_text(ENVIRONMENT)
    suite = folder / "tests" / "benchmarks"
    suite.mkdir(parents=True)
    for name in ("conftest.py", "utils_test.py"):
        (suite.parent / name).write_text("from benchkit.pytest_plugin.reference import *")
    for package in (suite.parent, suite):
        (package / "__init__.py").touch()
    (suite / "conftest.py").write_text(FOLDER_CONFTEST)
    (suite / "test_module.py").write_text(REFERENCE)


@pytest.mark.slow
def test_plugin_runs_modules_of_the_reference_suite_unmodified(tmp_path):
    reference_suite(tmp_path)
    options = ["--benchmark", "--benchkit-store", "kept", "--benchkit-environment", "small"]
    done = run(tmp_path, "", "tests", *options, "--benchkit-repeat", "2", "-v")

    assert "2 failed, 12 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    runs = Store(tmp_path / "kept").runs()
    counts = runs.groupby(["workload", "outcome"]).size().to_dict()
    module = "tests/benchmarks/test_module.py"
    assert counts == {
        (f"{module}::test_sum[uncompressible-500]", "ok"): 2,
        (f"{module}::test_sum[compressible-500]", "ok"): 2,
        (f"{module}::test_own", "ok"): 2,
        (f"{module}::test_wrong", "wrong_answer"): 2,
        (f"{module}::test_named", "ok"): 2,
        (f"{module}::test_time_only", "ok"): 2,
    }
    assert set(runs["environment"]) == {"small"}
    assert runs["experiment"].nunique() == 1
    assert sorted(runs["block"].unique()) == [0, 1]
    in_order = runs.sort_values("started")["block"].tolist()
    assert in_order == sorted(in_order)  # repetitions are interleaved
    own = runs.set_index("workload")
    assert set(own.loc[f"{module}::test_own", "n_workers"]) == {2}
    assert set(own.loc[f"{module}::test_named", "n_workers"]) == {1}
    times = own.loc[f"{module}::test_time_only", "duration"]
    assert all(0.2 <= time < 1.0 for time in times)
    assert set(own.loc[f"{module}::test_time_only", "capture"]) == {"off"}


@pytest.mark.slow
def test_plugin_runs_the_reference_suite_without_recording(tmp_path):
    reference_suite(tmp_path)
    done = run(tmp_path, "", "tests", "--benchkit-environment", "small")

    assert "1 failed, 7 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.glob("*store*"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--benchkit", "--benchkit-repeat", "0"], "benchkit-repeat: give a number of runs"),
        (["--benchkit", "-o", "benchkit_repeat=many"], "benchkit-repeat: give a number of runs"),
    ],
)
def test_plugin_refuses_wrong_options(tmp_path, options, problem):
    done = run(tmp_path, "def test(): pass", *options)

    assert problem in done.stderr, done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


def test_plugin_refuses_an_unknown_environment(tmp_path):
    text = "def test(small_client): pass"
    done = run(tmp_path, text, "--benchkit-environment", "smallest")

    assert "no environment named 'smallest'" in done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


def test_reference_names_an_unknown_environment_in_one_line(tmp_path):
    reference_suite(tmp_path)
    done = run(tmp_path, "", "tests/benchmarks", "--benchkit-environment", "smallest")

    assert done.stderr.startswith("ERROR: --benchkit-environment: no environment named 'smallest'")
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


def test_coiled_module_is_provided_to_the_processes_of_workers():
    def version() -> str:
        import coiled

        return coiled.__version__

    preload = {"distributed.worker.preload": ["benchkit.pytest_plugin.coiled_module"]}
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set(preload), LocalCluster(**options) as cluster, Client(cluster) as client:
        assert set(client.run(version).values()) == {"0"}


def test_plugin_leaves_an_option_of_the_suite_alone(tmp_path):
    """The suite's own conftest.py has `--benchmark`, too."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--benchmark', action='store', default='none')\n"
    )
    text = "def test(pytestconfig): assert pytestconfig.getoption('--benchmark') == 'mine'"
    done = run(tmp_path, text, "--benchmark", "mine")

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_names_that_the_guide_calls_the_same_exist():
    from benchkit.pytest_plugin import fixtures, reference

    guide = (ROOT / "docs" / "guides" / "coiled-benchmarks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in guide.splitlines() if line.startswith("| `")]
    same = {
        name
        for theirs, ours in rows
        if ours.strip().startswith("the same")
        for name in re.findall(r"`(\w+)`", theirs)
    }

    assert len(same) >= 25
    assert {name for name in same if not hasattr(fixtures, name)} <= set(reference.__all__)


#: Of an environment with another engine.
ENGINE_SUITE = """
import dask
import pytest


def test_sum(small_client):
    assert type(small_client).__module__ == "frisky"
    assert dask.delayed(sum)([dask.delayed(abs)(n) for n in range(5)]).compute() == 10


def test_lacks(small_client):
    small_client.run(print)


@pytest.mark.benchkit
def test_own():
    from dask.distributed import Client

    with Client(n_workers=1, dashboard_address=None, processes=False) as client:
        assert client.submit(sum, [1, 2]).result() == 3
"""
ENGINE_ENVIRONMENT = """
engine: {}
cluster: {{n_workers: 1, threads_per_worker: 1, memory_limit: 4 GiB, dashboard_address: ":0"}}
"""


def run_in_engine(folder, engine):
    (folder / "environments").mkdir()
    (folder / "environments" / "other.yaml").write_text(ENGINE_ENVIRONMENT.format(engine))
    options = ("--benchkit", "--benchkit-store", "kept", "--benchkit-environment", "other", "-rs")
    return run(folder, ENGINE_SUITE, *options)


@pytest.mark.slow
def test_fixtures_give_the_client_of_the_environments_engine(tmp_path):
    pytest.importorskip("frisky", reason="pip install 'frisky[dask]', from Python 3.11")

    done = run_in_engine(tmp_path, "frisky")

    assert "1 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "engine frisky has no client.run, which the test uses" in done.stdout
    assert "engine frisky: the test has a client of its own" in done.stdout
    runs = Store(tmp_path / "kept").runs()
    kept = runs[runs["outcome"] == "ok"]
    assert kept[["workload", "engine", "n_tasks"]].values.tolist() == [
        ["test_suite.py::test_sum", "frisky", 6]
    ]


def test_fixtures_refuse_an_engine_without_a_client(tmp_path):
    done = run_in_engine(tmp_path, "threads")

    assert "3 skipped" in done.stdout, done.stdout + done.stderr
    assert "engine threads has no client, which a fixture of the test returns" in done.stdout
