"""Folders of workloads and environments: given ones, the user's own, and the shipped ones."""

from pathlib import Path

import pytest

from benchkit.errors import UsageError
from benchkit.experiment.environment.lookup import find_environment, list_environments
from benchkit.experiment.paths import collect_workloads, folders_of, shipped


@pytest.mark.parametrize(
    "given", ["mywork", '["mywork"]', ["mywork"], Path("mywork"), (Path("mywork"),)]
)
def test_folders_of_accepts_text_and_lists(tmp_path, monkeypatch, given):
    (tmp_path / "mywork").mkdir()
    monkeypatch.chdir(tmp_path)

    assert folders_of("workloads", given) == [Path("mywork")]


def test_folders_of_are_the_same_in_folder_of_notebooks(tmp_path, monkeypatch):
    for name in ("workloads", "notebooks"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")

    assert folders_of("workloads") == [Path("../workloads"), shipped("workloads")]
    assert folders_of("environments") == [shipped("environments")]


def test_folders_of_names_missing_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=r"^mywork: no such folder of workloads$"):
        folders_of("workloads", "mywork")


def test_collect_workloads_keeps_shipped_ones_beside_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "mine.py").write_text(
        "from benchkit import workload\n@workload\ndef one(client, scale):\n    return 1\n"
    )
    found = collect_workloads()

    assert [variant.name for variant in found.select()] == ["mine.one"]
    assert found.find("array.basic_sum")[0].workload.path.startswith(str(shipped("workloads")))
    assert list(collect_workloads("workloads").workloads) == ["mine.one"]


def test_folders_of_environments_keeps_shipped_ones_beside_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environments").mkdir()
    mine = "extends: baseline\ncluster: {n_workers: 1}\n"
    (tmp_path / "environments" / "mine.yaml").write_text(mine)
    (tmp_path / "environments" / "tip.yaml").write_text("extends: tip\ndescription: own\n")
    folders = folders_of("environments")

    assert list_environments(folders)["baseline"] == shipped("environments") / "baseline.yaml"
    assert find_environment("mine", folders).cluster["n_workers"] == 1
    assert find_environment("mine", folders).cluster["threads_per_worker"] == 1
    own = find_environment("tip", folders, check=False)
    assert own.description == "own"
    assert own.packages  # of the shipped file that it extends
