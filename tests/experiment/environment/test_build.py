"""Build of environments: shared, atomic, with the packages that the file requires."""

import json
import os
import py_compile
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment import cache as environment_cache
from benchkit.experiment.environment import python
from benchkit.experiment.environment.build import build, find_build
from benchkit.experiment.environment.cache import find_built, link_bytecode, list_built, remove
from benchkit.experiment.environment.install import resolve
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.environment.process_variables import measured_folder, process_variables
from benchkit.experiment.environment.python import choose_python, find_pythons
from benchkit.experiment.environment.requirements import parse_requirement
from benchkit.experiment.paths import shipped
from benchkit.experiment.run.api import run

WORKLOAD = """
from benchkit.measure import expect, workload

@workload(category="old")
def count(client):
    return client.map(abs, range(300), pure=False)

@count.check
def all_there(result, client):
    expect(sum(client.gather(result)), equals=sum(range(300)))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def write(tmp_path):
    def write(text, name="main"):
        (tmp_path / f"{name}.yaml").write_text(text)
        return find_environment(name, [tmp_path])

    return write


def ask(built, code):
    done = subprocess.run([str(built.python), "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def requirements(*lines):
    return [parse_requirement(line, Path()) for line in lines]


def test_build_without_packages_uses_this_interpreter(write):
    built = build(write("description: as it is\n"))

    assert built.is_own
    assert built.python == Path(sys.executable)
    assert "distributed" in built.packages


@pytest.mark.slow
def test_build_lists_available_pythons_if_one_is_missing(write):
    environment = write("python: 3.99\npackages: [dask]\n")

    with pytest.raises(InvalidEnvironmentError) as caught:
        build(environment)

    assert "main.yaml:1: no Python 3.99" in str(caught.value)
    assert find_pythons()[0].version in str(caught.value)


def test_build_names_conda_tools_if_none_is_installed(write, tmp_path, monkeypatch):
    (tmp_path / "environment.yml").write_text("dependencies: [dask]\n")
    environment = write("conda: environment.yml\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("benchkit.experiment.environment.conda.find_spec", lambda name: None)

    with pytest.raises(EnvironmentBuildError) as caught:
        build(environment)

    assert str(caught.value).endswith(
        "main.yaml:1: conda: none of mamba, micromamba, conda, pixi is on PATH: install one of "
        "them, run pip install 'dask-benchkit[conda]', or use pip `packages:` instead"
    )


@pytest.mark.slow
def test_build_adds_required_packages_to_conda_once(write, tmp_path, monkeypatch):
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.11, dask, ipykernel]\n")
    tool = tmp_path / "bin" / "micromamba"
    tool.parent.mkdir()
    # A fake conda, because the real conda may be missing: its prefix runs this Python.
    tool.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/calls; cp "$7" {tmp_path}/derived.yml\n'
        'mkdir -p "$5/bin"\n'
        f'printf \'#!/bin/sh\\nexec {sys.executable} "$@"\\n\' > "$5/bin/python"\n'
        'chmod +x "$5/bin/python"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    environment = write("conda: environment.yml\n")

    built = build(environment)
    again = build(environment)

    derived = yaml.safe_load((tmp_path / "derived.yml").read_text())
    assert derived["dependencies"] == ["python=3.11", "dask", "ipykernel", "distributed"]
    assert again == built
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert built.python.is_relative_to(built.prefix)
    assert "dask" in built.packages


def test_build_removes_files_when_conda_fails(write, tmp_path, cache, monkeypatch):
    (tmp_path / "environment.yml").write_text("dependencies: [dask]\n")
    tool = tmp_path / "bin" / "mamba"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'no network\nat all' >&2; exit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")

    with pytest.raises(
        EnvironmentBuildError, match=r"main.yaml:1: mamba failed: no network at all"
    ):
        build(write("conda: environment.yml\n"))

    assert list((cache / "environments").iterdir()) == []
    assert list((cache / "scratch").iterdir()) == []


def test_find_built_ignores_incomplete_environment(cache, write):
    folder = cache / "environments" / "0123456789abcdef"
    (folder / "killed-build" / "bin").mkdir(parents=True)

    assert list_built() == []
    assert find_built("0123456789abcdef") is None


def test_bytecode_of_the_same_files_is_linked(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "changed.py").write_text(f"NAME = {folder.name!r}")
    (first / "lib" / "same.py").write_text("NAME = 1")
    (second / "lib" / "same.py").hardlink_to(first / "lib" / "same.py")
    for name in ("changed", "same"):
        py_compile.compile(str(first / "lib" / f"{name}.py"))
    there = SimpleNamespace(prefix=first, python_version="3.11.7")
    monkeypatch.setattr(environment_cache, "list_built", lambda: [there])

    link_bytecode(second, "3.12.1")
    assert not list(second.rglob("*.pyc"))
    link_bytecode(second, "3.11.7")
    (linked,) = second.rglob("*.pyc")

    assert linked.name.startswith("same.")
    assert linked.samefile(first / linked.relative_to(second))


def test_measured_folder_contains_only_what_measures():
    folder = measured_folder()

    assert [path.name for path in folder.iterdir()] == ["benchkit"]
    assert {path.name for path in (folder / "benchkit").iterdir()} == {
        "__init__.py",
        "_compat",
        "measure",
        "pytest_plugin",
        "shipped",
        "simulation",
    }
    assert measured_folder() == folder


def test_kernel_inherits_no_dask_variables(write, tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__SPILL", "0.5")
    monkeypatch.setenv("DASK_COILED__TOKEN", "abc")

    environment = write("variables: {A: b}\n")

    variables = process_variables(environment, build(environment), tmp_path)

    assert "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL" not in variables
    assert variables["DASK_COILED__TOKEN"] == "abc"
    assert variables["A"] == "b"
    assert Path(variables["DASK_CONFIG"]).read_text().strip() == "{}"


@pytest.mark.slow
@pytest.mark.environment
def test_run_in_oldest_release(write, tmp_path):
    pythons = [python.version for python in find_pythons()]
    # Python 3.10 if available, else this interpreter.
    python = "3.10" if any(v.startswith("3.10.") for v in pythons) else ">=3.10,<3.12"
    environment = write(
        f'python: "{python}"\npackages: [dask==2023.4.1, distributed==2023.4.1]\n'
        "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 512 MiB}\n"
        "dask: {distributed: {scheduler: {work-stealing: false}}}\n"
    )
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "old.py").write_text(WORKLOAD)

    (measured,) = run(
        "old.count",
        environment=environment,
        folders=[tmp_path / "workloads"],
        store=tmp_path / "store",
    )

    assert measured.outcome == "ok", measured.error
    assert measured.tree.attrs["distributed"] == "2023.4.1"
    packages = json.loads(measured.tree.attrs["packages"])
    assert packages == dict(find_build(environment).packages)
    assert "numpy" not in packages
    spec = json.loads(measured.tree.attrs["environment_spec"])
    assert spec["packages"] == ["dask==2023.4.1", "distributed==2023.4.1"]
    assert spec["built"]["hash"] == find_build(environment).hash
    assert spec["built"]["as_of"] == "2023-05-15"
    config = json.loads(measured.tree.attrs["config"])
    assert config["distributed"]["scheduler"]["work-stealing"] is False


@pytest.mark.slow
@pytest.mark.environment
def test_build_is_shared_locked_and_crash_safe(write, source, cache, tmp_path):
    environment = write("packages: [distributed, ./toy]\n")
    lines = []
    first = threading.Thread(target=build, args=(environment,), kwargs={"report": lines.append})
    first.start()
    deadline = time.monotonic() + 200
    while not lines and time.monotonic() < deadline:
        time.sleep(0.01)

    built = build(environment, report=lines.append)
    first.join()

    assert sum("resolving" in line for line in lines) == 1
    assert any("waiting" in line for line in lines)
    assert ask(built, "import toy_thing; print(toy_thing.VALUE)") == "1"
    assert built.packages["toy-thing"] == "1"
    assert "ipykernel" in built.packages
    # Equal packages in another order under another name: the same environment.
    assert build(write("packages: ['./toy', distributed]\n", "twin")) == built

    (source / "toy_thing" / "__init__.py").write_text("VALUE = 2\n")
    changed = build(environment)

    assert changed.hash != built.hash
    assert ask(changed, "import toy_thing; print(toy_thing.VALUE)") == "2"

    (source / "toy_thing" / "__init__.py").write_text("VALUE = 3\n")
    code = (
        "from pathlib import Path; from benchkit.experiment.environment.build import build\n"
        "from benchkit.experiment.environment.lookup import find_environment\n"
        f"build(find_environment('main', [Path({str(tmp_path)!r})]))\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    for line in builder.stderr:
        if "installing" in line:
            break
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait()
    builder.stderr.close()
    assert len(list_built()) == 2
    assert len(list((cache / "environments").iterdir())) == 3

    third = build(environment)

    assert ask(third, "import toy_thing; print(toy_thing.VALUE)") == "3"
    remove(third)
    assert find_build(environment) is None
    assert {b.hash for b in list_built()} == {built.hash, changed.hash}


@pytest.mark.slow
@pytest.mark.environment
def test_build_rejects_settings_unknown_to_its_dask(write):
    text = (
        "python: '>=3.10,<3.12'\npackages: [dask==2023.4.1, distributed==2023.4.1]\n"
        "dask:\n  distributed: {p2p: {storage: {disk: false}}}\n"
    )

    with pytest.raises(InvalidEnvironmentError) as caught:
        build(write(text))

    assert "main.yaml:4: distributed 2023.4.1 has no setting" in str(caught.value)
    with pytest.raises(
        InvalidEnvironmentError, match=r"main.yaml:1: cannot be resolved: .*2023.4.99"
    ):
        build(write("packages: [dask==2023.4.99]\n"))


@pytest.mark.environment
def test_resolve_combines_old_release_with_newer_pin(tmp_path):
    lock, day = resolve(
        requirements("dask[array]==2023.4.1", "distributed", "xarray==2025.6.1"),
        choose_python(">=3.10,<3.13"),
        folder=tmp_path,
        where="main.yaml:1",
        as_of=date(2023, 5, 15),
    )

    assert day is None
    assert "xarray==2025.6.1" in lock.splitlines()
    assert "numpy==1.26.4" in lock.splitlines()


@pytest.mark.slow
@pytest.mark.environment
def test_build_checks_coiled_cluster_options(tmp_path, write):
    text = (shipped("environments") / "coiled-small.yaml").read_text()
    packages = "packages: [coiled, 'boto3>=1.34', distributed]\n"

    # The build checks the options against the signature of coiled.Cluster, without a login.
    assert "coiled" in build(write(packages + text)).packages

    with pytest.raises(InvalidEnvironmentError, match="did you mean 'n_workers'"):
        build(write(packages + text.replace("n_workers: 10", "n_worker: 10")))


@pytest.mark.parametrize(
    ("name", "virtual", "conda"),
    [("posix", "bin/python", "bin/python"), ("nt", "Scripts/python.exe", "python.exe")],
)
def test_python_of_environment_is_where_the_system_puts_it(name, virtual, conda, monkeypatch):
    monkeypatch.setattr(python, "os", SimpleNamespace(name=name))

    assert python.venv_python(Path("e")) == Path("e", virtual)
    assert python.conda_python(Path("e")) == Path("e", conda)
