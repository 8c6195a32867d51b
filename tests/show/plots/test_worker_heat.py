"""Plots of workers that share a process."""

import numpy as np
import xarray as xr

from benchkit import plots


def test_plots_name_shared_process_and_count_its_cpu_once(a_run):
    tree = a_run.copy(deep=True)
    workers = tree["workers"].to_dataset()
    workers["cpu"][:] = 40.0
    separate = tree["workers/process_id"].values.tolist()
    shared = workers.assign(process_id=("worker", np.zeros(len(separate), "i4")))
    note = "(values of the process that workers share)"

    def cpu_of(data):
        tree["workers"] = xr.DataTree(data)
        fig, *_ = plots.worker_load(tree)
        (cpu,) = [r.data_source.data["cpu"] for r in fig.renderers if "cpu" in r.data_source.data]
        return np.nanmax(cpu)

    assert separate == [0, 1]
    assert cpu_of(workers) == 80.0
    assert note not in plots.memory_by_worker(tree).title.text
    assert cpu_of(shared) == 40.0
    assert note in plots.memory_by_worker(tree).title.text
    assert note in plots.worker_heat(tree, "cpu").title.text
    assert note not in plots.worker_heat(tree, "executing").title.text
    assert note in plots.memory_by_kind(tree, worker=0).title.text
