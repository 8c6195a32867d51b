from types import SimpleNamespace

import pytest

import benchkit
from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.virtual.inputs import VirtualInput, costs_of_workload
from benchkit.experiment.virtual.process import VirtualSpec
from validation.graph_runs import MadeTask, graph_run


def arm(release):
    packages = {"dask": release, "distributed": release}
    return SimpleNamespace(
        environment=Environment(f"dask-{release}"), built=SimpleNamespace(packages=packages)
    )


def test_durations_of_a_workload_are_those_of_the_release(tmp_path):
    """A prefix is other work where tasks are fused differently: `sum` took 0.04 ms, and 50 ms."""
    store = benchkit.Store(tmp_path / "store")
    for release, seconds in (("2024.11.1", 0.05), ("2026.8.0", 0.001)):
        task = MadeTask("sum-0", 0, seconds)
        store.add(graph_run(tmp_path / release, [task], duration=1, release=release).tree)
    costs = costs_of_workload(store, "t.made[size=1]")
    given = VirtualInput(SimpleNamespace(name="t.made"), {}, VirtualSpec(), 1.0, costs)

    found = {release: given.costs_in(arm(release))["sum"] for release in ("2024.11.1", "2026.8.0")}

    assert found["2024.11.1"][0][0] == pytest.approx(0.05, rel=0.01)
    assert found["2026.8.0"][0][0] == pytest.approx(0.001, rel=0.01)
    with pytest.raises(UsageError, match=r"not measured with dask 2025\.1\.0 and .* of dask-2025"):
        given.costs_in(arm("2025.1.0"))
