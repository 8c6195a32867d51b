import dask
import pytest

from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.estimate import WORKER_PRICE_KEY, worker_price

LOCAL = Environment("here")


@pytest.mark.parametrize(
    ("said", "price"),
    [
        (None, None),
        (0.2, 0.2),
        ("0.2", 0.2),
        ({"LocalCluster": 0.1}, 0.1),
        ({"dask.distributed.LocalCluster": 0.1}, 0.1),
        ({"coiled.Cluster": 0.3}, None),
    ],
)
def test_a_price_is_for_all_clusters_or_for_one_class(said, price):
    with dask.config.set({WORKER_PRICE_KEY: said}):
        assert worker_price(LOCAL) == price


@pytest.mark.parametrize("said", [-1, "much"])
def test_what_is_no_price_is_refused(said):
    with (
        dask.config.set({WORKER_PRICE_KEY: said}),
        pytest.raises(UsageError, match="is not a price"),
    ):
        worker_price(LOCAL)
