"""From a class name or an address to a cluster, or to one line that says what would be right."""

from __future__ import annotations

import gc
import os
import sys
import time
import types
import weakref

import pytest
from distributed import Client, LocalCluster

from benchkit.measure.cluster.description import describe
from benchkit.measure.cluster.running import open_cluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import ClusterError, InvalidClusterError


def refusal(spec):
    with pytest.raises(InvalidClusterError) as caught:
        spec.check()
    text = str(caught.value)
    assert "\n" not in text
    return text


# -- refused before anything starts -----------------------------------------------------------


LOCAL = "dask.distributed.LocalCluster"


@pytest.mark.parametrize(
    ("cls", "kwargs", "message"),
    [
        ("dask.distributed.LocalClustr", {}, "does not exist: did you mean 'LocalCluster'?"),
        ("no_such_package.Cluster", {}, "cannot be imported: No module named"),
        ("LocalCluster", {}, "give the dotted name, such as 'dask.distributed.LocalCluster'"),
        ("sys.version", {}, "is not a class: it cannot be called"),
        (LOCAL, {"n_wrkers": 2}, "has no option 'n_wrkers': did you mean 'n_workers'?"),
        (LOCAL, {"memory_limit": "1 GBit"}, "write for example '1 GiB'"),
    ],
)
def test_a_mistake_is_refused_with_what_would_be_right(cls, kwargs, message):
    assert message in refusal(ClusterSpec(cls, kwargs))


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n_workers": 1, "threads_per_worker": 2, "memory_limit": "auto", "processes": False},
        {"local_directory": "/x", "death_timeout": 60},  # handed on to the workers
        {"memory_limit": "1.5 GiB", "protocol": "tls://"},
        {"memory_limit": 2**30, "resources": {"gpu": 1}},
    ],
)
def test_what_the_class_or_its_workers_know_is_taken(kwargs):
    spec = ClusterSpec(kwargs=kwargs)

    assert spec.check() is None
    assert spec.kwargs == kwargs  # nothing is taken out or filled in


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([1, 2], "is not a mapping"),
        ({"address": "tcp://x:1", "n_workers": 2}, "n_workers with address 'tcp://x:1'"),
    ],
)
def test_an_environments_cluster_that_cannot_be_meant_is_refused(options, message):
    with pytest.raises(InvalidClusterError, match=message):
        ClusterSpec.from_dict(options)


def test_a_spec_survives_being_written_down():
    for options in (
        {"class": "dask.distributed.LocalCluster", "n_workers": 3, "memory_limit": "1 GiB"},
        {"address": "tcp://10.0.0.1:8786"},
    ):
        written = ClusterSpec.from_dict(options).to_dict()
        assert options.items() <= written.items()
        assert ClusterSpec.from_dict(written).to_dict() == written


def test_a_workloads_own_shape_is_laid_over_a_class_and_never_over_an_address():
    shaped = ClusterSpec(kwargs={"n_workers": 2, "memory_limit": "1 GiB"}).merged(
        {"memory_limit": "512 MiB"}
    )
    running = ClusterSpec(address="tcp://x:1")

    assert shaped.kwargs == {"n_workers": 2, "memory_limit": "512 MiB"}
    assert running.merged({"memory_limit": "512 MiB"}) is running


@pytest.fixture
def coiled(monkeypatch):
    """A coiled that would ask in a browser, and wait for ten minutes."""

    class Cluster:
        def __init__(self, *, n_workers=4, name=None, worker_memory=None):
            raise AssertionError("it was started")

    module = types.ModuleType("coiled")
    module.Cluster = Cluster
    monkeypatch.setitem(sys.modules, "coiled", module)
    monkeypatch.delenv("DASK_COILED__TOKEN", raising=False)


@pytest.mark.parametrize("stdin", ["no terminal", "none at all"])
def test_coiled_without_a_login_is_refused_at_once(coiled, monkeypatch, tmp_path, stdin):
    with (tmp_path / "empty").open("w+") as empty:
        monkeypatch.setattr(sys, "stdin", empty if stdin == "no terminal" else None)
        spec = ClusterSpec("coiled.Cluster", {"n_workers": 2})

        assert "run `coiled login` once, or set DASK_COILED__TOKEN" in refusal(spec)
        with pytest.raises(InvalidClusterError), open_cluster(spec):
            pass


def test_coileds_options_are_checked_against_its_signature(coiled, monkeypatch):
    monkeypatch.setenv("DASK_COILED__TOKEN", "secret")

    assert "did you mean 'worker_memory'?" in refusal(
        ClusterSpec("coiled.Cluster", {"worker_memry": "8 GiB"})
    )
    ClusterSpec("coiled.Cluster", {"worker_memory": "8 GiB"}).check()


# -- what was got -----------------------------------------------------------------------------

IN_PROCESS = {
    "n_workers": 2,
    "threads_per_worker": 3,
    "memory_limit": "256 MiB",
    "processes": False,
}


def test_what_was_got_is_described():
    with open_cluster(ClusterSpec(kwargs=IN_PROCESS)) as opened:
        description = opened.description
        assert opened.client.submit(int, 7).result() == 7

    assert description["class"] == "dask.distributed.LocalCluster"
    assert description["kwargs"] == IN_PROCESS
    assert (description["n_workers"], description["n_threads"]) == (2, 6)
    assert description["memory_limit"] == 2 * 256 * 2**20
    assert description["memory_limits"] == [256 * 2**20]
    assert description["workers"] == "new"
    assert description["nannies"] is False
    versions = description["versions"]
    assert versions["client"]["dask"] == versions["scheduler"]["dask"]
    assert versions["workers"] == [versions["client"]]
    assert opened.client.status == "closed"


def test_nothing_of_a_cluster_is_left_that_later_runs_would_pay_for():
    options = {**IN_PROCESS, "processes": True, "n_workers": 1}
    with open_cluster(ClusterSpec(kwargs=options)) as opened:
        scheduler = weakref.ref(opened.cluster.scheduler)
        opened.client.submit(int, 7).result()
    del opened
    for _ in range(50):  # threads that are about to end hold it for a moment
        gc.collect()
        if scheduler() is None:
            break
        time.sleep(0.1)

    assert scheduler() is None


def test_a_running_scheduler_is_used_as_found_and_left_running():
    options = {**IN_PROCESS, "memory_limit": 2**28, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        before = set(cluster.scheduler.workers)
        with open_cluster(ClusterSpec(address=cluster.scheduler_address)) as opened:
            assert opened.cluster is None
            assert opened.description["workers"] == "as found", "none has a nanny to restart it"
            assert opened.description["class"] == cluster.scheduler_address
        assert set(cluster.scheduler.workers) == before
        with Client(cluster) as client:
            assert describe(client, "as found")["class"] == "LocalCluster"


def test_a_scheduler_without_workers_is_refused():
    options = {"n_workers": 0, "processes": False, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        spec = ClusterSpec(address=cluster.scheduler_address)
        with pytest.raises(ClusterError, match="has no workers: start some first"):
            with open_cluster(spec):
                pass


@pytest.mark.parametrize("address", ["nonsense://host:1", "tcp://127.0.0.1"])
def test_an_address_that_is_none_is_told_in_one_line(address):
    with pytest.raises(ClusterError) as caught, open_cluster(ClusterSpec(address=address)):
        pass

    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_that_cannot_start_is_told_in_one_line(tmp_path, monkeypatch):
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


def test_workers_that_do_not_come_are_counted(tmp_path, monkeypatch):
    (tmp_path / "lazy_clusters.py").write_text(
        "from distributed import LocalCluster\n"
        "def LazyCluster(n_workers=1):\n"
        "    return LocalCluster(n_workers=1, processes=False, dashboard_address=None)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = ClusterSpec("lazy_clusters.LazyCluster", {"n_workers": 3})

    with pytest.raises(ClusterError, match="LazyCluster: 1 of 3 workers connected within 1 s"):
        with open_cluster(spec, timeout_s=1.0):
            pass


@pytest.mark.slow
def test_workers_with_nannies_at_an_address_are_restarted():
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "256 MiB"}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            before = client.run(os.getpid)
        with open_cluster(ClusterSpec(address=cluster.scheduler_address)) as opened:
            assert opened.description["workers"] == "restarted"
            after = opened.client.run(os.getpid)

    assert len(after) == 1
    assert not set(after.values()) & set(before.values())
