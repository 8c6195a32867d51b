"""Each reason for which nothing is predicted, in both engines."""

import numpy as np
import pytest
import xarray as xr

from benchkit.errors import NotRecorded
from benchkit.experiment.virtual.api import simulate
from benchkit.predict.refusals import UnsupportedRun
from benchkit.predict.whatif import WhatIf
from validation.graph_runs import MadeTask, graph_run


def metric(name):
    """Return a change of a run that sets a metric."""
    return lambda tree: tree.update({name: xr.DataArray(1.5)})


def of_workers(name, value):
    """Return a change of a run that sets a value of its second worker."""

    def change(tree):
        workers = tree["workers"].to_dataset().copy(deep=True)
        workers[name].values[1] = value
        tree["workers"] = workers

    return change


def failed(tree):
    tree.attrs["outcome"] = "failed"


def dropped(tree):
    tree["tasks"].attrs["n_dropped"] = 1


@pytest.mark.parametrize(("change", "reason"), [
    (failed, "its outcome is failed"),
    (dropped, "tasks are missing from its task stream"),
    (metric("seceded_time"), "its tasks left their threads"),
    (metric("n_tasks_recomputed"), "its tasks were computed again"),
    (metric("n_workers_lost"), "it lost workers"),
    (of_workers("joined", 0.5), "workers joined or left during the run"),
    (of_workers("left", 0.5), "workers joined or left during the run"),
    (of_workers("nthreads", 2), "its workers differ in threads or memory"),
    (of_workers("memory_limit", 2**20), "its workers differ in threads or memory"),
])  # fmt: skip
def test_run_is_refused_with_the_reason(tmp_path, change, reason):
    run = graph_run(tmp_path, [MadeTask("a-0", 0, 1)], duration=1, n_workers=2)
    change(run.tree)

    for engine in (WhatIf, simulate):
        with pytest.raises(UnsupportedRun, match=f"no prediction: {reason}"):
            engine(run)


@pytest.mark.parametrize(("tasks", "options", "reason"), [
    ([MadeTask("a-0", 0, 1, ok=0)], {}, "its tasks failed"),
    ([MadeTask("a-0", np.nan, np.nan)], {}, "no task of its graph ran"),
    ([MadeTask("hash-join-transfer-0", 0, 1)], {}, "hash-join-transfer is P2P"),
    ([MadeTask("a-0", 0, 1)], {"actor": True}, "it has actors"),
    ([MadeTask("a-0", 0, 1)], {"resources": {"GPU": 1}}, "its tasks need resources"),
    ([MadeTask("a-0", 0, 1)], {"workers": ["x"]}, "a task needs worker x, which it did not have"),
])  # fmt: skip
def test_graph_is_refused_with_the_reason(tmp_path, tasks, options, reason):
    run = graph_run(tmp_path, tasks, duration=1, options={0: options})

    for engine in (WhatIf, simulate):
        with pytest.raises(UnsupportedRun, match=f"no prediction: {reason}"):
            engine(run)


def test_run_without_graph_says_so(tmp_path):
    run = graph_run(tmp_path, [MadeTask("a-0", 0, 1)], duration=1)
    del run.tree["submissions"]

    for engine in (WhatIf, simulate):
        with pytest.raises(NotRecorded):
            engine(run)
