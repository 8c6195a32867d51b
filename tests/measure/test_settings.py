"""Settings: variables of the environment, and `benchkit:` in Dask's configuration."""

import os
import re
import subprocess
import sys
from pathlib import Path

import dask
import pytest

from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.paths import collect_workloads, folders_of, shipped
from benchkit.experiment.run.estimate import worker_price
from benchkit.measure.data.dataset import data_folder
from benchkit.measure.data.remote_copy import data_url
from benchkit.measure.settings import SETTINGS, setting
from benchkit.show.grafana import chosen_template
from benchkit.store.bucket import _limit_size
from benchkit.store.manifest import default_store
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

WORKLOAD = "from benchkit import workload\n@workload\ndef one(client, scale):\n    return 1\n"


@pytest.fixture(autouse=True)
def without_variables(monkeypatch, tmp_path):
    for variable in filter(None, SETTINGS.values()):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def configured(tmp_path):
    """Return a function that sets keys as a file `benchkit.yaml` of Dask's configuration does."""
    contexts = []

    def configure(text):
        folder = tmp_path / "dask"
        folder.mkdir(exist_ok=True)
        (folder / "benchkit.yaml").write_text(text)
        contexts.append(dask.config.set(dask.config.collect(paths=[str(folder)], env={})))

    yield configure
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def test_setting_store(configured):
    configured("benchkit: {store: /from/config}")
    assert default_store() == "/from/config"


def test_setting_workloads_takes_the_place_of_the_working_folder(configured, tmp_path):
    for name in ("workloads", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "own.py").write_text(WORKLOAD)
    configured(f"benchkit: {{workloads: {tmp_path}/mine}}")

    assert folders_of("workloads") == [tmp_path / "mine", shipped("workloads")]
    assert folders_of("workloads", "workloads") == [Path("workloads")]
    found = collect_workloads()
    assert [variant.name for variant in found.select()] == ["own.one"]
    assert found.find("array.basic_sum")


def test_setting_workloads_may_be_several_folders(configured, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"own_{name}.py").write_text(WORKLOAD)
    configured("benchkit: {workloads: [a, b]}")

    assert folders_of("workloads") == [Path("a"), Path("b"), shipped("workloads")]
    names = [variant.name for variant in collect_workloads().select()]
    assert names == ["own_a.one", "own_b.one"]


def test_setting_environments(configured, tmp_path):
    (tmp_path / "arms").mkdir()
    configured("benchkit: {environments: [arms]}")
    assert folders_of("environments") == [Path("arms"), shipped("environments")]


def test_setting_names_a_missing_folder(configured):
    configured("benchkit: {environments: nowhere}")
    with pytest.raises(UsageError) as caught:
        folders_of("environments")
    assert str(caught.value) == (
        "nowhere: no such folder of environments (benchkit.environments in Dask's configuration)"
    )


def test_setting_data(configured, tmp_path):
    configured(f"benchkit: {{data: {tmp_path}/data}}")
    assert data_folder() == tmp_path / "data"


def test_setting_data_url(configured):
    configured("benchkit: {data_url: 's3://bucket/prefix/'}")
    assert data_url() == "s3://bucket/prefix"


def test_setting_cache_size(configured):
    configured("benchkit: {cache-size: much}")
    with pytest.raises(UsageError, match=r"benchkit.cache-size: 'much': must be a size"):
        _limit_size(1)


def test_setting_grafana(configured):
    configured("benchkit: {grafana: 'https://grafana.example/{from_ms}'}")
    assert chosen_template() == "https://grafana.example/{from_ms}"


def test_setting_worker_price(configured):
    configured("benchkit: {worker-price: 0.25}")
    assert worker_price(Environment("current")) == 0.25


def test_setting_of_environment_files_is_no_unknown_key(configured):
    configured("benchkit: {other-settings: [acme], store: /x}")
    assert default_store() == "/x"


@pytest.mark.parametrize("key", [key for key, variable in SETTINGS.items() if variable])
def test_setting_variable_has_priority(configured, monkeypatch, key):
    configured(f"benchkit: {{{key}: configured}}")
    assert setting(key) == "configured"
    monkeypatch.setenv(SETTINGS[key], "variable")
    assert setting(key) == "variable"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("benchkit: {storee: /x}", "unknown key benchkit.storee: did you mean 'store'?"),
        ("benchkit: {qqqq: 1}", f"unknown key benchkit.qqqq: use {', '.join(SETTINGS)}"),
        ("benchkit: /x", f"benchkit: must have keys: {', '.join(SETTINGS)}"),
    ],
)
def test_setting_unknown_key_is_one_line(configured, monkeypatch, text, message):
    configured(text)
    monkeypatch.delenv("BENCHKIT_STORE", raising=False)
    with pytest.raises(UsageError) as caught:
        default_store()
    assert str(caught.value) == f"Dask's configuration: {message}"


def list_runs(folder, **variables):
    return subprocess.run(
        [sys.executable, "-m", "benchkit", "list", "runs"],
        cwd=folder, capture_output=True, text=True, timeout=280,
        env={**os.environ, "HOME": str(folder), "DASK_CONFIG": "", **variables},
    )  # fmt: skip


@pytest.mark.slow
def test_commands_read_the_file_and_the_variable_of_dask(tmp_path):
    for name in ("file", "variable"):
        Store(tmp_path / name).add(make_run(f"array.{name}", groups=False))
    (tmp_path / ".config" / "dask").mkdir(parents=True)
    path = tmp_path / ".config" / "dask" / "benchkit.yaml"
    path.write_text(f"benchkit: {{store: {tmp_path}/file}}\n")

    assert "array.file" in list_runs(tmp_path).stdout
    named = list_runs(tmp_path, DASK_BENCHKIT__STORE=str(tmp_path / "variable"))
    assert "array.variable" in named.stdout
    wrong = list_runs(tmp_path, DASK_BENCHKIT__STOR="x")
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "error: Dask's configuration: unknown key benchkit.stor: did you mean 'store'?\n"
    )


def test_docs_have_a_row_for_each_setting():
    text = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    rows = {
        (key, variable)
        for key, variable in re.findall(r"^\| `([a-z-]+)` \|(?: `(BENCHKIT_\w+)`)? \|", text, re.M)
        if key in SETTINGS
    }
    assert rows == set(SETTINGS.items())
