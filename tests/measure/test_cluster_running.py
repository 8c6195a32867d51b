"""Clusters that are started or connected to, and the errors of those that are not."""

import gc
import json
import os
import re
import time
import weakref
from types import SimpleNamespace

import dask
import pytest
from distributed import Client, LocalCluster

from benchkit.measure.cluster.description import describe
from benchkit.measure.cluster.restart import restart_workers
from benchkit.measure.cluster.reuse import close_reused_clusters, reused_cluster
from benchkit.measure.cluster.running import open_cluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.cluster.waiting import DeployErrors, await_workers, requested_workers
from benchkit.measure.errors import ClusterError

IN_PROCESS = {
    "n_workers": 2,
    "threads_per_worker": 3,
    "memory_limit": "4 GiB",  # of which this process has little: else the workers are paused
    "processes": False,
}


def test_open_cluster_describes_cluster():
    with open_cluster(ClusterSpec(kwargs=IN_PROCESS)) as opened:
        description = opened.description
        assert opened.client.submit(int, 7).result() == 7

    assert description["class"] == "dask.distributed.LocalCluster"
    assert description["kwargs"] == IN_PROCESS
    assert (description["n_workers"], description["n_threads"]) == (2, 6)
    assert description["memory_limit"] == 2 * 4 * 2**30
    assert description["memory_limits"] == [4 * 2**30]
    assert description["workers"] == "new"
    assert description["nannies"] is False
    versions = description["versions"]
    assert versions["client"]["dask"] == versions["scheduler"]["dask"]
    assert versions["workers"] == [versions["client"]]
    assert opened.client.status == "closed"


def test_closed_cluster_is_garbage_collected():
    options = {**IN_PROCESS, "processes": True, "n_workers": 1}
    with open_cluster(ClusterSpec(kwargs=options)) as opened:
        scheduler = weakref.ref(opened.cluster.scheduler)
        opened.client.submit(int, 7).result()
    del opened
    for _ in range(50):  # threads that are about to end may still refer to it
        gc.collect()
        if scheduler() is None:
            break
        time.sleep(0.1)

    assert scheduler() is None


def test_open_cluster_keeps_running_scheduler():
    options = {**IN_PROCESS, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        before = set(cluster.scheduler.workers)
        with open_cluster(ClusterSpec(address=cluster.scheduler_address)) as opened:
            assert opened.cluster is None
            assert opened.description["workers"] == "as found", "workers without nannies"
            assert opened.description["class"] == cluster.scheduler_address
        assert set(cluster.scheduler.workers) == before
        with Client(cluster) as client:
            assert describe(client, "as found")["class"] == "LocalCluster"


def test_open_cluster_rejects_scheduler_without_workers():
    options = {"n_workers": 0, "processes": False, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        spec = ClusterSpec(address=cluster.scheduler_address)
        with pytest.raises(ClusterError, match="has no workers: start some first"):
            with open_cluster(spec):
                pass


@pytest.mark.parametrize("address", ["nonsense://host:1", "tcp://127.0.0.1"])
def test_open_cluster_reports_invalid_address(address):
    with pytest.raises(ClusterError) as caught, open_cluster(ClusterSpec(address=address)):
        pass

    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_open_cluster_reports_error_of_class(tmp_path, monkeypatch):
    (tmp_path / "odd_clusters.py").write_text(
        "class EmptyCluster:\n"
        "    def __init__(self, n_workers=1):\n"
        "        raise OSError('no room\\nat the inn')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec("odd_clusters.EmptyCluster", {"n_workers": 1})

    with pytest.raises(ClusterError) as caught, open_cluster(spec):
        pass

    assert str(caught.value) == "odd_clusters.EmptyCluster did not start: OSError: no room"


def test_open_cluster_names_the_cause_of_a_worker_that_fails():
    preload = "raise RuntimeError('no licence for this worker')"
    spec = ClusterSpec(kwargs={"n_workers": 1})

    with (
        dask.config.set({"distributed.worker.preload": [preload]}),
        pytest.raises(ClusterError) as caught,
        open_cluster(spec),
    ):
        pass

    said = "(Nanny failed to start. RuntimeError: )?"  # by Dask of 2024 or later
    error = f"dask.distributed.LocalCluster did not start: RuntimeError: {said}no licence for this"
    assert re.fullmatch(f"{error} worker", str(caught.value))


def test_missing_workers_are_counted(monkeypatch, capsys):
    spec = ClusterSpec(kwargs={"n_workers": 3})
    monkeypatch.setattr("benchkit.measure.cluster.waiting.REPORT_S", 0.0)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
        pytest.raises(ClusterError, match="LocalCluster: 1 of 3 workers connected within 1 s"),
    ):
        await_workers(client, cluster, spec, DeployErrors(), limit_s=1, end=time.monotonic() + 1)

    line = f"waiting for workers of {spec.label}: 1 of 3 connected after 0 s, limit 1 s"
    assert line in capsys.readouterr().err.splitlines()


def test_open_cluster_awaits_workers_that_the_cluster_lists(tmp_path, monkeypatch):
    """SSHCluster has a worker per host, and no option for their number."""
    (tmp_path / "host_clusters.py").write_text(
        "from distributed import LocalCluster\n"
        "def HostCluster(hosts):\n"
        "    return LocalCluster(n_workers=len(hosts), processes=False, dashboard_address=None)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec("host_clusters.HostCluster", {"hosts": ["a", "b"]})

    with open_cluster(spec) as opened:
        assert requested_workers(opened.cluster, spec) == 2
        assert opened.description["n_workers"] == 2


@pytest.mark.parametrize(
    ("worker_spec", "kwargs", "n_workers"),
    [
        ({0: {"cls": object}, 1: {"cls": object}}, {}, 2),
        ({0: {"group": ["-0", "-1", "-2"]}, 1: {"group": ["-0"]}}, {}, 4),  # processes of jobs
        ({0: {"group": ["-0", "-1"]}, 1: {"group": ["-0", "-1"]}}, {"n_workers": 3}, 4),
        ({0: {"options": {"kwargs": {"n_workers": 2}}}, 1: {"options": {"kwargs": {}}}}, {}, 3),
        ({0: {"cls": object}}, {"n_workers": 5}, 5),
        ({}, {}, None),
    ],
)
def test_requested_workers_are_those_of_option_or_list(worker_spec, kwargs, n_workers):
    cluster = SimpleNamespace(worker_spec=worker_spec)

    assert requested_workers(cluster, ClusterSpec("x.Y", kwargs)) == n_workers


def test_cluster_that_takes_no_number_is_scaled_after_its_start(tmp_path, monkeypatch):
    """As of dask-gateway, which refuses options that it does not know."""
    (tmp_path / "gateways.py").write_text(
        "from distributed import LocalCluster\n"
        "class Gateway:\n"
        "    def __init__(self, address=None, **options):\n"
        "        assert not options, options\n"
        "        self.inner = LocalCluster(0, processes=False, dashboard_address=None)\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(self.inner, name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {"class": "gateways.Gateway", "address": "http://gateway:8000", "n_workers": 2}

    with open_cluster(ClusterSpec.from_dict(options)) as opened:
        assert opened.description["n_workers"] == 2


def test_missing_workers_are_reported_with_the_clusters_logs(tmp_path, monkeypatch):
    (tmp_path / "stuck.py").write_text(
        "from distributed import LocalCluster\n"
        "class Stuck:\n"
        "    worker_spec = {0: {}, 1: {}}\n"
        "    def __init__(self):\n"
        "        self.inner = LocalCluster(1, processes=False, dashboard_address=None)\n"
        "    def get_logs(self):\n"
        "        return {'job 17': 'queued\\nInvalid partition: nosuch\\n'}\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(self.inner, name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec.from_dict({"class": "stuck.Stuck", "timeout": "1 s"})

    with pytest.raises(
        ClusterError, match=r"1 of 2 workers connected within 1 s; .* job 17: queued"
    ):
        with open_cluster(spec):
            pass


def test_worker_that_cannot_start_ends_the_wait(tmp_path, monkeypatch):
    """SpecCluster starts workers in the background, where tornado only logs their errors."""
    (tmp_path / "refused.py").write_text(
        "from distributed import Scheduler, SpecCluster\n"
        "from distributed.deploy.spec import ProcessInterface\n"
        "class Job(ProcessInterface):\n"
        "    def __init__(self, scheduler=None, name=None):\n"
        "        super().__init__(scheduler, name)\n"
        "    async def start(self):\n"
        "        raise RuntimeError('exit code 1\\nstderr:\\nno such partition\\n')\n"
        "class Refused(SpecCluster):\n"
        "    def __init__(self, n_workers):\n"
        "        scheduler = {'cls': Scheduler, 'options': {'dashboard': False}}\n"
        "        super().__init__({}, scheduler, {'cls': Job, 'options': {}})\n"
        "        self.scale(n_workers)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec("refused.Refused", {"n_workers": 2})

    with pytest.raises(ClusterError) as caught, open_cluster(spec, timeout_s=300):
        pass

    text = "refused.Refused: 0 of 2 workers connected: exit code 1 | no such partition"
    assert str(caught.value) == text


def test_paused_workers_are_awaited():
    """A worker is paused when its process has more memory than four fifths of its limit."""
    options = {"n_workers": 2, "processes": False, "memory_limit": "1 MiB"}
    spec = ClusterSpec(kwargs=options)
    text = "2 of 2 workers connected, 2 of them paused because their memory is full, within 1 s"

    with LocalCluster(**options, dashboard_address=None) as cluster, Client(cluster) as client:
        while any(w.status.name != "paused" for w in cluster.scheduler.workers.values()):
            time.sleep(0.01)
        with pytest.raises(ClusterError, match=text):
            await_workers(
                client, cluster, spec, DeployErrors(), limit_s=1, end=time.monotonic() + 1
            )


def test_cluster_that_takes_no_timeout_is_closed(tmp_path, monkeypatch):
    """As of dask-gateway and coiled: a cluster that is left open costs money."""
    (tmp_path / "patient.py").write_text(
        "from distributed import LocalCluster\n"
        "closed = []\n"
        "class Patient(LocalCluster):\n"
        "    def close(self, force_shutdown=False):\n"
        "        closed.append(force_shutdown)\n"
        "        return super().close(30)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {**IN_PROCESS, "dashboard_address": None}

    with open_cluster(ClusterSpec("patient.Patient", options)):
        pass

    import patient

    assert False in patient.closed


def test_reused_cluster_without_nannies_is_started_anew(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text(
        "from distributed import LocalCluster\n"
        "def Bare(**options):\n"
        "    return LocalCluster(dashboard_address=None, **options)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("benchkit.measure.cluster.reuse.RESTART_TIMEOUT_S", 0.0)
    spec = ClusterSpec("bare.Bare", IN_PROCESS)

    try:
        seen = []
        for _ in range(2):
            with reused_cluster(spec) as opened:
                seen.append((opened.client, opened.description["workers"]))
    finally:
        close_reused_clusters()
    (first, _), (second, _) = seen
    assert [state for _, state in seen] == ["new", "new"]
    assert (first.status, second.status) == ("closed", "closed")
    assert first is not second


@pytest.mark.slow
def test_open_cluster_restarts_workers_with_nannies():
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "256 MiB"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            before = client.run(os.getpid)
        with open_cluster(ClusterSpec(address=cluster.scheduler_address)) as opened:
            assert opened.description["workers"] == "restarted"
            after = opened.client.run(os.getpid)

    assert len(after) == 1
    assert not set(after.values()) & set(before.values())


def test_restarted_workers_may_be_absent_longer_than_a_lost_one():
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "0.1 s"}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        restart_workers(client, 1, timeout_s=20)
        assert client.submit(lambda: 1).result() == 1
        assert list(cluster.workers) == [0]


def test_open_cluster_ends_constructor_that_never_returns(tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text(
        "import time\nclass EndlessCluster:\n    def __init__(self):\n        time.sleep(600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec("endless.EndlessCluster")

    with (
        pytest.raises(ClusterError, match="did not start: DeadlinePassed"),
        open_cluster(spec, timeout_s=0.2),
    ):
        pass


def test_open_cluster_connects_by_scheduler_file(tmp_path):
    with LocalCluster(**IN_PROCESS, protocol="tcp", dashboard_address=None) as cluster:
        path = tmp_path / "sched.json"
        path.write_text(json.dumps(cluster.scheduler.identity(), default=str))
        with open_cluster(ClusterSpec(address=str(path))) as opened:
            assert opened.client.scheduler.address == cluster.scheduler_address
