"""A/B from Python, and names of environments and workloads in one list."""

import pytest

import benchkit
from benchkit.analysis.compare.explain import explain_change
from benchkit.errors import (
    InvalidEnvironmentError,
    InvalidParameterError,
    UnknownWorkload,
    UsageError,
)
from benchkit.experiment.run.ab import split_names
from benchkit.experiment.run.api import (
    Selection,
    check_metrics_to_measure,
    plan_experiment,
    resume_experiment,
)
from benchkit.store.schema import METRICS

WORKLOAD = """
import os, time
from benchkit import workload

@workload(category="own")
def naps(client, scale):
    return client.submit(time.sleep, float(os.environ.get("NAP", "0.2")), pure=False)

@workload(category="own", metrics={"rows_per_s": ("1/s", "more")})
def rows(client):
    return 1

@workload(category="own", variants={"method": ["short", "long"], "n": [1, 2]})
def waits(client, scale, *, method, n):
    return client.submit(time.sleep, {"short": 0.2, "long": 2.0}[method] / n, pure=False)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(WORKLOAD)
    (tmp_path / "e").mkdir()
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (tmp_path / "e" / "base.yaml").write_text(cluster)
    (tmp_path / "e" / "slow.yaml").write_text("extends: base\nvariables: {NAP: '2'}\n")
    return tmp_path


def test_metric_that_a_workload_declares_is_known_before_it_runs(folder):
    chosen = check_metrics_to_measure(["rows_per_s"], folder / "store", [folder / "w"])

    assert chosen == ("rows_per_s",)
    assert (METRICS["rows_per_s"].units, METRICS["rows_per_s"].better) == ("1/s", "higher")
    with pytest.raises(UsageError, match="no metric named 'rows_per_h'"):
        check_metrics_to_measure(["rows_per_h"], folder / "store", [folder / "w"])


def test_split_names_recognises_environments_and_workloads(folder):
    names = ["base", "own.naps", "slow", "current", "baseline", "nap", "x.yaml"]

    environments, workloads = split_names(names, [folder / "w"], [folder / "e"])

    assert workloads == ["own.naps"]
    assert environments == ["base", "slow", "current", "baseline", "nap", "x.yaml"]


def test_split_names_refuses_unknown_variants(folder):
    with pytest.raises(UnknownWorkload, match=r"no workload named 'own.naps\[n=3\]'"):
        split_names(["base", "own.naps[n=3]"], [folder / "w"], [folder / "e"])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("own.nap", "did you mean 'own.naps'?"),
        ("slo.w", "did you mean 'slow'?"),
        ("x.unlike", "see `benchkit list workloads`"),
    ],
)
def test_split_names_suggests_a_name_of_either_kind(folder, name, hint):
    with pytest.raises(UsageError) as caught:
        split_names(["base", name], [folder / "w"], [folder / "e"])

    assert str(caught.value) == f"no environment or workload named {name!r}: {hint}"


@pytest.mark.slow
def test_ab_compares_environments(folder):
    report = benchkit.ab(
        ["base", "slow"],
        "own.naps",
        repeats=3,
        store=folder / "store",
        metrics="duration",
        folders=[folder / "w"],
        environment_folders=[folder / "e"],
    )

    (row,) = report.frame.to_dict("records")
    assert (row["contender"], row["workload"], row["verdict"]) == ("slow", "own.naps", "slower")
    assert row["ratio"] > 3  # ten times the sleep; a busy machine adds to both
    assert row["cause"].startswith("+")
    assert " computing with " in row["cause"]
    assert report.blocked
    assert len(benchkit.Store(folder / "store")) == 9, "three arms: the baseline twice"


def test_sweep_of_parameter_plans_each_workload_once_per_arm(folder):
    selection = Selection(
        folders=[folder / "w"],
        environments=["base"],
        environment_folders=[folder / "e"],
        null=True,
        sweeps={"param.method": ["short", "long"]},
    )
    experiment, _ = plan_experiment(selection, store=folder / "store")
    planned = [(entry.arm, entry.variant) for entry in experiment.plan]

    assert {arm.environment.name for arm in experiment.arms} == {"base"}
    assert planned == [
        ("method=short", "own.waits[method=short,n=1]"),
        ("method=long", "own.waits[method=long,n=1]"),
        ("null", "own.waits[method=short,n=1]"),
        ("method=long", "own.waits[method=long,n=2]"),
        ("null", "own.waits[method=short,n=2]"),
        ("method=short", "own.waits[method=short,n=2]"),
    ]


@pytest.mark.slow
def test_ab_compares_values_of_parameter(folder):
    options = {"store": folder / "store", "folders": [folder / "w"], "repeats": 3}
    report = benchkit.ab(
        ["base"],
        "own.waits[method=short,n=1]",
        sweeps={"param.method": ["short", "long"]},
        metrics="duration",
        environment_folders=[folder / "e"],
        **options,
    )
    store = benchkit.Store(folder / "store")
    runs = store.runs()
    (row,) = report.frame.to_dict("records")

    assert (report.baseline, row["contender"]) == ("method=short", "method=long")
    assert (row["workload"], row["verdict"]) == ("own.waits[n=1]", "slower")
    assert row["ratio"] > 3  # ten times the sleep; a busy machine adds to both
    assert report.blocked
    assert runs.groupby("arm").size().to_dict() == {"method=long": 3, "method=short": 3, "null": 3}
    experiment, _ = resume_experiment(store, "latest")
    assert experiment.plan == []
    assert explain_change(report, row["workload"], "method=long", store.open).sentence


def test_ab_names_environment_that_stands_among_workloads(folder):
    folders = {"folders": [folder / "w"], "environment_folders": [folder / "e"]}
    with pytest.raises(UsageError, match="'slow' is an environment, not a workload: give all"):
        benchkit.ab("base", "slow", "own.waits", store=folder / "store", **folders)


def test_ab_names_argument_that_does_not_exist(folder):
    with pytest.raises(UsageError, match=r"^no argument named 'sweep': did you mean 'sweeps'\?$"):
        benchkit.ab(["base"], sweep={"param.method": ["short"]}, store=folder / "store")
    assert not (folder / "store").exists()


@pytest.mark.parametrize("environments", ["base", ["base"]])
def test_ab_refuses_one_environment_without_sweep(folder, environments):
    folders = {"folders": [folder / "w"], "environment_folders": [folder / "e"]}
    with pytest.raises(UsageError) as caught:
        benchkit.ab(environments, "own.waits", store=folder / "store", **folders)

    assert str(caught.value) == (
        "environments: an A/B needs a baseline and another environment as one list, or "
        "sweeps: see `benchkit list environments`"
    )
    assert not (folder / "store").exists()


@pytest.mark.parametrize(
    ("environments", "options", "error"),
    [
        (["base", "missing"], {}, InvalidEnvironmentError),
        (["base", "slow"], {"metrics": "durration"}, UsageError),
        (["base", "slow"], {"repeats": 0}, UsageError),
        (["base", "slow"], {"sweeps": {"param.method": ["short"]}}, UsageError),
        ("base", {"sweeps": {"param.mode": ["short"]}}, InvalidParameterError),
        ("base", {"sweeps": {"param.method": ["short", 7]}}, InvalidParameterError),
    ],
)
def test_ab_refuses_invalid_arguments_and_keeps_nothing(folder, environments, options, error):
    folders = {"folders": [folder / "w"], "environment_folders": [folder / "e"]}
    with pytest.raises(error):
        benchkit.ab(environments, store=folder / "store", **folders, **options)

    assert not (folder / "store").exists()
