"""Coordination workloads: tasks that wait for one another through the scheduler."""

from __future__ import annotations

import time

from benchkit.measure import expect, workload

N_TASKS = 4
LEASES = 2
#: Limit of a wait for another task; a longer wait means that a message was lost.
PATIENCE_S = 60
#: Interval of turns in which a task checks that it has the lock alone: the check needs more
#: requests to the scheduler than the lock.
EVERY = 10


@workload(
    variants={"kind": ["lock", "semaphore", "queue", "variable", "event"]},
    tags=["coordination", "latency", "nightly", "ci[kind=lock]"],
    deadline_s=180,
    metrics={"ms_per_turn": "ms"},
    version=2,
)
def primitives(client, scale, prepared, *, kind):
    """Let four tasks take turns through a lock, semaphore, queue, variable or event.

    Stresses the extensions of the scheduler: each turn is a few round trips between worker and
    scheduler. The tasks leave the thread pool, so that all four run at once on any cluster.

    Scale: 200 turns for each of four tasks x fraction.
    About 2 s on 2 x 1 x 1 GiB.
    Check: a lock has one holder and a semaphore at most its limit, checked in every tenth turn; a
    queue delivers each item once and in order; a variable only increases, has only values that were
    set, and ends with the last; each event wakes its waiting task.
    """
    take_turns = {
        "lock": _lock,
        "semaphore": _semaphore,
        "queue": _queue,
        "variable": _variable,
        "event": _event,
    }[kind]
    begin = time.perf_counter()
    tasks = client.map(take_turns, range(N_TASKS), turns=_turns(scale), name=prepared, pure=False)
    reports = client.gather(tasks)
    seconds = time.perf_counter() - begin
    return {"reports": reports, "last": _last(client, prepared, kind), "seconds": seconds}


@primitives.prepare
def _(client, *, kind):
    from uuid import uuid4

    from distributed import Queue, Variable

    name = f"benchkit-{kind}-{uuid4().hex}"
    if kind in ("lock", "variable"):
        Variable(name, client=client).set(0)
    if kind == "semaphore":
        free = Queue(name, client=client)
        for lease in range(LEASES):
            free.put(lease)
    return name


@primitives.check
def _(client, result, scale, prepared, *, kind):
    turns, reports = _turns(scale), result["reports"]
    expect(len(reports), equals=N_TASKS, what="tasks that told")
    if kind == "lock":
        # All tasks increase one number: two lock holders at a time would lose a step.
        steps = sorted(step for each in reports for step in each)
        count = N_TASKS * len(range(0, turns, EVERY))
        expect(steps, equals=list(range(1, count + 1)), what="steps under the lock")
    elif kind == "semaphore":
        free = [number for each in reports for number in each]
        count = N_TASKS * len(range(0, turns, EVERY))
        expect(len(free), equals=count, what="turns under the semaphore")
        expect(free, at_least=1, at_most=LEASES, what="leases free for one that was let in")
    elif kind == "queue":
        _check_queue(reports, turns)
    elif kind == "variable":
        for each in reports:
            expect(each, equals=sorted(each), what="values read one after the other")
            expect(len(each), equals=turns, what="values")
            expect(each, at_least=0, at_most=turns, what="values read")
        expect(reports[0], equals=list(range(1, turns + 1)), what="values set")
        expect(result["last"], equals=turns, what="value in the end")
    else:
        expect(reports, equals=[turns] * N_TASKS, what="events waited for")
    return {"ms_per_turn": result["seconds"] / turns * 1e3}


@primitives.cleanup
def _(client, *, kind, prepared=None):
    from distributed import Queue, Variable

    if prepared is None:
        return
    if kind in ("lock", "variable"):
        Variable(prepared, client=client).delete()
    if kind in ("semaphore", "queue"):
        Queue(prepared, client=client).close()


def _turns(scale):
    return max(20, round(200 * scale.fraction))


def _last(client, name, kind):
    from distributed import Variable

    return Variable(name, client=client).get(timeout=PATIENCE_S) if kind == "variable" else None


# -- the task of each kind ------------------------------------------------------------------------


def _lock(number, *, turns, name):
    """Take a lock; in some turns increase a shared number by one, and return its new values."""
    from distributed import Lock, Variable, secede

    secede()
    lock, shared = Lock(name), Variable(name)
    became = []
    for turn in range(turns):
        with lock:
            if not turn % EVERY:
                became.append(shared.get(timeout=PATIENCE_S) + 1)
                shared.set(became[-1])
    return became


def _semaphore(number, *, turns, name):
    """Enter a semaphore; in some turns take a token, and return the token counts."""
    from distributed import Queue, Semaphore, secede

    secede()
    semaphore, free = Semaphore(max_leases=LEASES, name=name), Queue(name)
    seen = []
    for turn in range(turns):
        with semaphore:
            if not turn % EVERY:
                seen.append(free.qsize())
                free.put(free.get(timeout=PATIENCE_S))
    return seen


def _queue(number, *, turns, name):
    """Put items if the task's number is even, get as many if it is odd; return them."""
    from distributed import Queue, secede

    secede()
    queue = Queue(name)
    items = []
    for turn in range(turns):
        if number % 2:
            items.append(queue.get(timeout=PATIENCE_S))
        else:
            queue.put([number, turn])
            items.append([number, turn])
    return items


def _check_queue(reports, turns):
    put = [tuple(item) for each in reports[::2] for item in each]
    got = [[tuple(item) for item in each] for each in reports[1::2]]
    expect(len(put), equals=turns * N_TASKS // 2, what="items put")
    all_got = sorted(item for each in got for item in each)
    expect(all_got, equals=sorted(put), what="items got")
    for each in got:
        for number in range(0, N_TASKS, 2):
            turns_of_one = [turn for source, turn in each if source == number]
            expect(turns_of_one, equals=sorted(turns_of_one), what="turns in order")


def _variable(number, *, turns, name):
    """Set the variable to 1, 2, ... in the first task, read it as often in the others."""
    from distributed import Variable, secede

    secede()
    variable = Variable(name)
    values = []
    for turn in range(1, turns + 1):
        if number == 0:
            variable.set(turn)
            values.append(turn)
        else:
            values.append(variable.get(timeout=PATIENCE_S))
    return values


def _event(number, *, turns, name):
    """Set and await events in turn with the neighbouring task; return the number of wake-ups."""
    from distributed import Event, secede

    secede()
    pair = f"{name}-{number // 2}"
    mine, other = Event(f"{pair}-{number % 2}"), Event(f"{pair}-{1 - number % 2}")
    woken = 0
    for _ in range(turns):
        if number % 2:
            woken += mine.wait(timeout=PATIENCE_S)
            mine.clear()
            other.set()
        else:
            other.set()
            woken += mine.wait(timeout=PATIENCE_S)
            mine.clear()
    return woken
