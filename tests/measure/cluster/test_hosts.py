"""Measure clusters of several hosts, with clocks 4 s apart, at both ends of the releases."""

import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from helpers.clusters.project import Project

from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.lookup import find_environment
from benchkit.store.store import Store
from validation.hosts import Hosts
from validation.releases import OLDEST, release_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.environment,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("namespaces"),
]
ROOT = Path(__file__).parents[3]
WORKER_MEMORY = 256 * 2**20
#: Records 16 transfers of 1 MiB from node1 to node2, and prints what their links carried.
RECORD = """
import json, os, sys, time
from distributed import Client, wait
import benchkit
from validation.hosts import Network

address, store = sys.argv[1:]
network = Network()

def counted():
    return {host: network.counters(host) for host in network.pids}

with Client(address) as client:
    client.wait_for_workers(2)
    before = counted()
    with benchkit.record(client, workload="own.record", store=store) as recorder:
        data = [client.submit(os.urandom, 2**20, workers="node1", pure=False) for _ in range(16)]
        wait([client.submit(len, block, workers="node2", pure=False) for block in data])
    after = counted()
print(json.dumps({host: [b - a for a, b in zip(before[host], after[host])] for host in before}))
"""


@pytest.fixture(scope="module", params=["current", OLDEST])
def release(request):
    return request.param


@pytest.fixture(scope="module")
def project(release, tmp_path_factory):
    """Yield a project whose environments a and b have the release, and one that workers use."""
    folder = tmp_path_factory.mktemp("hosts")
    clocks = {"node0": 0.0, "node1": 2.0, "node2": -2.0}
    with pytest.MonkeyPatch.context() as patch, Hosts(3, folder, rate=400, clocks=clocks) as hosts:
        patch.setenv("BENCHKIT_CACHE", str(folder / "cache"))
        project = Project(folder / "project", uuid4().hex, hosts=hosts)
        more = {}
        if release != "current":
            packages = [f"dask=={release}", f"distributed=={release}"]
            more = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "packages": packages}
        for name in ("a", "b"):
            project.add(name, {"address": "tcp://10.0.0.1:8786"}, **more)
        # Here, because the hosts have no connection to the package index.
        project.built = build(find_environment("a", [folder / "project" / "e"]))
        hosts.start_cluster(str(project.built.python), nthreads=2, memory_limit=str(WORKER_MEMORY))
        yield project


@pytest.fixture(scope="module")
def python(release, project, tmp_path_factory):
    """Return an interpreter with the release and all of benchkit."""
    if release == "current":
        return sys.executable
    folder = tmp_path_factory.mktemp("env") / release
    # Newer ones of pyarrow need NumPy 2; what cloudpickle writes, an older one cannot read.
    same = f"cloudpickle=={project.built.packages['cloudpickle']}"
    return release_python(release, folder, "-e", str(ROOT), "pyarrow<20", same)


def test_hosts_run_measures_all_hosts(project, release):
    run = project.assert_run_uses("a", n_workers=2, memory=2 * WORKER_MEMORY, threads=4)

    assert run["cluster"]["hosts"] == ["10.0.0.2", "10.0.0.3"]
    versions = run["cluster"]["versions"]
    assert (versions["scheduler"]["distributed"] == OLDEST) == (release == OLDEST)


def test_hosts_ab_ends_with_verdict(project):
    project.assert_ab_has_verdict("a", "b", "--no-null", "--no-report", n_workers=2)


def test_hosts_record_agrees_with_links(project, python, tmp_path):
    words = [str(python), "-c", RECORD, "tcp://10.0.0.1:8786", str(tmp_path / "store")]
    done = project.hosts.run(words)

    assert done.returncode == 0, done.stderr
    carried = json.loads(done.stdout)
    (run,) = Store(tmp_path / "store")
    assert run.outcome == "ok"
    assert json.loads(run.tree.attrs["capture_errors"]) == []
    assert run.metrics["n_tasks"] == 32
    assert run.metrics["n_transfers"] == run.transfers()["count"].sum() >= 1
    assert run.metrics["transfer_bytes"] == pytest.approx(16 * 2**20, rel=0.001)
    received = carried["node1"][0] + carried["node2"][0]
    assert run.metrics["network_bytes"] == pytest.approx(received, rel=0.03)
    stream = run.task_stream()
    assert len(stream) == 32
    assert 0 <= stream["start"].min()
    assert (stream["start"] + stream["duration"]).max() <= run.metrics["duration"] + 0.2
