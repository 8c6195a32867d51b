"""GatewayCluster of dask-gateway on a gateway server of this machine."""

from uuid import uuid4

import pytest
from helpers.clusters.gateway import gateway
from helpers.clusters.project import Project, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
WORKER_MEMORY = 256 * 2**20
#: Seconds that a cluster without workers is waited for.
WAIT_S = 15


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    mark = uuid4().hex
    size = {"nthreads": 2, "memory_limit": WORKER_MEMORY}
    with (
        gateway(folder / "works", mark, **size) as address,
        gateway(folder / "fails", mark, **size, worker_module="no_such_worker") as no_workers,
    ):
        cluster = {"class": "dask_gateway.GatewayCluster", "address": address, "n_workers": 2}
        yield Project(
            folder / "project",
            mark,
            a=cluster,
            options={**cluster, "nthreads": 3},
            wrong={**cluster, "threads": 3},
            no_workers={**cluster, "address": no_workers, "timeout": f"{WAIT_S} s"},
            dead={**cluster, "address": f"http://127.0.0.1:{free_port()}"},
        )


@pytest.fixture(autouse=True)
def nothing_is_left(project):
    yield
    wait_until(lambda: not project.processes(), f"end of {project.processes()}")


def test_gateway_run_measures_all_workers(project):
    project.assert_run_uses("a", n_workers=2, memory=2 * WORKER_MEMORY, threads=4)


def test_gateway_run_passes_options_of_the_gateway(project):
    project.assert_run_uses("options", n_workers=2, memory=2 * WORKER_MEMORY, threads=6)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ("no_workers", f"0 of 2 workers connected within {WAIT_S} s"),
        ("dead", "Cannot connect to host 127.0.0.1"),
        ("wrong", "Unknown fields ['threads']"),
    ],
)
def test_gateway_without_workers_is_no_run(project, environment, text):
    project.assert_refused(environment, "GatewayCluster", text)
