"""Runs with one fault each, for the rules of the diagnosis."""

import json
from typing import Any

import xarray as xr

from benchkit.measure.capture.columns import HELD_COLUMNS
from validation.graph_runs import MadeTask, graph_run, tasks_of
from validation.run_trees import profile_group
from validation.synthetic_recordings import MB, NAN, ON, rows


def busy(count=40, group="work", seconds=0.25, n_threads=4, **more):
    """Return tasks that keep all threads busy from 0 on."""
    return [
        MadeTask(
            f"{group}-{n}", n // n_threads * seconds, n // n_threads * seconds + seconds,
            worker=n % n_threads // 2, thread=n % n_threads, **more,
        )
        for n in range(count)
    ]  # fmt: skip


def run_of(
    folder, tasks=None, *, duration=2.5, n_workers=2, nthreads=2, stacks=None, sent=None,
    outcome="ok", **more
):  # fmt: skip
    """Return a run of tasks, with call stacks, and rows of source, destination, bytes, seconds."""
    tasks = busy() if tasks is None else tasks
    run = graph_run(
        folder, tasks, duration=duration, n_workers=n_workers, nthreads=nthreads, **more
    )
    run.tree.attrs["outcome"] = outcome
    if stacks:
        run.tree["profile"] = xr.DataTree(profile_group(stacks))
    if sent:
        names = ("source", "destination", "bytes", "seconds")
        columns = {
            name: ("pair", list(values))
            for name, values in zip(names, zip(*sent, strict=True), strict=True)
        }
        run.tree["transfers"] = xr.DataTree(xr.Dataset(columns))
        outside = sum(size for _, target, size, _ in sent if target < 0)
        run.tree["gather_bytes"] = float(outside)
    return run


def sample(moment, index, **values):
    return {"time": ON + moment, "worker": index, **values}


def event(topic, worker=-1, moment=1.0, **message):
    return [ON + moment, topic, worker, json.dumps(message)]


def later(seconds, tasks=None):
    """Return tasks that start this much later."""
    tasks = busy() if tasks is None else tasks
    return [task._replace(start=task.start + seconds, stop=task.stop + seconds) for task in tasks]


def alone():
    """Return tasks of which the last one runs alone for most of the time."""
    return [*busy(8), MadeTask("work-8", 0.5, 9.5, thread=0)]


def growing(left_mb):
    """Return tables with the memory of two workers whose tasks leave some MB, 20 each."""
    ended = [min(20, 2 * (n // 2)) for n in range(25)]
    memory = [
        {"time": ON + n / 8, "worker": w, "rss": (100 + left_mb * count) * MB, "area": n * MB}
        for w in (0, 1) for n, count in enumerate(ended)
    ]  # fmt: skip
    held = [{"time": ON + t, "group": 0, "worker": w, "nbytes": 0} for t in (0, 3) for w in (0, 1)]
    return {"memory": memory, "held": rows(HELD_COLUMNS, *held)}


#: Ten tasks whose results are spilled, and a task that uses each of them.
SPILLED = [
    MadeTask(f"{name}-{n}", n + begin, n + end, before, nbytes=size, events=events)
    for n in range(10)
    for name, begin, end, before, size, events in (
        ("load", 0.0, 0.5, [], 100 * MB, []),
        ("use", 0.9, 1.0, [f"load-{n}"], 100, [("disk-write", n + 0.5, n + 0.9)]),
    )
]


#: The fine metrics of writing them.
WRITING = [["execute", "load", "disk-write", "seconds", 4.0, ""]]


def p2p_rechunk(barrier_s):
    """Return tasks of a P2P rechunk by four threads, with the seconds of its barrier."""
    end = 0.5 + barrier_s
    sent, got = (busy(4, f"rechunk-{name}-ab12", 0.5) for name in ("transfer", "p2p"))
    barrier = MadeTask("shuffle-barrier-ab12", 0.5, end, [task.key for task in sent])
    return [*sent, barrier, *later(end, [t._replace(dependencies=[barrier.key]) for t in got])]


def rechunked(*last_sizes, fused=""):
    """Return tasks that rechunk four blocks of 100 B and again, to blocks of these sizes."""
    tasks = busy(4, "add-a")
    for number, name in enumerate(("split-b", "merge-b", "split-c", f"merge{fused}-c"), 1):
        keys = [task.key for task in tasks[-4:]]
        sizes = last_sizes if name.endswith("-c") else [100] * 4
        before = [keys] * 4 if name == "merge-b" else [[key] for key in keys]
        step = later(0.25 * number, busy(4, f"rechunk-{name}"))
        tasks += [
            task._replace(dependencies=inputs, nbytes=size)
            for task, inputs, size in zip(step, before, sizes, strict=True)
        ]
    return tasks


def own_seconds(cpu, noncpu):
    """Return fine metrics: seconds in which the threads of tasks computed, and waited."""
    return [
        ["execute", "work", "thread-cpu", "seconds", cpu, ""],
        ["execute", "work", "thread-noncpu", "seconds", noncpu, ""],
    ]


#: A call stack of the tasks of `busy`.
WORK = ("work", ("load", "/code/pipeline.py"))
#: Rule -> tasks and arguments of a run with its fault.
PLANTED: dict[str, dict[str, Any]] = {
    "tiny_tasks": {
        "tasks": [MadeTask(f"t-{n}", n * 0.01, n * 0.01 + 0.001) for n in range(600)],
        "duration": 6.0,
    },
    "too_few_tasks": {
        "tasks": [MadeTask(f"c-{n}", n, n + 1, [f"c-{n - 1}"] if n else []) for n in range(5)],
        "duration": 5.0,
    },
    "stragglers": {"tasks": [*busy(12), MadeTask("last-0", 0.5, 3.0, thread=5)], "duration": 3.0},
    "skew": {"tasks": [*busy(12), MadeTask("work-99", 0.75, 5.0, thread=0)], "duration": 5.0},
    "recomputed": {
        "tasks": [
            *busy(8),
            MadeTask("a-0", 0.5, 2.4, worker=1, thread=2),
            MadeTask("a-0", 2.5, 4.9, worker=0, thread=0),
        ],
        "duration": 5.0,
        "left": {1: 2.45},
        "events": [event("worker-removed", 1, 2.45, expected=False, n_lost=1)],
    },
    "failed_attempts": {
        "samples": [sample(t, i, failed_time=0.4 * t) for t in (0.0, 2.5) for i in (0, 1)]
    },
    "waiting_inside": {
        "fine": [
            ["execute", "work", "thread-noncpu", "seconds", 8.0, ""],
            ["execute", "work", "thread-cpu", "seconds", 2.0, ""],
        ]
    },
    "seceded": {  # one task that submits four others, one after another
        "tasks": [
            MadeTask("outer-0", 0, 4.0),
            *(MadeTask(f"inner-{n}", n + 0.1, n + 0.9, thread=1) for n in range(4)),
        ],
        "duration": 4.0,
        "state": {"seceded": [("outer-0", "outer", 0.1)]},
    },
    "spilling": {"tasks": SPILLED, "duration": 10.0, "fine": WRITING},
    "large_results": {"tasks": busy(nbytes=300 * MB)},
    "kept_results": {
        "tasks": SPILLED,
        "duration": 10.0,
        "wanted": [[*range(0, 20, 2), 19]],
        "fine": WRITING,
    },
    "left_memory": growing(10),
    "unmanaged": {"samples": [sample(t, i, unmanaged_old=7e8) for t in (1, 2) for i in (0, 1)]},
    "paused_workers": {
        "events": [
            event("worker-status-change", 0, 1.0, status="paused", before="running"),
            event("worker-status-change", 0, 2.0, status="running", before="paused"),
        ]
    },
    "lost_workers": {"events": [event("worker-removed", 1, 2.0, expected=False, n_lost=1)]},
    "slow_worker": {
        "tasks": [
            MadeTask(f"work-{n}-{w}", n * d, n * d + d, worker=w, thread=2 * w)
            for w, d, count in ((0, 0.1, 30), (1, 0.3, 10))
            for n in range(count)
        ],
        "duration": 3.0,
    },
    "slow_host": {
        "tasks": [
            MadeTask(f"work-{100 * w + n}", n * d, n * d + d, worker=w, thread=w)
            for w, d, count in ((0, 0.1, 30), (1, 0.1, 30), (2, 0.3, 10), (3, 0.3, 10))
            for n in range(count)
        ],
        "duration": 3.0,
        "n_workers": 4,
        "nthreads": 1,
        "hosts": ["node1", "node1", "node2", "node2"],
    },
    "scheduler_busy": {
        "tasks": [MadeTask(f"t-{n}", n * 0.1, n * 0.1 + 0.03) for n in range(30)],
        "duration": 3.0,
        "scheduler": [
            {"time": ON + t, "monitor_time": ON + t, "cpu": 95.0} for t in (0.5, 1, 1.5, 2, 2.5, 3)
        ],
    },
    "network": {
        "tasks": [
            MadeTask("a-0", 0, 1, worker=1, thread=2),
            MadeTask("b-0", 2.5, 3, ["a-0"], events=[("transfer", 1, 2.5)]),
        ],
        "duration": 3.0,
    },
    "rechunked_back": {"tasks": rechunked(100, 100, 100, 100), "duration": 1.25},
    "p2p": {"tasks": p2p_rechunk(1.5), "duration": 2.5},
    "neighbours": {
        "samples": [
            sample(t, i, process_number=i, machine_number=1, cpu_time=t, machine_cpu_time=4 * t)
            for t in (0.1, 2.4)
            for i in (0, 1)
        ]
    },
    "oversubscribed": {
        "samples": [
            sample(t, i, process_number=i, cpu_time=20 * t) for t in (0, 2.5) for i in (0, 1)
        ]
    },
    "gil": {
        "samples": [
            sample(t, i, gil_time=0.9 * t, monitor_time=ON + t) for t in (0.0, 2.5) for i in (0, 1)
        ]
    },
    "blocked_loop": {
        "tasks": later(1.2),
        "duration": 3.7,
        "events": [event("loop-blocked", seconds=0.8, stack="parse (x.py:1)\nread (y.py:2)")],
    },
    "blocked_worker": {
        "tasks": tasks_of(("a-0", 0, 0.1, ""), ("b-0", 1, 1.1, "a-0"), ("c-0", 2, 2.5, "b-0")),
        "samples": [sample(t, 0, tick_max=0.9, cpu_time=t) for t in (1, 2)],
    },
    "garbage": {
        "tasks": [MadeTask(f"t-{n}", n * 0.1, n * 0.1 + 0.03) for n in range(25)],
        "scheduler": [{"time": ON + t, "gc_time": 10 + 0.4 * t} for t in (0, 1, 2)],
    },
    "slow_start": {
        "tasks": later(3),
        "duration": 5.5,
        "submissions": [(2.9, 40)],
        "calls": [(2.0, 2.2, 2.5)],
    },
    "large_graph": {
        "tasks": later(3),
        "duration": 5.5,
        "submissions": [(2.9, 40)],
        "calls": [(0.1, 0.2, 2.5)],
    },
    "lock": {"stacks": {WORK: 4, (*WORK, ("acquire", "/lib/distributed/semaphore.py")): 6}},
    "python_loop": {"stacks": {(*WORK, ("apply_standard", "/lib/pandas/core/apply.py")): 9}},
    "reading": {"stacks": {(*WORK, ("get_basic_selection", "/lib/zarr/core/array.py")): 9}},
    "restricted": {
        "tasks": [MadeTask(f"a-{n}", n // 2, n // 2 + 1, thread=n % 2) for n in range(8)],
        "duration": 4.0,
        "options": {n: {"workers": ["0"]} for n in range(8)},
    },
    "gathered": {"duration": 4.5, "sent": [(0, -1, 4e8, 0.5)], "wanted": [[39]]},
    "serial_graphs": {  # five times four tasks, of which one is long
        "tasks": [
            MadeTask(f"g{n}-{k}", 1.5 * n, 1.5 * n + (0.1 if k else 1.0), worker=k // 2, thread=k)
            for n in range(5) for k in range(4)
        ],
        "duration": 7.0,
        "submissions": [(1.5 * n, 4) for n in range(5)],
        "wanted": [list(range(4 * n, 4 * n + 4)) for n in range(5)],
    },
    "repeated": {
        "tasks": [*busy(20), *later(1.25, busy(20))],
        "submissions": [(0.0, 20), (1.25, 20)],
    },
    "hung": {
        "tasks": [*busy(8), MadeTask("sum-0", NAN, NAN, ["work-0"])],
        "duration": 3.0,
        "wanted": [[8]],
        "options": {8: {"resources": {"GPU": 1}}},
        "outcome": "timeout",
    },
    "slow_link": {
        "tasks": [
            MadeTask("a-0", 0, 1, worker=1, thread=2),
            MadeTask("b-0", 2.5, 3, ["a-0"], events=[("transfer", 1, 2.5)]),
        ],
        "duration": 3.0,
        "n_workers": 3,
        "sent": [(0, 1, 1e8, 1.5), (0, 2, 1e8, 0.1), (2, 0, 1e8, 0.1)],
    },
}  # fmt: skip


#: Rule -> tasks and arguments of a run that has something similar to its fault, but not the fault.
SIMILAR: dict[str, dict[str, Any]] = {
    "hung": {**PLANTED["hung"], "outcome": "ok"},  # the client did not want to wait
    "oversubscribed": {  # 2000 tasks need 8 s of processor time on the workers besides their own
        "tasks": [
            MadeTask(f"work-{n}", n // 4 * 0.005, n // 4 * 0.005 + 0.005,
                     worker=n % 4 // 2, thread=n % 4)
            for n in range(2000)
        ],
        "fine": own_seconds(8.0, 2.0),
        "samples": [
            sample(t, i, process_number=i, cpu_time=8.0 * t / 2.5) for t in (0, 2.5) for i in (0, 1)
        ],
    },
    "slow_worker": {  # the tasks of worker 1 are as fast as the others, apart from one
        "tasks": [*busy(20), MadeTask("work-x", 1.25, 5.0, worker=1, thread=3)],
        "duration": 5.0,
    },
    "slow_host": {  # one of the two workers of the second host is slow
        "tasks": [
            MadeTask(f"work-{100 * w + n}", n * d, n * d + d, worker=w, thread=w)
            for w, d, count in ((0, 0.1, 30), (1, 0.1, 30), (2, 0.1, 30), (3, 0.3, 10))
            for n in range(count)
        ],
        "duration": 3.0,
        "n_workers": 4,
        "nthreads": 1,
        "hosts": ["node1", "node1", "node2", "node2"],
    },
    "stragglers": {  # a chain ends with a single task, but was never parallel
        "tasks": [
            MadeTask("c-0", 0, 1.0), MadeTask("d-0", 0.9, 1.01, thread=1),
            MadeTask("e-0", 0.9, 1.01, worker=1, thread=2), MadeTask("c-1", 1, 5, ["c-0"]),
        ],
        "duration": 5.0,
    },
    "too_few_tasks": {  # the other threads wait for spilled results
        **PLANTED["too_few_tasks"],
        "fine": [["execute", "c", "disk-read", "seconds", 18.0, ""]],
    },
    "network": {  # the sender reads a spilled result
        **PLANTED["network"],
        "fine": [
            ["gather-dep", "", "network", "seconds", 1.5, ""],
            ["get-data", "", "disk-read", "seconds", 1.4, ""],
        ],
    },
    "seceded": {  # meanwhile its tasks keep all threads busy
        "tasks": [MadeTask("outer-0", 0, 2.5, thread=4), *busy(40)],
        "state": {"seceded": [("outer-0", "outer", 0.1)]},
    },
    "rechunked_back": {"tasks": rechunked(50, 100, 100, 150), "duration": 1.25},
    "p2p": {"tasks": p2p_rechunk(0.05), "duration": 1.05},
    "skew": {  # the longest task waits while memory fills until its worker is paused
        **PLANTED["skew"],
        "events": [event("worker-status-change", 0, 4.0, status="paused", before="running")],
        "fine": [["execute", "work", "thread-noncpu", "seconds", 4.2, ""]],
    },
    "spilling": {  # written while all threads computed
        "fine": [["execute", "work", "disk-write", "seconds", 2.0, ""]]
    },
    "kept_results": {  # the futures of the first step are gone when the second has ended
        "tasks": SPILLED,
        "duration": 10.0,
        "wanted": [list(range(1, 20, 2))],
        "fine": WRITING,
    },
    "left_memory": {  # given back at the end
        **growing(10),
        "memory": [
            {**row, "rss": 100 * MB} if row["time"] >= ON + 2.8 else row
            for row in growing(10)["memory"]
        ],
    },
    "unmanaged": {  # imported modules fill more than half of a small limit
        "samples": [sample(t, i, unmanaged_old=600 * MB) for t in (1, 2) for i in (0, 1)]
    },
    "blocked_loop": {  # garbage collection has a rule of its own
        **PLANTED["blocked_loop"],
        "scheduler": [
            {"time": ON + t, "gc_time": gc} for t, gc in ((0.1, 0), (1.1, 0.7), (1.3, 0.7))
        ],
    },
    "blocked_worker": {"samples": [sample(t, 0, tick_max=0.4) for t in (1, 2)]},
    "garbage": {"scheduler": [{"time": ON + t, "gc_time": 10 + 0.05 * t} for t in (0, 1, 2)]},
    "slow_start": {  # the first attempts failed: only later ones are in the list of tasks
        "tasks": later(1),
        "duration": 3.5,
        "submissions": [(0.05, 40)],
    },
    "lock": {"stacks": {WORK: 9, (*WORK, ("acquire", "/lib/distributed/semaphore.py")): 1}},
    "restricted": {  # all workers are busy
        "options": {n: {"workers": ["0"]} for n in range(40)},
    },
    "gathered": {"duration": 4.5, "sent": [(0, -1, 4e6, 0.01)], "wanted": [[39]]},
    "serial_graphs": {  # threads are busy all the time
        "submissions": [(0.25 * n, 4) for n in range(10)],
        "wanted": [list(range(4 * n, 4 * n + 4)) for n in range(10)],
    },
    "repeated": {"submissions": [(0.0, 20), (1.25, 20)]},
    "large_graph": {  # 40 graphs at the same time, of which each takes 0.3 s
        "tasks": later(7),
        "duration": 9.5,
        "submissions": [(1.0 + 0.001 * n, 1) for n in range(40)],
    },
}  # fmt: skip
