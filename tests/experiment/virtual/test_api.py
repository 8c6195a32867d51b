import json
import math
import statistics
from dataclasses import replace
from importlib import metadata

import pytest

import benchkit
from benchkit.errors import InvalidEnvironmentError, UsageError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.python import find_pythons
from benchkit.experiment.virtual import api
from benchkit.experiment.virtual.api import simulate
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.predict.answer import MAX_ERROR
from benchkit.predict.workflow import Workflow
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


def graph_of_run(run):
    given = Workflow.of(run)
    return given.virtual_graph(run, given.seconds)


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
    # The client made the second one before it had the result of the first.
    assert [(sent.after, sent.delay_s) for sent in graph.submissions] == [
        (-1, pytest.approx(0.2)), (-1, pytest.approx(1.7)),
    ]  # fmt: skip
    assert VirtualGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


@pytest.mark.slow
def test_shape_of_a_run_is_that_of_its_cluster(measured):
    shape = Workflow.of(measured).shape

    assert (shape.workers, shape.threads, shape.memory_limit) == (3, 1, 500 * 2**20)
    assert not shape.shared_loop


@pytest.mark.slow
def test_prediction_replays_the_run_first(measured):
    simulation = simulate(measured, workers=[3, 6], draws=1)

    assert abs(simulation.error) < MAX_ERROR
    table = simulation.table
    assert table["workers"].tolist() == [3, 6]
    # Whatever the load was: the same cluster takes as long, twice as large a half or more.
    assert table["seconds"][0] == pytest.approx(measured.duration)
    assert table["ratio"].tolist() == pytest.approx([1.0, 0.6], abs=0.15)
    assert (table["low"] < table["seconds"]).all()
    assert (table["high"] > table["seconds"]).all()
    assert all(run.simulated and run.workload == measured.workload for run in simulation.runs)


@pytest.mark.slow
def test_both_engines_take_the_same_options(measured):
    changes = {"groups": {"load": 0.5}, "bandwidth": "0.5x", "workers": 6}

    simulated, replayed = simulate(measured, draws=1, **changes), measured.whatif(**changes)

    [simulated], [replayed] = simulated.predictions, replayed.predictions
    assert simulated.change == replayed.change == '--workers 6 --bandwidth 0.5x --group "load=0.5"'
    assert simulated.seconds == pytest.approx(replayed.seconds, rel=0.1)


@pytest.mark.slow
def test_nothing_is_predicted_if_the_replay_is_wrong(measured):
    slow = replace(Model(), execute=2.0)

    with pytest.raises(UsageError, match="the model does not hold for it"):
        simulate(measured, workers=10, model=slow, draws=1)


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
    assert pinned.table["seconds"][0] / stolen.table["seconds"][0] > 1.2


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
    assert [each.change for each in simulation.predictions] == [
        "--workers 3 --set scheduler.worker-saturation=1.0",
        "--workers 3 --set scheduler.worker-saturation=inf",
    ]


@pytest.mark.slow
def test_point_where_the_scheduler_limits_is_named():
    simulation = simulate(make_graph("independent", {"seconds": 0.01}), workers=[2, 60], draws=1)

    assert simulation.table["binds"].tolist() == [False, True]
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
        ({"workers": 0}, "workers 0: must be a whole number from 1 to 10000"),
        ({"workers": [2, 2.5]}, "workers 2.5: must be a whole number"),
        ({"bandwidth": 0}, "bandwidth 0: must be a factor such as 2x"),
        ({"groups": {"a": 0.5}}, "only a run can be changed like this, no graph"),
        ({"draws": 0}, "draws"),
        ({"workers": 10**9}, "workers 1000000000: must be a whole number from 1 to 10000"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        simulate(make_graph("tree", {"n": 4}), **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers 0: must be a whole number from 1 to 10000"),
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
        simulator = api.Simulator(build(environment), environment, None)
        runs = simulator.run([(make_graph("rechunk"), spec, draw) for draw in range(2)])
        digests[version] = [run.simulation["digest"] for run in runs]

    here = [
        simulate_graph(make_graph("rechunk"), ClusterShape(5, 2), draw=draw).digest
        for draw in range(2)
    ]
    assert digests == dict.fromkeys(tested, here)
