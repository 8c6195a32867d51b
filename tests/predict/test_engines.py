"""The replay predicts what Dask's own scheduler does, from a run without noise."""

import numpy as np
import pytest

from benchkit.errors import UsageError
from benchkit.experiment.virtual.api import model_of
from benchkit.measure.run_ids import new_id
from benchkit.predict.whatif import WhatIf
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.recording import open_recording, write_results
from benchkit.simulation.synthetic import make_graph
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

GRAPHS = {
    "all_to_all": {"n": 10}, "chain": {"n": 40}, "independent": {"n": 100, "seconds": 0.05},
    "map_reduce": {"n": 60, "seconds": 0.05}, "pairs": {"n": 30}, "pipelines": {"n": 40},
    "quadratic_means": {"times": 20}, "rechunk": {"n": 10, "seconds": 0.05},
    "reduction_over_time": {"times": 16}, "shuffle": {"n": 9}, "stencil": {"n": 12},
    "tree": {"n": 64}, "uneven": {"n": 80},
}  # fmt: skip
SHAPES = [(1, 1), (4, 1), (8, 1), (2, 2)]


def simulated_run(folder, graph, model=None):
    """Return a simulated run on two workers."""
    cluster = simulate_graph(graph, ClusterShape(2, 1), model)
    writer = open_recording(folder, new_id(), {"workload": "t.simulated", "category": "t"})
    write_results(writer, cluster)
    return Run(run_from_recording(writer.path))


@pytest.mark.slow
def test_replay_predicts_the_scheduler(tmp_path):
    errors = []
    for name, arguments in GRAPHS.items():
        graph = make_graph(name, arguments)
        model = WhatIf(simulated_run(tmp_path, graph))
        assert abs(model.error) < 0.12, name
        for workers, threads in SHAPES:
            truth = simulate_graph(graph, ClusterShape(workers, threads)).duration
            errors.append(model.predict(workers=workers, threads=threads).seconds / truth - 1)

    assert np.median(np.abs(errors)) < 0.03
    assert np.quantile(np.abs(errors), 0.9) < 0.15
    assert abs(np.median(errors)) < 0.02  # neither side is usual


#: Graphs with half as many chunks of twice the size: arguments before and after.
HALVED = {
    "independent": ({"n": 100, "seconds": 0.05}, {"n": 50, "seconds": 0.1}),
    "map_reduce": ({"n": 60, "seconds": 0.05}, {"n": 30, "seconds": 0.1, "nbytes": 2e6}),
    "pipelines": ({"n": 40}, {"n": 20, "seconds": 0.1, "nbytes": 2e6}),
    "quadratic_means": ({"times": 20}, {"times": 10, "seconds": 0.1, "nbytes": 2e6}),
    "tree": ({"n": 64}, {"n": 32, "seconds": 0.1, "nbytes": 2e6}),
}


@pytest.mark.slow
def test_replay_predicts_larger_chunks(tmp_path):
    errors = []
    for name, (before, after) in HALVED.items():
        model = WhatIf(simulated_run(tmp_path, make_graph(name, before)))
        for workers in (2, 4):
            truth = simulate_graph(make_graph(name, after), ClusterShape(workers, 1)).duration
            errors.append(model.predict(workers=workers, chunks="2x").seconds / truth - 1)

    assert np.median(np.abs(errors)) < 0.05
    assert np.max(np.abs(errors)) < 0.15


@pytest.mark.parametrize(
    "name", ["all_to_all", "chain", "pairs", "rechunk", "reduction_over_time", "shuffle", "stencil"]
)
def test_graphs_with_other_tasks_for_other_chunks_are_refused(tmp_path, name):
    run = simulated_run(tmp_path, make_graph(name, GRAPHS[name]))

    with pytest.raises(UsageError, match="chunks: "):
        WhatIf(run).predict(chunks="2x")


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("name", ["chain", "map_reduce", "uneven"])
def test_cost_of_event_loops_is_read_from_a_run(tmp_path, name, scale):
    graph = make_graph(name, GRAPHS[name])
    given = WhatIf(simulated_run(tmp_path, graph, Model(scale=scale))).given

    assert model_of(given).scale == pytest.approx(scale, rel=0.25)
