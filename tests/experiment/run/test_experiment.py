"""Experiments with several arms, in real kernels on real clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from statistics import median

import pandas as pd
import psutil
import pytest

from benchkit.cli.progress import show_progress
from benchkit.errors import UsageError
from benchkit.experiment.run.api import Selection, plan_experiment, resume_experiment
from benchkit.experiment.run.events import Finished, Planned, Skipped, Started, finished_records
from benchkit.experiment.run.plan import NULL_ARM, read_plan
from benchkit.show.pages.comparison import facts
from benchkit.store.store import Store

WORKLOAD = """import os, time
import dask
from benchkit.measure import workload

@workload
def naps(client, scale):
    "Sleep as long as the arm says, and return a setting of Dask."
    time.sleep(float(os.environ.get("NAP", "0.05")))
    return dask.config.get("distributed.scheduler.work-stealing")

@naps.check
def _(result):
    from benchkit.measure import expect
    expect(result, equals=os.environ.get("STEALING", "True") == "True")
"""


@pytest.fixture
def folders(tmp_path):
    """Return a folder with workloads and environments."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(WORKLOAD)
    (tmp_path / "e").mkdir()
    # A worker in the measuring process starts at once.
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (tmp_path / "e" / "base.yaml").write_text(cluster)
    slow = (
        "extends: base\n"
        "variables: {NAP: '2.0', STEALING: 'False'}\n"
        "dask: {distributed: {scheduler: {work-stealing: false}}}\n"
    )
    (tmp_path / "e" / "slow.yaml").write_text(slow)
    return tmp_path


def planned(folders, *names, null=False, **options):
    selection = Selection(
        names,
        folders=[folders / "w"],
        environments=["base", "slow"],
        environment_folders=[folders / "e"],
        null=null,
    )
    experiment, _ = plan_experiment(selection, store=folders / "store", **options)
    return experiment


@pytest.mark.slow
def test_experiment_stops_idle_arms(folders):
    experiment = planned(folders, null=True, repeats=2)
    states = []

    def note_states():
        for process in psutil.Process().children(recursive=True):
            deadline = time.monotonic() + 1  # on a busy machine SIGSTOP takes effect later
            try:
                if "ipykernel" in " ".join(process.cmdline()):
                    while process.status() != "stopped" and time.monotonic() < deadline:
                        time.sleep(0.01)
                    states.append(process.status())
            except psutil.Error:
                pass

    records = []
    for event in experiment.run():
        if isinstance(event, Started):
            note_states()
        elif isinstance(event, Finished):
            records.append(event.record)

    assert [record["outcome"] for record in records] == ["ok"] * 6  # checked per arm
    by_arm = {}
    for record in records:
        by_arm.setdefault(record["arm"], []).append(record["duration"])
    assert set(by_arm) == {"base", "slow", NULL_ARM}
    assert min(by_arm["slow"]) > 2.0  # its sleep
    assert median(by_arm["base"] + by_arm[NULL_ARM]) < median(by_arm["slow"])
    assert states.count(psutil.STATUS_STOPPED) > 0.8 * len(states) > 8
    assert {record["environment"] for record in records if record["arm"] == NULL_ARM} == {"base"}


@pytest.mark.slow
def test_experiment_resumes_after_kill(folders):
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from benchkit.experiment.run.api import Selection, plan_experiment\n"
        "from benchkit.experiment.run.events import finished_records\n"
        "selection = Selection(['own.naps'], environments=['base', 'slow'],\n"
        "    environment_folders=[sys.argv[1] + '/e'], folders=[sys.argv[1] + '/w'])\n"
        "e, _ = plan_experiment(selection, store=sys.argv[1] + '/store', repeats=2)\n"
        "for record in finished_records(e.run()): print(record['id'], flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folders), os.getcwd()],
        stdout=subprocess.PIPE,
        text=True,
    )
    finished = [process.stdout.readline().strip() for _ in range(2)]
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait(120)

    assert psutil.wait_procs(children, timeout=120)[1] == []
    experiment, _ = resume_experiment(folders / "store", "latest")
    remaining = list(experiment.plan)
    assert 1 <= len(remaining) <= 2
    for _ in experiment.run():
        pass

    runs = Store(folders / "store").runs()
    assert set(finished) <= set(runs["id"])
    assert len(runs) == len(set(zip(runs["block"], runs["arm"], strict=True))) == 4
    assert resume_experiment(folders / "store", "latest")[0].plan == []
    assert len(json.loads((experiment.folder / "plan.json").read_text())["plan"]) == 4


def test_resumed_experiment_keeps_the_order_of_a_plan_of_an_earlier_version(folders):
    experiment = planned(folders, "own.naps", null=True, repeats=4)
    entries = {entry.key: entry for entry in experiment.plan}
    names = ["base", "slow", NULL_ARM]
    reversed_in_turn = [
        replace(entries[block, arm, "own.naps"], order=3 * block + place)
        for block in range(4)
        for place, arm in enumerate(names[::-1] if block % 2 else names)
    ]
    experiment.store.create()
    experiment.plan = reversed_in_turn
    experiment._write_plan()

    resumed, _ = resume_experiment(folders / "store", "latest")

    assert resumed.plan == reversed_in_turn


def test_facts_of_a_report_are_in_the_plan(folders):
    experiment = planned(folders, repeats=1)
    experiment.store.create()
    experiment._write_plan()
    plan = read_plan(experiment.store, experiment.id)
    run = {"started": pd.Timestamp("2026-08-01"), "duration": 2.0, "host": "h"}

    table = facts(plan, pd.DataFrame([run])).content
    found = dict(row.cells for row in table.rows)

    assert (found["runs"], found["order"]) == ("1 of 2 planned", "abba")


@pytest.mark.slow
def test_run_skips_blocks_over_budget(folders):
    experiment = planned(folders, "own.naps", repeats=2, budget_s=0.001, min_blocks=1)
    events = list(experiment.run())

    assert isinstance(events[0], Planned)
    assert len(events[0].measurements) == 4
    assert [type(event) for event in events[1:]] == [Started, Finished] * 2 + [Skipped] * 2
    assert [record["block"] for record in finished_records(events)] == [0, 0]
    assert {event.reason for event in events[-2:]} == {"budget"}
    assert experiment.stop_policy.n_over_budget == 2
    remaining = [event.remaining_seconds for event in events]
    assert remaining[0] == remaining[1] > remaining[-2] > remaining[-1] == 0


def test_plan_experiment_rejects_capture_before_writing(folders):
    with pytest.raises(UsageError, match="no capture level named 'most'"):
        planned(folders, capture="most")

    assert not (folders / "store").exists()


def test_second_experiment_on_a_machine_says_so(folders, monkeypatch, capsys):
    monkeypatch.setenv("BENCHKIT_CACHE", str(folders / "cache"))
    first, second = planned(folders, repeats=1).run(), planned(folders, repeats=1).run()

    assert next(first).is_alone
    list(islice(show_progress(second, quiet=True), 1))
    assert capsys.readouterr().err == (
        "warning: another benchkit measures on this machine: on local clusters each disturbs the "
        "times of the other\n"
    )
    (folders / "e" / "base.yaml").write_text("cluster: {address: 'tcp://scheduler.invalid:8786'}\n")
    (folders / "e" / "slow.yaml").write_text("extends: base\n")
    elsewhere = planned(folders, repeats=1).run()
    assert next(elsewhere).is_alone, "its workers are on other machines"
    elsewhere.close()
    first.close()
    third = planned(folders, repeats=1).run()
    assert next(third).is_alone
    third.close()
