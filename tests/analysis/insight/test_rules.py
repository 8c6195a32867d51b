"""Each rule finds its planted fault, not what is similar, and costs what it can save."""

import pytest

from benchkit.analysis.insight.diagnose import diagnose
from benchkit.analysis.insight.findings import Case
from benchkit.analysis.insight.memory import memory_peaks
from benchkit.analysis.insight.rules import RULES
from validation.graph_runs import MadeTask
from validation.planted_faults import (
    PLANTED,
    SIMILAR,
    busy,
    event,
    growing,
    later,
    own_seconds,
    rechunked,
    run_of,
    sample,
)
from validation.synthetic_recordings import MB, ON


def test_every_rule_has_a_planted_fault():
    assert sorted(PLANTED) == sorted(RULES)


@pytest.mark.parametrize("rule", PLANTED)
def test_rule_finds_its_planted_fault(tmp_path, rule):
    run = run_of(tmp_path, **PLANTED[rule])

    found = RULES[rule](Case(run))

    assert found is not None
    assert 0 < found.seconds or found.is_always_reported
    assert all([found.what, found.evidence, found.change])
    if found.window:
        assert 0 <= found.window[0] < found.window[1] <= run.duration
    names = [each.rule for each in diagnose(run).findings]
    assert rule in names, f"it costs {found.seconds:.3f} s"


@pytest.mark.parametrize(
    "rule", ["large_results", "left_memory", "lost_workers", "paused_workers", "unmanaged"]
)
def test_fact_that_cost_nothing_has_no_price(tmp_path, rule):
    found = diagnose(run_of(tmp_path, **PLANTED[rule])).findings

    [fact] = [finding for finding in found if finding.rule == rule]
    assert fact.seconds < 0.01, "not the least that a finding must cost"


def test_results_of_another_engine_are_not_memory_that_fills_the_workers(tmp_path):
    run = run_of(tmp_path, **PLANTED["unmanaged"])
    assert RULES["unmanaged"](Case(run)) is not None

    run.tree.attrs["engine"] = "frisky"
    assert RULES["unmanaged"](Case(run)) is None


@pytest.mark.parametrize("rule", SIMILAR)
def test_rule_does_not_find_what_is_similar(tmp_path, rule):
    assert RULES[rule](Case(run_of(tmp_path, **SIMILAR[rule]))) is None


@pytest.mark.parametrize(("scheduler", "graph", "is_found"), [(1.0, 0.5, True), (0.3, 2.0, False)])
def test_scheduler_that_unpacks_graphs_is_the_finding_of_another_rule(
    tmp_path, scheduler, graph, is_found, monkeypatch
):
    case = Case(run_of(tmp_path, **PLANTED["scheduler_busy"]))
    seconds = {"scheduler": scheduler, "graph": graph}
    monkeypatch.setattr(
        case, "blamed", lambda *causes: sum(seconds.get(cause, 0.0) for cause in causes)
    )

    assert (RULES["scheduler_busy"](case) is not None) is is_found


@pytest.mark.parametrize(("scheduler", "is_found"), [(1.0, True), (3.0, False)])
def test_too_few_tasks_are_not_tasks_that_come_late(tmp_path, scheduler, is_found, monkeypatch):
    case = Case(run_of(tmp_path, **PLANTED["too_few_tasks"]))
    seconds = {"scheduler": scheduler, "not parallel": 2.0}
    monkeypatch.setattr(
        case, "blamed", lambda *causes: sum(seconds.get(cause, 0.0) for cause in causes)
    )

    assert (RULES["too_few_tasks"](case) is not None) is is_found


@pytest.mark.parametrize(("seconds", "is_found"), [(0.9, False), (2.5, True)])
def test_stragglers_are_longer_than_the_other_tasks(tmp_path, seconds, is_found):
    # Five tasks on four threads; the last one is as long as the others, or longer.
    tasks = [MadeTask(f"work-{n}", 0.0, 1.0 if n else 0.5, worker=n // 2, thread=n)
             for n in range(4)]  # fmt: skip
    tasks.append(MadeTask("work-4", 0.5, 0.5 + seconds))
    case = Case(run_of(tmp_path, tasks, duration=0.5 + seconds))

    assert (RULES["stragglers"](case) is not None) is is_found


def test_uneven_tasks_that_end_last_are_one_finding(tmp_path):
    tasks = [*busy(12), MadeTask("work-99", 0.75, 5.0, thread=0)]
    case = Case(run_of(tmp_path, tasks, duration=5.0))

    assert RULES["skew"](case) is not None
    assert RULES["stragglers"](case) is None


def test_skew_promises_no_more_than_an_even_load_saves(tmp_path):
    # 12 tasks of 0.25 s, and one of 4.25 s: 13 equal ones take four turns of 4 threads.
    case = Case(run_of(tmp_path, **PLANTED["skew"]))

    even = (12 * 0.25 + 4.25) / 13
    assert RULES["skew"](case).seconds == pytest.approx(5.0 - 4 * even, abs=1e-3)
    # While others compute, the load is even: nothing would be saved.
    tasks = [*busy(12), MadeTask("work-99", 0.75, 5.0, thread=0)]
    others = [MadeTask(f"long-{n}", 0.75, 4.9, worker=n // 2, thread=n) for n in (1, 2, 3)]
    case = Case(run_of(tmp_path / "even", [*tasks, *others], duration=5.0))

    assert RULES["skew"](case).seconds < 0.2


def test_threads_that_spill_are_not_threads_of_tasks(tmp_path):
    samples = [
        sample(t, i, process_number=i, cpu_time=8.0 * t / 2.5) for t in (0, 2.5) for i in (0, 1)
    ]
    spilling = [["execute", "work", "disk-write", "seconds", 6.0, ""]]
    for fine, is_found in (
        (own_seconds(10.0, 0.0), True),
        (own_seconds(10.0, 0.0) + spilling, False),
    ):
        case = Case(run_of(tmp_path / str(is_found), fine=fine, samples=samples))
        assert (RULES["oversubscribed"](case) is not None) is is_found


def test_threads_that_fill_memory_until_a_pause_are_not_threads_of_tasks(tmp_path):
    samples = [
        sample(t / 2, i, process_number=i, cpu_time=1.6 * t, process=150 * MB * t)
        for t in range(6) for i in (0, 1)
    ]  # fmt: skip
    paused = [event("worker-status-change", i, 2.4, status="paused") for i in (0, 1)]
    for events, is_found in (([], True), (paused, False)):
        run = run_of(
            tmp_path / str(is_found), fine=own_seconds(10.0, 0.0), samples=samples, events=events
        )
        assert (RULES["oversubscribed"](Case(run)) is not None) is is_found


@pytest.mark.parametrize(
    ("rule", "constant", "smallest"),
    [
        ("network", "WORTH_SHARE", 1.5 / 2.9),
        ("garbage", "MIN_GARBAGE_SHARE", 0.8 / 2.5),
        ("slow_start", "WORTH_SHARE", 3 / 5.5),
        ("large_graph", "WORTH_SHARE", 2.8 / 5.5),
    ],
)
def test_shares_have_to_be_twice_as_large_on_disturbed_machines(tmp_path, rule, constant, smallest):
    case = Case(run_of(tmp_path, **PLANTED[rule]))

    for share, cores, is_found in (
        (0.9 * smallest, 0.0, True), (0.9 * smallest, 1.5, False), (0.4 * smallest, 1.5, True)
    ):  # fmt: skip
        case.other_cores = cores
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(RULES[rule].__wrapped__.__globals__, constant, share)
            assert (RULES[rule](case) is not None) is is_found, (share, cores)


def test_slow_worker_needs_more_than_tasks_with_unequal_work(tmp_path):
    # Worker 1 got more of the long tasks of a group, and is as fast as worker 0 with both kinds.
    kinds = {0: [0.1] * 18 + [0.5] * 4, 1: [0.1] * 4 + [0.2] * 2 + [0.5] * 5}
    tasks = []
    for worker, durations in kinds.items():
        stop = 0.0
        for number, seconds in enumerate(durations):
            start, stop = stop, stop + seconds
            tasks.append(
                MadeTask(f"work-{number}-{worker}", start, stop, worker=worker, thread=2 * worker)
            )
    case = Case(run_of(tmp_path, tasks, duration=4.0))

    assert RULES["slow_worker"](case) is None


@pytest.mark.parametrize(
    ("cpu", "noncpu", "seconds"),
    [
        (8.0, 8.0, 1.25),  # the share of the processors that others used, at most half
        (0.5, 8.0, 0.5),  # threads that compute 0.5 / 4 s each wait for 4 others
        (9.0, 0.8, 0.2),  # what the 4 threads waited
    ],
)
def test_neighbours_cost_no_more_than_tasks_waited(tmp_path, cpu, noncpu, seconds):
    case = Case(run_of(tmp_path, fine=own_seconds(cpu, noncpu)))
    case.other_cores = 4.0

    assert RULES["neighbours"](case).seconds == pytest.approx(seconds)


@pytest.mark.parametrize("computing", [0.5, 0.25])
def test_garbage_of_workers_costs_what_tasks_wait_for_it(tmp_path, computing):
    samples = [sample(t, 0, gc_time=0.4 * t) for t in (0, 2.5)]
    n_tasks = round(computing * 40)
    case = Case(run_of(tmp_path, busy(n_tasks), samples=samples))

    assert RULES["garbage"](case).seconds == pytest.approx(computing * 1.0)


def test_garbage_of_the_scheduler_costs_nothing_while_threads_work(tmp_path):
    scheduler = PLANTED["garbage"]["scheduler"]

    assert RULES["garbage"](Case(run_of(tmp_path, scheduler=scheduler))) is None


def test_findings_below_a_fifth_of_a_second_are_not_reported(tmp_path):
    def findings(folder, seconds):
        stack = "parse (x.py:1)\nread (y.py:2)"
        events = [event("loop-blocked", moment=0.22, seconds=seconds, stack=stack)]
        tasks = later(0.25, busy(8))
        return diagnose(run_of(folder, tasks, duration=0.75, events=events)).findings

    assert [found.rule for found in findings(tmp_path / "a", 0.21)] == ["blocked_loop"]
    assert findings(tmp_path / "b", 0.19) == []


@pytest.mark.parametrize(
    ("own", "process", "words"),
    [
        (0.8, 0.8, "event loop was blocked"),  # its own code, for which the client may wait
        (0.0, 0.0, "event loop was blocked"),  # it sleeps
        (0.01, 0.8, ""),  # the client computes, and the scheduler has nothing to do
    ],
)
def test_blocked_loop_costs_what_waits_for_the_scheduler(tmp_path, own, process, words):
    stack = "parse (x.py:1)\nread (y.py:2)"
    blocked = event("loop-blocked", seconds=0.8, stack=stack, own_cpu=own, process_cpu=process)
    sent = {"submissions": [(2.9, 40)], "calls": [(2.0, 2.2, 2.5)], "duration": 5.5}
    find = RULES["blocked_loop"]

    found = find(Case(run_of(tmp_path, later(3), events=[blocked], **sent)))

    assert (words in found.what) if words else found is None
    if not words:  # the scheduler has a graph, and needs the GIL for it
        at_graph = [[ON + 3.0, *blocked[1:]]]
        found = find(Case(run_of(tmp_path / "graph", later(3), events=at_graph, **sent)))
        assert found.what.endswith("held the GIL")
        assert found.seconds == pytest.approx(0.4)
    # While tasks compute, nothing waits for it.
    assert find(Case(run_of(tmp_path / "busy", events=[blocked]))) is None


def test_delays_of_a_worker_count_once_and_while_the_clock_runs(tmp_path):
    # Rows of other workers repeat a worker's last values; 29 s passed before the clock started.
    samples = [sample(0.0, 0, cpu_time=0.0), sample(1.0, 0, tick_max=30.0, cpu_time=0.1)]
    samples += [sample(1.1 + 0.1 * n, 1, tick_max=0.01, cpu_time=0.1 * n) for n in range(10)]
    samples += [sample(3.5, 0, tick_max=1.5, cpu_time=0.2)]  # 0.5 s of it

    found = RULES["blocked_worker"](Case(run_of(tmp_path, samples=samples)))

    assert found.evidence.startswith("worker 0: at least 1.50 s,")


def test_counters_grow_while_the_clock_runs(tmp_path):
    samples = [sample(t, 0, gc_time=gc, cpu_time=t) for t, gc in ((-1, 0), (1, 2), (2, 3), (3, 8))]
    case = Case(run_of(tmp_path, samples=samples))

    # Half of what grew across each edge.
    assert case.increase(case.workers, "gc_time").tolist() == pytest.approx([1 + 1 + 2.5, 0])


def test_collections_because_memory_is_full_are_not_those_of_many_objects(tmp_path):
    samples = [sample(t, 0, gc_time=gc, gc_max=0.4, cpu_time=t) for t, gc in ((0, 0), (2.5, 0.5))]
    paused = PLANTED["paused_workers"]["events"]
    find = RULES["garbage"]

    assert find(Case(run_of(tmp_path / "objects", samples=samples))) is not None
    assert find(Case(run_of(tmp_path / "full", samples=samples, events=paused))) is None


def test_data_in_a_graph_is_not_a_scheduler_with_many_tasks(tmp_path):
    run = run_of(tmp_path, **PLANTED["scheduler_busy"], graph_bytes=30 * 5 * MB)

    assert RULES["scheduler_busy"](Case(run)) is None
    found = RULES["large_graph"](Case(run))
    assert found.evidence.endswith("s to send data in tasks to workers")
    assert found.seconds > 1


def test_large_graph_counts_the_time_between_client_and_scheduler(tmp_path):
    tasks = later(3)
    run = run_of(tmp_path, tasks, duration=5.5, submissions=[(2.9, 40)], calls=[(0.1, 0.2, 0.25)])

    found = RULES["large_graph"](Case(run))

    assert found.evidence.startswith("50.0 ms to serialise, 2.35 s to send, 300 ms on the")


def test_large_graph_is_found_after_a_long_preparation_in_the_client(tmp_path):
    tasks = later(9)
    run = run_of(tmp_path, tasks, duration=11.5, submissions=[(8.9, 40)], calls=[(0.1, 8.0, 8.25)])

    found = RULES["large_graph"](Case(run))

    # 0.9 s of the 3.5 s after 8 s; of the whole duration it is less than a tenth.
    assert found.evidence.startswith("250 ms to serialise, 350 ms to send, 300 ms on the")


def test_threads_of_tasks_are_found_if_they_get_few_processors(tmp_path):
    fine = [
        ["execute", "work", "thread-noncpu", "seconds", 9.0, ""],
        ["execute", "work", "thread-cpu", "seconds", 0.5, ""],
    ]
    samples = [
        sample(t, i, process_number=i, cpu_time=2.4 * t / 2.5) for t in (0, 2.5) for i in (0, 1)
    ]
    case = Case(run_of(tmp_path, fine=fine, samples=samples))

    found = RULES["oversubscribed"](case)

    assert "of it outside of the threads of tasks" in found.evidence
    assert found.seconds == 0  # no waits were recorded
    assert found.is_always_reported
    assert RULES["waiting_inside"](case) is None


@pytest.mark.parametrize(("cpu", "is_found"), [(0.1, True), (0.6, False), (4.0, False)])
def test_waiting_inside_finds_sleeping_tasks_on_disturbed_machines(tmp_path, cpu, is_found):
    fine = [
        ["execute", "work", "thread-noncpu", "seconds", 8.0, ""],
        ["execute", "work", "thread-cpu", "seconds", cpu, ""],
    ]
    case = Case(run_of(tmp_path, fine=fine))
    case.other_cores = 1.5

    assert (RULES["waiting_inside"](case) is not None) is is_found


@pytest.mark.parametrize(("cores", "is_found"), [(0.0, True), (1.5, False)])
def test_blocked_worker_needs_longer_times_on_disturbed_machines(tmp_path, cores, is_found):
    case = Case(run_of(tmp_path, **PLANTED["blocked_worker"]))
    case.other_cores = cores

    assert (RULES["blocked_worker"](case) is not None) is is_found


def test_waiting_inside_is_no_finding_without_a_replay(tmp_path):
    case = Case(run_of(tmp_path, **PLANTED["waiting_inside"]))
    assert RULES["waiting_inside"](case).seconds > 0.2

    case.model = None

    assert RULES["waiting_inside"](case) is None


def test_slow_host_is_one_finding_and_a_slow_worker_of_it_another(tmp_path):
    slow_host = Case(run_of(tmp_path / "host", **PLANTED["slow_host"]))
    slow_worker = Case(run_of(tmp_path / "worker", **SIMILAR["slow_host"]))

    assert RULES["slow_worker"](slow_host) is None
    assert RULES["slow_host"](slow_host).what == "host node2 is slower than the others"
    # 80 tasks of 0.1 s on four threads take 2 s.
    assert RULES["slow_host"](slow_host).seconds == pytest.approx(1.0, abs=0.02)
    assert RULES["slow_worker"](slow_worker).worker == "3"


def test_hung_says_what_happened_last_and_what_is_waited_for(tmp_path):
    found = RULES["hung"](Case(run_of(tmp_path, **PLANTED["hung"])))

    assert found.seconds == pytest.approx(2.5)
    assert found.evidence == (
        "the last task to end, after 500 ms, was one of work; then 2.50 s, most of it waiting for "
        "the workers that may run a task; 1 result missing, for which a task of a group of which "
        "none ran with resources={'GPU': 1} has to run; tasks still ran on no worker"
    )
    assert found.change.startswith("let more workers run these tasks")


def test_left_memory_is_that_of_a_task(tmp_path):
    found = RULES["left_memory"](Case(run_of(tmp_path, **PLANTED["left_memory"])))

    assert found.group == "work"
    assert "tasks of work leave about 9.54 MiB each; those of the second half" in found.evidence


def test_left_memory_is_not_what_tasks_need_while_they_run(tmp_path):
    peaks = growing(10)
    peaks["memory"] = [{**row, "peak": row["rss"] + 50 * MB} for row in peaks["memory"]]

    transient = memory_peaks(run_of(tmp_path, **peaks)).transient

    # Two tasks run at the same time on a worker; each leaves 10 MB.
    assert transient["work"] <= 45 * MB


def test_kept_results_take_their_share_of_spilling(tmp_path):
    case = Case(run_of(tmp_path, **PLANTED["kept_results"]))
    kept, spilling = RULES["kept_results"](case), RULES["spilling"](case)

    # In the first wait nothing is kept, in the last nine of ten results are.
    share = sum(n / (n + 1) for n in range(10)) / 10
    total = kept.seconds + spilling.seconds
    assert kept.seconds == pytest.approx(share * total, rel=1e-3)
    assert "up to 858 MiB, most of load" in kept.evidence


def test_lost_workers_cost_waits_after_the_loss_only(tmp_path):
    # Nothing runs from 1 to 3 s and, after the loss, from 4 to 4.5 s.
    tasks = [*busy(16), *later(3, busy(16)), *later(4.5, busy(4))]
    tasks = [task._replace(key=f"work-{n}") for n, task in enumerate(tasks)]
    lost = event("worker-removed", 1, 4.0, expected=False, n_lost=1)

    found = RULES["lost_workers"](Case(run_of(tmp_path, tasks, duration=4.75, events=[lost])))

    assert found.seconds == pytest.approx(0.5)


def paused_while_others_work(n_computing):
    """Return a run in which worker 0 is paused for 8 of 10 s, while threads of worker 1 compute.

    Each second they load a result that futures keep, and use it.
    """
    tasks = [
        MadeTask(f"first-{n + end}", end - 1, end, thread=n) for end in (1, 10) for n in (0, 1)
    ]
    for n in range(9):
        for thread in range(2, 2 + n_computing):
            place, load = {"worker": 1, "thread": thread}, f"load-{10 * n + thread}"
            tasks.append(MadeTask(load, n, n + 0.5, nbytes=100 * MB, **place))
            tasks.append(MadeTask(f"use-{10 * n + thread}", n + 0.5, n + 1, [load], **place))
    status = "worker-status-change"
    return {
        "tasks": tasks,
        "duration": 10.0,
        "wanted": [list(range(len(tasks)))],
        "events": [
            event(status, 0, 1.0, status="paused", before="running"),
            event(status, 0, 9.0, status="running", before="paused"),
        ],
    }


# Of the 8 s of the pause, four threads need n * 8 s / 4 for what n threads compute.
@pytest.mark.parametrize(("n_computing", "saved"), [(1, 6.0), (2, 4.0)])
def test_pause_costs_what_an_even_load_would_save(tmp_path, n_computing, saved):
    case = Case(run_of(tmp_path, **paused_while_others_work(n_computing)))
    kept, paused = RULES["kept_results"](case), RULES["paused_workers"](case)

    assert case.blamed("worker paused") == pytest.approx(8.0)
    assert kept.seconds > 0.8 * saved
    assert kept.seconds + paused.seconds == pytest.approx(saved)


def test_waits_cost_no_more_than_the_run_takes_longer_than_its_tasks(tmp_path):
    # A chain on one thread waits for 8 s for a transfer, while the others compute for 9.6 s.
    tasks = [MadeTask(f"other-{n}", 0, 9.6, worker=n // 2, thread=n) for n in (1, 2, 3)]
    fetched = [("transfer", 1.0, 9.0)]
    tasks += [
        MadeTask("first-0", 0, 1.0),
        MadeTask("last-0", 9.0, 10.0, ["first-0"], events=fetched),
    ]
    run = run_of(tmp_path, tasks, duration=10.0)

    (found,) = diagnose(run).findings

    assert RULES["network"](Case(run)).seconds >= 8.0
    assert found.rule == "network"
    assert found.seconds == pytest.approx(0.4)  # the longest task takes 9.6 s


def test_p2p_tells_its_phases_apart(tmp_path):
    case = Case(run_of(tmp_path, **PLANTED["p2p"]))
    found = RULES["p2p"](case)

    assert found.what.endswith("most in its barrier")
    assert found.seconds == pytest.approx(1.5)
    assert found.evidence == (
        "500 ms of transfer, 1.50 s of barrier, 500 ms of unpack; of the barrier, 1.50 s are waits"
    )
    assert RULES["too_few_tasks"](case) is None


# In the replay, the four tasks that are left of the last step run on one of the two workers.
@pytest.mark.parametrize(("fused", "seconds"), [("", 1.0), ("-sum", 0.5)])
def test_rechunked_back_costs_its_tasks_but_what_is_computed_with_them(tmp_path, fused, seconds):
    tasks = rechunked(100, 100, 100, 100, fused=fused)
    found = RULES["rechunked_back"](Case(run_of(tmp_path, tasks, duration=1.25)))

    assert found.seconds == pytest.approx(seconds, abs=0.05)
    assert found.evidence.startswith(f"the 4 blocks of rechunk-merge{fused}-c have the places and")


def test_rechunked_back_is_not_what_something_else_uses_between(tmp_path):
    tasks = rechunked(100, 100, 100, 100)
    between = MadeTask("max-d-0", 1.0, 1.25, ["rechunk-merge-b-0"], thread=5)

    assert RULES["rechunked_back"](Case(run_of(tmp_path, [*tasks, between], duration=1.25))) is None
