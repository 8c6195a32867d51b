"""Replays of graphs whose duration on other clusters can be computed by hand."""

import json
from math import exp, nan

import numpy as np
import pytest

from benchkit.errors import UnreadableRun, UsageError
from benchkit.predict.answer import SHAPE_REACH
from benchkit.predict.contention import MIN_SHARE, MORE_SECONDS
from benchkit.predict.whatif import WhatIf, what_if
from validation.graph_runs import MadeTask, graph_run, tasks_of
from validation.synthetic_recordings import MB, ON


def eight_tasks(tmp_path, *, second_group=0.0, **tables):
    """Return a run of 8 independent tasks of 1 s on 2 x 1 threads, then one that joins them."""
    tasks = [MadeTask(f"a-{n}", n // 2, n // 2 + 1, worker=n % 2, thread=n % 2) for n in range(8)]
    end = 4 + second_group
    if second_group:
        tasks.append(MadeTask("join-0", 4, end, [task.key for task in tasks]))
    return graph_run(tmp_path, tasks, duration=end, n_workers=2, **tables)


@pytest.mark.parametrize(("workers", "threads", "expected"), [
    (1, 1, 8.0), (2, 1, 4.0), (4, 1, 2.0), (8, 1, 1.0), (2, 4, 1.0), (16, 1, 1.0), (3, 1, 3.0),
])  # fmt: skip
def test_more_threads_divide_independent_tasks(tmp_path, workers, threads, expected):
    answer = what_if(eight_tasks(tmp_path), workers=workers, threads=threads)

    [found] = answer.predictions
    assert answer.error == pytest.approx(0, abs=1e-9)
    assert found.seconds == pytest.approx(expected)
    assert found.low < expected < found.high
    assert found.ratio == pytest.approx(expected / 4)


def test_faster_group_shortens_only_its_own_tasks(tmp_path):
    run = eight_tasks(tmp_path, second_group=3.0)

    model = WhatIf(run)

    assert model.predict(groups={"a": 0.5}).seconds == pytest.approx(5.0, rel=1e-3)
    assert model.predict(groups={"join": 0.5}).seconds == pytest.approx(5.5, rel=1e-3)
    assert model.predict(groups={"a": 0, "join": 0}).seconds < 0.01
    assert model.predict(groups={"a": 2.0}).seconds == pytest.approx(11.0, rel=1e-3)


def test_chain_does_not_get_faster_by_threads(tmp_path):
    tasks = tasks_of(("a-0", 0, 2, ""), ("b-0", 2, 5, "a-0"), ("c-0", 5, 6, "b-0"))
    run = graph_run(tmp_path, tasks, duration=7)

    answer = what_if(run, workers=[1, 2, 8], threads=[1, 4])

    assert [round(each.seconds, 6) for each in answer.predictions] == [7.0] * 6
    assert answer.predictions[1].change == "--workers 1 --threads 4"


def test_transfers_and_disk_can_be_taken_away(tmp_path):
    tasks = [
        MadeTask("a-0", 0, 1, nbytes=2_000_000),
        MadeTask("b-0", 0, 1, worker=1, thread=1, nbytes=2_000_000),
        MadeTask("c-0", 4, 5, ["a-0", "b-0"], events=[("transfer", 1, 3), ("disk-read", 3, 4)]),
    ]
    run = graph_run(tmp_path, tasks, duration=5, n_workers=2)

    model = WhatIf(run)

    assert model.base.duration == pytest.approx(5.0)
    assert model.predict(transfers=0).seconds == pytest.approx(3.0)
    assert model.predict(no_spill=True).seconds == pytest.approx(4.0)


def test_assumed_bandwidth_widens_the_interval(tmp_path):
    """A run on one worker fetched nothing: transfers may be free, or slower than assumed."""
    inputs = [MadeTask(f"a-{n}", n, n + 1, nbytes=500_000_000) for n in range(2)]
    run = graph_run(tmp_path, [*inputs, MadeTask("b-0", 2, 3, ["a-0", "a-1"])], duration=3)

    found = WhatIf(run).predict(workers=2)

    assert found.seconds == pytest.approx(1 + 1 + 1, abs=0.1)
    assert found.low == pytest.approx(2 * exp(-SHAPE_REACH), rel=0.01)
    assert found.high == pytest.approx((1 + 5 + 1) * exp(SHAPE_REACH), rel=0.01)


def test_task_waits_for_the_worker_of_its_data(tmp_path):
    """As the scheduler does: data are not moved to a free worker at once."""
    tasks = [
        MadeTask("a-0", 0, 1, nbytes=10_000_000),
        *(MadeTask(f"b-{n}", 1 + 0.1 * n, 1.1 + 0.1 * n, ["a-0"]) for n in range(4)),
    ]
    run = graph_run(tmp_path, tasks, duration=1.4)

    assert WhatIf(run).predict(workers=2, bandwidth="0.001x").seconds == pytest.approx(1.4)


def test_tasks_of_a_large_group_with_a_common_input_run_on_all_workers(tmp_path):
    tasks = [
        MadeTask("a-0", 0, 1, nbytes=10),
        *(MadeTask(f"b-{n}", 1 + n, 2 + n, ["a-0"]) for n in range(8)),
    ]
    run = graph_run(tmp_path, tasks, duration=9)

    assert WhatIf(run).predict(workers=2).seconds == pytest.approx(5, abs=0.01)


def test_idle_worker_steals(tmp_path):
    tasks = [
        MadeTask("a-0", 0, 1, nbytes=10),
        *(MadeTask(f"b-{n}", 1 + 2 * n, 3 + 2 * n, ["a-0"]) for n in range(4)),
    ]
    run = graph_run(tmp_path, tasks, duration=9)

    # Four tasks are too few for root tasks of two workers; two are stolen after 1.5 s.
    assert WhatIf(run).predict(workers=2).seconds == pytest.approx(5.5, abs=0.6)


def more(gil):
    """Return the factor of the processor seconds of a task in a worker with two threads."""
    return 1 + MORE_SECONDS * max(0.0, gil - MIN_SHARE) / (1 - MIN_SHARE)


@pytest.mark.parametrize(("cpu", "low", "high"), [(0, 4, 4), (8, 4, 8), (nan, 4, 8)])
def test_threads_of_tasks_that_compute_may_bring_nothing(tmp_path, cpu, low, high):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(8)]
    run = graph_run(tmp_path, tasks, duration=8)
    run.tree["cpu_time"] = cpu

    found = WhatIf(run).predict(threads=2)

    assert found.low == pytest.approx(low * exp(-SHAPE_REACH), rel=0.01)
    high *= more(1.0) if cpu else 1
    assert found.high == pytest.approx(high * exp(SHAPE_REACH), rel=0.01)


def machine_samples(seconds, duration):
    """Return heartbeats of two workers of a machine that computes for some seconds."""
    return [
        {"time": ON + t, "worker": number, "process_number": number, "machine_number": 1,
         "machine_cpu_time": seconds * t / duration, "cpu_time": t}
        for t in (0.0, duration) for number in (0, 1)
    ]  # fmt: skip


def on_cores(run, cpu, cores=2, hosts=("127.0.0.1", "127.0.0.1")):
    """Set the seconds in which tasks compute, and the machines of two workers."""
    run.tree["cpu_time"] = cpu
    run.tree.attrs["host_json"] = f'{{"cores": {cores}}}'
    workers = run.tree["workers"].to_dataset()
    run.tree["workers"] = workers.assign(host=("worker", list(hosts)))
    return run


@pytest.mark.parametrize(
    ("cpu", "cores", "shape", "expected"),
    [
        (0, 2, (4, 1), 2.0),  # tasks that sleep share nothing
        (8, 2, (1, 1), 8.0),
        (8, 2, (4, 1), 4.0),
        (8, 4, (4, 1), 2.0),
        # Each task computes for half of its time: with two of the other three, or with all, it
        # has to wait.
        (4, 2, (4, 1), 2.0 * (1 + 0.5 * (0.375 * 0.5 + 0.125 * 1.0))),
    ],
)
def test_tasks_that_compute_on_one_machine_share_its_processors(
    tmp_path, cpu, cores, shape, expected
):
    run = on_cores(eight_tasks(tmp_path, samples=machine_samples(cpu, 4)), cpu, cores)

    found = WhatIf(run).predict(workers=shape[0], threads=shape[1])

    assert found.seconds == pytest.approx(expected, rel=0.01)
    assert found.low < expected < found.high


def test_more_workers_on_more_machines_share_no_processors(tmp_path):
    run = eight_tasks(tmp_path, samples=machine_samples(8, 4))
    run = on_cores(run, 8, hosts=["127.0.0.1", "10.0.0.1"])

    assert WhatIf(run).predict(workers=4).seconds == pytest.approx(2.0)


def test_tasks_that_waited_for_processors_wait_less_on_a_smaller_cluster(tmp_path):
    seconds = {}
    for others in (0, 2):  # of the scheduler and the event loops
        run = eight_tasks(tmp_path / str(others), samples=machine_samples(6 + others, 4))
        seconds[others] = WhatIf(on_cores(run, 6)).predict(workers=1).seconds

    # Without others there were processors enough: what tasks waited for takes as long as before.
    assert seconds[0] == pytest.approx(8.0)
    assert 6.0 < seconds[2] < 7.0


def lags(milliseconds, duration):
    """Return heartbeats of worker 0 with the longest delay of its timer."""
    moments = [0.5 * n for n in range(1, int(2 * duration) + 1)]
    return [
        {"time": ON + t, "worker": 0, "tick_max": milliseconds / 1000, "cpu_time": t}
        for t in moments
    ]


@pytest.mark.parametrize(("late", "share"), [(1, MIN_SHARE), (12, 1.0)])
def test_late_timers_say_that_tasks_hold_the_gil(tmp_path, late, share):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(8)]
    run = graph_run(tmp_path, tasks, duration=8, samples=lags(late, 8))
    run.tree["cpu_time"] = 8

    expected = 4 * (1 + share**2) * more(share)
    assert WhatIf(run).predict(threads=2).seconds == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_share_of_the_gil_that_gilknocker_measured_is_used(tmp_path, share):
    run = graph_run(tmp_path, [MadeTask(f"a-{n}", n, n + 1) for n in range(8)], duration=8)
    run.tree["cpu_time"] = 8
    run.tree["gil_contention_mean"] = share

    found = WhatIf(run).predict(threads=2)

    gil = MIN_SHARE + (1 - MIN_SHARE) * share
    expected = 4 * (1 + gil**2) * more(gil)
    assert found.seconds == pytest.approx(expected, rel=0.05)
    assert found.low < expected < found.high < WhatIf(run).duration * 2


@pytest.mark.parametrize(
    ("cpu", "expected"), [(0, 8.0), (4, 4.0 / more(1.0)), (6, 6.0 / more(3**-0.5))]
)
def test_threads_that_waited_for_each_other_do_not_with_one_thread(tmp_path, cpu, expected):
    tasks = [MadeTask(f"a-{n}", n // 2, n // 2 + 1, thread=n % 2) for n in range(8)]
    run = graph_run(tmp_path, tasks, duration=4, nthreads=2)
    run.tree["cpu_time"] = cpu  # of 8 thread-seconds

    assert WhatIf(run).predict(threads=1).seconds == pytest.approx(expected, rel=0.02)


def test_second_graph_waits_for_the_results_of_the_first(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(4)] + [MadeTask("b-0", 6, 7)]
    run = graph_run(
        tmp_path, tasks, duration=7, submissions=[(0, 4), (6, 1)], wanted=[[0, 1, 2, 3], [4]]
    )

    # The client needed 2 s from the end of the first graph until the second one started.
    assert WhatIf(run).predict(workers=4).seconds == pytest.approx(1 + 2 + 1)


def test_prediction_is_refused_if_the_replay_of_the_run_itself_is_wrong(tmp_path):
    tasks = [MadeTask(f"a-{n}", 0.1 * n, 0.1 * n + 0.1) for n in range(10)]
    run = graph_run(tmp_path, [*tasks, MadeTask("b-0", 8, 9)], duration=9)

    with pytest.raises(UsageError, match=r"run itself takes 2\.00 s instead of 9\.00 s"):
        WhatIf(run)


def test_prediction_is_refused_where_results_would_be_spilled(tmp_path):
    def model(folder, managed, **more):
        tasks = [MadeTask("a-0", 0, 1), MadeTask("b-0", 0, 1, worker=1, thread=1, **more)]
        scheduler = [{"time": ON + 0.5, "managed": managed}]
        return WhatIf(
            graph_run(tmp_path / folder, tasks, duration=1, n_workers=2, scheduler=scheduler)
        )

    # Workers of 1 GB have 0.6 GB for results, of which a prediction may fill three quarters.
    assert model("fits", 440 * MB).predict(workers=1).seconds == pytest.approx(2)
    with pytest.raises(UsageError, match="results of a worker would have up to 458 MiB on 1"):
        model("large", 480 * MB).predict(workers=1)
    with pytest.raises(UsageError, match="75% of the 229 MiB beyond which"):
        model("small", 480 * MB).predict(memory="400MB")
    # Results that samples missed: all are in memory until the end.
    missed = [MadeTask(f"a-{n}", n, n + 1, worker=n, thread=n, nbytes=300 * MB) for n in range(2)]
    run = graph_run(tmp_path / "missed", missed, duration=2, n_workers=2, wanted=[[0, 1]])
    with pytest.raises(UsageError, match="results of a worker would have up to 572 MiB"):
        WhatIf(run).predict(workers=1)
    assert model("more", 700 * MB).predict(workers=4).seconds == pytest.approx(1)
    spilled = model("spilled", 700 * MB, events=[("disk-read", 0.0, 0.1)])
    with pytest.raises(UsageError, match="it spilled, and on 4 workers"):
        spilled.predict(workers=4)
    assert spilled.predict(no_spill=True).seconds < spilled.predict().seconds
    spilled.duration = 10.0  # the client works for most of the time
    assert spilled.predict(workers=4).seconds > 0


def test_prediction_is_refused_where_processes_would_be_too_large(tmp_path):
    tasks = [MadeTask(f"a-{n}", 0, 1, worker=n, thread=n) for n in range(2)]
    peaks = [{"time": ON + t, "worker": n, "process": 100 * MB, "rss_peak": (100 + 300 * t) * MB}
             for t in (0.0, 1.0) for n in range(2)]  # fmt: skip
    model = WhatIf(graph_run(tmp_path, tasks, duration=1, n_workers=2, samples=peaks))

    with pytest.raises(UsageError, match="process of a worker would have up to 668 MiB on 1"):
        model.predict(workers=1)
    assert model.predict(workers=1, memory="2GB").seconds == pytest.approx(2)


@pytest.mark.parametrize(("options", "fits"), [
    ({"target": 0.6, "spill": 0.7}, False),
    ({"target": 0.8, "spill": 0.9}, True),
    ({"target": False, "spill": 0.9}, True),
    ({"target": False, "spill": 0.5}, False),
    ({"target": False, "spill": False}, True),
])  # fmt: skip
def test_results_are_spilled_beyond_the_share_that_was_configured(tmp_path, options, fits):
    tasks = [MadeTask("a-0", 0, 1), MadeTask("b-0", 0, 1, worker=1, thread=1)]
    scheduler = [{"time": ON + 0.5, "managed": 500 * MB}]
    run = graph_run(tmp_path, tasks, duration=1, n_workers=2, scheduler=scheduler)
    run.tree.attrs["config"] = json.dumps({"distributed": {"worker": {"memory": options}}})

    if fits:  # the worker that is left has 1 GB
        assert WhatIf(run).predict(workers=1).seconds == pytest.approx(2)
    else:
        with pytest.raises(UsageError, match="results of a worker would have up to 477 MiB"):
            WhatIf(run).predict(workers=1)


def test_whatif_takes_and_lists_groups_without_hashes(tmp_path):
    hashes = ("7bef5ed9ad2f23052d2d0a8feab6ee16", "0" * 32)
    tasks = [MadeTask(f"sum-{hashes[n]}-0", n, n + 1) for n in range(2)]
    model = WhatIf(graph_run(tmp_path, tasks, duration=2))

    assert model.predict(groups={"sum": 0}).seconds < 0.01  # both groups
    assert model.predict(groups={"sum #2": 0}).seconds == pytest.approx(1)
    with pytest.raises(UsageError, match=r"^task group 'sun': .* none; did you mean 'sum'\?$"):
        model.predict(groups={"sun": 0})
    with pytest.raises(UsageError, match=r"'x': the run has none; it has sum$"):
        model.predict(groups={"x": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": {"x": 0.5}}, "task group 'x': the run has none; it has a"),
        ({"groups": {"a": -1.0}}, "a -1.0: the factor must be a number, 0 or larger"),
        ({"groups": {"a": "fast"}}, "a fast: the factor must be a number, 0 or larger"),
        ({"groups": {"a": None}}, "a None: the factor must be a number, 0 or larger"),
        ({"groups": {"a": float("nan")}}, "a nan: the factor must be a number, 0 or larger"),
        ({"transfers": -1.0}, "transfers -1.0: the factor must be a number, 0 or larger"),
        ({"workers": "two"}, "workers two: must be a whole number from 1 to 10000"),
        ({"threads": float("nan")}, "threads nan: must be a whole number from 1 to 10000"),
        ({"workers": 0}, "workers 0: must be a whole number from 1 to 10000"),
        (
            {"bandwidth": float("inf")},
            "bandwidth inf: must be a factor such as 2x, or as in 200MB",
        ),
        ({"bandwidth": "2"}, "bandwidth '2': must be a factor such as 2x"),
        ({"bandwidth": "2 MB"}, "bandwidth '2 MB': must be a factor such as 2x"),
        ({"memory": "much"}, "memory 'much': must be a size, such as 4GiB"),
        ({"workers": 10**9}, "workers 1000000000: must be a whole number from 1 to 10000"),
        ({"workers": 10_000, "threads": 11}, "more than 100,000 threads"),
    ],
)
def test_unknown_group_and_numbers_out_of_range_are_refused(tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        WhatIf(eight_tasks(tmp_path)).predict(**change)


def test_events_without_names_of_activities_are_unreadable(tmp_path):
    for method in (lambda run: run.limits(), what_if):
        run = eight_tasks(tmp_path)
        del run.tree["task_events"].attrs["actions"]
        with pytest.raises(UnreadableRun, match="task_events: its attribute `actions` is missing"):
            method(run)


def pinned(tmp_path, **options):
    """Return a run of 6 free tasks of 1 s and 3 of 2 s with options, on two workers."""
    free = [MadeTask(f"free-{n}", n, n + 1, worker=1, thread=1) for n in range(6)]
    bound = [MadeTask(f"bound-{n}", 2 * n, 2 * n + 2) for n in range(3)]
    given = {6 + n: options for n in range(3)} if options else None
    return graph_run(tmp_path, [*free, *bound], duration=6, n_workers=2, options=given)


@pytest.mark.parametrize(("workers", "seconds"), [(2, 6.0), (4, 6.0), (8, 6.0), (1, 12.0)])
def test_tasks_with_workers_run_on_these(tmp_path, workers, seconds):
    address = str(pinned(tmp_path / "free").tree["workers"]["address"].values[0])

    run = pinned(tmp_path / "bound", workers=[address])

    assert WhatIf(run).predict(workers=workers).seconds == pytest.approx(seconds, rel=0.01)
    free = WhatIf(pinned(tmp_path / "free again")).predict(workers=8)
    assert free.seconds < 4.0


def test_tasks_start_in_the_order_of_their_priorities(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(6)]
    run = graph_run(tmp_path, tasks, duration=6, options={5: {"priority": 9}, 0: {"priority": -1}})

    assert np.argsort(WhatIf(run).base.start).tolist() == [5, 1, 2, 3, 4, 0]


@pytest.mark.parametrize(("within", "workers"), [(9, 1), ("2.5s", 4), (2.2, 4), (1.0001, 8)])
def test_fewest_workers_that_end_in_time_are_found(tmp_path, within, workers):
    run = eight_tasks(tmp_path)
    run.tree["worker_seconds"], run.tree["cost"] = 8.0, 0.8

    answer = what_if(run, within=within)

    [found] = answer.predictions
    assert found.more["workers"] == workers
    assert found.seconds == pytest.approx(8 / workers)
    assert found.more["cost"] == pytest.approx(0.8)
    assert not answer.note


def test_time_that_no_number_of_workers_reaches_gives_the_fastest(tmp_path):
    answer = what_if(eight_tasks(tmp_path), within="500ms")

    assert answer.predictions[0].more["workers"] == 8
    assert answer.note == "no number of workers ends it in 500 ms"
    for within in ("soon", 0, -1):
        with pytest.raises(UsageError, match="must be a time, such as 60s or 2min"):
            what_if(eight_tasks(tmp_path / str(within)), within=within)
    with pytest.raises(UsageError, match="it finds the number of workers: omit workers"):
        what_if(eight_tasks(tmp_path / "both"), within=1, workers=2)


def test_faster_scheduler_shortens_the_way_of_each_task_and_of_graphs(tmp_path):
    """A task waits 40 ms for its dependency's message, of which the scheduler computes 10."""
    tasks = [MadeTask(f"a-{n}", 1 + n * 1.04, 2 + n * 1.04, [f"a-{n - 1}"] if n else ())
             for n in range(10)]  # fmt: skip
    run = graph_run(tmp_path, tasks, duration=11.36, submissions=[(1.0, 10)])
    with pytest.raises(UsageError, match="how long the scheduler computed was not recorded"):
        WhatIf(run).predict(scheduler=0.1)
    run.tree["scheduler_cpu_time"] = 0.1

    found = [WhatIf(run).predict(scheduler=factor).seconds for factor in (1.0, 0.1)]

    # Of a second, 0.3 s are in the scheduler until the first task; then nine ways.
    assert found[0] - found[1] == pytest.approx(0.9 * (0.3 + 9 * 0.01), rel=0.15)
