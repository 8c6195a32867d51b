import pytest

from benchkit.simulation.graph import UnsupportedGraph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.workload_graph import workload_graph

WORKLOADS = """
import dask.array as da
from benchkit.measure import workload

@workload
def sums(client, scale):
    "Sum an array of a chunk per worker."
    return da.ones((scale.workers, 10), chunks=(1, 10)).sum()

@workload
def computed(client, scale):
    "Compute within the workload."
    return da.ones((scale.workers, 10), chunks=(1, 10)).sum().compute()

@workload
def prepared(client, scale, prepared):
    "Use data that are prepared on the cluster."
    return prepared.sum()

@prepared.prepare
def _(client, scale):
    return da.ones(10).persist()

@workload
def local(client, scale):
    "Submit nothing."
    return 1

@workload
def asks(client, scale):
    "Need the scheduler."
    return client.scheduler.address
"""


class Costs(dict):
    """The same costs for all prefixes."""

    def __contains__(self, prefix):
        return True

    def __missing__(self, prefix):
        return [[0.1, 10.0], [0.2, 20.0], [0.9, 90.0]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own.py").write_text(WORKLOADS)
    return str(tmp_path)


def graph_of(folder, name, costs=None, **options):
    shape = ClusterShape(5, 1, memory_limit=2**30)
    costs = Costs() if costs is None else costs
    return workload_graph(
        name, workloads=[folder], params={}, scale=1.0, shape=shape, costs=costs, **options
    )


@pytest.mark.parametrize("name", ["own.sums", "own.computed"])
def test_graph_is_that_of_the_size_of_the_cluster(folder, name):
    graph = graph_of(folder, name)

    roots = [row for row in graph.dependencies if not row]
    assert len(roots) == 5
    assert len(graph.submissions) == 1
    assert len(graph.submissions[0].wanted) == 1
    assert set(graph.seconds) == {0.2}  # the median
    assert set(graph.nbytes) == {20}


def test_resampled_durations_depend_on_the_seed_only(folder):
    first, again, other = (
        graph_of(folder, "own.sums", durations="resample", seed=seed).seconds for seed in (1, 1, 2)
    )

    assert first == again != other
    assert set(first) <= {0.1, 0.2, 0.9}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.prepared", "its preparation submits tasks: simulate a kept run of it instead"),
        ("own.local", "submits no tasks"),
        ("own.asks", "needs a real cluster"),
    ],
)
def test_workload_that_needs_a_cluster_is_refused(folder, name, message):
    with pytest.raises(UnsupportedGraph, match=message):
        graph_of(folder, name)


def test_tasks_without_durations_are_refused_by_name(folder):
    with pytest.raises(UnsupportedGraph, match="no kept run has their durations"):
        graph_of(folder, "own.sums", costs={"other": [[0.1, 1.0]]})
