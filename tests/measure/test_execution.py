"""Every outcome, on real clusters."""

import os
import time

import pytest
from distributed import get_worker

from benchkit.measure.cluster import ClusterSpec
from benchkit.measure.errors import BadCluster, WrongAnswer
from benchkit.measure.execution import execute
from benchkit.measure.workloads import workload
from benchkit.store.run import Run, run_from_recording

SMALL = ClusterSpec(
    kwargs={"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"},
)


def measured(declared, folder, **options):
    variant = declared.variants()[0]
    return Run(run_from_recording(execute(variant, SMALL, folder=folder, **options)))


def test_a_right_answer_is_ok_and_carries_the_contracts_groups_and_metrics(tmp_path):
    @workload(category="t")
    def fine(client):
        return client.map(lambda x: x + 1, range(50), pure=False)

    @fine.check
    def right(result, client):
        if sum(client.gather(result)) != sum(range(1, 51)):
            raise WrongAnswer("sum")

    run = measured(fine, tmp_path)

    assert run.outcome == "ok", run.error
    assert {"workers", "scheduler", "task_groups", "tasks"} <= set(run.tree.children)
    assert run.metrics["n_tasks"] == 50
    assert run.metrics["duration"] > 0
    assert run.metrics["memory_peak_worker"] > 2**20
    assert len(run.task_stream()) == 50
    assert run.task_groups()["n_tasks"].sum() == 50


def test_a_wrong_answer_is_its_own_outcome(tmp_path):
    @workload(category="t")
    def wrong(client):
        return 1

    @wrong.check
    def right(result):
        raise WrongAnswer("1, expected 2")

    run = measured(wrong, tmp_path)

    assert (run.outcome, run.error) == ("wrong_answer", "WrongAnswer: 1, expected 2")


def test_a_raising_task_fails_the_run_and_its_traceback_is_kept(tmp_path):
    @workload(category="t")
    def raising(client):
        return client.submit(lambda: 1 / 0)

    run = measured(raising, tmp_path)

    assert run.outcome == "failed"
    assert "ZeroDivisionError" in run.error
    assert run.tree["errors"]["exception"].size == 1


def test_a_hang_ends_as_timeout_with_its_stacks(tmp_path):
    @workload(category="t", deadline_s=3)
    def hanging(client):
        return client.submit(time.sleep, 600)

    run = measured(hanging, tmp_path)

    assert run.outcome == "timeout"
    assert "deadline of 3 s" in run.error
    assert "sleep" in run.tree.attrs["evidence"]


def test_a_worker_that_dies_again_and_again_is_lost_workers(tmp_path):
    @workload(category="t")
    def deadly(client):
        return client.submit(lambda: os._exit(1) if get_worker() else None)

    run = measured(deadly, tmp_path)

    assert run.outcome == "lost_workers", run.error
    assert run.metrics["n_workers_lost"] >= 1


def test_a_missing_package_skips(tmp_path):
    @workload(category="t", requires=["no_such_package"])
    def lacking(client):
        return 1

    run = measured(lacking, tmp_path)

    assert run.outcome == "skipped"
    assert "pip install no_such_package" in run.error


def test_an_unknown_cluster_option_is_refused_before_anything_starts(tmp_path):
    spec = ClusterSpec(kwargs={"n_wrkers": 2})

    with pytest.raises(BadCluster, match="did you mean 'n_workers'"):
        spec.check()
