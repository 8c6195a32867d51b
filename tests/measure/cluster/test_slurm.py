"""SLURMCluster of dask-jobqueue on a Slurm of this machine."""

import re
from uuid import uuid4

import pytest
from helpers.clusters.project import Project, wait_until
from helpers.clusters.slurm import jobs, slurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
JOB_MEMORY = 512 * 2**20
#: Seconds that a cluster without workers is waited for.
WAIT_S = 15


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    with slurm(folder / "slurm") as variables:
        cluster = {
            "class": "dask_jobqueue.SLURMCluster",
            "queue": "main",
            "cores": 2,
            "processes": 1,
            "memory": JOB_MEMORY,
            "n_workers": 2,
            "interface": "lo",
            "log_directory": str(folder / "logs"),
            "local_directory": str(folder),
        }
        yield Project(
            folder / "project",
            uuid4().hex,
            variables,
            a=cluster,
            b=cluster,
            processes={**cluster, "processes": 2, "n_workers": 3},
            unknown={**cluster, "queue": "nosuch", "timeout": "100 s"},
            closed={**cluster, "queue": "closed", "timeout": f"{WAIT_S} s"},
        )


@pytest.fixture(autouse=True)
def nothing_is_left(project):
    yield
    wait_until(lambda: not jobs(project.variables), f"end of {jobs(project.variables)}")
    # Slurm's own daemons have the variable too if the test's process has it; they do not.
    wait_until(lambda: not project.processes(), f"end of {project.processes()}")


def test_slurm_run_measures_all_jobs(project):
    project.assert_run_uses("a", n_workers=2, memory=2 * JOB_MEMORY, threads=4)


def test_slurm_run_awaits_all_processes_of_all_jobs(project):
    """Two jobs have four processes, though three workers were asked for."""
    project.assert_run_uses("processes", n_workers=4, memory=2 * JOB_MEMORY, threads=4)


def test_slurm_ab_ends_with_verdict(project):
    project.assert_ab_has_verdict("a", "b", "--no-null", "--no-report", n_workers=2)


def test_slurm_unknown_partition_is_no_run(project):
    project.assert_refused("unknown", "SLURMCluster", "invalid partition specified: nosuch")


def test_slurm_jobs_that_never_start_are_no_run(project):
    text = f"0 of 2 workers connected within {WAIT_S} s"
    stderr = project.assert_refused("closed", "SLURMCluster", text)
    progress = r"waiting for workers of .*: 0 of 2 connected after 1\d s, limit 15 s"
    assert re.search(progress, stderr), stderr
