"""The order in which a replay starts tasks, and the idle seconds between them."""

import json
import math

import numpy as np
import pytest

from benchkit.predict.whatif import WhatIf
from validation.graph_runs import MadeTask, graph_run


@pytest.mark.parametrize("others", ["b-0 b-1 b-2 c-0 c-1 c-2 c-3", "c-0 c-1 c-2 c-3 b-0 b-1 b-2"])
@pytest.mark.parametrize("inputs", [
    ["a-0", "a-0", "a-0"],  # all become ready at once
    ["a-0", "a-1", "a-1"],  # one alone, then two
])  # fmt: skip
def test_root_tasks_start_by_priority_whenever_they_become_ready(tmp_path, inputs, others):
    keys = ["a-0", "a-1", *others.split()]
    needs = {f"b-{n}": [name] for n, name in enumerate(inputs)}
    tasks = [MadeTask(key, n, n + 1, needs.get(key, ())) for n, key in enumerate(keys)]
    run = graph_run(tmp_path, tasks, duration=len(tasks))

    schedule = WhatIf(run).base

    assert [keys[node] for node in np.argsort(schedule.start)] == keys


def test_late_start_of_the_first_tasks_delays_no_others(tmp_path):
    first = [MadeTask("a-0", 0.05, 0.051), MadeTask("a-1", 0.052, 0.053)]
    others = [MadeTask(f"a-{n}", 0.05 + n / 1000, 0.0501 + n / 1000) for n in range(4, 204)]
    run = graph_run(tmp_path, [*first, *others], duration=0.26)

    assert WhatIf(run).base.duration == pytest.approx(0.26, rel=0.1)


def with_options(run, **options):
    """Return a run with options of the scheduler; `_` stands for `-`."""
    options = {name.replace("_", "-"): value for name, value in options.items()}
    defaults = {
        "worker-saturation": 1.1, "work-stealing": True, "work-stealing-interval": "1s",
    }  # fmt: skip
    config = {"distributed": {"scheduler": defaults | options}}
    run.tree.attrs["config"] = json.dumps(config)
    return run


@pytest.mark.parametrize(("options", "seconds"), [
    ({}, 5.5),  # stolen after 1.5 s
    ({"work_stealing_interval": "100ms"}, 5.0),
    ({"work_stealing": False}, 9.0),
])  # fmt: skip
def test_stealing_is_as_configured(tmp_path, options, seconds):
    tasks = [
        MadeTask("a-0", 0, 1, nbytes=10),
        *(MadeTask(f"b-{n}", 1 + 2 * n, 3 + 2 * n, ["a-0"]) for n in range(4)),
    ]
    run = with_options(graph_run(tmp_path, tasks, duration=9), **options)

    assert WhatIf(run).predict(workers=2).seconds == pytest.approx(seconds, abs=0.3)


@pytest.mark.parametrize(("saturation", "seconds"), [
    (1.1, 11),  # a short task waits for the long one, seven run on the other worker
    (1.0, 10),
    ("inf", 14),  # half of the tasks are sent to each worker at once
    (math.inf, 14),
])  # fmt: skip
def test_root_tasks_wait_for_a_worker_as_configured(tmp_path, saturation, seconds):
    ends = [10, *range(11, 20)]
    tasks = [
        MadeTask(f"a-{n}", end - (1 if n else 10), end) for n, end in enumerate(ends)
    ]  # fmt: skip
    run = graph_run(tmp_path, tasks, duration=19)
    run = with_options(run, worker_saturation=saturation, work_stealing=False)

    assert WhatIf(run).predict(workers=2).seconds == pytest.approx(seconds, abs=0.1)
