"""A/B from Python, and names of environments and workloads in one list."""

from __future__ import annotations

import pytest

import benchkit
from benchkit.errors import InvalidEnvironmentError, UsageError
from benchkit.experiment.run.ab import split_names

WORKLOAD = """
import os, time
from benchkit import workload

@workload(category="own")
def naps(client, scale):
    return client.submit(time.sleep, float(os.environ.get("NAP", "0.1")), pure=False)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(WORKLOAD)
    (tmp_path / "e").mkdir()
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, memory_limit: 512 MiB}\n"
    (tmp_path / "e" / "base.yaml").write_text(cluster)
    (tmp_path / "e" / "slow.yaml").write_text("extends: base\nvariables: {NAP: '0.3'}\n")
    return tmp_path


def test_split_names_recognises_environments_and_workloads(folder):
    names = ["base", "own.naps", "slow", "current", "baseline", "own.nap", "x.yaml"]

    environments, workloads = split_names(names, [folder / "w"], [folder / "e"])

    assert workloads == ["own.naps"]
    assert environments == ["base", "slow", "current", "baseline", "own.nap", "x.yaml"]


@pytest.mark.slow
def test_ab_compares_environments(folder):
    report = benchkit.ab(
        ["base", "slow"],
        "own.naps",
        repeats=3,
        store=folder / "store",
        metrics="duration",
        folders=[folder / "w"],
        environment_folders=[folder / "e"],
    )

    (row,) = report.frame.to_dict("records")
    assert (row["contender"], row["workload"], row["verdict"]) == ("slow", "own.naps", "slower")
    assert 1.5 < row["ratio"] < 4
    assert report.blocked
    assert len(benchkit.Store(folder / "store")) == 9, "three arms: the baseline twice"


@pytest.mark.parametrize(
    ("environments", "options", "error"),
    [
        ("missing", {}, InvalidEnvironmentError),
        (["base", "slow"], {"metrics": "durration"}, UsageError),
        (["base", "slow"], {"repeats": 0}, UsageError),
    ],
)
def test_ab_refuses_invalid_arguments_and_keeps_nothing(folder, environments, options, error):
    folders = {"folders": [folder / "w"], "environment_folders": [folder / "e"]}
    with pytest.raises(error):
        benchkit.ab(environments, store=folder / "store", **folders, **options)

    assert not (folder / "store").exists()
