import numpy as np
import pytest

from benchkit.analysis.regression.fleet import fleet_step
from benchkit.errors import UsageError

N_WORKLOADS = 30


def labels(machines=("ci",), environments=("main",), metrics=("duration",)):
    """Return the fields of a series per workload, machine, environment and metric."""
    grid = [
        (m, e, x, f"w{w}")
        for m in machines
        for e in environments
        for x in metrics
        for w in range(N_WORKLOADS)
    ]
    machine, environment, metric, workload = np.array(grid).T
    return {
        "machine": machine,
        "environment": environment,
        "metric": metric,
        "workload": workload,
    }


def causes_of(alarm, units=None, recent=None, since=None, **series):
    """Return the causes of alarms, by default of nights on which no other series moves."""
    alarm = np.asarray(alarm)
    units = np.zeros(alarm.size) if units is None else units
    recent = np.zeros((alarm.size, 10)) if recent is None else recent
    since = np.full(alarm.size, 7) if since is None else since
    return fleet_step(alarm, units, recent=recent, since=since, **series)


def test_fleet_step_has_no_causes_on_quiet_night(rng):
    series = labels()

    assert causes_of(np.zeros(N_WORKLOADS, int), rng.normal(size=N_WORKLOADS), **series) == {}


def test_fleet_step_groups_by_machine_environment_metric_direction():
    series = labels(
        machines=("ci", "lab"), environments=("main", "old"), metrics=("duration", "memory_peak")
    )
    alarm = np.where(series["workload"] == "w1", 1, 0) - np.where(series["workload"] == "w2", 1, 0)

    causes = causes_of(alarm, **series)

    assert sorted(causes) == np.flatnonzero(alarm).tolist()
    for row, found in causes.items():
        word = "rose" if alarm[row] > 0 else "fell"
        assert found[:2] == ("code", f"1 of 30 series {word}; no control was measured")


def test_fleet_step_is_unclear_where_many_series_have_alarms():
    series = labels()
    many, single = np.zeros((2, N_WORKLOADS), int)
    many[:10], single[0] = 1, 1

    causes = causes_of(many, **series)

    assert [causes[row].cause for row in range(10)] == ["unclear"] * 10
    assert "10 of 30 series rose, 10 series moved" in causes[0].reason
    assert causes_of(single, **series)[0].cause == "code"


def test_fleet_step_counts_deviations_in_the_direction_of_the_alarm():
    series = labels()
    alarm = np.where(series["workload"] == "w1", 1, 0)
    units = np.where(series["workload"] < "w15", 4.0, 0.0)

    up, down = causes_of(alarm, units, **series), causes_of(-alarm, units, **series)

    assert up[1].cause == "unclear"
    assert "7 series moved" in up[1].reason
    assert down[1].cause == "code"


def test_fleet_step_ignores_series_that_were_not_measured():
    series = labels()
    alarm, units = np.zeros(N_WORKLOADS, int), np.full(N_WORKLOADS, np.nan)
    alarm[0] = 1

    assert "1 of 1 series rose" in causes_of(alarm, units, **series)[0].reason


def test_fleet_step_rejects_labels_of_other_length():
    series = labels() | {"metric": ["duration"]}

    with pytest.raises(UsageError, match=r"metric: shape \(1,\); expected \(30,\)"):
        causes_of(np.zeros(30), **series)


def test_fleet_step_uses_all_nights_of_a_change():
    series = labels()
    alarm, units, recent = np.zeros(30, int), np.zeros(30), np.zeros((30, 10))
    alarm[0], units[0] = 1, 8

    def cause():
        return causes_of(alarm, units, recent=recent, **series)[0].cause

    assert cause() == "code"
    recent[1:8, 7] = 5  # busy on the first night of the change only
    assert cause() == "unclear"
    recent[1:8, 7] = -5
    assert cause() == "code"
    recent[1:8, 6] = 5  # busy before the change
    assert cause() == "code"


def several_machines(moved):
    """Return causes on three machines with ten workloads; `moved` maps machines to workloads."""
    machine = np.repeat(["a", "b", "c"], 10)
    workload = np.tile([f"w{number}" for number in range(10)], 3)
    up = np.array([int(w[1:]) in moved.get(m, ()) for m, w in zip(machine, workload, strict=True)])
    causes = causes_of(
        up.astype(int),
        np.where(up, 8.0, 0.2),
        machine=machine,
        environment=["main"] * 30,
        metric=["duration"] * 30,
        workload=workload,
    )
    return {
        host: sorted({causes[row].cause for row in np.flatnonzero((machine == host) & up)})
        for host in ("a", "b", "c")
    }


def test_fleet_change_on_all_machines_is_code():
    assert several_machines({host: (0, 1, 2) for host in "abc"}) == {key: ["code"] for key in "abc"}


def test_fleet_change_on_one_machine_stays_unclear():
    assert several_machines({"a": (0, 1, 2)}) == {"a": ["unclear"], "b": [], "c": []}
    assert several_machines({"a": (0, 1, 2), "b": (3, 4, 5)})["a"] == ["unclear"]


def test_fleet_machines_that_all_rise_show_nothing():
    everything = range(10)
    causes = several_machines({host: everything for host in "abc"})
    assert causes == {key: ["unclear"] for key in "abc"}
