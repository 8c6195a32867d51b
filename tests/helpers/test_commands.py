"""A command that does not end fails the test with its stacks."""

import pytest

from helpers.commands import run_benchkit, run_python

HUNG = """
import pathlib, subprocess, sys
from benchkit.private_folder import private_folder
CHILD = "def child_waits():\\n import time; time.sleep(60)\\nchild_waits()"
folder = private_folder()
pathlib.Path(folder.name, "kernel-own.log").write_text("text of the log")
def wait_for_ever():
    subprocess.run([sys.executable, "-c", CHILD])
wait_for_ever()
"""


def test_command_without_end_shows_call_stacks(tmp_path):
    texts = ("no end within", "wait_for_ever", "child_waits", "text of the log")
    assert_shows(texts, lambda timeout_s: run_python(["-c", HUNG], tmp_path, timeout_s=timeout_s))


def assert_shows(texts, run):
    """Assert what a command that does not end shows; a busy machine takes longer to start it."""
    for timeout_s in (5, 20, 80):
        with pytest.raises(pytest.fail.Exception) as failure:
            run(timeout_s)
        if all(text in str(failure.value) for text in texts):
            return
    raise AssertionError(f"not all of {texts} in {failure.value}")


def test_forked_command_is_that_of_a_new_interpreter(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(OWN)
    words, variables = ["list", "workloads", "--workloads", "w"], {"OWN_NAME": "first", "TZ": ""}
    forked = run_benchkit(words, tmp_path, **variables)
    new = run_python(["-m", "benchkit", *words], tmp_path, **variables)

    assert "own.sums[name=first]" in forked.stdout
    assert (forked.returncode, forked.stdout, forked.stderr) == (0, new.stdout, new.stderr)
    second = run_benchkit(words, tmp_path, OWN_NAME="second", DASK_OWN__VALUE="7")
    assert "own.sums[name=second]" in second.stdout
    assert second.stderr == f"{tmp_path} 7\n"
    assert run_benchkit(["list", "runs", "--store", "none"], tmp_path).returncode == 2


#: A variant named by a variable, and a line with the folder and a setting of Dask.
OWN = """
import os, sys
import dask
from benchkit.measure import workload

print(os.getcwd(), dask.config.get("own.value", None), file=sys.stderr)

@workload(category="own", variants={"name": [os.environ["OWN_NAME"]]})
def sums(client, *, name):
    "Add numbers."
"""


def test_forked_command_without_end_shows_call_stacks(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(
        "from benchkit.measure import workload\n"
        "def waits():\n import time; time.sleep(60)\n"
        "waits()\n@workload(category='own')\ndef x(client): 'Wait.'\n"
    )
    words = ["list", "workloads", "--workloads", "w"]
    texts = ("no end within", "benchkit list workloads", "in waits")
    assert_shows(texts, lambda timeout_s: run_benchkit(words, tmp_path, timeout_s=timeout_s))
