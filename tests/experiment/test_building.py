"""Environments are built once, whole or not at all, and are measured in."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path

import pytest
import yaml

from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.build import build, find_build
from benchkit.experiment.environment.cache import find_built, list_built, remove
from benchkit.experiment.environment.install import resolve
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.environment.measure_copy import measured_folder
from benchkit.experiment.environment.python import choose_python, find_pythons
from benchkit.experiment.environment.requirements import (
    as_of,
    parse_requirement,
    redacted,
    source_states,
)
from benchkit.experiment.paths import shipped
from benchkit.experiment.run.api import run as run_workloads
from benchkit.experiment.run.kernel import MeasuringKernel

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


@pytest.fixture
def source(tmp_path):
    """Give a local source of distributed's name, so that a build needs no index."""
    folder = tmp_path / "toy"
    (folder / "toy_thing").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "toy-thing"\nversion = "1"\n'
    )
    (folder / "toy_thing" / "__init__.py").write_text("VALUE = 1\n")
    return folder


def ask(built, code):
    done = subprocess.run([str(built.python), "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def requirements(*lines):
    return [parse_requirement(line, Path()) for line in lines]


def test_an_environment_without_packages_is_this_interpreter(write):
    built = build(write("description: as it is\n"))

    assert built.is_own
    assert built.python == Path(sys.executable)
    assert "distributed" in built.packages


@pytest.mark.parametrize(
    ("lines", "own", "day"),
    [
        (["dask==2023.4.1"], "2026.8.0", date(2023, 5, 15)),
        (["dask[array]==2023.4.1", "distributed==2023.5.0"], "2026.8.0", date(2023, 5, 15)),
        (["distributed==2023.12.0", "numpy<2"], "2026.8.0", date(2024, 1, 15)),
        (["dask==2026.7.1"], "2026.8.0", None),
        (["dask==2023.4.1"], "2023.6.0", None),
        (["dask", "numpy==1.26.4"], "2026.8.0", None),
        (["dask @ git+https://github.com/dask/dask@main"], "2026.8.0", None),
    ],
)
def test_an_old_release_is_resolved_as_of_its_month(lines, own, day):
    assert as_of(requirements(*lines), {"dask": own}) == day


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://me:pw@host/simple failed", "https://***@host/simple failed"),
        ("git+https://tok123@github.com/x/y@main", "git+https://***@github.com/x/y@main"),
        ("git+ssh://git@github.com/x/y", "git+ssh://git@github.com/x/y"),
        ("https://host/simple?token=abc&x=1", "https://host/simple?token=***&x=1"),
    ],
)
def test_secrets_of_addresses_are_not_shown(text, safe):
    assert redacted(text) == safe


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("dask[array]==2026.8.0 ; python_version > '3'", "index", "dask"),
        ("git+https://github.com/dask/distributed.git@feature/x", "git", "distributed"),
        ("git+https://me:pw@github.com/dask/dask", "git", "dask"),
        ("dask @ git+https://github.com/dask/dask@main  # the tip", "git", "dask"),
        ("https://host/toolz-1.0-py3-none-any.whl", "url", ""),
    ],
)
def test_requirement_lines_are_read_as_pip_does(line, kind, name):
    (found,) = requirements(line)

    assert (found.kind, found.name) == (kind, name)


def test_a_python_that_is_not_there_is_refused_with_those_that_are(write):
    environment = write("python: 3.99\npackages: [dask]\n")

    with pytest.raises(InvalidEnvironmentError) as caught:
        build(environment)

    assert "main.yaml:1: no Python 3.99" in str(caught.value)
    assert find_pythons()[0].version in str(caught.value)


def test_conda_without_a_conda_names_what_to_install(write, tmp_path, monkeypatch):
    (tmp_path / "environment.yml").write_text("dependencies: [dask]\n")
    environment = write("conda: environment.yml\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(EnvironmentBuildError, match=r"main.yaml:1: conda: none of mamba.*conda"):
        build(environment)


def test_a_conda_environment_is_made_once_with_what_every_arm_needs(write, tmp_path, monkeypatch):
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.11, dask, ipykernel]\n")
    tool = tmp_path / "bin" / "micromamba"
    tool.parent.mkdir()
    # Stands for the real one, which no test can rely on: makes a prefix whose Python is this one.
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


def test_a_conda_that_fails_leaves_nothing(write, tmp_path, cache, monkeypatch):
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


def test_a_branch_that_moves_and_a_source_that_changes_are_noticed(source):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(source), *identity, *arguments], check=True)

    branch = requirements(f"git+{source.as_uri()}@topic")
    local = requirements(str(source))
    git("init", "-q", "-b", "topic")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    first = source_states(branch), source_states(local)
    assert (source_states(branch), source_states(local)) == first

    (source / "toy_thing" / "__init__.py").write_text("VALUE = 5\n")
    assert source_states(branch) == first[0]
    changed = source_states(local)
    assert changed != first[1]

    git("commit", "-q", "-a", "-m", "two")
    assert source_states(branch) != first[0]
    # The version of a source can come from its commits.
    assert source_states(local) != changed


def test_a_repository_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(EnvironmentBuildError) as caught:
        source_states(requirements("git+https://me:hunter2@localhost:1/x/y"))

    assert "https://***@localhost:1/x/y" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_half_an_environment_is_none(cache, write):
    folder = cache / "environments" / "0123456789abcdef"
    (folder / "somebody-was-killed" / "bin").mkdir(parents=True)

    assert list_built() == []
    assert find_built("0123456789abcdef") is None


def test_the_measured_side_comes_alone():
    folder = measured_folder()

    assert [path.name for path in folder.iterdir()] == ["benchkit"]
    assert {path.name for path in (folder / "benchkit").iterdir()} == {
        "__init__.py",
        "measure",
        "shipped",
    }
    assert measured_folder() == folder


def test_an_arm_inherits_no_settings_from_the_shell(write, tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__SPILL", "0.5")
    monkeypatch.setenv("DASK_COILED__TOKEN", "abc")

    variables = MeasuringKernel(write("variables: {A: b}\n"), tmp_path)._variables()

    assert "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL" not in variables
    assert variables["DASK_COILED__TOKEN"] == "abc"
    assert variables["A"] == "b"
    assert Path(variables["DASK_CONFIG"]).read_text().strip() == "{}"


@pytest.mark.slow
@pytest.mark.environment
def test_a_workload_runs_in_the_oldest_release(write, tmp_path):
    pythons = [python.version for python in find_pythons()]
    # Python 3.10 where the machine has one, else this interpreter's.
    python = "3.10" if any(v.startswith("3.10.") for v in pythons) else ">=3.10,<3.12"
    environment = write(
        f'python: "{python}"\npackages: [dask==2023.4.1, distributed==2023.4.1]\n'
        "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 512 MiB}\n"
        "dask: {distributed: {scheduler: {work-stealing: false}}}\n"
    )
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "old.py").write_text(WORKLOAD)

    (run,) = run_workloads(
        "old.count",
        environment=environment,
        folders=[tmp_path / "workloads"],
        store=tmp_path / "store",
    )

    assert run.outcome == "ok", run.error
    assert run.tree.attrs["distributed"] == "2023.4.1"
    packages = json.loads(run.tree.attrs["packages"])
    assert packages == dict(find_build(environment).packages)
    assert "numpy" not in packages
    spec = json.loads(run.tree.attrs["environment_spec"])
    assert spec["packages"] == ["dask==2023.4.1", "distributed==2023.4.1"]
    assert spec["built"]["hash"] == find_build(environment).hash
    assert spec["built"]["as_of"] == "2023-05-15"
    config = json.loads(run.tree.attrs["config"])
    assert config["distributed"]["scheduler"]["work-stealing"] is False


@pytest.mark.slow
@pytest.mark.environment
def test_builders_share_wait_and_leave_nothing_when_killed(write, source, cache, tmp_path):
    environment = write("packages: [distributed, ./toy]\n")
    told = []
    first = threading.Thread(target=build, args=(environment,), kwargs={"report": told.append})
    first.start()
    deadline = time.monotonic() + 60
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)

    built = build(environment, report=told.append)
    first.join()

    assert sum("resolving" in line for line in told) == 1
    assert any("waiting" in line for line in told)
    assert ask(built, "import toy_thing; print(toy_thing.VALUE)") == "1"
    assert built.packages["toy-thing"] == "1"
    assert "ipykernel" in built.packages
    # Equal packages under another name and another spelling: the same environment.
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
def test_what_the_arms_own_packages_do_not_know_is_refused(write):
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
def test_a_pin_newer_than_an_old_release_goes_together_with_it(tmp_path):
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
def test_the_coiled_cluster_is_one_that_coiled_takes(tmp_path, write):
    text = (shipped("environments") / "coiled-small.yaml").read_text()
    packages = "packages: [coiled, 'boto3>=1.34', distributed]\n"

    # Building checks the options against the signature of this coiled; nobody logs in.
    assert "coiled" in build(write(packages + text)).packages

    with pytest.raises(InvalidEnvironmentError, match="did you mean 'n_workers'"):
        build(write(packages + text.replace("n_workers: 10", "n_worker: 10")))
