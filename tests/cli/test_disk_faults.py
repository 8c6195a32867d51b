"""Every command on a full disk, in a read-only folder and in one that lost its permissions."""

import json
import re

import click
import pytest
from helpers.commands_on_disk import disk, run_commands

from benchkit.cli.main import benchkit
from benchkit.experiment.run.plan import write_plan
from benchkit.measure.run_ids import derived_id
from benchkit.store.runfile import encode_run
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

NIGHT = 1785549600.0
RUN = derived_id(NIGHT, "0")
WORKLOAD = '''
from benchkit.measure import workload

@workload(category="tiny")
def work(client):
    """Do nothing."""
    return 1
'''
TINY = ["--workloads", "w", "-k", "tiny"]
#: Results of pytest-benchmark.
RESULTS = {
    "machine_info": {"node": "big", "python_version": "3.11.7"},
    "commit_info": {"id": "c0ffee"},
    "benchmarks": [
        {"name": "test_sum", "fullname": "t.py::test_sum", "params": None, "stats": {"mean": 0.1}}
    ],
    "datetime": "2026-11-20T02:00:00.5+00:00",
    "version": "5.1.0",
}
EXPERIMENT = derived_id(NIGHT, "experiment")
#: Command -> arguments after its name, with a file or folder to write where it writes one.
ARGUMENTS = {
    "ab": ["current", "other", *TINY, "-n", "2", "-q"],
    "bisect": ["array.sum", "--package", "dask", "--good", "2024.1.0", "--bad", "2024.2.0"],
    "compare": ["--baseline", "env:main", "--contender", "env:dev"],
    "dashboard": ["--port", "0"],
    "data clear": ["tpch"],
    "data list": [],
    "data make": ["tpch", "--size", "tiny"],
    "diagnose": [RUN],
    "doctor": [],
    "env build": ["other"],
    "env diff": ["other", "current"],
    "env import": ["ab"],
    "env list": [],
    "env remove": ["--unused"],
    "env show": ["other"],
    "init": ["project"],
    "list": ["runs"],
    "mcp": [],
    "mark accept": ["array.sum", "-m", "why"],
    "mark bankruptcy": ["-m", "why"],
    "mark decide": ["array.sum", "--verdict", "noise", "--at", "2026-09-01", "-m", "why"],
    "mark exclude": [RUN, "-m", "why"],
    "mark list": [],
    "mark rename": ["array.sum", "array.total", "-m", "why"],
    "mark threshold": ["array.*", "--metric", "duration", "--size", "5%", "-m", "why"],
    "mark undo": ["MARK", "-m", "why"],
    "nightly": ["--no-measure", "--output", "night", "--publish", "site"],
    "notebooks copy": ["copied"],
    "notebooks list": [],
    "query": ["select count(*) from runs"],
    "regressions": [],
    "report ab": ["latest"],
    "report annotations": [],
    "report bisect": ["latest"],
    "report decisions": [],
    "report grafana": ["--output", "board.json"],
    "report run": [RUN],
    "report trace": [RUN, "--output", "trace.json"],
    "report site": ["--output", "site"],
    "run": [*TINY, "-q"],
    "simulate": [RUN],
    # Before the run is pruned; like diagnose and simulate it refuses the graph of this run.
    "whatif": [RUN],
    "store check": [],
    "store compact": [],
    "store copy": ["benchkit-store", "copy"],
    "store export": ["runs.db"],
    "store import": ["results.json"],
    "store info": [],
    "store prune": [RUN, "--yes"],
}


def commands(command, path=()):
    """Return the names of all commands."""
    if not isinstance(command, click.Group):
        return [" ".join(path)]
    return [
        name for key, child in command.commands.items() for name in commands(child, (*path, key))
    ]


def fill(folder):
    """Write a store, workloads and environments; return the arguments of all commands."""
    store = Store(folder / "benchkit-store")
    for number in range(8):
        moment = NIGHT + number * 86400
        arm = "main" if number % 2 else "dev"
        run = make_run(
            "array.sum",
            groups=not number,
            id=RUN if not number else derived_id(moment, str(number)),
            environment=arm,
            experiment=EXPERIMENT,
            arm=arm,
            block=number // 2,
            duration=10.0 + number,
        )
        if not number:
            run["tasks/dependency"] = run["tasks/dependency"] + 3  # no valid graph
        store.add(run)
        night = derived_id(moment, "night")
        store.add(make_run("array.mean", groups=False, id=night, duration=10.0))
    arms = [{"name": "main"}, {"name": "dev"}]
    write_plan(store, EXPERIMENT, [], {"arms": arms})
    orphan = make_run(groups=False, id=derived_id(NIGHT + 1, "orphan"))
    store.files.create(run_name(orphan.attrs["id"]), encode_run(orphan)[2])
    mark = store.mark("exclude", runs=[store.ids()[-1]])
    (folder / "w").mkdir()
    (folder / "w" / "tiny.py").write_text(WORKLOAD)
    (folder / "environments").mkdir()
    (folder / "environments" / "other.yaml").write_text("dask: {array: {chunk-size: 1MiB}}\n")
    (folder / "ab").mkdir()
    (folder / "ab" / "AB_x.dask.yaml").write_text("array: {chunk-size: 1MiB}\n")
    (folder / "results.json").write_text(json.dumps(RESULTS))
    return {
        name: [*name.split(), *(mark if word == "MARK" else word for word in words)]
        for name, words in ARGUMENTS.items()
    }


def test_arguments_cover_every_command():
    assert sorted(commands(benchkit)) == sorted(ARGUMENTS)


#: Commands that only read, or rename files: they work on a full disk.
READERS = {
    "compare",
    "dashboard",
    "data clear",
    "data list",
    "env build",  # the environment "other" has the packages of this interpreter
    "env diff",
    "env list",
    "env remove",
    "env show",
    "list",
    "mark list",
    "mcp",
    "notebooks list",
    "query",
    "regressions",
    "report annotations",
    "report decisions",
    "store info",
}
#: Exit code 2 if the place that the user named cannot be written.
OWN_PLACE = {"init", "notebooks copy", "report grafana", "report trace", "store export"}


def own_files(names):
    """Return changed files except those of other programs, and of locks."""
    return [name for name in names if not name.startswith((".ipython/", "cache/"))]


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["full", "read-only", "no permission"])
def test_command_fails_in_one_line_and_writes_nothing(tmp_path, condition):
    folder = tmp_path / "disk"
    with disk(folder) as make:
        results = run_commands(fill(folder), folder, make(condition))

    wrong = []
    for name, result in results.items():
        codes = {0} if name in READERS else {2} if name in OWN_PLACE else {3}
        if name == "report bisect":  # the store has no bisection
            codes = {2}
        if name == "store prune" and condition == "full":
            codes = {0}
        if name == "nightly" and condition == "read-only":
            codes = {2}  # its folder for results is checked first
        if name == "dashboard":  # it starts, and Ctrl-C ends it
            codes = {130}
        if condition == "no permission" and result["code"] == 2:
            codes = {2}  # what the user named cannot be read
        lines = result["stderr"].splitlines()
        is_one_line = len(lines) == 1 and lines[0].startswith("error: ")
        if name in ("store check", "doctor") and result["stdout"]:
            is_one_line = True  # the result is a report
        if name == "dashboard" and result["code"] == 130:
            is_one_line = result["stderr"] == "stopped\n"
        if name == "nightly":  # a line for each part that fails
            is_one_line = lines and all(line.startswith("error: ") for line in lines)
        if (
            result["code"] not in codes
            or "Traceback" in result["stderr"] + result["stdout"]
            or (result["code"] and not is_one_line)
            or (result["code"] and own_files(result["changed"]))
        ):
            wrong.append({name: result})
    assert not wrong, json.dumps(wrong, indent=1)


def test_run_on_a_disk_that_fills_up_keeps_its_recording(tmp_path):
    folder = tmp_path / "disk"
    with disk(folder) as make:
        arguments = {"run": fill(folder)["run"]}
        limits = make("full", free_bytes=2**17)
        if limits:
            pytest.skip("cannot mount a small disk")
        (result,) = run_commands(arguments, folder, limits).values()
        (folder / "other").unlink()
        (folder / "other").touch()
        report = Store(folder / "benchkit-store").check()

    assert result["code"] == 3
    assert re.fullmatch(r"error: \S+\.nc: could not be written: No space .*\n", result["stderr"])
    assert report.waiting == 1
    assert "1 recording waits for adoption" in repr(report)
