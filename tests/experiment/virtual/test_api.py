import json
import math
import statistics
from dataclasses import replace
from importlib import metadata

import pytest
import xarray as xr

import benchkit
from benchkit.errors import InvalidEnvironmentError, NotRecorded, UsageError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.python import find_pythons
from benchkit.experiment.virtual import api
from benchkit.experiment.virtual.api import simulate
from benchkit.experiment.virtual.graph_of_run import UnsupportedRun, graph_of_run, shape_of_run
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.graph import VirtualGraph
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.synthetic import make_graph
from validation.graph_runs import graph_run, tasks_of

CLUSTER = {
    "class": "dask.distributed.LocalCluster",
    "n_workers": 3,
    "threads_per_worker": 1,
    "memory_limit": "500 MiB",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store with one measured run of sleeping tasks."""
    store = benchkit.Store(tmp_path_factory.mktemp("store") / "store")
    benchkit.run(
        "graph.map_reduce[workers=0]",
        params={"n": 24, "seconds": 0.4},
        folders=[GRAPHS],
        environment=Environment("small", cluster=CLUSTER),
        store=store,
    )
    return store


@pytest.fixture
def measured(store):
    return store.open(store.runs()["id"].iloc[0])


@pytest.mark.slow
def test_graph_of_a_run_has_its_tasks(measured):
    expected = make_graph("map_reduce", {"n": 24, "seconds": 0.4})

    graph = graph_of_run(measured)

    assert {str(key) for key in graph.keys} == {str(key) for key in expected.keys}
    number = {str(key): index for index, key in enumerate(graph.keys)}
    late = []  # sleeping tasks end late on a busy machine, never early
    for key, dependencies, seconds, nbytes in zip(
        expected.keys, expected.dependencies, expected.seconds, expected.nbytes, strict=True
    ):
        index = number[str(key)]
        assert {str(graph.keys[i]) for i in graph.dependencies[index]} == {
            str(expected.keys[i]) for i in dependencies
        }
        late.append(graph.seconds[index] - seconds)
        assert graph.nbytes[index] == pytest.approx(nbytes, abs=100)
    assert min(late) > -0.05  # clocks of workers are aligned to milliseconds
    assert statistics.median(late) < 0.1
    assert sum(len(submission.wanted) for submission in graph.submissions) == 1


def test_submissions_of_a_run_have_recorded_seconds_and_json_types(tmp_path):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 4, 9, "a-0"))
    run = graph_run(
        tmp_path, tasks, duration=10, submissions=[(0.5, 1), (2.0, 1)], wanted=[[0], [1]]
    )

    graph = graph_of_run(run)

    recorded = run.task_graph().submissions
    handled = (recorded["ordered"] - recorded["received"]).tolist()
    assert [submission.handling_s for submission in graph.submissions] == pytest.approx(handled)
    assert [submission.overlaps for submission in graph.submissions] == [False, True]
    assert VirtualGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


@pytest.mark.slow
def test_shape_of_a_run_is_that_of_its_cluster(measured):
    shape = shape_of_run(measured)

    assert (shape.workers, shape.threads, shape.memory_limit) == (3, 1, 500 * 2**20)
    assert not shape.shared_loop


@pytest.mark.slow
def test_prediction_replays_the_run_first(measured):
    simulation = simulate(measured, workers=[3, 6], draws=1)

    assert abs(simulation.replay_error) < api.MAX_REPLAY_ERROR
    table = simulation.table
    assert table["workers"].tolist() == [3, 6]
    # 24 x (0.4 + 0.4 + 0.1) s, and the tree.
    assert table["duration"].tolist() == pytest.approx([7.4, 3.8], rel=0.25)
    error = 1 + abs(simulation.replay_error)
    assert table["low"].tolist() == pytest.approx((table["duration"] / error).tolist())
    assert table["high"].tolist() == pytest.approx((table["duration"] * error).tolist())
    assert all(run.simulated and run.workload == measured.workload for run in simulation.runs)


@pytest.mark.slow
def test_nothing_is_predicted_if_the_replay_is_wrong(measured):
    slow = replace(Model(), execute=2.0)

    with pytest.raises(
        UsageError, match=r"its replay differs by \+\d+% from the measured time: above 15%"
    ):
        simulate(measured, workers=10, model=slow, draws=1)


@pytest.mark.slow
def test_simulated_run_is_not_simulated_again(measured):
    (run,) = simulate(make_graph("tree", {"n": 4}), draws=1).runs

    with pytest.raises(UnsupportedRun, match="it is simulated itself: choose the measured run"):
        simulate(run)


@pytest.mark.slow
def test_runs_that_cannot_be_simulated_are_refused_with_the_reason(measured):
    tree = measured.tree.copy(deep=True)
    run = type(measured)(tree)

    tree.attrs["outcome"] = "failed"
    with pytest.raises(UnsupportedRun, match="its outcome is failed"):
        graph_of_run(run)
    tree.attrs["outcome"] = "ok"
    tree["seceded_time"] = xr.DataArray(1.5)
    with pytest.raises(UnsupportedRun, match="its tasks submit tasks"):
        graph_of_run(run)
    del tree["seceded_time"]
    tree["workers"]["joined"][1] = 0.5
    with pytest.raises(UnsupportedRun, match="workers joined or left during the run"):
        shape_of_run(run)
    del tree["submissions"]
    with pytest.raises(NotRecorded, match="the dependencies of its tasks were not recorded"):
        graph_of_run(run)


@pytest.mark.slow
def test_configuration_changes_the_prediction():
    graph = make_graph("uneven", {"seconds": 0.1})
    saturation = {"scheduler.worker-saturation": float("inf")}

    stolen, pinned = (
        simulate(graph, workers=10, draws=1, config=config)
        for config in (saturation, {**saturation, "scheduler.work-stealing": False})
    )

    assert stolen.table["n_steals"].tolist()[0] > 30
    assert pinned.table["n_steals"].tolist() == [0]
    assert pinned.table["duration"][0] / stolen.table["duration"][0] > 1.2


@pytest.mark.slow
def test_lists_of_settings_give_a_curve():
    saturations = [1.0, math.inf]
    graph = make_graph("reduction_over_time", {"times": 12, "seconds": 0.05})
    simulation = simulate(
        graph, workers=3, config={"scheduler.worker-saturation": saturations}, draws=1
    )
    single = [
        simulate(graph, workers=3, config={"scheduler.worker-saturation": value}, draws=1)
        for value in saturations
    ]

    table = simulation.table
    assert table["scheduler.worker-saturation"].tolist() == saturations
    expected = [float(one.table["memory_peak"][0]) for one in single]
    assert table["memory_peak"].tolist() == expected
    assert expected[1] > expected[0]
    assert [row["scheduler.worker-saturation"] for row in simulation.rows()] == ["1.0", "inf"]


@pytest.mark.slow
def test_point_where_the_scheduler_limits_is_named():
    simulation = simulate(make_graph("independent", {"seconds": 0.01}), workers=[2, 60], draws=1)

    assert simulation.table["binds"].tolist() == [False, True]
    assert simulation.scheduler_binds_at == 60
    assert simulation.sentence == "the scheduler limits the duration from 60 workers on"


def test_simulated_runs_are_stored_as_simulated(tmp_path):
    store = benchkit.Store(tmp_path / "store")

    simulate(make_graph("tree", {"n": 8}), workers=2, draws=2, store=store)

    runs = store.runs()
    assert runs["simulated"].tolist() == [1, 1]
    assert runs["workload"].tolist() == ["graph.tree[n=8]"] * 2


def test_finished_runs_are_stored_after_an_interrupt(tmp_path, monkeypatch):
    simulate_in_environment = api.simulate_in_environment

    def interrupt(*args, draw, **options):
        if draw == 2:
            raise KeyboardInterrupt
        return simulate_in_environment(*args, draw=draw, **options)

    monkeypatch.setattr(api, "simulate_in_environment", interrupt)

    with pytest.raises(KeyboardInterrupt):
        simulate(make_graph("tree", {"n": 8}), draws=3, store=tmp_path / "store")

    assert len(benchkit.Store(tmp_path / "store").runs()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers=0: must be a whole number of at least 1"),
        ({"workers": [2, 2.5]}, "workers=2.5: must be a whole number"),
        ({"bandwidth": 0}, "bandwidth=0: must be above 0"),
        ({"draws": 0}, "draws"),
        ({"workers": 10**9}, "workers=1000000000: more than 10000 cannot be simulated"),
        ({"threads": 10**9}, "threads=1000000000: more than 10000 cannot be simulated"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        simulate(make_graph("tree", {"n": 4}), **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers=0: must be a whole number of at least 1"),
        (
            {"config": {"scheduler.work-steeling": False}},
            "has no setting 'distributed.scheduler.work-steeling': "
            "did you mean 'distributed.scheduler.work-stealing'",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_the_replay(measured, monkeypatch, arguments, message):
    monkeypatch.setattr(api.Simulator, "run", None)

    with pytest.raises((UsageError, InvalidEnvironmentError), match=message):
        simulate(measured, **arguments)


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(900)
def test_schedules_are_equal_in_three_releases_of_python():
    versions = sorted({python.version.rpartition(".")[0] for python in find_pythons()})
    tested = [version for version in versions if version in ("3.10", "3.11", "3.12", "3.13")]
    if len(tested) < 3:
        pytest.skip(f"needs three releases of Python, has {', '.join(tested)}")
    packages = tuple(f"{name}=={metadata.version(name)}" for name in ("dask", "distributed"))
    spec = VirtualSpec(ClusterShape(5, 2))

    digests = {}
    for version in tested:
        environment = Environment(f"python-{version}", python=version, packages=packages)
        simulator = api.Simulator(make_graph("rechunk"), build(environment), environment, None)
        runs = simulator.run([(spec, draw) for draw in range(2)])
        digests[version] = [run.simulation["digest"] for run in runs]

    here = [
        simulate_graph(make_graph("rechunk"), ClusterShape(5, 2), draw=draw).digest
        for draw in range(2)
    ]
    assert digests == dict.fromkeys(tested, here)
