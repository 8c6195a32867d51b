"""Completion of commands and options in shells: `_BENCHKIT_COMPLETE`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main


def complete(instruction, *words):
    variables = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    runner = CliRunner(env={**variables, "_BENCHKIT_COMPLETE": instruction})
    return runner.invoke(main, prog_name="benchkit")


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (["benchkit", "regr"], ["plain,regressions"]),
        (["benchkit", "store", "com"], ["plain,compact"]),
        (["benchkit", "ab", "--adap"], ["plain,--adaptive"]),
        (["benchkit", "nightly", "--webhook", "s"], ["plain,slack"]),
        (["benchkit", "run", "--capture", "full+mem"], ["plain,full+memray"]),
        (["benchkit", "run", "array.vort"], ["plain,array.vorticity"]),
        (["benchkit", "run", "h2o.q1"], ["plain,h2o.q1"]),  # made by a function
        (["benchkit", "ab", "no-st"], ["plain,no-stealing"]),
        (["benchkit", "run", "-e", "no-st"], ["plain,no-stealing"]),
        (["benchkit", "nothing-like-this"], []),
    ],
)
def test_completion_of_words(words, choices):
    done = complete("bash_complete", *words)

    assert done.stdout.split() == choices
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_documented_and_valid(shell):
    page = (Path(__file__).parents[2] / "docs/guides/measure.md").read_text()
    assert f"{shell}_source" in page
    script = complete(f"{shell}_source").stdout

    assert re.search(rf"_BENCHKIT_COMPLETE={shell}_complete", script)
    if program := shutil.which(shell):
        assert subprocess.run([program, "-n"], input=script, text=True, timeout=280).returncode == 0


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_completion_works_in_bash(tmp_path):
    command = tmp_path / "benchkit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m benchkit "$@"\n')
    command.chmod(0o755)
    lines = [
        'eval "$(_BENCHKIT_COMPLETE=bash_source benchkit)"',
        "COMP_WORDS=(benchkit regr) COMP_CWORD=1",
        "_benchkit_completion benchkit",
        'echo "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=280,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip

    assert done.stdout == "regressions\n"
