"""One small cluster in this process: these tests check answers, not times."""

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.wrong_results import TINY

from benchkit.measure.workloads import Variant

#: In-process workers share one RSS, which must not pause them. Spilling by the size of results
#: does not use the RSS and works as on any cluster.
NO_RSS = {f"distributed.worker.memory.{name}": False for name in ("spill", "pause", "terminate")}
#: Nothing reads the profiles of the workers and the load of the machine.
NO_MONITORS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1 minute",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that compute a workload as slow, apart from one workload for each mechanism."""
    for item in items:
        variant = getattr(item, "callspec", None) and item.callspec.params.get("variant")
        if isinstance(variant, Variant) and "quick" not in variant.tags:
            item.add_marker("slow")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(NO_RSS | NO_MONITORS),
        LocalCluster(
            n_workers=TINY.workers,
            threads_per_worker=TINY.threads // TINY.workers,
            memory_limit=TINY.memory // TINY.workers,
            processes=False,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        patch.setenv("BENCHKIT_DATA", str(tmp_path_factory.mktemp("data")))
        yield client
