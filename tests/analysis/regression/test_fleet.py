import numpy as np
import pytest

from benchkit.analysis.changepoints import detect_many, latest_night
from benchkit.analysis.regression.fleet import fleet_step
from benchkit.errors import UsageError

N_WORKLOADS = 30


def labels(machines=("ci",), environments=("main", "pinned"), metrics=("duration",)):
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


def night_of(values):
    """Return alarms and noise units of the last night."""
    alarm = [
        next((c.direction for c in changes if c.detected_at == values.shape[1] - 1), 0)
        for changes in detect_many(values)
    ]
    return np.array(alarm), latest_night(values).units


def test_fleet_step_distinguishes_code_from_machine(rng):
    series = labels(machines=("ci", "lab"))
    values = rng.lognormal(sigma=0.01, size=(len(series["machine"]), 63))
    values[(series["machine"] == "ci") & (series["environment"] == "main"), 60:] *= 1.12
    values[series["machine"] == "lab", 60:] *= 1.12

    night = fleet_step(*night_of(values), **series, control="pinned")

    main = series["environment"] == "main"
    assert set(night.cause[main & (series["machine"] == "ci")]) == {"code"}
    assert set(night.cause[series["machine"] == "lab"]) == {"infrastructure"}


def test_fleet_step_has_no_groups_on_quiet_night(rng):
    series = labels()

    night = fleet_step(
        *night_of(rng.lognormal(sigma=0.01, size=(len(series["machine"]), 60))),
        **series,
        control="pinned",
    )

    assert night.groups == ()
    assert set(night.cause) == {""}


def test_fleet_step_rarely_attributes_code_to_machine(rng):
    series = labels()
    tested = series["environment"] == "main"
    n_infrastructure = 0
    for _ in range(500):
        alarm = np.where(tested & (rng.random(tested.size) < 0.2), 1, 0)
        night = fleet_step(
            alarm, rng.standard_t(8, tested.size) + 5 * (alarm > 0), **series, control="pinned"
        )
        n_infrastructure += bool(night.groups) and night.groups[0].cause == "infrastructure"

    assert n_infrastructure <= 0.05 * 500


def test_fleet_step_compares_workload_with_its_control():
    series = labels()
    main, few = series["environment"] == "main", np.isin(series["workload"], ["w3", "w4"])
    alarm = np.where(main & np.isin(series["workload"], ["w3", "w4", "w9"]), 1, 0)
    units = np.where(few, 8.0, 0.0)
    quiet = np.where(few & main, 8.0, 0.0)

    affected = fleet_step(alarm, units, **series, control="pinned")
    unaffected = fleet_step(alarm, quiet, **series, control="pinned")

    assert set(affected.cause[main & few]) == {"infrastructure"}
    assert set(unaffected.cause[alarm != 0]) == {"code"}


def test_fleet_step_groups_by_machine_metric_direction():
    series = labels(machines=("ci", "lab"), metrics=("duration", "memory_peak"))
    alarm = np.where(series["workload"] == "w1", 1, 0) - np.where(series["workload"] == "w2", 1, 0)
    alarm[series["environment"] == "pinned"] = 0

    night = fleet_step(alarm, np.zeros(alarm.size), **series, control="pinned")

    keys = {(group.machine, group.metric, group.direction) for group in night.groups}
    assert len(keys) == len(night.groups) == 8
    assert all(group.n_measured == group.n_control == N_WORKLOADS for group in night.groups)


def test_fleet_step_cause_without_control():
    series = labels(environments=("main",))
    many, single = np.zeros((2, N_WORKLOADS), int)
    many[:10], single[0] = 1, 1
    units = np.zeros(N_WORKLOADS)

    assert set(fleet_step(many, units, **series).cause[:10]) == {"unclear"}
    assert fleet_step(single, units, **series).cause[0] == "code"


def test_fleet_step_counts_deviations_without_control():
    series = labels(environments=("main",))
    alarm = np.where(series["workload"] == "w1", 1, 0)
    units = np.where(series["workload"] < "w15", 4.0, 0.0)

    up = fleet_step(alarm, units, **series)
    down = fleet_step(-alarm, units, **series)

    assert (up.groups[0].cause, up.groups[0].n_moved) == ("unclear", 7)
    assert down.groups[0].cause == "code"


def test_fleet_step_control_alarm_is_infrastructure():
    series = labels()
    alarm = np.where((series["environment"] == "pinned") & (series["workload"] == "w5"), -1, 0)

    night = fleet_step(alarm, np.zeros(alarm.size), **series, control="pinned")

    assert night.cause[alarm != 0].tolist() == ["infrastructure"]
    assert "never changes" in night.groups[0].reason


def test_fleet_step_ignores_unmeasured_control():
    series = labels()
    pinned = series["environment"] == "pinned"
    alarm = np.where(pinned, 0, 1)

    night = fleet_step(alarm, np.where(pinned, np.nan, 5.0), **series, control="pinned")

    assert set(night.cause[~pinned]) == {"unclear"}
    assert night.groups[0].n_control == 0


def test_fleet_step_sorts_groups_by_size():
    series = labels(metrics=("duration", "memory_peak"))
    alarm = np.where(series["environment"] == "main", 1, 0)
    alarm[(series["metric"] == "duration") & (series["workload"] > "w2")] = 0

    night = fleet_step(alarm, np.zeros(alarm.size), **series, control="pinned")

    assert [group.metric for group in night.groups] == ["memory_peak", "duration"]


def test_fleet_step_rejects_labels_of_other_length():
    series = labels() | {"metric": ["duration"]}

    with pytest.raises(UsageError, match=r"metric: shape \(1,\); expected \(60,\)"):
        fleet_step(np.zeros(60), np.zeros(60), **series)


def test_fleet_step_uses_all_nights_of_a_change():
    n = 40
    alarm, units = np.zeros(n, int), np.zeros(n)
    alarm[0], units[0] = 1, 8
    recent = np.zeros((n, 10))
    labels = {"machine": ["ci"] * n, "environment": ["tip"] * n, "metric": ["duration"] * n}

    def cause(**more):
        return fleet_step(alarm, units, **labels, **more).cause[0]

    since = np.full(n, 7)
    assert cause(recent=recent, since=since) == "code"
    recent[1:8, 7] = 5  # busy on the first night of the change only
    assert cause() == "code"
    assert cause(recent=recent, since=since) == "unclear"
    recent[1:8, 7] = -5
    assert cause(recent=recent, since=since) == "code"
    recent[1:8, 6] = 5  # busy before the change
    assert cause(recent=recent, since=since) == "code"


def several_machines(moved):
    """Return causes on three machines with ten workloads; `moved` maps machines to workloads."""
    machine = np.repeat(["a", "b", "c"], 10)
    workload = np.tile([f"w{number}" for number in range(10)], 3)
    up = np.array([int(w[1:]) in moved.get(m, ()) for m, w in zip(machine, workload, strict=True)])
    night = fleet_step(
        up.astype(int),
        np.where(up, 8.0, 0.2),
        machine=machine,
        environment=["main"] * 30,
        metric=["duration"] * 30,
        workload=workload,
    )
    return {
        host: sorted(set(night.cause[(machine == host) & up].tolist())) for host in ("a", "b", "c")
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
