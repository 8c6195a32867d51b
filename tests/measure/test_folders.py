"""Lists given as text, and folders that may be searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchkit.measure.arguments import as_list
from benchkit.measure.errors import UsageError
from benchkit.measure.folders import checked_folders


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ("tip", ["tip"]),
        ('["tip", "release"]', ["tip", "release"]),
        ("./", ["./"]),
        (Path("a"), [Path("a")]),
        (("a", "b"), ["a", "b"]),
        ([], []),
    ],
)
def test_as_list_takes_text_as_one_item_or_json(value, items):
    assert as_list(value, "environments") == items


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[tip]", r"environments: '\[tip\]' is no list in JSON"),
        (3, "environments: 3 is a int: give a list of names"),
        (None, "environments: None is a NoneType"),
    ],
)
def test_as_list_rejects_other_values(value, message):
    with pytest.raises(UsageError, match=message):
        as_list(value, "environments")


@pytest.mark.parametrize("folder", ["..", "/", ["a", ".."], '["..", "a"]'])
def test_checked_folders_reject_folders_above_the_working_one(folder, tmp_path, monkeypatch):
    (tmp_path / "here" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")

    with pytest.raises(UsageError, match="above the working directory"):
        checked_folders(folder, "workloads")


@pytest.mark.parametrize("folder", ["", "missing", ["a", "missing"], "a.py"])
def test_checked_folders_reject_missing_folders(folder, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a.py").touch()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="no such folder of workloads"):
        checked_folders(folder, "workloads")


def test_checked_folders_accept_text_and_paths(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)

    assert checked_folders("a", "workloads") == [Path("a")]
    assert checked_folders(["./", Path("a")], "workloads") == [Path("."), Path("a")]
