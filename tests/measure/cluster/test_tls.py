"""A running scheduler and workers over TLS, given by their address."""

from uuid import uuid4

import pytest
from helpers.clusters.project import Project, free_port
from helpers.clusters.tls import certificates, tls_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
WORKER_MEMORY = 256 * 2**20


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    mark = uuid4().hex
    right, other = certificates(folder / "right"), certificates(folder / "other")
    workers = {"n_workers": 2, "nthreads": 2, "memory_limit": WORKER_MEMORY}
    with tls_cluster(folder / "right", mark, **workers) as address:
        project = Project(folder / "project", mark)
        for name in ("a", "b"):
            project.add(name, {"address": address}, dask=right)
        project.add("other-authority", {"address": address}, dask=other)
        project.add("no-certificate", {"address": address})
        project.add("dead", {"address": f"tls://127.0.0.1:{free_port()}"}, dask=right)
        yield project


def test_tls_run_measures_all_workers(project):
    before = {process.pid for process in project.processes()}
    run = project.assert_run_uses("a", n_workers=2, memory=2 * WORKER_MEMORY, threads=4)

    assert run["cluster"]["workers"] == "restarted"
    after = {process.pid for process in project.processes()}
    assert len(after) == len(before), "only the processes of the workers were replaced"
    assert after != before


def test_tls_ab_ends_with_verdict(project):
    project.assert_ab_has_verdict("a", "b", "--output", "out", n_workers=2)
    assert (project.folder / "out" / "ab.html").exists()


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ("other-authority", "TLS certificate does not match"),
        ("no-certificate", "TLS expects a"),
        ("dead", "no scheduler responds at"),
    ],
)
def test_tls_refused_connection_is_no_run(project, environment, text):
    printed = project.assert_refused(environment, "tls://127.0.0.1", text)

    assert "[1/1]" not in printed, "nothing was measured"
