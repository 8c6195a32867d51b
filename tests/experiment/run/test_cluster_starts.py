"""A cluster that never opened is a mistake of its environment, and no run."""

import pytest

from benchkit.errors import ClusterError, InvalidClusterError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.events import Finished, Skipped, Started
from benchkit.experiment.run.experiment import ClusterStarts
from benchkit.experiment.run.kernel import KernelError
from benchkit.experiment.run.plan import Arm

REMOTE = Arm("remote", Environment("office", cluster={"address": "tcp://127.0.0.1:9"}))
LOCAL = Arm("local", Environment("here", cluster={"n_workers": 1}))
NOT_OPENED = {"outcome": "infrastructure", "phase": "open", "error": "ClusterError: no answer"}
OK = {"outcome": "ok"}


def test_first_cluster_that_does_not_open_is_an_error():
    starts = ClusterStarts()

    error = starts.error(REMOTE, None, NOT_OPENED, None)

    assert isinstance(error, ClusterError)
    assert str(error) == "environment 'office': no answer"


@pytest.mark.parametrize(
    "attributes",
    [
        {"outcome": "infrastructure", "phase": "workload", "error": "OSError: lost"},
        {"outcome": "skipped", "phase": "open", "error": "needs dask_ml"},
        {"outcome": "infrastructure", "phase": "kernel", "error": "the measuring process died"},
        OK,
    ],
)
def test_other_failures_are_runs(attributes):
    assert ClusterStarts().error(REMOTE, None, attributes, None) is None


def test_later_failure_of_a_cluster_that_opened_is_a_run():
    starts = ClusterStarts()
    assert starts.error(REMOTE, None, OK, None) is None

    assert starts.error(REMOTE, None, NOT_OPENED, None) is None
    assert starts.error(REMOTE, {"n_workers": 100}, NOT_OPENED, None) is not None


def test_failure_of_a_local_cluster_is_a_run():
    assert ClusterStarts().error(LOCAL, None, NOT_OPENED, None) is None


def test_refused_option_is_an_error_also_of_a_local_cluster():
    text = "InvalidClusterError: LocalCluster has no option 'x'"
    attributes = {"outcome": "failed", "phase": "kernel", "error": text}

    error = ClusterStarts().error(LOCAL, None, attributes, KernelError("raised", text))

    assert isinstance(error, InvalidClusterError)
    assert str(error) == "environment 'here': LocalCluster has no option 'x'"


def test_cluster_is_hopeless_after_two_failures():
    starts = ClusterStarts()
    seen = []
    for _ in range(2):
        assert starts.error(REMOTE, None, NOT_OPENED, None) is not None
        seen.append(starts.is_hopeless("remote", None))

    assert seen == [False, True]
    assert not starts.is_hopeless("remote", "large")
    assert not starts.is_hopeless("local", None)


WORKLOAD = """from benchkit.measure import workload

@workload
def one(client, scale):
    "Return one."
    return 1
"""


@pytest.fixture
def experiment(tmp_path):
    """Return a function that plans an experiment in a dead and in a working environment."""
    (tmp_path / "own.py").write_text(WORKLOAD)
    cluster = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "256 MiB"}
    environments = [
        Environment("dead", cluster={"address": "tcp://127.0.0.1:9", "timeout": "5 s"}),
        Environment("fine", cluster={**cluster, "processes": False}),
    ]

    def plan(**options):
        selection = Selection(folders=[tmp_path], environments=environments)
        return plan_experiment(selection, store=tmp_path / "store", **options)[0]

    return plan


@pytest.mark.slow
def test_experiment_ends_with_the_cluster_that_does_not_open(experiment):
    experiment = experiment(repeats=2)
    events: list = []

    with pytest.raises(ClusterError, match="environment 'dead': no scheduler responds at"):
        events.extend(experiment.run())
    assert not [event for event in events if isinstance(event, Started)], "checked, then counted"
    assert len(experiment.store) == 0
    assert not experiment.recordings.exists()


@pytest.mark.slow
def test_experiment_that_keeps_going_measures_the_other_arms(experiment):
    experiment = experiment(repeats=3, keep_going=True)
    events: list = []

    with pytest.raises(ClusterError, match="environment 'dead': no scheduler responds at"):
        events.extend(experiment.run())
    finished = [event.record for event in events if isinstance(event, Finished)]
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert [(record["arm"], record["outcome"]) for record in finished] == [("fine", "ok")] * 3
    assert [(e.measurement.arm, e.measurement.block, e.reason) for e in skipped] == [
        ("dead", 2, "cluster")
    ]
    assert set(experiment.store.runs()["arm"]) == {"fine"}
