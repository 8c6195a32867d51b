"""Collection of workload files, and selection of their variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchkit.measure.discovery import collect
from benchkit.measure.errors import InvalidSelectionError, UnknownWorkload
from benchkit.measure.expression import matcher


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.py").write_text(
        "from benchkit.measure import expect, workload\n"
        "@workload(category='array', variants={'chunks': ['thin', 'square']}, tags=['quick'])\n"
        "def total(client, scale, *, chunks):\n"
        "    return 3\n"
        "@total.check\n"
        "def right(result, *, chunks):\n"
        "    expect(result, equals=3)\n"
    )
    (tmp_path / "bad.py").write_text("import benchkit\n\nraise RuntimeError('no luck')\n")
    return tmp_path


@pytest.mark.parametrize("kind", [str, Path, lambda path: [path]])
def test_collect_accepts_folder_or_folders(folder, kind):
    assert list(collect(kind(folder)).workloads) == ["array.total"]


def test_collect_reports_line_of_broken_file(folder):
    found = collect([folder])

    assert [variant.name for variant in found.variants()] == [
        "array.total[chunks=thin]",
        "array.total[chunks=square]",
    ]
    assert [(broken.line, broken.reason) for broken in found.broken] == [
        (3, "RuntimeError: no luck")
    ]


def test_find_suggests_similar_name(folder):
    with pytest.raises(UnknownWorkload, match=r"did you mean 'array\.total'"):
        collect([folder]).find("array.totl")


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("category:array", 2),
        ("tag:quick and not square", 1),
        ("thin or square", 2),
        ("not (thin or square)", 0),
        ("array.*", 2),
        ("profile:quick", 2),
        ("profile:release", 2),
    ],
)
def test_matcher_selects_variants(folder, expression, count):
    matches = matcher(expression)

    assert sum(map(matches, collect([folder]).variants())) == count


def test_matcher_reports_position_of_error():
    with pytest.raises(InvalidSelectionError, match="at character 12"):
        matcher("array and (")


DECLARATION = """
from benchkit.measure import workload
@workload(category="own", variants={{"value": {values}}})
def item(client, scale, *, value):
    return value
@item.check
def right(result):
    pass
"""


@pytest.mark.parametrize(
    "value", [(100, 100), (1,), [1, 2], "x,y", "[1]", "*", "a=b", "a]b", "", None, {"k": 1}]
)
def test_find_selects_variants_of_any_value(value, tmp_path):
    """Chunks and axes are tuples; the name that `list` prints selects the variant."""
    (tmp_path / "w.py").write_text(DECLARATION.format(values=[value, "other"]))
    collection = collect(tmp_path)
    assert collection.broken == []
    variants = collection.variants()

    for variant in variants:
        assert collection.find(variant.name) == [variant]
    assert len(collection.find("own.item")) == 2


def test_find_accepts_some_parameters_in_any_order(tmp_path):
    text = DECLARATION.format(values=["(1, 2)", "p"]).replace("*, value", "*, value, n=(1, 2)")
    text = text.replace('variants={"value"', 'variants={"n": [(1, 2), 3], "value"')
    (tmp_path / "w.py").write_text(text)
    collection = collect(tmp_path)

    assert [v.name for v in collection.find("own.item[value=p, n=(1, 2)]")] == [
        "own.item[n=(1, 2),value=p]"
    ]
    assert len(collection.find("own.item[n=3]")) == 2
    with pytest.raises(UnknownWorkload):
        collection.find("own.item[n=(1, 3)]")


def test_collect_executes_only_files_that_import_benchkit(tmp_path):
    (tmp_path / "deploy.py").write_text("open(__file__ + '.ran', 'w').close()\n")
    (tmp_path / "venv" / "lib").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "venv" / "lib" / "x.py").write_text("import benchkit; raise RuntimeError\n")
    (tmp_path / "_shared.py").write_text("from benchkit.measure import workload\n")
    through_helper = DECLARATION.format(values=[1]).replace("benchkit.measure", "_shared")
    (tmp_path / "w.py").write_text(through_helper)

    collection = collect(tmp_path)

    assert list(collection.workloads) == ["own.item"]
    assert collection.broken == []
    assert not (tmp_path / "deploy.py.ran").exists()


def test_collect_prefers_own_workload_to_shipped_one(tmp_path):
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    for folder, values in ((own, [1]), (shipped, [1, 2])):
        folder.mkdir()
        (folder / "w.py").write_text(DECLARATION.format(values=values))
    other = DECLARATION.format(values=[1]).replace('category="own"', 'category="other"')
    (shipped / "other.py").write_text(other)

    collection = collect([own, shipped], shipped)

    assert collection.broken == []
    assert collection.shipped == {"other.item"}
    assert [variant.name for variant in collection.select()] == ["own.item[value=1]"]
    assert len(collection.select(["other.item"])) == 1
    assert len(collection.select((), "other or own")) == 2
