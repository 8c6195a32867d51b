"""Tasks across the edges of the clock, on a scheduler of plain objects."""

from types import SimpleNamespace

import pytest

from benchkit.measure.capture.running_tasks import MAX_SECEDED, RunningTasks


def scheduler_with(groups=(), **workers):
    """Return a scheduler; a worker is a list of (task, seconds so far)."""
    state = SimpleNamespace(
        tasks={},
        task_groups={group.name: group for group in groups},
        workers={
            name: SimpleNamespace(
                executing=dict(running),
                long_running=set(),
                last_seen=100.0,
                nthreads=1,
                actors=set(),
            )
            for name, running in workers.items()
        },
        stream_handlers={},
        calls=[],
    )
    state.tasks = {task.key: task for rows in workers.values() for task, _ in rows}
    state.handle_long_running = lambda **arguments: state.calls.append(arguments)
    state.stream_handlers["long-running"] = state.handle_long_running
    return state


class Group(SimpleNamespace):
    """A task group, hashable by identity."""

    __hash__ = object.__hash__


class Task(Group):
    pass


def group_of(name="sum", seconds=0.0):
    return Group(name=name, all_durations={"compute": seconds}, states={"processing": 1})


def task_of(key, group):
    return Task(key=key, group=group, state="processing", actor=False)


def test_corrections_subtract_time_before_the_clock():
    """2 s of a task of 5 s lie before the clock; the scheduler adds all 5 s when it ends."""
    group = group_of()
    scheduler = scheduler_with([group], a=[(task_of("x", group), 2.0)])
    running = RunningTasks(scheduler, "capture")
    running.start(100.0)
    scheduler.workers["a"].executing = {}
    group.all_durations["compute"] = 5.0
    running.stop(110.0, [group])

    assert running.corrections() == {group: -2.0}


def test_corrections_add_time_of_tasks_that_still_run():
    """The heartbeat 1 s after the clock stopped reports 4 s: 3 s are within the clock."""
    group = group_of()
    scheduler = scheduler_with([group], a=[])
    running = RunningTasks(scheduler, "capture")
    running.start(100.0)
    running.stop(110.0, [group])
    scheduler.workers["a"].last_seen = 111.0
    scheduler.workers["a"].executing = {task_of("x", group): 4.0}

    assert running.corrections() == {group: 3.0}
    assert running.n_unfinished == 1


def test_corrections_limit_a_task_that_ran_all_the_time():
    group = group_of()
    task = task_of("x", group)
    scheduler = scheduler_with([group], a=[(task, 2.0)])
    running = RunningTasks(scheduler, "capture")
    running.start(100.0)
    running.stop(110.0, [group])
    scheduler.workers["a"].last_seen = 111.0
    scheduler.workers["a"].executing = {task: 13.0}

    assert running.corrections() == {group: 10.0}


def test_seceded_tasks_are_recorded_and_the_message_is_passed_on():
    group = group_of()
    scheduler = scheduler_with([group], a=[(task_of("x", group), 0.0)])
    original = scheduler.handle_long_running
    running = RunningTasks(scheduler, "capture")
    running.start(100.0)

    scheduler.stream_handlers["long-running"](key="x", compute_duration=0.5)
    running.stop(110.0, [group])

    assert running.state()["seceded"] == [("x", "sum", 0.5)]
    assert running.n_seceded_unknown == 0
    assert scheduler.calls == [{"key": "x", "compute_duration": 0.5}]
    assert scheduler.stream_handlers["long-running"] is original


@pytest.mark.parametrize(
    ("seconds", "n_before"), [(None, 0), (0.5, MAX_SECEDED)], ids=["unknown seconds", "too many"]
)
def test_seceded_tasks_without_seconds_are_counted(seconds, n_before):
    group = group_of()
    scheduler = scheduler_with([group], a=[(task_of("x", group), 0.0)])
    running = RunningTasks(scheduler, "capture")

    running.seceded = {str(number): ("sum", 0.1) for number in range(n_before)}

    running.add_seceded("x", seconds)

    assert len(running.state()["seceded"]) == n_before
    assert running.n_seceded_unknown == 1


def test_n_actors_is_the_largest_number_at_a_sample():
    scheduler = scheduler_with(a=[], b=[])
    running = RunningTasks(scheduler, "capture")
    running.start(100.0)
    scheduler.workers["a"].actors = {"p", "q"}
    running.sample()
    scheduler.workers["a"].actors = set()
    running.stop(110.0, [])

    assert running.n_actors == 2


def test_two_captures_share_one_wrapper():
    group = group_of()
    scheduler = scheduler_with([group], a=[(task_of("x", group), 0.0)])
    original = scheduler.handle_long_running
    first, second = RunningTasks(scheduler, "first"), RunningTasks(scheduler, "second")
    first.start(100.0)
    second.start(101.0)
    scheduler.stream_handlers["long-running"](key="x", compute_duration=0.5)
    first.stop(105.0, [])
    assert scheduler.stream_handlers["long-running"] is not original
    second.remove()

    assert first.state()["seceded"] == second.state()["seceded"] == [("x", "sum", 0.5)]
    assert len(scheduler.calls) == 1
    assert scheduler.stream_handlers["long-running"] is original
