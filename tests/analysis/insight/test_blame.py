"""Causes of wall time of runs whose causes are known."""

import pytest
import xarray as xr

from benchkit.analysis.insight.blame import CAUSES, blame_walk
from benchkit.analysis.insight.limits import run_limits
from validation.graph_runs import MadeTask, graph_run, tasks_of
from validation.synthetic_recordings import ON


def segments(run):
    return [
        (round(row.start, 6), round(row.stop, 6), row.cause, row.group)
        for row in blame_walk(run).itertuples()
    ]


def test_chain_is_computing_with_gaps(tmp_path):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 3.5, 5, "a-0"), ("c-0", 5, 9, "b-0"))
    run = graph_run(tmp_path, tasks, duration=10, submissions=[(0.9, 3)])

    assert segments(run) == [
        (0.0, 0.6, "client", ""),
        (0.6, 0.9, "graph", ""),
        (0.9, 1.0, "unexplained", "a"),
        (1.0, 3.0, "computing", "a"),
        (3.0, 3.5, "unexplained", "b"),
        (3.5, 5.0, "computing", "b"),
        (5.0, 9.0, "computing", "c"),
        (9.0, 10.0, "client", ""),
    ]


def test_transfer_and_disk_are_causes_of_a_wait(tmp_path):
    events = [("transfer", 2.2, 2.8), ("disk-read", 2.9, 3.0)]
    tasks = [
        MadeTask("a-0", 0, 2),
        MadeTask("b-0", 3, 4, ["a-0"], worker=1, thread=1, events=events),
    ]
    run = graph_run(tmp_path, tasks, duration=4, n_workers=2)

    assert segments(run) == [
        (0.0, 2.0, "not parallel", "a"),
        (2.0, 2.2, "unexplained", "b"),
        (2.2, 2.8, "transfer", "b"),
        (2.8, 2.9, "unexplained", "b"),
        (2.9, 3.0, "disk", "b"),
        (3.0, 4.0, "not parallel", "b"),
    ]


@pytest.mark.parametrize(("place", "seconds"), [(0, 0.89), (1, 0.0)])
def test_transfer_of_several_results_is_a_cause_for_each_task(tmp_path, place, seconds):
    # The transfer is noted for the second task; the first waited for it, too, unless its input is
    # on its own worker.
    tasks = [
        MadeTask("a-0", 0, 1, worker=place, thread=place),
        MadeTask("a-1", 1, 2),
        MadeTask("b-0", 3, 4, ["a-0"], worker=1, thread=1),
        MadeTask("b-1", 4, 5, ["a-1"], worker=1, thread=1, events=[("transfer", 2.1, 2.99)]),
    ]
    run = graph_run(tmp_path, tasks, duration=5, n_workers=2)

    found = {cause: stop - start for start, stop, cause, _ in segments(run)}

    assert found.get("transfer", 0.0) == pytest.approx(seconds)


def test_task_that_waited_for_its_thread_blames_the_task_before(tmp_path):
    tasks = tasks_of(("a-0", 0, 1, ""), ("long-0", 1, 6, ""), ("b-0", 6, 7, "a-0"))
    run = graph_run(tmp_path, tasks, duration=7)

    assert [cause for *_, cause, _ in segments(run)] == ["computing"] * 3
    assert [name for *_, name in segments(run)] == ["a", "long", "b"]


def test_last_task_is_a_straggler(tmp_path):
    tasks = [MadeTask(f"x-{n}", 0, 2, worker=0, thread=n) for n in range(3)]
    tasks.append(MadeTask("x-3", 0, 9, thread=3))
    run = graph_run(tmp_path, tasks, duration=9, nthreads=4)

    assert segments(run) == [(0.0, 2.0, "computing", "x"), (2.0, 9.0, "straggler", "x")]


def test_task_that_left_its_thread_holds_none(tmp_path):
    # The second task is one of two that compute at a time, but for 0.5 s in which it is alone.
    tasks = [MadeTask("a-0", 0, 4), MadeTask("b-0", 0.5, 3, thread=1), MadeTask("b-1", 1, 3)]
    state, sent = {"seceded": [("a-0", "a", 0.5)]}, [(0.0, 1), (0.5, 1), (1.0, 1)]
    run = graph_run(tmp_path, tasks, duration=4, nthreads=2, state=state, submissions=sent)

    assert segments(run) == [
        (0.0, 0.5, "not parallel", "a"),
        (0.5, 1.0, "seceded", "a"),
        (1.0, 3.0, "computing", "a"),
        (3.0, 4.0, "seceded", "a"),
    ]


def test_second_graph_waited_for_the_client(tmp_path):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 6, 8, ""))
    run = graph_run(
        tmp_path,
        tasks,
        duration=8,
        submissions=[(1.0, 1), (6.0, 1)],
        calls=[(0.2, 0.5, 0.6), (4.5, 5.0, 5.5)],
    )

    assert segments(run) == [
        (0.0, 0.2, "client", ""),
        (0.2, 0.7, "client graph", ""),
        (0.7, 1.0, "graph", ""),
        (1.0, 3.0, "computing", "a"),
        (3.0, 4.5, "client", ""),
        (4.5, 5.7, "client graph", ""),
        (5.7, 6.0, "graph", ""),
        (6.0, 8.0, "computing", "b"),
    ]


def test_paused_worker_is_a_cause(tmp_path):
    events = [
        [ON + 2.5, "worker-status-change", 0, '{"status": "paused", "before": "running"}'],
        [ON + 4.0, "worker-status-change", 0, '{"status": "running", "before": "paused"}'],
    ]
    tasks = tasks_of(("a-0", 0, 2, ""), ("b-0", 4.5, 6, "a-0"))
    run = graph_run(tmp_path, tasks, duration=6, events=events)

    assert [row[:3] for row in segments(run)] == [
        (0.0, 2.0, "computing"),
        (2.0, 2.5, "unexplained"),
        (2.5, 4.0, "worker paused"),
        (4.0, 4.5, "unexplained"),
        (4.5, 6.0, "computing"),
    ]


def test_threads_of_a_lost_worker_are_not_idle(tmp_path):
    # The result of b-0 is lost with its worker, and computed again: the graph has the last attempt.
    attempts = [MadeTask("b-0", 0, 1, worker=1, thread=1), MadeTask("b-0", 2, 3)]
    tasks = [MadeTask("a-0", 0, 2), *attempts]

    run = graph_run(tmp_path, tasks, duration=3, n_workers=2, left={1: 1.0})

    assert segments(run) == [(0.0, 2.0, "computing", "a"), (2.0, 3.0, "computing", "b")]


@pytest.mark.parametrize("duration", [7.0, 12.5])
def test_causes_sum_to_the_duration(tmp_path, duration):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 3.5, 5, "a-0"), ("c-0", 5, 9, "b-0"))
    run = graph_run(tmp_path, tasks, duration=duration)

    blame = blame_walk(run)

    assert blame["start"].iloc[0] == 0
    assert blame["stop"].iloc[-1] == duration
    assert (blame["start"].values[1:] == blame["stop"].values[:-1]).all()
    assert set(blame["cause"]) <= set(CAUSES)
    assert run_limits(run).causes["share"].sum() == pytest.approx(1, abs=1e-12)


def test_limits_name_the_bound(tmp_path):
    tasks = tasks_of(("a-0", 0, 2, ""), ("b-0", 2, 6, "a-0"))
    tasks += [MadeTask(f"c-{n}", 0, 1, thread=1) for n in range(1)]
    run = graph_run(tmp_path, tasks, duration=6, nthreads=2)

    limits = run_limits(run)

    assert limits.bounds["compute"] == pytest.approx(3.5)
    assert limits.bounds["critical path"] == pytest.approx(6)
    assert limits.binding == "critical path"
    assert limits.path["seconds"].to_dict() == pytest.approx({"b": 4.0, "a": 2.0})
    assert "critical path" in repr(limits)
    assert "6.00 s" in limits.sentences[0]


def test_clocks_that_differ_do_not_stop_the_walk(tmp_path):
    # The dependency seems to begin after its dependent, which ran before it in the same thread.
    tasks = tasks_of(("a-0", 2, 3, ""), ("b-0", 1, 2, "a-0"), ("c-0", 3, 4, "b-0"))
    run = graph_run(tmp_path, tasks, duration=4)

    blame = blame_walk(run)

    assert blame["start"].iloc[0] == 0
    assert blame["stop"].iloc[-1] == 4
    assert blame["group"].tolist()[-2:] == ["a", "c"]


def test_limits_over_time_divides_each_part_by_cause(tmp_path):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 3.5, 5, "a-0"), ("c-0", 5, 9, "b-0"))
    limits = run_limits(graph_run(tmp_path, tasks, duration=10, submissions=[(0.9, 3)]))
    parts = limits.over_time(5)

    assert parts.index.tolist() == pytest.approx([1, 3, 5, 7, 9])
    assert list(parts) == ["computing", "graph", "client", "unexplained"]
    assert parts["computing"].tolist() == pytest.approx([0.5, 0.75, 1, 1, 0.5])
    assert parts["unexplained"].tolist() == pytest.approx([0.05, 0.25, 0, 0, 0])
    assert parts["client"].tolist() == pytest.approx([0.3, 0, 0, 0, 0.5])
    assert parts.sum(axis=1).tolist() == pytest.approx([1] * 5)


def test_wait_is_the_scheduler_as_far_as_its_process_was_busy(tmp_path):
    tasks = tasks_of(("a-0", 0, 1, ""), ("b-0", 3, 4, "a-0"))
    scheduler = [{"time": ON + t, "monitor_time": ON + t, "cpu": 30.0} for t in (1, 2, 3, 4)]
    run = graph_run(tmp_path, tasks, duration=4, scheduler=scheduler)

    assert run_limits(run).causes["seconds"].to_dict() == pytest.approx(
        {"computing": 2.0, "scheduler": 0.6, "unexplained": 1.4}
    )


def test_what_every_task_waits_is_that_of_messages(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 0.9 + 0.05 * (n < 8)) for n in range(12)]
    limits = run_limits(graph_run(tmp_path, tasks, duration=11.9))

    assert limits.causes["seconds"]["messages"] == pytest.approx(11 * 0.05)
    assert limits.causes["seconds"]["unexplained"] == pytest.approx(3 * 0.05)


def test_loop_of_a_worker_is_a_cause(tmp_path):
    tasks = tasks_of(("a-0", 0, 1, ""), ("b-0", 3, 4, "a-0"))
    samples = [
        {"time": ON + t, "worker": 0, "tick_max": tick, "cpu_time": t}
        for t, tick in ((1.0, 0.0), (3.0, 1.5), (4.0, 0.0))
    ]
    limits = run_limits(graph_run(tmp_path, tasks, duration=4, samples=samples))

    assert limits.causes["seconds"]["worker loop"] == pytest.approx(1.5)


def test_threads_wait_for_a_processor(tmp_path):
    # The thread of the tasks waited for half of each; the scheduler's loop, 0.5 s between them.
    tasks = tasks_of(("a-0", 0, 2, ""), ("b-0", 3, 5, "a-0"))
    run = graph_run(tmp_path, tasks, duration=5)
    threads = {"server": ["worker", "scheduler"], "role": ["task", "loop"]}
    threads |= {"worker": [0, -1], "task_thread": [0, -1]}
    samples = {"sample_time": [0.0, 5.0, 0.0, 2.0, 3.0], "sample_thread": [0, 0, 1, 1, 1]}
    samples |= {"waited": [0.0, 2.5, 7.0, 7.0, 7.5], "ran": [0.0] * 5}
    data = {name: ("thread", values) for name, values in threads.items()}
    data |= {name: ("sample", values) for name, values in samples.items()}
    run.tree["thread_times"] = xr.DataTree(xr.Dataset(data))

    assert run_limits(run).causes["seconds"].to_dict() == pytest.approx(
        {"no processor": 2.5, "computing": 2.0, "unexplained": 0.5}
    )
    blame = run_limits(run).blame
    origins = (blame["stop"] - blame["start"]).groupby(blame["origin"]).sum()
    assert origins.to_dict() == pytest.approx(
        {"computing": 4.0, "messages": 0.5, "unexplained": 0.5}
    )


def test_tasks_that_can_run_wait_while_threads_are_idle(tmp_path):
    # All on worker 0 of two; of the last task, no other could have run.
    tasks = [MadeTask(f"a-{n}", n, n + 1, nbytes=1) for n in range(4)]
    causes = run_limits(graph_run(tmp_path, tasks, duration=4, n_workers=2)).causes["seconds"]

    assert causes.to_dict() == pytest.approx({"queued": 3.0, "not parallel": 1.0})


def test_tasks_that_wait_for_transfers_while_threads_are_idle_say_so(tmp_path):
    tasks = [
        MadeTask("a-0", 0, 1),
        MadeTask("b-0", 1, 3, ["a-0"]),
        MadeTask("c-0", 2.8, 4, ["a-0"], 1, 1, events=[("transfer", 1.1, 2.8)]),
    ]
    causes = run_limits(graph_run(tmp_path, tasks, duration=4, n_workers=2)).causes["seconds"]

    assert causes["transfer"] == pytest.approx(1.7)


def test_stolen_task_was_on_its_way(tmp_path):
    tasks = tasks_of(("a-0", 0, 1, ""), ("b-0", 3, 4, "a-0"))
    events = [[ON + 2.2, "steal", 0, '{"key": "b-0"}']]
    limits = run_limits(graph_run(tmp_path, tasks, duration=4, events=events))

    assert limits.causes["seconds"]["stealing"] == pytest.approx(0.8)


@pytest.mark.parametrize("option", ["workers", "resources"])
def test_restricted_tasks_wait_while_other_threads_are_idle(tmp_path, option):
    # Four tasks that are ready at once run one after another on worker 0 of two.
    tasks = [MadeTask(f"a-{n}", n + 0.1, n + 1, thread=n) for n in range(4)]
    options = {n: {option: ["0"]} for n in range(4)}
    run = graph_run(tmp_path, tasks, duration=4, n_workers=2, nthreads=4, options=options)

    seconds = run_limits(run).causes["seconds"]

    assert seconds["restricted"] == pytest.approx(2.7)
    assert seconds["not parallel"] == pytest.approx(0.9)
    assert seconds["unexplained"] == pytest.approx(0.4)


def test_time_without_a_worker_is_a_cause(tmp_path):
    tasks = [MadeTask("a-0", 0, 1), MadeTask("b-0", 4, 5, ["a-0"], worker=1, thread=1)]
    run = graph_run(tmp_path, tasks, duration=5, n_workers=2, left={0: 1.5})
    run.tree["workers"]["joined"].values[:] = [0.0, 3.5]

    assert run_limits(run).causes["seconds"]["no worker"] == pytest.approx(2.0)


def test_results_are_sent_to_the_client(tmp_path):
    tasks = [MadeTask("a-0", 0, 1, nbytes=10**8)]
    run = graph_run(tmp_path, tasks, duration=3, wanted=[[0]])
    sent = {"source": 0, "destination": -1, "count": 1.0, "bytes": 1e8, "seconds": 0.6}
    run.tree["transfers"] = xr.DataTree(
        xr.Dataset({name: ("pair", [value]) for name, value in sent.items()})
    )

    assert run_limits(run).causes["seconds"].to_dict() == pytest.approx(
        {"computing": 1.0, "gather": 1.2, "client": 0.8}
    )


def test_run_that_hangs_is_blamed_to_its_end(tmp_path):
    # The only worker is paused, and the second task never runs: nothing of it is the client's.
    tasks = [MadeTask("a-0", 0, 1), MadeTask("b-0", float("nan"), float("nan"), ["a-0"])]
    events = [[ON + 1.5, "worker-status-change", 0, '{"status": "paused", "before": "running"}']]
    run = graph_run(tmp_path, tasks, duration=9, events=events, wanted=[[1]])

    assert run_limits(run).causes["seconds"].to_dict() == pytest.approx(
        {"computing": 1.0, "unexplained": 0.5, "worker paused": 7.5}
    )
