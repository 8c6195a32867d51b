"""Datasets are uploaded once and completely."""

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


def test_remote_copy_has_urls_and_equal_content(url):
    data = dataset("h2o", size="tiny")

    assert all(name.startswith(f"file://{url}/h2o-") for name in data.files("h2o"))
    assert data.at("part.parquet") == f"{data.url}/part.parquet"
    there = pd.concat(map(pd.read_parquet, data.files("h2o")))
    here = pd.concat(map(pd.read_parquet, data.files("h2o", here=True)))
    pd.testing.assert_frame_equal(there, here)
    assert len(there) == 20_000


def test_remote_copy_completes_partial_upload_only(url, monkeypatch):
    dataset("h2o", size="tiny")
    before = times(url)
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())  # like in a new process
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


def test_remote_copy_keeps_upload_of_other_machine(url, monkeypatch):
    dataset("h2o", size="tiny")
    (manifest,) = url.glob("*/manifest.json")
    theirs = json.loads(manifest.read_text()) | {"made": 1.0, "seconds": 9.0}
    theirs["files"] = {name: size + 1 for name, size in theirs["files"].items()}
    manifest.write_text(json.dumps(theirs))
    before = times(url)
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())

    dataset("h2o", size="tiny")

    assert times(url) == before


def test_files_are_local_without_url(url, monkeypatch):
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
def test_remote_copy_reports_unwritable_url_in_one_line(url, monkeypatch, bad, says):
    monkeypatch.setenv("BENCHKIT_DATA_URL", bad)
    with pytest.raises(DatasetError, match="BENCHKIT_DATA_URL must be a URL") as raised:
        dataset("h2o", size="tiny")

    assert says in str(raised.value)
    assert os.linesep not in str(raised.value)
