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
    (tmp_path / "bad.py").write_text("x = 1\n\nraise RuntimeError('no luck')\n")
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
