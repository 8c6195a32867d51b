import numpy as np
import pytest

from benchkit.analysis.changepoint.detect import detect_many, latest_night
from benchkit.analysis.regression.fleet import fleet_step
from benchkit.errors import UsageError

N_WORKLOADS = 30


def labels(machines=("ci",), environments=("main", "pinned"), metrics=("duration",)):
    """One series per workload, machine, environment and metric."""
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


def night_of(values):
    """Alarms and units of the last night."""
    alarm = [
        next((c.direction for c in changes if c.detected_at == values.shape[1] - 1), 0)
        for changes in detect_many(values)
    ]
    return np.array(alarm), latest_night(values).units


def test_a_change_of_the_code_is_told_from_a_slow_machine(rng):
    told = labels(machines=("ci", "lab"))
    values = rng.lognormal(sigma=0.01, size=(len(told["machine"]), 63))
    values[(told["machine"] == "ci") & (told["environment"] == "main"), 60:] *= 1.12
    values[told["machine"] == "lab", 60:] *= 1.12

    night = fleet_step(*night_of(values), **told, control="pinned")

    main = told["environment"] == "main"
    assert set(night.cause[main & (told["machine"] == "ci")]) == {"code"}
    assert set(night.cause[told["machine"] == "lab"]) == {"infrastructure"}


def test_quiet_nights_blame_nobody(rng):
    told = labels()

    night = fleet_step(
        *night_of(rng.lognormal(sigma=0.01, size=(len(told["machine"]), 60))),
        **told,
        control="pinned",
    )

    assert night.groups == ()
    assert set(night.cause) == {""}


def test_a_change_of_the_code_is_seldom_blamed_on_the_machine(rng):
    told = labels()
    ours = told["environment"] == "main"
    n_blamed = 0
    for _ in range(500):
        alarm = np.where(ours & (rng.random(ours.size) < 0.2), 1, 0)
        night = fleet_step(
            alarm, rng.standard_t(8, ours.size) + 5 * (alarm > 0), **told, control="pinned"
        )
        n_blamed += bool(night.groups) and night.groups[0].cause == "infrastructure"

    assert n_blamed <= 0.05 * 500


def test_a_machine_that_hits_two_workloads_is_told_by_their_own_controls():
    told = labels()
    main, few = told["environment"] == "main", np.isin(told["workload"], ["w3", "w4"])
    alarm = np.where(main & np.isin(told["workload"], ["w3", "w4", "w9"]), 1, 0)
    units = np.where(few, 8.0, 0.0)
    quiet = np.where(few & main, 8.0, 0.0)

    hit = fleet_step(alarm, units, **told, control="pinned")
    innocent = fleet_step(alarm, quiet, **told, control="pinned")

    assert set(hit.cause[main & few]) == {"infrastructure"}
    assert set(innocent.cause[alarm != 0]) == {"code"}


def test_directions_metrics_and_machines_are_groups_of_their_own():
    told = labels(machines=("ci", "lab"), metrics=("duration", "memory_peak"))
    alarm = np.where(told["workload"] == "w1", 1, 0) - np.where(told["workload"] == "w2", 1, 0)
    alarm[told["environment"] == "pinned"] = 0

    night = fleet_step(alarm, np.zeros(alarm.size), **told, control="pinned")

    keys = {(group.machine, group.metric, group.direction) for group in night.groups}
    assert len(keys) == len(night.groups) == 8
    assert all(group.n_measured == group.n_control == N_WORKLOADS for group in night.groups)


def test_without_a_control_a_crowd_is_unclear_and_one_alarm_is_code():
    told = labels(environments=("main",))
    crowd, one = np.zeros((2, N_WORKLOADS), int)
    crowd[:10], one[0] = 1, 1
    units = np.zeros(N_WORKLOADS)

    assert set(fleet_step(crowd, units, **told).cause[:10]) == {"unclear"}
    assert fleet_step(one, units, **told).cause[0] == "code"


def test_a_lone_alarm_in_a_restless_night_is_unclear_without_a_control():
    told = labels(environments=("main",))
    alarm = np.where(told["workload"] == "w1", 1, 0)
    units = np.where(told["workload"] < "w15", 4.0, 0.0)

    up = fleet_step(alarm, units, **told)
    down = fleet_step(-alarm, units, **told)

    assert (up.groups[0].cause, up.groups[0].n_moved) == ("unclear", 7)
    assert down.groups[0].cause == "code"


def test_alarms_of_the_control_are_the_machine():
    told = labels()
    alarm = np.where((told["environment"] == "pinned") & (told["workload"] == "w5"), -1, 0)

    night = fleet_step(alarm, np.zeros(alarm.size), **told, control="pinned")

    assert night.cause[alarm != 0].tolist() == ["infrastructure"]
    assert "never changes" in night.groups[0].reason


def test_a_control_that_was_not_measured_tonight_proves_nothing():
    told = labels()
    pinned = told["environment"] == "pinned"
    alarm = np.where(pinned, 0, 1)

    night = fleet_step(alarm, np.where(pinned, np.nan, 5.0), **told, control="pinned")

    assert set(night.cause[~pinned]) == {"unclear"}
    assert night.groups[0].n_control == 0


def test_the_largest_group_comes_first():
    told = labels(metrics=("duration", "memory_peak"))
    alarm = np.where(told["environment"] == "main", 1, 0)
    alarm[(told["metric"] == "duration") & (told["workload"] > "w2")] = 0

    night = fleet_step(alarm, np.zeros(alarm.size), **told, control="pinned")

    assert [group.metric for group in night.groups] == ["memory_peak", "duration"]


def test_labels_of_another_length_are_refused():
    told = labels() | {"metric": ["duration"]}

    with pytest.raises(UsageError, match=r"metric: shape \(1,\); expected \(60,\)"):
        fleet_step(np.zeros(60), np.zeros(60), **told)
