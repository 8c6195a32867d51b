"""Phases of a client before the scheduler has the graph."""

import time

import dask
import dask.base
import pytest
from distributed import Client, LocalCluster, wait

from tests.helpers.capture import inc


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_phases_are_ordered_and_building_comes_first(client, observed):
    is_new = hasattr(dask.base, "collections_to_expr")  # since Dask 2025.4
    name = "collections_to_expr" if is_new else "collections_to_dsk"
    optimise = getattr(dask.base, name)
    with observed(client) as observation:
        time.sleep(0.2)
        assert dask.delayed(inc)(1).compute() == 2
        wait(client.map(inc, range(3), pure=False))

    graph = observation.run.task_graph()
    first, second = graph.calls.itertuples()
    assert 0.2 <= first.optimised <= first.serialised <= first.sent
    assert first.sent <= graph.submissions["received"][0] + 0.005
    assert second.optimised != second.optimised, "futures have nothing to optimise"
    assert first.sent < second.serialised <= second.sent
    assert getattr(dask.base, name) is optimise
    assert not {"_graph_to_futures", "_send_to_scheduler"} & vars(client).keys()
