"""Fixtures of the capture tests: a cluster in this process, and a capture around a block."""

import os
import shutil
from contextlib import contextmanager

import pytest
from distributed import Client, LocalCluster

from benchkit.measure.capture_client import Observer
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run


class Observed:
    """One capture: its observer while it runs, its run and outcome afterwards."""

    def __init__(self, client, folder, level="full"):
        self.id = new_id()
        self.writer = RecordingWriter(folder, self.id)
        self.writer.head(id=self.id, started=1.8e9, workload="t.observed", capture=level)
        self.observer = Observer(client, self.writer, f"benchkit-{self.id}", level=level)

    @property
    def name(self):
        return self.observer.name

    def start(self):
        self.observer.install()
        self.observer.clock_on()
        return self

    def stop(self):
        observer = self.observer
        observer.clock_off()
        observer.uninstall()
        self.writer.tail(outcome="ok", error="", **observer.tail())

    @property
    def run(self):
        run = Run(run_from_recording(self.writer.path))
        full = run.tree.attrs["capture"] == "full" and "tasks" in run.tree
        if full and run.tree.attrs["capture_errors"] == "[]":
            rows = run.tree["tasks"].sizes["task"] + run.tree["tasks"].attrs["n_dropped"]
            assert rows == run.tree["task_groups/n_tasks"].values.sum()
        return run


@pytest.fixture
def observed(tmp_path):
    @contextmanager
    def observed(client, level="full"):
        observation = Observed(client, tmp_path, level).start()
        try:
            yield observation
        finally:
            observation.stop()

    return observed


@pytest.fixture(scope="module")
def cluster():
    """Yield two workers in this process: they start quickly and tests can inspect them."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        memory_limit="4 GiB",
        dashboard_address=None,
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        yield client


@pytest.fixture(scope="session")
def prometheus():
    """Return the path of Debian's Prometheus; fail without it in CI, skip elsewhere."""
    found = shutil.which("prometheus")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("prometheus is not installed: apt-get install prometheus")
        pytest.skip("prometheus is not installed")
    return found
