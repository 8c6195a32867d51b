"""A command that does not end fails the test with its stacks."""

import pytest

from helpers.commands import run_python

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
    with pytest.raises(pytest.fail.Exception) as failure:
        run_python(["-c", HUNG], tmp_path, timeout_s=5)

    for text in ("no end within 5 s", "wait_for_ever", "child_waits", "text of the log"):
        assert text in str(failure.value)
