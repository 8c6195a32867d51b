"""The replay predicts what Dask's own scheduler does, from a run without noise."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("name", ["chain", "map_reduce", "uneven"])
def test_cost_of_event_loops_is_read_from_a_run(tmp_path, name, scale):
    graph = make_graph(name, GRAPHS[name])
    given = WhatIf(simulated_run(tmp_path, graph, Model(scale=scale))).given

    assert model_of(given).scale == pytest.approx(scale, rel=0.25)
