"""Durations without other processes, of runs whose threads waited for a known time."""

import json

import pytest
import xarray as xr

from benchkit.errors import NotRecorded
from benchkit.predict.disturbance import corrected_duration, disturbance
from benchkit.predict.whatif import what_if
from benchkit.store.build.quality import Note, as_rows
from validation.graph_runs import MadeTask, graph_run


def disturbed_run(folder, ran, *, with_waits=True):
    """Return a run of 8 tasks of 2 s on 2 x 1 threads, each without a processor for 1 s."""
    tasks = [MadeTask(f"a-{n}", n // 2 * 2, n // 2 * 2 + 2, worker=n % 2, thread=n % 2)
             for n in range(8)]  # fmt: skip
    run = graph_run(folder, tasks, duration=8, n_workers=2)
    note = Note("disturbed", ("duration",), "others used 1.5 cores", other_cores=1.5)
    run.tree.attrs["quality"] = json.dumps(as_rows([note]))
    if with_waits:
        data = {"server": ["worker"] * 2, "role": ["task"] * 2, "worker": [0, 1]}
        samples = {"sample_time": [0.0, 8.0] * 2, "sample_thread": [0, 0, 1, 1]}
        samples |= {"waited": [0.0, 4.0] * 2, "ran": [0.0, 4.0 * ran] * 2}
        columns = {name: ("thread", values) for name, values in data.items()}
        columns["task_thread"] = ("thread", [0, 1])
        columns |= {name: ("sample", values) for name, values in samples.items()}
        run.tree["thread_times"] = xr.DataTree(xr.Dataset(columns))
    return run


@pytest.mark.parametrize("ran", [0.0, 1.0])
def test_corrected_duration_has_no_waits_for_processors(tmp_path, ran):
    found = corrected_duration(disturbed_run(tmp_path, ran))

    assert found.seconds == pytest.approx(4.0)
    assert found.low < 4.0 < found.high < 8.0


def test_duration_of_an_undisturbed_run_is_its_duration(tmp_path):
    run = disturbed_run(tmp_path, 1.0)
    run.tree.attrs["quality"] = "[]"

    assert corrected_duration(run).seconds == run.metrics["duration"]
    assert disturbance(run) == ()


def test_answers_say_first_that_a_run_was_disturbed(tmp_path):
    run = disturbed_run(tmp_path, 1.0)
    answer = what_if(run, workers=4)

    assert (
        "other processes used 1.5 processor cores; without them it would take about 4.00 s"
        in (answer.disturbed[0])
    )
    assert repr(answer).startswith("The run was disturbed")
    assert answer.to_records()[0]["disturbed"] == answer.disturbed[0]


def test_older_runs_say_why_nothing_is_corrected(tmp_path):
    run = disturbed_run(tmp_path, 1.0, with_waits=False)

    with pytest.raises(NotRecorded, match="waits for a processor"):
        corrected_duration(run)
    assert "is not known: waits for a processor" in disturbance(run)[0]
