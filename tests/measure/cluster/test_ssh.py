"""SSHCluster on an SSH server of this machine."""

from uuid import uuid4

import pytest
from helpers.clusters.project import Project, free_port, wait_until
from helpers.clusters.ssh import ssh_server

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
WORKER_MEMORY = 256 * 2**20


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ssh")
    mark = uuid4().hex
    with ssh_server(folder, mark) as connection:
        cluster = {
            "class": "dask.distributed.SSHCluster",
            "hosts": ["127.0.0.1"] * 3,
            "connect_options": connection,
            "worker_options": {"nthreads": 2, "memory_limit": WORKER_MEMORY},
            "scheduler_options": {"dashboard_address": None, "port": 0},
        }
        processes = {**cluster["worker_options"], "n_workers": 2}
        yield Project(
            folder / "project",
            mark,
            a=cluster,
            b=cluster,
            processes={**cluster, "hosts": ["127.0.0.1"] * 2, "worker_options": processes},
            dead={**cluster, "connect_options": {**connection, "port": free_port()}},
            stranger={**cluster, "connect_options": {**connection, "client_keys": []}},
        )


def assert_nothing_is_left(project):
    wait_until(lambda: not project.processes(), f"end of {project.processes()}")


def test_ssh_run_measures_all_hosts(project):
    project.assert_run_uses("a", n_workers=2, memory=2 * WORKER_MEMORY, threads=4)
    assert_nothing_is_left(project)


def test_ssh_run_counts_all_workers_of_a_host(project):
    project.assert_run_uses("processes", n_workers=2, memory=2 * WORKER_MEMORY, threads=4)
    assert_nothing_is_left(project)


def test_ssh_ab_ends_with_verdict(project):
    project.assert_ab_has_verdict("a", "b", "--no-null", "--no-report", n_workers=2)
    assert_nothing_is_left(project)


@pytest.mark.parametrize(
    ("environment", "text"),
    [("dead", "Connect call failed"), ("stranger", "Permission denied")],
)
def test_ssh_refused_connection_is_no_run(project, environment, text):
    project.assert_refused(environment, "SSHCluster", text)
    assert_nothing_is_left(project)
