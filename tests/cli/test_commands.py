import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit, run_python

from benchkit.cli.main import benchkit as root


def invoke(*arguments):
    return CliRunner().invoke(root, arguments)


def _commands(group):
    for command in group.commands.values():
        yield command
        yield from _commands(command) if isinstance(command, click.Group) else ()


def test_summaries_of_commands_are_not_cut_in_help():
    """Click cuts summaries of more than 45 characters in a terminal of 80 columns."""
    long = [text for c in _commands(root) if len(text := c.get_short_help_str(500)) > 45]

    assert long == []


def test_run_unknown_workload_exits_with_2(tmp_path):
    done = run_python(["-m", "benchkit", "run", "sched.task_thruput", "--store", "s"], tmp_path)

    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "error: no workload named 'sched.task_thruput': did you mean 'sched.task_throughput'?"
    ]
    assert not (tmp_path / "s").exists()


def test_import_benchkit_loads_no_third_party_module():
    code = (
        "import sys; before = set(sys.modules); import benchkit;"
        "print([m for m in set(sys.modules) - before"
        " if m.split('.')[0] not in sys.stdlib_module_names and not m.startswith('benchkit')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_run_is_stored_and_listed(tmp_path):
    store = str(tmp_path / "store")
    words = ["run", "sched.task_throughput[n=1000]", "-e", "baseline", "--store", store, "--json"]
    done = run_benchkit(words, tmp_path)

    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["outcome"] == "ok"
    assert record["n_tasks"] == 1000
    (listed,) = json.loads(invoke("list", "runs", "--store", store, "--json").stdout)
    assert listed["id"] == record["id"]


def test_data_make_list_clear(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "data"))

    assert invoke("data", "make", "h2o", "--size", "tiny").exit_code == 0
    (listed,) = json.loads(invoke("data", "list", "--json").stdout)
    assert listed["bytes"] > 0
    table = invoke("data", "list")
    head, row = table.stdout.splitlines()
    assert head.split() == ["name", "size", "folder"]
    assert row.startswith(listed["name"])
    assert table.stderr == f"1 dataset in {tmp_path / 'data'}\n"
    assert invoke("data", "clear").exit_code == 0
    assert json.loads(invoke("data", "list", "--json").stdout) == []


def test_list_environments_starts_with_current():
    listed = json.loads(invoke("list", "environments", "--json").stdout)

    assert [row["name"] for row in listed][:2] == ["current", "baseline"]
