"""Conda environments without conda: py-rattler solves and installs from a local channel."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as command
from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.conda import create_conda
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.run.api import run

pytest.importorskip("rattler")

#: A Python that is this one, because a real one has 100 MB.
PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


def add_package(channel: Path, name, version, depends=(), files=None):
    """Add a package to a channel; `files` are texts by path, and are executable."""
    index = {
        "name": name, "version": version, "build": "0", "build_number": 0,
        "depends": list(depends), "subdir": "noarch", "noarch": "generic",
    }  # fmt: skip
    files = files or {}
    paths = [
        {"_path": path, "path_type": "hardlink", "sha256": sha256(text), "size_in_bytes": len(text)}
        for path, text in files.items()
    ]
    contents = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "".join(f"{path}\n" for path in files),
        **files,
    }
    folder = channel / "noarch"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{name}-{version}-0.tar.bz2"
    with tarfile.open(archive, "w:bz2") as tar:
        for path, text in contents.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    data = archive.read_bytes()
    repodata = folder / "repodata.json"
    content = json.loads(repodata.read_text()) if repodata.exists() else {"packages": {}}
    content["info"] = {"subdir": "noarch"}
    content["packages"][archive.name] = {
        **index,
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
        "size": len(data),
    }
    repodata.write_text(json.dumps(content))


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def channel(tmp_path):
    """Return a channel with Python, and versions of `tiny` of which the newest has no solution."""
    channel = tmp_path / "channel"
    add_package(channel, "python", "3.11.7", files={"bin/python": PYTHON})
    add_package(channel, "distributed", "2026.8.0", ["python >=3.10"])
    add_package(channel, "ipykernel", "6.29", ["python"])
    add_package(channel, "tiny", "1.0", ["python"], {"share/tiny.txt": "1.0"})
    add_package(channel, "tiny", "2.0", ["python"], {"share/tiny.txt": "2.0"})
    add_package(channel, "tiny", "3.0", ["python", "missing >=9"])
    return channel


@pytest.fixture
def arm(tmp_path, monkeypatch, channel):
    """Return a function that writes the conda file of an arm, on a machine without conda."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler"))
    monkeypatch.setenv("PATH", f"{empty}:/usr/bin:/bin")
    (tmp_path / "arms").mkdir()

    def write(dependencies, channels=None, pip=()):
        content = {"channels": channels or [channel.as_uri()], "dependencies": list(dependencies)}
        content["dependencies"] += [{"pip": list(pip)}] if pip else []
        (tmp_path / "arms" / "environment.json").write_text(json.dumps(content))
        (tmp_path / "arms" / "main.yaml").write_text("conda: environment.json\n")
        return find_environment("main", [tmp_path / "arms"])

    return write


def installed(prefix):
    return {
        record["name"]: record["version"]
        for path in (prefix / "conda-meta").glob("*.json")
        for record in [json.loads(path.read_text())]
    }


@pytest.mark.slow
def test_conda_is_solved_and_installed_without_conda(arm, capsys):
    built = build(arm(["python =3.11", "tiny"]))

    assert installed(built.prefix) == {
        "python": "3.11.7", "distributed": "2026.8.0", "ipykernel": "6.29", "tiny": "2.0",
    }  # fmt: skip
    assert built.python == built.prefix / "bin" / "python"
    assert subprocess.run([built.python, "-c", "pass"]).returncode == 0
    assert (built.prefix / "share" / "tiny.txt").read_text() == "2.0"
    assert "main: creating it with py-rattler" in capsys.readouterr().err
    assert build(arm(["python =3.11", "tiny"])) == built  # not made again


@pytest.mark.parametrize("spec", ["tiny <2", "tiny =1", "tiny==1.0", "tiny=1.0=0"])
def test_conda_specifications_select_a_version(arm, spec, tmp_path):
    file = arm(["python", spec]).conda

    python = create_conda(file, folder=tmp_path, prefix=tmp_path / "made", where="main.yaml:1")

    assert python == tmp_path / "made" / "bin" / "python"
    assert installed(tmp_path / "made")["tiny"] == "1.0"


@pytest.mark.parametrize(
    ("dependencies", "words"),
    [
        (["python", "tiny >=3"], ["No solution found", "missing"]),
        (["python", "no-such-package"], ["No solution found", "no-such-package"]),
        (["python", "tiny >=<1"], ["not a conda package specification"]),
    ],
)
def test_conda_without_solution_is_one_line(arm, dependencies, words, tmp_path):
    with pytest.raises(InvalidEnvironmentError) as caught:
        build(arm(dependencies))

    message = str(caught.value)
    assert "main.yaml:1: py-rattler failed: " in message
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert list((tmp_path / "cache" / "environments").iterdir()) == []


def test_conda_channel_without_connection_is_one_line(arm):
    with pytest.raises(EnvironmentBuildError) as caught:
        build(arm(["python"], ["http://127.0.0.1:1/channel"]))

    message = str(caught.value)
    assert "main.yaml:1: py-rattler failed: channel cannot be read: " in message
    assert "http://127.0.0.1:1/channel" in message
    assert "\n" not in message


def test_env_build_without_channel_has_exit_code_3(arm, tmp_path):
    arm(["python"], [(tmp_path / "nowhere").as_uri()])

    done = CliRunner().invoke(
        command, ["env", "build", "main", "--environments", str(tmp_path / "arms")]
    )

    assert done.exit_code == 3
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in done.output


def test_conda_without_python_is_refused(arm, channel, tmp_path):
    other = tmp_path / "other"
    for name in ("distributed", "ipykernel", "tiny"):
        add_package(other, name, "1.0")

    with pytest.raises(EnvironmentBuildError, match=r"installed no Python: add python to"):
        build(arm(["tiny"], [other.as_uri()]))


def test_conda_refuses_options_of_pip(arm):
    with pytest.raises(InvalidEnvironmentError, match=r"pip: '-e \.': py-rattler is used"):
        build(arm(["python"], pip=["-e ."]))


@pytest.mark.slow
def test_run_measures_in_a_conda_environment(arm, channel, tmp_path):
    calls = tmp_path / "calls"
    noted = f'#!/bin/sh\necho "$@" >> {calls}\nexec {sys.executable} "$@"\n'
    add_package(channel, "python", "3.11.8", files={"bin/python": noted})
    arm(["python", "tiny"])
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(
        "from benchkit.measure import workload\n"
        "@workload\ndef one(client):\n    return client.submit(sum, [1, 2]).result()\n"
    )

    (measured,) = run(
        "own.one",
        environment=find_environment("main", [tmp_path / "arms"]),
        store=tmp_path / "store",
        folders=[str(tmp_path / "w")],
    )

    assert measured.outcome == "ok", measured.error
    assert measured.record["environment"] == "main"
    assert "ipykernel" in calls.read_text()  # the Python of the arm runs the kernel
