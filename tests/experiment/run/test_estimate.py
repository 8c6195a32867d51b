import dask
import pytest

from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.estimate import OVERHEAD_S, WORKER_PRICE_KEY, Estimate, worker_price


def test_estimate_replaces_known_by_measured_times():
    estimate = Estimate(["a", "b", "a"], {"a": 10.0, "b": 2.0})
    assert estimate.remaining_seconds == pytest.approx(22.0 + 3 * OVERHEAD_S)

    estimate.finished("a", 13.0, 12.0)
    assert estimate.remaining_seconds == pytest.approx(2.0 + 12.0 + 2 * 1.0)


def test_estimate_of_unknown_workload_uses_measured_mean():
    estimate = Estimate(["a", "b"], {})
    estimate.finished("a", 5.0, 4.0)

    assert estimate.remaining_seconds == pytest.approx(4.0 + 1.0)


def test_estimate_removes_run_without_duration():
    estimate = Estimate(["a"], {})
    estimate.finished("a", 5.0, None)

    assert estimate.remaining_seconds == 0


LOCAL = Environment("here")


@pytest.mark.parametrize(
    ("configured", "price"),
    [
        (None, None),
        (0.2, 0.2),
        ("0.2", 0.2),
        ({"LocalCluster": 0.1}, 0.1),
        ({"dask.distributed.LocalCluster": 0.1}, 0.1),
        ({"coiled.Cluster": 0.3}, None),
    ],
)
def test_worker_price_by_cluster_class(configured, price):
    with dask.config.set({WORKER_PRICE_KEY: configured}):
        assert worker_price(LOCAL) == price


@pytest.mark.parametrize("configured", [-1, "much"])
def test_worker_price_rejects_other_values(configured):
    with (
        dask.config.set({WORKER_PRICE_KEY: configured}),
        pytest.raises(UsageError, match="is not a price"),
    ):
        worker_price(LOCAL)
