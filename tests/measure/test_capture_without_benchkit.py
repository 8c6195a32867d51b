"""The capture on a scheduler and workers in processes that cannot import benchkit."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from distributed import Client, LocalCluster, Security, wait

from benchkit.measure import capture
from benchkit.measure.recording import Recording

#: Python imports this first: benchkit then cannot be imported.
WITHOUT_BENCHKIT = "import sys\nsys.modules['benchkit'] = None\n"

ROLES = ("client", "scheduler", "worker")


@pytest.fixture
def remote_cluster(tmp_path):
    """Scheduler and worker processes; gives the scheduler's process and a client."""
    home = tmp_path / "remote_cluster"
    home.mkdir()
    (home / "sitecustomize.py").write_text(WITHOUT_BENCHKIT)
    where = str(home / "scheduler.json")
    environment = {**os.environ, "PYTHONPATH": str(home)}

    def start(module, *options):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.{module}",
                "--scheduler-file",
                where,
                *options,
            ],
            cwd=home,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    processes = [start("dask_scheduler", "--port", "0", "--dashboard-address", ":0")]
    processes += [
        start("dask_worker", "--nthreads", "1", "--memory-limit", "512MiB", "--no-dashboard")
        for _ in range(2)
    ]
    try:
        with Client(scheduler_file=where, timeout=60) as client:
            client.wait_for_workers(2, timeout=120)
            yield processes[0], client
    finally:
        for process in processes:  # including children: a nanny has a worker
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def make_import_check():
    def can_import_benchkit():  # nested, so that it is sent by value
        try:
            import benchkit  # noqa: F401
        except ImportError:
            return False
        return True

    return can_import_benchkit


@pytest.mark.slow
def test_capture_needs_benchkit_only_at_client(remote_cluster, observed):
    _, client = remote_cluster
    assert not any(client.run(make_import_check()).values())
    assert not client.run_on_scheduler(make_import_check())

    with observed(client) as observation:
        wait(client.map(time.sleep, [0.1] * 10, pure=False))
    run = observation.run

    assert run.metrics["n_tasks"] == 10
    assert {"memory_peak_worker", "cpu_time", "worker_tick_max", "memory_trimmed"} <= set(
        run.metrics
    )
    assert run.tree["profile"].sizes["frame"] > 0
    assert json.loads(run.tree.attrs["capture_errors"]) == []


@pytest.mark.slow
def test_killed_scheduler_loses_only_undrained_data(remote_cluster, observed, monkeypatch):
    monkeypatch.setattr(
        capture, "CapturePlugin", partial(capture.CapturePlugin, poll_interval_s=0.4)
    )
    scheduler, client = remote_cluster
    with observed(client) as observation:
        wait(client.map(time.sleep, [0.03] * 50, pure=False))
        time.sleep(3)  # until the tree of call stacks is finished and reported
        assert observation.observer.drain(groups=True)
        scheduler.send_signal(signal.SIGKILL)
        end = time.time() + 200
        while client.status == "running" and time.time() < end:
            time.sleep(0.05)
    run = observation.run

    assert run.tree["tasks"].sizes["task"] == run.metrics["n_tasks"] == 50
    errors = json.loads(run.tree.attrs["capture_errors"])
    assert {"off: the client lost its scheduler", "end: the client lost its scheduler"} <= set(
        errors
    )
    assert "sleep" in set(run.profile()["prefix"])
    assert not any("Timeout" in line for line in errors), "no calls to a dead scheduler"
    assert Recording.read(observation.writer.path).problems == []


def test_capture_works_over_tls(tmp_path, observed):
    files = {name: str(tmp_path / f"{name}.pem") for name in ("key", "certificate")}
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made = ["openssl", "req", *options, "-keyout", files["key"], "-out", files["certificate"]]
    subprocess.run(made, check=True, capture_output=True)
    each = {"cert": files["certificate"], "key": files["key"]}
    security = Security(
        require_encryption=True,
        tls_ca_file=files["certificate"],
        **{f"tls_{role}_{what}": path for role in ROLES for what, path in each.items()},
    )
    cluster = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(
            **cluster, protocol="tls://", security=security, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith("tls://")
        with observed(client) as observation:
            wait(client.map(time.sleep, [0.01] * 10, pure=False))
    run = observation.run

    assert run.metrics["n_tasks"] == 10
    assert "memory_trimmed" in run.metrics
    assert json.loads(run.tree.attrs["capture_errors"]) == []
