import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchkit.measure.declaration import RESERVED_NAMES, workload
from benchkit.measure.discovery import collect
from benchkit.measure.errors import (
    InvalidParameterError,
    InvalidSelectionError,
    InvalidWorkloadError,
    UnknownWorkload,
)
from benchkit.measure.expression import matcher
from benchkit.measure.scale import Scale, linear, quadratic
from benchkit.store.variables import GROUPS

GIB = 2**30


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
def test_one_folder_or_several_are_collected(folder, kind):
    assert list(collect(kind(folder)).workloads) == ["array.total"]


def test_a_broken_file_is_reported_by_line_and_stops_nobody(folder):
    found = collect([folder])

    assert [variant.name for variant in found.variants()] == [
        "array.total[chunks=thin]",
        "array.total[chunks=square]",
    ]
    assert [(broken.line, broken.reason) for broken in found.broken] == [
        (3, "RuntimeError: no luck")
    ]


def test_an_unknown_name_is_refused_with_a_near_one(folder):
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
def test_an_expression_selects_what_it_says(folder, expression, count):
    matches = matcher(expression)

    assert sum(map(matches, collect([folder]).variants())) == count


def test_a_bad_expression_says_where():
    with pytest.raises(InvalidSelectionError, match="at character 12"):
        matcher("array and (")


def test_a_step_that_asks_for_the_unknown_is_refused():
    message = r"unknown argument 'chunk'.*did you mean 'chunks'"
    with pytest.raises(InvalidWorkloadError, match=message):

        @workload(category="array", variants={"chunks": [1]})
        def total(client, *, chunk):
            return chunk


def test_a_docstring_does_not_change_the_source_hash_and_a_constant_does(tmp_path):
    def hash_of(body):
        path = tmp_path / body[1] / "w.py"
        path.parent.mkdir()
        path.write_text(
            "from benchkit.measure import workload\n"
            f"def helper():\n    {body[0]}\n"
            "@workload(category='a')\ndef f(client):\n    return helper()\n"
        )
        return collect([path.parent]).workloads["a.f"].source_hash

    plain = hash_of(("return 1", "one"))

    assert hash_of(("'says'\n    return 1  # why", "two")) == plain
    assert hash_of(("return 2", "three")) != plain


@pytest.mark.parametrize("template", [("x", "x"), ("x", 100), (10, "2x", "x"), ("x", "1MiB")])
@pytest.mark.parametrize("nbytes", [2 * GIB, 77 * GIB])
def test_a_linear_shape_has_the_bytes_asked_for(template, nbytes):
    shape = linear(nbytes, template)

    size = 8
    for dimension in shape:
        size *= dimension
    assert size == pytest.approx(nbytes, rel=0.1)


def test_both_laws_meet_at_the_reference_and_quadratic_grows_slower():
    assert quadratic(GIB, GIB, ("x", "x")) == linear(GIB, ("x", "x"))
    assert quadratic(4 * GIB, GIB, ("x",))[0] == pytest.approx(2 * GIB / 8, rel=0.01)


def test_a_size_that_cannot_be_met_is_refused():
    with pytest.raises(InvalidParameterError, match="more than 10 % off"):
        linear(100, ("x", 1000))


def test_chunks_follow_the_memory_of_a_thread():
    small, large = Scale(2 * GIB, 2, 2), Scale(8 * GIB, 2, 2)

    assert large.chunk("128 MiB") == pytest.approx(4 * small.chunk("128 MiB"), rel=0.01)
    assert small.linear(0.5) == GIB


def test_a_metric_may_not_have_the_name_of_a_group_of_the_run_file():
    assert set(GROUPS) == RESERVED_NAMES
    with pytest.raises(InvalidWorkloadError, match="tasks is a group of every run file"):
        workload(metrics={"tasks": "1"})(lambda client: None)


def test_a_package_that_put_a_module_of_its_own_in_its_place_is_still_there(monkeypatch):
    # optuna_integration does so: what was measured once was skipped from then on.
    monkeypatch.setitem(sys.modules, "lazy_package", ModuleType("lazy_package"))

    def total(client):
        """Count."""
        return 3

    needy = workload(total, category="array", requires=["lazy_package", "no_such_package"])
    (variant,) = needy.variants()
    assert variant.missing_packages() == ["no_such_package"]
