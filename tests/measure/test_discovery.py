"""Collection of workload files, and selection of their variants."""

from pathlib import Path

import pytest

from benchkit.measure.discovery import collect
from benchkit.measure.errors import InvalidSelectionError, UnknownWorkload, UsageError
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
    (tmp_path / "bad.py").write_text(
        "from benchkit import workload\n\nraise RuntimeError('no luck')\n"
    )
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


def declare(folder, *names, values="[(100, 100), (400, 25)]"):
    """Write a file `mine.py` with workloads that have a parameter `chunks`."""
    folder.mkdir(exist_ok=True)
    text = "from benchkit import workload\n"
    for name in names:
        text += f"@workload(variants={{'chunks': {values}, 'axis': [0, 1]}}, tags=['ported'])\n"
        text += f"def {name}(client, scale, *, chunks, axis):\n    return 1\n"
    (folder / "mine.py").write_text(text)
    return folder


VALUES = [(1, 2), (1,), [1, 2], "x,y", "[1]", "*", "a]b", "a=b", "s3://b/c", "", None, 1e-9]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_find_returns_variant_for_its_own_name(tmp_path, value):
    found = collect(declare(tmp_path / "w", "total", values=repr(VALUES)))
    name = f"mine.total[chunks={value},axis=1]"

    assert [variant.name for variant in found.find(name)] == [name]
    if value != "*":  # a glob in an expression
        assert [variant.name for variant in found.select((), name)] == [name]


@pytest.mark.parametrize(
    "name", ["mine.total[axis=1, chunks=(400, 25)]", "mine.total[chunks=(400, 25),axis=1"]
)
def test_find_accepts_any_order_of_parameters(tmp_path, name):
    found = collect(declare(tmp_path / "w", "total"))

    (variant,) = found.find(name)
    assert variant.params == {"chunks": (400, 25), "axis": 1}


def test_find_accepts_incomplete_parameters(tmp_path):
    found = collect(declare(tmp_path / "w", "total"))

    assert [v.params["axis"] for v in found.find("mine.total[chunks=(400, 25)]")] == [0, 1]


def test_find_never_suggests_the_same_name():
    error = UnknownWorkload("mine.total", ["mine.total", "mine.totals"])

    assert str(error) == "no workload named 'mine.total': did you mean 'mine.totals'?"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Total", "did you mean 'mine.total' or 'other.totals'?"),
        ("mine.totl", "did you mean 'mine.total'?"),
        ("zonk", "see `benchkit list workloads`"),
    ],
)
def test_unknown_workload_suggests_names_that_contain_the_text(name, hint):
    error = UnknownWorkload(name, ["mine.total", "mine.rechunk", "other.totals"])

    assert str(error) == f"no workload named {name!r}: {hint}"


def test_bind_makes_tuples_of_lists(tmp_path):
    workload = collect(declare(tmp_path / "w", "total")).workloads["mine.total"]

    assert workload.bind(chunks=[7, [8]]).params["chunks"] == (7, (8,))


def test_select_suggests_tag(tmp_path):
    found = collect(declare(tmp_path / "w", "total"))

    with pytest.raises(InvalidSelectionError, match="did you mean 'tag:ported'"):
        found.select((), "ported")


def test_collect_executes_only_files_that_declare(tmp_path):
    folder = declare(tmp_path / "w", "total")
    write = f"open({str(tmp_path / 'written')!r}, 'w').write('x')\n"
    (folder / "deploy.py").write_text(write)
    (folder / "analysis.py").write_text("import benchkit\n" + write)
    (folder / "comment.py").write_text("# for benchkit: workload\n" + write)
    for installed in ("venv/lib", "site-packages", ".git", "_private"):
        (folder / installed).mkdir(parents=True)
        (folder / installed / "other.py").write_text("from benchkit import workload\n" + write)
    (folder / "venv" / "pyvenv.cfg").touch()

    found = collect(folder)

    assert list(found.workloads) == ["mine.total"]
    assert found.broken == []
    assert not (tmp_path / "written").exists()


def test_collect_follows_helper_that_declares(tmp_path):
    (tmp_path / "_own.py").write_text("from benchkit import workload\nquery = workload\n")
    (tmp_path / "asks.py").write_text(
        "from _own import query\n@query\ndef first(client, scale):\n    return 1\n"
    )

    assert list(collect(tmp_path).workloads) == ["asks.first"]


@pytest.mark.parametrize("place", ["..", ".", "/"])
def test_collect_refuses_folder_above_working_one(tmp_path, monkeypatch, place):
    (tmp_path / "project").mkdir()
    declare(tmp_path / "project", "total")
    monkeypatch.chdir(tmp_path / "project")

    if place == ".":
        assert list(collect(place).workloads) == ["mine.total"]
    else:
        with pytest.raises(UsageError, match=r"contains the working directory"):
            collect(place)


def test_collect_puts_own_workloads_first(tmp_path):
    own, shipped = declare(tmp_path / "own", "total"), declare(tmp_path / "s", "total", "other")
    (shipped / "array.py").write_text(
        "from benchkit import workload\n@workload\ndef small(client, scale):\n    return 1\n"
    )
    found = collect(own, shipped=shipped)

    assert list(found.workloads) == ["mine.total", "array.small", "mine.other"]
    assert found.replaced == ["mine.total"]
    assert found.broken == []
    assert found.workloads["mine.total"].path == str(own / "mine.py")
    assert {v.workload.name for v in found.select()} == {"mine.total"}
    assert {v.workload.name for v in found.select(["array.*"])} == {"array.small"}
    assert {v.workload.name for v in found.select((), "tag:ported")} == {"mine.total"}
    assert {v.workload.name for v in found.select((), "category:array")} == {"array.small"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no workloads in w: no file there declares one with benchkit"),
        ("from benchkit import workload\n1 / 0\n", "no workloads in w: w/a.py:2: ZeroDivisionErr"),
    ],
)
def test_require_names_reason_for_empty_folder(tmp_path, monkeypatch, text, message):
    (tmp_path / "w").mkdir()
    if text:
        (tmp_path / "w" / "a.py").write_text(text)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidSelectionError) as caught:
        collect("w").require()
    assert str(caught.value).startswith(message)


def test_require_names_the_option_for_pytest_tests(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_array.py").write_text("import pytest\n\ndef test_x(): pass\n")

    with pytest.raises(InvalidSelectionError) as caught:
        collect([tmp_path]).require()

    assert str(caught.value) == (
        f"no workloads in {tmp_path}: no file there declares one with benchkit; "
        "--pytest measures tests of pytest"
    )
