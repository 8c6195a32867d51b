"""Representations of workloads and datasets in notebooks."""

import re
import sys

import pytest

from benchkit.measure.data.dataset import dataset
from benchkit.measure.data.recipe import recipe
from benchkit.measure.discovery import collect
from benchkit.measure.html_table import html_table

FILE = """
from benchkit.measure import workload

@workload(variants={"kind": ["<a>", "b"]}, tags=["io"])
def one(client, *, kind):
    "Read & write."
"""


def cells(text):
    return re.findall(r"<t[hd]>(.*?)</t[hd]>", text)


def test_html_table_escapes_texts_and_skips_empty_rows():
    text = html_table("<script>", [("a", "<b>"), ("empty", ""), ("zero", 0)])

    assert "<script>" not in text
    assert cells(text) == ["a", "&lt;b&gt;", "zero", "0"]


def test_workload_html_lists_variants_and_file(tmp_path):
    (tmp_path / "x.py").write_text(FILE)

    (item,) = collect(tmp_path).workloads.values()

    assert cells(item._repr_html_()) == [
        "description", "Read &amp; write.",
        "variants", "x.one[kind=&lt;a&gt;], x.one[kind=b]",
        "tags", "io",
        "file", f"{tmp_path.resolve()}/x.py:{item.line}",
    ]  # fmt: skip


def test_collection_html_lists_workloads_and_broken_files(tmp_path):
    (tmp_path / "x.py").write_text(FILE)
    (tmp_path / "y.py").write_text("from benchkit import workload\n1 / 0")

    text = collect(tmp_path)._repr_html_()

    assert "1 workloads, 1 broken files" in text
    assert cells(text)[:3] == ["x.one", "2", "Read &amp; write."]
    assert cells(text)[4:] == ["broken", "ZeroDivisionError: division by zero"]


@pytest.fixture
def ones(tmp_path, monkeypatch):
    known = sys.modules[recipe.__module__]._RECIPES
    monkeypatch.setattr("benchkit.measure.data.recipe._RECIPES", dict(known))
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path))

    @recipe("ones", version=1)
    def ones(folder, *, count=2000):
        (folder / "a.txt").write_text("1" * count)
        return {"rows": {"ones": count}}


def test_dataset_html_lists_size_files_and_rows(ones):
    made = dataset("ones")

    text = made._repr_html_()

    assert "<h4>ones(count=2000)</h4>" in text
    assert cells(text) == [
        "folder", str(made.path), "size", "1.95 kiB", "files", "1", "rows of ones", "2000",
    ]  # fmt: skip
