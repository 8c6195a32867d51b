"""Builds between two environments that differ in several packages."""

from itertools import pairwise

import pytest
from helpers.git_package import commit_package, git

from benchkit.errors import UsageError
from benchkit.experiment.bisect import packages
from benchkit.experiment.bisect.candidates import check_checkout
from benchkit.experiment.bisect.packages import (
    End,
    commit_search,
    package_candidates,
    read_end,
    release_search,
)
from benchkit.experiment.environment.builds import Candidate, CandidateEnvironments, pins_of
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.nightly.diagnosis import bisect_command
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

OLD = {"dask": "2024.11.2", "distributed": "2024.11.2", "toolz": "0.12.0", "numpy": "1.26.4",
       "six": "1.16.0", "old-only": "1.0", "dask-benchkit": "0.1"}  # fmt: skip
NEW = {"dask": "2024.12.1", "distributed": "2024.12.1", "toolz": "1.0.0", "numpy": "2.1.0",
       "six": "1.16.0", "new-only": "3.0", "dask-benchkit": "0.2"}  # fmt: skip


def ends(old=OLD, new=NEW):
    return End(Environment("old"), old), End(Environment("new"), new)


def test_package_candidates_change_one_package_after_the_other():
    found = package_candidates(*ends())

    moved = [candidate.package for candidate in found]
    assert moved[0] == ""
    assert moved[-2:] == ["numpy", "dask"]  # dependencies first
    assert set(moved[1:]) == {"old-only", "new-only", "toolz", "numpy", "dask"}
    assert found[0].pins == {n: f"=={v}" for n, v in OLD.items() if n != "dask-benchkit"}
    assert found[-1].pins == {n: f"=={v}" for n, v in NEW.items() if n != "dask-benchkit"}
    assert found[-1].title == "dask and distributed 2024.11.2 -> 2024.12.1"
    assert found[-2].pins["dask"] == found[-2].pins["distributed"] == "==2024.11.2"
    for before, after in pairwise(found):
        differing = {n for n in before.pins | after.pins if before.pins.get(n) != after.pins.get(n)}
        assert differing <= {after.package, "distributed"}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (OLD, "old and new have the same packages"),
        ({**NEW, "dask": "2024.12.1+3.gabc"}, r"new: dask 2024\.12\.1\+3\.gabc is not a release"),
    ],
)
def test_package_candidates_refuse_ends_that_cannot_be_searched(new, message):
    with pytest.raises(UsageError, match=message):
        package_candidates(*ends(new=new))


def test_release_search_names_releases_of_the_found_package(monkeypatch):
    found = package_candidates(*ends())
    asked = []
    monkeypatch.setattr(packages, "list_releases", lambda *a: asked.append(a[:3]) or found[:3])
    monkeypatch.setattr(CandidateEnvironments, "environment", lambda self, at: self.candidates[at])
    builds = CandidateEnvironments(Environment("old", packages=()), found, pinned={})
    last = len(found) - 1

    base, _ = release_search(builds, last - 1, last)

    assert asked == [("dask", "2024.11.2", "2024.12.1")]
    assert base == found[last - 1]
    assert release_search(builds, last - 2, last) is None  # a build between them was skipped
    one_sided = [candidate.package for candidate in found].index("new-only")
    assert release_search(builds, one_sided - 1, one_sided) is None


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """Return four releases of a package, of which two are tags of a checkout."""
    for number in range(4):
        commit_package(tmp_path / "naplib", f"FACTOR = {number}\n", f"commit {number}")
        if number in (0, 3):
            git(tmp_path / "naplib", "tag", f"v1.{number}")
    monkeypatch.setattr(CandidateEnvironments, "environment", lambda self, at: self.candidates[at])
    found = [Candidate(f"1.{n}", f"naplib 1.{n}", pins_of("naplib", f"1.{n}")) for n in (0, 3, 4)]
    return CandidateEnvironments(Environment("base", packages=()), found, pinned={})


def test_commit_search_lists_the_commits_between_two_releases(releases, tmp_path):
    base, commits = commit_search(releases, 0, 1, str(tmp_path / "naplib"))

    assert base == releases.candidates[0]
    assert [c.title.partition(" ")[2][11:] for c in commits] == [f"commit {n}" for n in range(4)]
    assert all(f"@{c.sha}" in c.pins["naplib"] for c in commits)
    assert commit_search(releases, 0, 1, "") is None
    below = CandidateEnvironments(Environment("base", packages=()), commits, pinned={})
    assert commit_search(below, 0, 1, str(tmp_path / "naplib")) is None  # commits already


def test_commit_search_says_why_commits_are_not_known(releases, tmp_path):
    checkout = str(tmp_path / "naplib")
    with pytest.raises(UsageError, match=r"has no tag 1\.4 or v1\.4: `git fetch --tags` gets"):
        commit_search(releases, 1, 2, checkout)
    commit_package(tmp_path / "naplib", "", "renamed", 'x\n[project]\nname = "other"\n')
    with pytest.raises(UsageError, match=r"contains other; the change is in naplib 1\.3"):
        commit_search(releases, 0, 1, checkout)
    with pytest.raises(UsageError, match="contains other, which is the same at both ends"):
        check_checkout(checkout, releases.candidates)


def test_read_end_of_a_run_has_its_packages_and_settings(tmp_path):
    store = Store(tmp_path)
    store.create()
    spec = '{"name": "main", "dask": {"a": 1}, "variables": {"X": "1"}, "cluster": {"n": 2}}'
    run = make_run(attrs={"packages": '{"dask": "2024.11.2"}', "environment_spec": spec})
    store.add(run)
    end = read_end(f"run:{run.attrs['id']}", (), store)

    assert end.packages == {"dask": "2024.11.2"}
    assert (end.environment.dask, end.environment.variables) == ({"a": 1}, {"X": "1"})
    assert end.environment.python == "3.11"


def test_bisect_command_searches_the_packages_if_several_changed():
    changed = [
        {"kind": "package", "name": name, "before": OLD[name], "after": NEW[name]}
        for name in ("dask", "distributed", "numpy")
    ]
    event = {"workload": "array.sum", "metric": "memory_peak"}
    runs = {"before": ["r1", "r2"], "after": ["r3", "r4"]}

    assert bisect_command(event, changed, runs) == (
        "benchkit bisect run:r2 run:r3 'array.sum' --metric memory_peak"
    )
    assert "--package dask" in bisect_command(event, changed[:2], runs)
