import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import dask
import pytest

from benchkit.measure.data import dataset as datasets
from benchkit.measure.data.dataset import MANIFEST, clear, data_folder, dataset, list_datasets
from benchkit.measure.data.recipe import recipe
from benchkit.measure.errors import DatasetError, InvalidParameterError, MissingPackage, UsageError

ROOT = Path(__file__).parents[3]
#: A recipe of two files that logs its start, for processes that are killed or run concurrently.
SLOW_RECIPE = """
import sys, time
from pathlib import Path
from benchkit.measure.data.dataset import dataset
from benchkit.measure.data.recipe import recipe

@recipe("slow", version=1)
def slow(folder, *, seconds=0.0):
    (folder / "first").write_text("1")
    with Path(sys.argv[1]).open("a") as log:
        log.write("making\\n")
    time.sleep(seconds)
    (folder / "second").write_text("22")
    return {"rows": {"slow": 2}}

if __name__ == "__main__":
    print(dataset("slow", seconds=float(sys.argv[2])).path, flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    declared = sys.modules[recipe.__module__]._RECIPES
    monkeypatch.setattr("benchkit.measure.data.recipe._RECIPES", dict(declared))
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def ones():
    calls = []

    @recipe("ones", version=1, sizes={"tiny": {"count": 2}, "ci": {"count": 5}})
    def ones(folder, *, count=3, share=0.5):
        calls.append(count)
        (folder / "table").mkdir()
        (folder / "table" / "a.txt").write_text("1" * count)
        return {"rows": {"ones": count}, "tables": {"ones": "table/*.txt"}}

    return calls


def test_dataset_is_reused_by_second_call(ones):
    first, second = dataset("ones", count=4), dataset("ones", count=4)

    assert ones == [4]
    assert second.path == first.path
    assert second.manifest == first.manifest
    assert (first.path / "table" / "a.txt").read_text() == "1111"


def test_manifest_contains_parameters_rows_and_files(ones):
    manifest = json.loads((dataset("ones", size="ci").path / MANIFEST).read_text())

    assert manifest["recipe"] == "ones"
    assert manifest["version"] == 1
    assert manifest["params"] == {"count": 5, "share": 0.5}
    assert manifest["rows"] == {"ones": 5}
    assert manifest["bytes"] == 5
    assert manifest["files"] == {"table/a.txt": 5}
    assert abs(manifest["made"] - time.time()) < 3600


def test_key_depends_on_version_and_parameter_values(ones):
    base = dataset("ones", count=2, share=1)

    assert dataset("ones", size="tiny", share="1.0").path == base.path
    assert dataset("ones", count=2, share=0.9).path != base.path

    @recipe("ones", version=2)
    def newer(folder, *, count=3, share=0.5):
        return {}

    assert dataset("ones", count=2, share=1).path != base.path


def test_dataset_parameters_override_size(ones):
    assert dataset("ones", size="ci", count=1).manifest["params"]["count"] == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dataset("onse"), UsageError, "no recipe named 'onse': did you mean 'ones'"),
        (lambda: dataset("ones", size="tinny"), InvalidParameterError, "did you mean 'tiny'"),
        (lambda: dataset("ones", cuont=1), InvalidParameterError, "did you mean 'count'"),
        (lambda: dataset("ones", count="many"), InvalidParameterError, "a value of type int"),
        (lambda: clear("onse"), UsageError, "did you mean 'ones'"),
        (lambda: dataset("ones").files("twos"), InvalidParameterError, "no table 'twos'"),
    ],
)
def test_dataset_reports_mistakes_in_one_line(ones, call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()

    assert "\n" not in str(caught.value)


def test_dataset_with_truncated_file_is_remade(ones):
    made = dataset("ones")
    (made.path / "table" / "a.txt").write_text("1")

    again = dataset("ones")

    assert len(ones) == 2
    assert (again.path / "table" / "a.txt").read_text() == "111"


def test_failing_recipe_leaves_no_files_and_is_named(folder):
    @recipe("failing", version=1)
    def failing(folder, *, count=1):
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(DatasetError, match=r"failing\(count=1\) could not.*No space left"):
        dataset("failing")

    assert list_datasets() == []
    assert [path for path in folder.rglob("*") if path.name == "half"] == []


def test_dataset_names_unwritable_folder(ones, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "file"))

    with pytest.raises(DatasetError, match=r"could not be made in .*file"):
        dataset("ones")


def test_clear_removes_listed_datasets(ones):
    small, large = dataset("ones", size="tiny"), dataset("ones", size="ci")

    assert [each.path for each in list_datasets()] == [small.path, large.path]
    assert [each.label for each in clear("ones")] == [
        "ones(count=2, share=0.5)",
        "ones(count=5, share=0.5)",
    ]
    assert list_datasets() == []
    assert not small.path.exists()


def test_data_folder_prefers_variable_then_configuration(tmp_path, monkeypatch):
    with dask.config.set({"benchkit.data": str(tmp_path / "configured")}):
        assert data_folder() == tmp_path / "data"
        monkeypatch.delenv("BENCHKIT_DATA")
        assert data_folder() == tmp_path / "configured"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "benchkit" / "data"


def start(script, log, seconds):
    return subprocess.Popen(
        [sys.executable, str(script), str(log), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_line(log, count=1):
    while not log.exists() or log.read_text().count("\n") < count:
        time.sleep(0.02)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "slow_recipe.py"
    path.write_text(textwrap.dedent(SLOW_RECIPE))
    return path


def test_concurrent_processes_make_dataset_once(script, tmp_path):
    log = tmp_path / "log"

    processes = [start(script, log, 1.0) for _ in range(3)]
    outputs = [process.communicate(timeout=200) for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert log.read_text() == "making\n"
    assert len({out for out, _ in outputs}) == 1
    assert (Path(outputs[0][0].strip()) / "second").read_text() == "22"


def test_killed_process_leaves_no_dataset_and_no_lock(script, tmp_path, folder):
    log = tmp_path / "log"
    first = start(script, log, 60.0)
    wait_for_line(log)

    first.send_signal(signal.SIGKILL)
    first.communicate()

    assert list_datasets() == []
    assert [path for path in folder.iterdir() if path.name.startswith("slow")] == []
    drafts = list(folder.rglob("first"))
    assert len(drafts) == 1  # the draft of the killed process

    clear()
    assert not drafts[0].exists()


def test_waiting_process_continues_after_kill_and_cleans_up(script, tmp_path, folder):
    log = tmp_path / "log"
    # Both use the same key, of which the duration is a part: 3 s, killed earlier.
    first = start(script, log, 3.0)
    wait_for_line(log)
    second = start(script, log, 3.0)  # waits for the lock of the first process

    first.send_signal(signal.SIGKILL)
    first.communicate()
    out, err = second.communicate(timeout=200)

    assert second.returncode == 0, err
    assert log.read_text() == "making\nmaking\n"
    assert (Path(out.strip()) / "second").read_text() == "22"
    assert list((folder / "tmp").iterdir()) == []


def test_clear_keeps_dataset_that_is_being_made(script, tmp_path):
    log = tmp_path / "log"
    process = start(script, log, 1.0)
    wait_for_line(log)

    assert clear() == []

    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert (Path(out.strip()) / "first").exists()


def test_lock_timeout_names_process_that_holds_lock(script, tmp_path, monkeypatch):
    log = tmp_path / "log"
    process = start(script, log, 60.0)
    wait_for_line(log)
    monkeypatch.setattr("benchkit.measure.data.dataset.LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(sys, "argv", ["", str(log), "60.0"])
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "slow_recipe"})
    try:
        with pytest.raises(DatasetError, match=f"being made by process {process.pid} on"):
            dataset("slow", seconds=60.0)
    finally:
        process.kill()
        process.communicate()


def test_answer_queries_duckdb_once(monkeypatch):
    made = dataset("h2o", size="tiny")
    sql = "select count(*) as n, min(id6) as low, max(id6) as high from h2o"

    first = made.answer(sql)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    second = made.answer(sql)

    assert first.to_dict("records") == [{"n": 20_000, "low": 1, "high": 1000}]
    assert second.equals(first)


def test_answer_names_missing_duckdb(monkeypatch):
    made = dataset("h2o", size="tiny")
    monkeypatch.setitem(sys.modules, "duckdb", None)

    with pytest.raises(MissingPackage, match=r"needs duckdb, not installed.*pip install duckdb"):
        made.answer("select 1 as one from h2o")


def test_dataset_without_packages_is_made_by_other_python(monkeypatch, tmp_path):
    helper = tmp_path / "python"
    helper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    helper.chmod(0o755)
    monkeypatch.setenv("BENCHKIT_PYTHON", str(helper))
    monkeypatch.setenv("PYTHONPATH", str(Path(datasets.__file__).parents[3]))
    monkeypatch.setitem(sys.modules, "duckdb", None)

    def raise_import_error(package):
        raise ImportError(package)

    monkeypatch.setattr(
        sys.modules["benchkit.measure.data.recipe"], "import_module", raise_import_error
    )
    made = dataset("h2o", size="tiny")
    assert made.answer("select count(*) as n from h2o")["n"].tolist() == [20_000]

    monkeypatch.setenv("BENCHKIT_PYTHON", "/nowhere/python")
    with pytest.raises(MissingPackage):
        made.answer("select count(*) + 1 as n from h2o")
