"""Tests of pytest are collected as workloads."""

import sys

import pytest

from benchkit.measure.discovery import collect
from benchkit.measure.errors import UnknownWorkload, UsageError
from benchkit.measure.suite.collect import absolute_folder, collect_tests, node_arguments

MODULE = """
import pytest

LIMIT = 3


@pytest.mark.parametrize("n", [2, 10])
def test_sum(n):
    "Sum numbers."
    assert sum(range(n)) < LIMIT


@pytest.mark.slow
class TestGroup:
    def test_method(self):
        pass
"""


@pytest.fixture(autouse=True)
def forget_modules():
    """Remove the modules of a suite, whose names other suites have, too."""
    yield
    for name in ("conftest", "test_a", "test_broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(MODULE)
    return tmp_path


def names(path):
    return [workload.name for workload in collect_tests(absolute_folder(f"pytest:{path}"))[0]]


def test_collect_tests_names_workloads_by_node_id(suite):
    workloads, broken = collect_tests(absolute_folder(f"pytest:{suite / 'tests'}"))

    assert [workload.name for workload in workloads] == [
        "tests/test_a.py::test_sum[2]",
        "tests/test_a.py::test_sum[10]",
        "tests/test_a.py::TestGroup::test_method",
    ]
    assert broken == []
    assert [workload.tags for workload in workloads] == [(), (), ("slow",)]
    first = workloads[0]
    assert (first.category, first.description) == ("tests/test_a", "Sum numbers.")
    assert first.source.startswith('@pytest.mark.parametrize("n", [2, 10])\ndef test_sum(n):')
    assert [variant.name for variant in first.variants()] == [first.name]


def test_collect_tests_hash_changes_with_function_and_constants(suite):
    hashes = set()
    for number, text in enumerate((MODULE, MODULE.replace("LIMIT = 3", "LIMIT = 4"))):
        path = suite / "tests" / f"test_hash{number}.py"
        path.write_text(text)
        workloads, _ = collect_tests(absolute_folder(f"pytest:{path}"))
        hashes.add(workloads[0].source_hash)

    assert len(hashes) == 2


def test_collect_tests_accepts_file_and_node_id(suite):
    path = suite / "tests" / "test_a.py"

    assert len(names(path)) == 3
    assert names(f"{path}::TestGroup") == ["tests/test_a.py::TestGroup::test_method"]


def test_collect_tests_follows_the_options_of_the_suite(suite):
    text = "[pytest]\nmarkers = slow\naddopts = -n 2 -m 'not slow' -ra --benchkit\n"
    (suite / "pytest.ini").write_text(text)

    assert names(suite / "tests") == [
        "tests/test_a.py::test_sum[2]",
        "tests/test_a.py::test_sum[10]",
    ]


def test_collect_reports_a_broken_module_and_keeps_the_others(suite):
    (suite / "tests" / "test_broken.py").write_text("import no_such_package\n")

    collection = collect(f"pytest:{suite / 'tests'}")

    assert len(collection.workloads) == 3
    assert [str(file) for file in collection.broken] == [
        "tests/test_broken.py:0: ModuleNotFoundError: No module named 'no_such_package'"
    ]


def test_collection_finds_a_test_by_its_node_id_and_selects_by_tag(suite):
    collection = collect(f"pytest:{suite / 'tests'}")

    (found,) = collection.find("tests/test_a.py::test_sum[10]")
    assert found.name == "tests/test_a.py::test_sum[10]"
    selected = collection.select((), "tag:slow or tests/test_a.py::test_sum[2]")
    assert [variant.name for variant in selected] == [
        "tests/test_a.py::test_sum[2]",
        "tests/test_a.py::TestGroup::test_method",
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"module.py": ""}, "pytest finds no tests there"),
        ({"conftest.py": "1 / 0", "test_a.py": MODULE}, "ZeroDivisionError: division by zero"),
        ({"pytest.ini": "[pytest]\naddopts = --nonsense"}, "unrecognized arguments: --nonsense"),
    ],
)
def test_collect_tests_explains_failure_in_one_line(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(UsageError) as caught:
        collect_tests(absolute_folder(f"pytest:{tmp_path}"))

    assert str(caught.value).startswith(f"--pytest {tmp_path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_collect_tests_names_pytest_if_it_is_missing(suite, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)

    with pytest.raises(UsageError, match=r"^--pytest: no pytest in this environment: add it"):
        collect_tests(absolute_folder(f"pytest:{suite}"))


def test_absolute_folder_rejects_a_missing_suite(tmp_path):
    with pytest.raises(UsageError, match=r"^--pytest nowhere: no such file or folder of tests$"):
        absolute_folder("pytest:nowhere")
    assert absolute_folder(tmp_path / "w" / "..") == str(tmp_path)


def test_node_arguments_find_the_root_of_the_node_id(suite):
    file = suite / "tests" / "test_a.py"
    for path in (suite, suite / "tests", file, f"{file}::test_sum"):
        assert node_arguments("tests/test_a.py::test_sum[2]", [f"pytest:{path}"]) == [
            f"--rootdir={suite}",
            f"{file}::test_sum[2]",
        ]
    with pytest.raises(UnknownWorkload, match=r"no workload named 'other.py::test_x'"):
        node_arguments("other.py::test_x", [f"pytest:{suite}"])
