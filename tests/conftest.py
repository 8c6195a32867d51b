"""Fixtures of several test folders: a real run, a real browser, a folder for screenshots."""

import gc
import inspect
import multiprocessing
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from validation import hosts, s3_server
from validation.fault_proxy import FaultProxy

# Workers of local clusters are forks of a process that has imported Dask: two start in 0.6 instead
# of 5 s on a busy machine, in the commands that tests run, too; not in named environments, which do
# not inherit Dask's variables. Windows has no fork.
if "forkserver" in multiprocessing.get_all_start_methods():
    os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

# Tests start thousands of processes; each would compile what it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A background job of a script inherits that SIGINT is ignored, and so does what tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# click 8.1 has no `stderr` of a result unless it is asked for, and then no `output` of both.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)
    Result.output = property(lambda result: result.stdout + result.stderr)

#: A test with one of these markers or fixtures starts a browser, a server, a cluster of several
#: machines or a virtual environment, and has the marker `slow`.
SLOW_MARKERS = {"browser", "cluster", "environment", "s3"}
SLOW_FIXTURES = {"browser", "namespaces", "prometheus", "rados_gateway"}

settings.register_profile("default", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("default")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark slow tests; put the files first that may take longest, or one ends alone."""
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())) or any(
            item.get_closest_marker(name) for name in SLOW_MARKERS
        ):
            item.add_marker("slow")
    yield  # pytest-randomly shuffles the files, and `-m` selects
    weights: Counter[Path] = Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            weights[item.path] += 3 if item.get_closest_marker("timeout") else 1
    items.sort(key=lambda item: -weights[item.path])


@pytest.fixture(autouse=True)
def no_scheduler_is_left_behind() -> Iterator[None]:
    """Reset Dask's default scheduler: clients closed out of order leave it set to distributed."""
    import dask

    yield
    if dask.config.get("scheduler", None) == "dask.distributed":
        from distributed.client import _get_global_client

        if _get_global_client() is None:
            dask.config.config.pop("scheduler", None)


@pytest.fixture(autouse=True)
def no_metric_of_another_test_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget metrics that runs of other tests define, perhaps with other units."""
    from benchkit.store.schema import METRICS

    monkeypatch.setattr(METRICS, "own", {})


@pytest.fixture(autouse=True)
def no_client_is_left_open() -> Iterator[None]:
    """Fail if a test leaves a client open: closing it in the garbage collector can deadlock."""
    before = _open_clients()
    yield
    if len(_open_clients()) > len(before):
        gc.collect()  # collect now, while this thread holds no lock
    left = [client for client in _open_clients() if client not in before]
    assert not left, f"clients left open: {left}"


def _open_clients() -> list[Any]:
    if "distributed" not in sys.modules:
        return []
    from distributed import Client

    ended = ("closed", "newly-created")
    return [client for client in Client._instances if client.status not in ended]


@pytest.fixture(scope="session")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a real run of a small computation on two worker processes, as a DataTree."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    import benchkit

    store = tmp_path_factory.mktemp("a-run") / "store"
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"}
    with (
        LocalCluster(**options, dashboard_address=None) as cluster,
        Client(cluster) as client,
        benchkit.record(client, workload="tests.sum", tags={"way": "A"}, store=store) as recorded,
    ):
        da.random.random((3000, 3000), chunks=500).dot(da.ones((3000, 20))).sum().compute()
    return recorded.run.tree


@pytest.fixture(scope="session")
def s3_emulator() -> Iterator[str]:
    """Yield the address of an emulated S3 server."""
    with s3_server.emulator() as url:
        yield url


@pytest.fixture(scope="session")
def rados_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """Yield a proxy with faults in front of a real S3 server; skip if it is not installed."""
    with (
        s3_server.rados_gateway(tmp_path_factory.mktemp("ceph")) as url,
        FaultProxy(url) as proxy,
    ):
        yield proxy


def _empty_bucket(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in s3_server.variables(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "cache"))
    return f"s3://{s3_server.BUCKET}/{uuid4().hex}"


@pytest.fixture
def bucket(s3_emulator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the address of an empty store on the emulated server."""
    return _empty_bucket(s3_emulator, monkeypatch, tmp_path)


@pytest.fixture
def real_bucket(rados_gateway: FaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the address of an empty store on the real server, behind the proxy."""
    return _empty_bucket(rados_gateway.url, monkeypatch, tmp_path)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Fail in CI and skip elsewhere if `validation.hosts` cannot make hosts."""
    if reason := hosts.missing():
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium or Chrome; fail without them in CI, skip elsewhere."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """Yield a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Return the folder for screenshots, which git ignores."""
    folder = Path(__file__).parent.parent / "artifacts"
    folder.mkdir(exist_ok=True)
    return folder
