"""Datasets are copied once to where workers read them, whole or not at all."""

from __future__ import annotations

import json
import os

import pandas as pd
import pytest

from benchkit.measure.data import remote_copy
from benchkit.measure.data.dataset import dataset
from benchkit.measure.errors import DatasetError


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "here"))
    monkeypatch.setenv("BENCHKIT_DATA_URL", f"file://{tmp_path}/bucket/")
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())
    return tmp_path / "bucket"


def times(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def test_workers_are_told_urls_and_find_the_same_there(url):
    data = dataset("h2o", size="tiny")

    assert all(name.startswith(f"file://{url}/h2o-") for name in data.files("h2o"))
    assert data.at("part.parquet") == f"{data.url}/part.parquet"
    there = pd.concat(map(pd.read_parquet, data.files("h2o")))
    here = pd.concat(map(pd.read_parquet, data.files("h2o", here=True)))
    pd.testing.assert_frame_equal(there, here)
    assert len(there) == 20_000


def test_what_is_there_is_not_copied_again_and_half_a_copy_is_made_whole(url, monkeypatch):
    dataset("h2o", size="tiny")
    before = times(url)
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())  # as another process
    dataset("h2o", size="tiny")
    assert times(url) == before

    (manifest,) = url.glob("*/manifest.json")
    (first, *_) = json.loads(manifest.read_text())["files"]
    manifest.unlink()
    (manifest.parent / first).write_bytes(b"half")
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())
    dataset("h2o", size="tiny")
    assert [path.name for path in times(url)] == [path.name for path in before]
    assert (manifest.parent / first).stat().st_size > 4


def test_what_another_machine_has_published_stays(url, monkeypatch):
    dataset("h2o", size="tiny")
    (manifest,) = url.glob("*/manifest.json")
    theirs = json.loads(manifest.read_text()) | {"made": 1.0, "seconds": 9.0}
    theirs["files"] = {name: size + 1 for name, size in theirs["files"].items()}
    manifest.write_text(json.dumps(theirs))
    before = times(url)
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())

    dataset("h2o", size="tiny")

    assert times(url) == before


def test_without_a_url_the_folder_is_where_workers_read(url, monkeypatch):
    monkeypatch.delenv("BENCHKIT_DATA_URL")
    data = dataset("h2o", size="tiny")

    assert data.files("h2o") == data.files("h2o", here=True)
    assert data.at("x") == str(data.path / "x")
    assert not url.exists()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("s4://bucket", "Protocol not known: s4"),
        ("file:///proc/nothing", "file:///proc/nothing/h2o-"),
    ],
)
def test_a_url_that_cannot_be_written_is_one_line(url, monkeypatch, bad, says):
    monkeypatch.setenv("BENCHKIT_DATA_URL", bad)
    with pytest.raises(DatasetError, match="BENCHKIT_DATA_URL must be a URL") as raised:
        dataset("h2o", size="tiny")

    assert says in str(raised.value)
    assert os.linesep not in str(raised.value)
