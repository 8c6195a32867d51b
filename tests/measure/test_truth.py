"""Runs on real clusters compared with truth from outside, a part of `benchmarks/truth.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from validation.truth import SCENARIOS
from validation.truth.hosts import measure_on_hosts

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
#: Largest relative error, unless the run itself names a larger one. Means of memory rest on samples
#: 20 times a second, which a busy machine delays.
TOLERANCE = {"memory_mean": 0.1, "cpu_time": 0.1, "worker_tick_max": 0.2}
#: Seconds that clocks of different processes may differ by on a busy machine.
SLACK_S = 0.15
TIMES = ("compute_time", "idle_time", "failed_time", "worker_seconds")
#: Scenarios at level light; the others are at level full.
LIGHT = ("failures_that_are_released", "memory_short_run", "scattered_data")
#: Scenarios that set the clock of a process; the others share one.
ALONE = ("clock_set_back", "worker_clock_set_forward")
#: Absent at level full too: calls of actors, and contention without gilknocker.
NOT_MEASURED = ("actor_time", "gil_contention_mean")
#: Needs gilknocker, which the environments of `test_distributed_releases` have.
NOT_HERE = ("gil_is_held_in_between",)
LOCAL = [name for name in SCENARIOS if "local" in SCENARIOS[name].on and name not in NOT_HERE]
#: Scenarios on clusters of several hosts; ``benchmarks/truth.py --hosts`` runs all.
ON_HOSTS = [("bytes_on_links", "host_clock_is_set", "link_is_cut"), ("idle_worker_is_killed",)]
#: Part of the sentence by which a run names its limit.
LIMITS = {
    "workers_in_one_process": "share a process",
    "actors": "1 actor",
    "work_from_before": "2 tasks of earlier work ran at the start",
    "work_that_goes_on": "2 tasks unfinished when the clock stopped",
    "clock_set_back": "clock was set by -5.00 s",
    "worker_clock_set_forward": "was set by +5.00 s",
    "idle_worker_is_killed": "1 worker lost",
}


def named_error(run, metric):
    """Return the relative error that a run names for a metric; 0 without one."""
    found = run.quality()["text"].str.extract(rf"{metric} may be wrong by (\d+)%")[0].dropna()
    return float(found.astype(float).max()) / 100 if len(found) else 0.0


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a function that returns what a process printed for a scenario; most share one."""
    folder, printed, processes = tmp_path_factory.mktemp("truth"), {}, {}

    def result(name):
        level = "light" if name in LIGHT else "full"
        sharing = {each for each in LOCAL if (each in LIGHT) == (name in LIGHT)} - set(ALONE)
        names = (name,) if name in ALONE else tuple(sorted(sharing, key=LOCAL.index))
        if names not in processes:
            processes[names] = subprocess.run(
                [sys.executable, "-m", "validation.truth", str(folder), level, ",".join(names)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": PATH},
                capture_output=True,
                text=True,
                timeout=1000,
            )
            for line in processes[names].stdout.splitlines():
                printed[json.loads(line)["scenario"]] = json.loads(line)
        assert name in printed, processes[names].stderr[-2000:]
        return printed[name]

    return result


@pytest.mark.slow
@pytest.mark.timeout(1100)
@pytest.mark.parametrize("name", LOCAL)
def test_run_agrees_with_truth(name, results):
    assert_run_agrees(results(name), name)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("names", ON_HOSTS, ids="-".join)
def test_run_on_hosts_agrees_with_truth(names, tmp_path):
    done = measure_on_hosts(sys.executable, PATH, tmp_path, "full", *names)

    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == len(names)
    for line, name in zip(lines, names, strict=True):
        assert_run_agrees(json.loads(line), name)


def assert_run_agrees(result, name):
    run = Run(run_from_recording(result["path"]))

    assert result["truths"]
    for metric, truth in result["truths"].items():
        if metric in NOT_MEASURED and metric not in run.metrics:
            continue
        slack = SLACK_S + result["slack"] if metric in TIMES else 0.01
        relative = max(TOLERANCE.get(metric, 0.03), named_error(run, metric))
        expected = pytest.approx(truth, rel=relative, abs=slack)
        assert run.metrics[metric] == expected, metric
    limits = run.quality()["text"]
    assert limits.str.contains(LIMITS.get(name, ""), regex=False).any() or name not in LIMITS
