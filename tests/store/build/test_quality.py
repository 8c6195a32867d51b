"""Notes on the quality of a run, from recordings with one fault each."""

import json

import numpy as np
import pytest

from benchkit.store.build.quality import Note, kinds_by_metric
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from validation.synthetic_recordings import MB, OFF, ON, group, record, segment, worker

STEPS = np.arange(ON - 1, OFF + 1, 0.25)


def memory_samples(index, *, stop=OFF + 1, gap=(0.0, 0.0)):
    """Return samples of a process of 100 MB, without those in a gap."""
    kept = [time for time in STEPS if time < stop and not gap[0] < time < gap[1]]
    return [
        {"time": time, "worker": index, "rss": 100 * MB, "area": 100 * MB * (time - ON)}
        for time in kept
    ]


def heartbeats(index, **totals):
    """Return heartbeats; each total grows from 0 to its value while the clock runs."""
    return [
        {
            "time": time,
            "worker": index,
            "process_number": 10 + index,
            "machine_number": 3,
            **{name: share * total for name, total in totals.items()},
        }
        for time, share in ((ON - 0.1, 0.0), (ON + 5, 0.5), (OFF + 0.1, 1.0))
    ]


def healthy(**changes):
    """Return a segment of a run without limits: two processes, one group of 40 tasks."""
    return segment(
        **{
            "samples": heartbeats(0, cpu_time=4.0) + heartbeats(1, cpu_time=8.0),
            "memory": memory_samples(0) + memory_samples(1),
            "groups": [group("sum", seconds={"compute": 20.0}, n_tasks=40)],
            "state": {},
            **changes,
        }
    )


def notes_of(folder, *segments, **tail):
    """Return the run, and kind, text and metrics of its notes on what could have been measured."""
    tree = run_from_recording(record(folder, *segments, **tail))
    notes = [note for note in json.loads(tree.attrs["quality"]) if note["kind"] != "unmeasured"]
    return tree, [(note["kind"], note["text"], note["metrics"]) for note in notes]


def test_quality_notes_of_healthy_run_are_empty(tmp_path):
    tree, notes = notes_of(tmp_path, healthy())

    assert notes == []
    assert float(tree["idle_time"]) == pytest.approx(30.0 - 20.0)


@pytest.mark.parametrize(
    ("changes", "kind", "text", "absent"),
    [
        pytest.param(
            {"memory": memory_samples(0) + memory_samples(1, stop=ON + 5)},
            "absent",
            "memory was sampled during 74% of the workers' time, less than 90%",
            ("memory_mean", "memory_peak"),
            id="too few samples",
        ),
        pytest.param(
            {"memory": memory_samples(0) + memory_samples(1, stop=ON + 9)},
            "estimated",
            "memory was sampled during 93.8% of the workers' time",
            (),
            id="some samples are missing",
        ),
        pytest.param(
            {"memory": memory_samples(0) + memory_samples(1, gap=(ON + 3, ON + 5))},
            "estimated",
            "a worker's memory was not sampled for 2.0 s: its event loop did not run",
            (),
            id="a gap",
        ),
        pytest.param(
            {
                "memory": [
                    *memory_samples(0),
                    *memory_samples(1),
                    *(
                        {"time": t, "worker": 0, "rss": 100 * MB, "area": 0, "peak": p * MB}
                        for t, p in ((ON + 2.01, 100), (ON + 2.1, 160))
                    ),
                    *(
                        {"time": t, "worker": 1, "rss": 300 * MB, "area": 0, "peak": 300 * MB}
                        for t in (ON + 2.05,)
                    ),
                ]
            },
            "estimated",
            "memory_peak is between 381 MiB and 439 MiB: peaks of workers between two samples",
            (),
            id="peaks that may coincide",
        ),
        pytest.param(
            {
                "samples": heartbeats(0, cpu_time=4.0, children_cpu_time=2.5)
                + heartbeats(1, cpu_time=8.0)
            },
            "cut",
            "tasks ran subprocesses, which took 2.5 s of CPU: neither their memory nor their CPU "
            "is in the metrics",
            (),
            id="subprocesses",
        ),
        pytest.param(
            {
                "samples": [
                    {**row, "process_number": 10}
                    for row in heartbeats(0, cpu_time=4.0) + heartbeats(1, cpu_time=4.0)
                ]
            },
            "estimated",
            "workers share a process: memory, CPU and disk are those of the process, with the "
            "client and scheduler if they run in it; values of single workers must not be summed",
            (),
            id="shared process",
        ),
        pytest.param(
            {"state": {"n_seceded_unknown": 2}},
            "absent",
            "2 tasks seceded (secede, worker_client): the seconds that they computed are not known",
            ("compute_time", "idle_time", "seceded_time"),
            id="seceded tasks of unknown seconds",
        ),
        pytest.param(
            {"groups": [group("sum", seconds={"compute": 5.0}, n_tasks=40, n_retried=1)]},
            "absent",
            "attempts failed or may have failed, and their seconds were not measured",
            ("failed_time", "idle_time"),
            id="retries of unknown seconds",
        ),
        pytest.param(
            {"groups": [group("sum", seconds={"compute": 33.0}, n_tasks=40)]},
            "absent",
            "tasks computed longer than the workers' threads lasted: idle_time is not known",
            ("idle_time",),
            id="more computing than threads",
        ),
        pytest.param(
            {"state": {"n_unfinished": 800}},
            "unfinished",
            "800 tasks unfinished when the clock stopped (persist without wait, fire and forget): "
            "the run does not contain all the work",
            (),
            id="unfinished tasks",
        ),
        pytest.param(
            {"state": {"n_running_at_on": 1}},
            "disturbed",
            "1 task of earlier work ran at the start",
            (),
            id="earlier work",
        ),
        pytest.param(
            {"groups": []},
            "unfinished",
            "no task ended on this cluster while the clock was on",
            (),
            id="no task",
        ),
        pytest.param(
            {"state": {"n_other_captures": 1}},
            "disturbed",
            "another measurement ran on the same scheduler",
            (),
            id="another measurement",
        ),
        pytest.param(
            {
                "samples": heartbeats(0, cpu_time=4.0, machine_cpu_time=30.0)
                + heartbeats(1, cpu_time=8.0, machine_cpu_time=30.0)
            },
            "disturbed",
            "processes other than workers, scheduler and client used 1.8 cores of the workers' "
            "machines",
            (),
            id="load of neighbours",
        ),
        pytest.param(
            {"state": {"n_dropped": 7}},
            "cut",
            "task stream without 7 tasks; group sums contain them",
            (),
            id="task stream cut",
        ),
    ],
)
def test_quality_notes_name_the_limit(changes, kind, text, absent, tmp_path):
    tree, notes = notes_of(tmp_path, healthy(**changes))

    assert [note[:2] for note in notes] == [(kind, text)]
    assert [name for name in absent if name in tree.data_vars] == []
    assert (
        json.loads(tree.attrs["record_quality"] if "record_quality" in tree.attrs else "{}") == {}
    )


def test_run_has_the_cores_that_a_note_is_about(tmp_path):
    samples = heartbeats(0, cpu_time=4.0, machine_cpu_time=30.0)
    samples += heartbeats(1, cpu_time=8.0, machine_cpu_time=30.0)

    tree, _ = notes_of(tmp_path, healthy(samples=samples))

    # 30 s of the machine less 12 s of the workers, in the 10.2 s between the heartbeats.
    assert Run(tree).other_cores == pytest.approx(18 / 10.2)
    assert Run(notes_of(tmp_path, healthy())[0]).other_cores == 0


@pytest.mark.parametrize(
    ("process_cpu", "is_disturbed"),
    [
        pytest.param([(3, 77, 16.0)], False, id="client on the workers' machine"),
        pytest.param([(4, 77, 16.0)], True, id="client elsewhere"),
        pytest.param([(3, 10, 16.0)], True, id="client in the process of a worker"),
    ],
)
def test_quality_notes_of_neighbours_leave_out_client_and_scheduler(
    process_cpu, is_disturbed, tmp_path
):
    samples = heartbeats(0, cpu_time=4.0, machine_cpu_time=30.0)
    samples += heartbeats(1, cpu_time=8.0, machine_cpu_time=30.0)

    _, notes = notes_of(tmp_path, healthy(samples=samples), process_cpu=process_cpu)

    assert [note[0] for note in notes] == ["disturbed"] * is_disturbed


def test_quality_notes_of_neighbours_leave_out_start_of_workers(tmp_path):
    """A worker that joins 4 s after clock on has used 4 s of CPU to start."""
    samples = heartbeats(0, cpu_time=4.0, machine_cpu_time=12.0)
    late = [{**row, "cpu_time": 4.0} for row in heartbeats(1, machine_cpu_time=12.0)]
    changes = {"workers": [worker(0), worker(1, nthreads=2, joined=ON + 4)]}
    late = [{**row, "time": max(row["time"], ON + 4)} for row in late]

    _, notes = notes_of(tmp_path, healthy(samples=samples + late, **changes))

    assert "disturbed" not in [note[0] for note in notes]


def test_quality_notes_of_set_clock_name_absent_metrics(tmp_path):
    tree, notes = notes_of(tmp_path, healthy(), clock_step_s=-5.0)

    assert [note[0] for note in notes] == ["absent", "estimated"]
    assert notes[0][1].startswith("the scheduler's clock was set by -5.00 s during the run")
    assert [name for name in notes[0][2] if name in tree.data_vars] == []
    assert "memory_peak" in notes[0][2]


@pytest.mark.parametrize("level", ["light", "full"])
def test_quality_notes_explain_each_absent_metric(level, tmp_path):
    tree = run_from_recording(record(tmp_path, healthy(), capture=level))
    notes = json.loads(tree.attrs["quality"])
    texts = {name: note["text"] for note in notes for name in note["metrics"]}

    absent = {name for name in METRICS if name not in tree.data_vars} - {"cost", "seceded_time"}
    assert absent == set(texts)
    assert texts["gil_contention_mean"].endswith(
        "gilknocker is not installed on the workers, or the run was short"
    )
    assert ("only at capture level full" in texts["n_tasks_recomputed"]) == (level == "light")


def moved(sent, received, *, copied=0):
    """Return the reports of two workers, of which the first sent messages of 10 MB."""
    addresses = [f"tcp://10.0.0.1:{index}" for index in (0, 1)]
    outgoing = [1, addresses[1], sent + copied, 1e7 * (sent + copied), 1e7 * (sent + copied), 1.0]
    incoming = [0, addresses[0], received, 1e7 * received, float("nan"), 1.0]
    return {"0": {"transfers": [outgoing]}, "1": {"transfers": [incoming] if received else []}}


def moving_samples(sent, received, *, net=None):
    """Return heartbeats that count messages, and with `net` the bytes of a network each."""
    rows = heartbeats(0, transfer_outgoing_total=sent, transfer_incoming_total=0)
    rows += heartbeats(1, transfer_outgoing_total=0, transfer_incoming_total=received)
    if net is None:
        return rows
    shares = [0.0, 0.5, 1.0] * 2
    return [
        {**row, "machine_number": row["worker"], "net_read_total": share * net}
        for row, share in zip(rows, shares, strict=True)
    ]


@pytest.mark.parametrize(
    ("reports", "samples", "text"),
    [
        (moved(16, 10), moving_samples(10, 10), "count 10 sends, their logs 16"),
        (moved(10, 16), moving_samples(10, 10), "count 10 fetches, their logs 16"),
        (moved(4, 10), moving_samples(10, 10), "count 10 sends, their logs 4"),
        (moved(10, 10), moving_samples(10, 14), None),  # a busy sender refused four
        (moved(10, 10), moving_samples(11, 11), None),  # one on its way
        (moved(10, 0, copied=10), moving_samples(20, 0), None),  # scatter(broadcast=True)
        (moved(10, 10), moving_samples(10, 10, net=1.01e8), None),
        (
            moved(16, 16),
            moving_samples(16, 16, net=1e8),
            "worker 1 received 153 MiB of results, by the senders' logs, and its machine 95.4 MiB",
        ),
    ],
)
def test_quality_notes_compare_sums_of_transfers(reports, samples, text, tmp_path):
    tree, notes = notes_of(tmp_path, healthy(samples=samples, reports=reports))

    if text is None:
        assert notes == []
    else:
        ((kind, found, metrics),) = notes
        assert kind == "estimated"
        assert text in found
        assert "transfer_bytes" in metrics
    assert tree["transfers"].sizes["pair"] == 1


def test_quality_notes_compare_bytes_of_both_ends(tmp_path):
    reports = moved(10, 10)
    reports["1"]["transfers"][0][3] = 5e7
    _, notes = notes_of(tmp_path, healthy(samples=moving_samples(10, 10), reports=reports))

    ((kind, text, metrics),) = notes
    assert (kind, metrics) == ("estimated", ["transfer_bytes"])
    assert "received 47.7 MiB" in text
    assert "senders count 95.4 MiB" in text


def test_quality_notes_name_a_worker_whose_clock_was_set(tmp_path):
    rows = heartbeats(0, clock_step=-2.0) + heartbeats(1, clock_step=0.004)
    for row in rows[:3]:
        row["clock_step"] += 7.0  # set before the run, too
    _, notes = notes_of(tmp_path, healthy(samples=rows))

    ((kind, text, metrics),) = notes
    assert kind == "estimated"
    assert text.startswith("the clock of worker 0 was set by -2.00 s during the run")
    assert "compute_time" in metrics


def test_quality_notes_of_actors_limit_compute_time_and_idle_time(tmp_path):
    tree, notes = notes_of(tmp_path, healthy(state={"n_actors": 1}))

    text = "1 actor: the seconds of their calls are not measured"
    assert notes == [("cut", text, ["compute_time"]), ("absent", text, ["idle_time"])]
    assert "idle_time" not in tree.data_vars
    assert float(tree["compute_time"]) == pytest.approx(20.0)


def test_quality_notes_count_lost_workers(tmp_path):
    events = [(ON + 4, "worker-removed", 1, json.dumps({"expected": False}))]
    lost = healthy(
        workers=[worker(0), worker(1, nthreads=2, left=ON + 4)],
        memory=memory_samples(0) + memory_samples(1, stop=ON + 4),
        events=events,
        groups=[group("sum", seconds={"compute": 5.0}, n_tasks=40)],
    )

    tree, notes = notes_of(tmp_path, lost)

    assert float(tree["n_workers_lost"]) == 1
    assert [note[:2] for note in notes] == [
        (
            "cut",
            "1 worker lost: what was used between the last heartbeat and the death is not known",
        )
    ]
    assert {"cpu_time", "failed_time", "compute_time", "idle_time"} <= set(notes[0][2])


def test_kinds_by_metric_joins_kinds_of_all_notes():
    notes = [
        Note("unfinished", ("duration",), "tasks are left"),
        Note("disturbed", ("duration", "compute_time"), "others ran"),
    ]

    assert kinds_by_metric(notes) == {
        "duration": "disturbed unfinished",
        "compute_time": "disturbed",
    }
