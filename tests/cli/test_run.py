import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from helpers.commands import ROOT, run_benchkit

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store

QUICK = "sched.task_throughput[n=1000]"


@pytest.fixture
def folder(tmp_path):
    """Return a folder of workloads: failing, wrong, without its package, and correct."""
    folder = tmp_path / "workloads"
    folder.mkdir()
    (folder / "bad.py").write_text(
        """from benchkit.measure import expect, workload

@workload
def raises(client, scale):
    "Raise in a task."
    return client.submit(lambda: 1 / 0)

@workload
def lies(client, scale):
    "Give a wrong answer."
    return 1

@lies.check
def _(result):
    expect(result, equals=2)

@workload(requires=["no_such_package"])
def lacks(client, scale):
    "Lack a package."

@workload(variants={"n": [1], "word": ["a"]})
def fine(client, scale, *, n, word):
    "Be fine."
    return client.submit(sum, [n, 1])
"""
    )
    (folder / "broken.py").write_text("from benchkit import workload\nraise ValueError('no')\n")
    return str(folder)


@pytest.fixture
def light(tmp_path):
    """Return the words that select an environment whose only worker starts at once."""
    folder = tmp_path / "environments"
    folder.mkdir()
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (folder / "light.yaml").write_text(cluster)
    return ["--environments", str(folder), "-e", "light"]


@pytest.mark.slow
def test_run_failures_are_rows_and_exit_with_3(tmp_path, folder, light):
    store = str(tmp_path / "store")
    words = ["run", *light, "--workloads", folder, "--store", store, "--json"]
    done = run_benchkit(words, tmp_path)

    assert done.returncode == 3
    outcomes = {row["workload"]: row["outcome"] for row in json.loads(done.stdout)}
    assert outcomes == {
        "bad.raises": "failed",
        "bad.lies": "wrong_answer",
        "bad.lacks": "skipped",
        "bad.fine[n=1,word=a]": "ok",
    }
    assert "broken.py:2: ValueError: no" in done.stderr
    assert "Traceback" not in done.stderr
    (lies,) = (row for row in json.loads(done.stdout) if row["workload"] == "bad.lies")
    assert "2" in lies["error"]


@pytest.mark.slow
def test_run_passes_parameters_capture_and_tags(tmp_path, folder, light):
    store = str(tmp_path / "store")
    words = ["run", "bad.fine", "--workloads", folder, "--store", store, "-n", "2"]
    options = ["--set", "n=41", "--capture", "off", "--tag", "user=me", *light]
    done = run_benchkit([*words, *options], tmp_path)

    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if "bad.fine[n=41,word=a]" in line]) == 2
    assert "(1)" in done.stdout
    runs = Store(store, create=False).runs(user="me")
    assert [json.loads(text) for text in runs["params"]] == [{"n": 41, "word": "a"}] * 2
    tree = Store(store).open("latest").tree
    assert tree.attrs["capture"] == "off"
    assert float(tree["duration"]) > 0
    assert "tasks" not in tree.children
    assert "n_tasks" not in tree.data_vars  # a missing metric has no value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "wrd=1"], "no selected workload has a parameter 'wrd': did you mean 'word'?"),
        (["--set", "n=many"], "bad.fine: n='many' must have the type of its declared values"),
        (["--set", "n"], "--set 'n': must be NAME=VALUE"),
        (["--tag", "=x"], "--tag '=x': must be NAME=VALUE"),
        (["--tag", "a=1", "--tag", "a=2"], "--tag 'a=2': a is given twice"),
        (["-k", "bad and ("], "-k 'bad and (': at character 10: incomplete expression"),
        (["-e", "baselin"], "did you mean 'baseline'?"),
        (["--workloads", "nowhere"], "nowhere: no such folder of workloads"),
        (["--environments", "nowhere"], "nowhere: no such folder of environments"),
    ],
)
def test_run_rejects_arguments_before_writing(tmp_path, folder, arguments, message):
    store = tmp_path / "store"
    folders = [] if "--workloads" in arguments else ["--workloads", folder]
    done = CliRunner().invoke(
        main, ["run", "bad.fine", *folders, *arguments, "--store", str(store)]
    )

    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not store.exists()


def test_run_rejects_file_as_store(tmp_path, folder):
    (tmp_path / "file").write_text("x")
    arguments = ["bad.fine", "--workloads", folder, "--store", str(tmp_path / "file")]
    done = CliRunner().invoke(main, ["run", *arguments])

    assert done.exit_code in (2, 3)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")


@pytest.mark.slow
def test_run_ctrl_c_keeps_runs_and_ends_processes(tmp_path):
    store = tmp_path / "store"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchkit", "run", QUICK),
            *("-n", "50", "--scale", "0.1", "--store", str(store)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if line.strip().startswith("[3/"):
            break
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=200)

    assert process.returncode == 130
    assert "interrupted: 2 runs stored" in stderr
    assert "Traceback" not in stderr
    assert stdout.count(QUICK) == 2
    assert list(Store(store, create=False).runs()["outcome"]) == ["ok", "ok"]
    assert psutil.wait_procs(children, timeout=120)[1] == []
    assert not list((Path(store) / "tmp").rglob("*.json"))


@pytest.mark.slow
def test_run_retries_after_killed_kernel(tmp_path, light):
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "kill.py").write_text(
        """import os, signal
from benchkit.measure import workload

@workload
def a_killed(client, scale):
    "Kill the measuring process."
    os.kill(os.getpid(), signal.SIGKILL)

@workload
def b_fine(client, scale):
    "Be fine."
"""
    )
    folders = ["--workloads", str(folder), "--store", str(tmp_path / "s")]
    done = run_benchkit(["run", *light, *folders, "--json"], tmp_path)

    assert done.returncode == 3
    outcomes = [row["outcome"] for row in json.loads(done.stdout)]
    assert outcomes == ["infrastructure", "infrastructure", "ok"]  # repeated once


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_run_stopped_at_once_leaves_usable_store(tmp_path, folder, light, how):
    arguments = ["bad.fine", *light, "--workloads", folder, "-q"]
    arguments += ["--store", str(tmp_path / "new")]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchkit", "run", *arguments],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list(tmp_path.glob("new/*")):
        time.sleep(0.002)
    process.send_signal(how)
    assert process.wait(60) == (130 if how == signal.SIGINT else -how)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the measuring process of a killed command

    # Before store.json is linked into its place there is a draft only, and no store yet.
    has_store = (tmp_path / "new" / "store.json").exists()
    listed = run_benchkit(["list", "runs", "--store", tmp_path / "new"], tmp_path)
    assert listed.returncode == (0 if has_store else 2)
    assert ("an empty folder, not a store" in listed.stderr) != has_store
    assert run_benchkit(["run", *arguments], tmp_path).returncode == 0


@pytest.mark.parametrize("command", [["run"], ["ab", "baseline", "no-stealing"], ["nightly"]])
def test_commands_without_workloads_exit_with_2(tmp_path, command):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.py").write_text("from benchkit import workload\n1 / 0\n")
    arguments = ["--workloads", str(tmp_path / "w"), "--store", str(tmp_path / "new")]
    done = CliRunner().invoke(main, [*command, *arguments])

    assert done.exit_code == 2
    reason = f"no workloads in {tmp_path}/w: {tmp_path}/w/a.py:2: ZeroDivisionError"
    assert done.stderr.startswith(f"error: {reason}")
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


@pytest.mark.slow
def test_run_binds_tuple_and_prints_what_was_not_captured(tmp_path, light):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.py").write_text(
        "from benchkit import workload\n"
        "@workload(variants={'shape': [(1, 2), (3,)]})\n"
        "def size(client, scale, *, shape):\n"
        "    assert isinstance(shape, tuple)\n"
        "    return client.submit(len, shape).result()\n"
        "@size.check\n"
        "def _(result, scale, *, shape):\n"
        "    assert result == len(shape)\n"
    )
    (tmp_path / "memray.py").write_text("raise ImportError('not here')\n")
    arguments = [*light, "--workloads", "w", "--store", "store", "-q", "--json"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    words = ["run", "mine.size[shape=(1, 2)]", "--capture", "full+memray", *arguments]
    done = run_benchkit(words, tmp_path, PYTHONPATH=path)
    words = ["run", "mine.size", "--set", "shape=[5, 6, 7]", *arguments]
    bound = run_benchkit(words, tmp_path, PYTHONPATH=path)

    assert [row["outcome"] for row in json.loads(done.stdout)] == ["ok"]
    assert "warning: mine.size[shape=(1, 2)]: not captured: memray: ImportError" in done.stderr
    rows = [(row["workload"], row["outcome"]) for row in json.loads(bound.stdout)]
    assert rows == [("mine.size[shape=(5, 6, 7)]", "ok")]
