"""The order in which a replay starts tasks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.graph_runs import MadeTask, graph_run

from benchkit.analysis.insight.whatif import WhatIf


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
