"""Confirmation of suspected regressions by re-runs, without measuring."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.regression.history import build_history
from benchkit.analysis.regression.judge import judge_night
from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.nightly import confirm as module
from benchkit.experiment.run.plan import plan_measurements
from benchkit.measure.provenance import host_name
from validation.run_records import run_record

ARMS = {"last-good": "baseline", "null": "baseline", "tonight": "contender"}


def reruns(contender, n=5, *, noise=0.01, minutes=0.0, failed=0, workload="a.x"):
    """Return the runs of both builds; `failed` runs of the contender fail."""
    rng = np.random.default_rng(0)
    minute = rng.lognormal(0, minutes, n)  # of which all runs of a block have the same
    rows = [
        run_record(
            0,
            workload=workload,
            arm=arm,
            block=block,
            duration=10
            * minute[block]
            * rng.lognormal(0, noise)
            * (contender if arm == "tonight" else 1),
            outcome="failed" if arm == "tonight" and block < failed else "ok",
        )
        for block in range(n)
        for arm in ARMS
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("runs", "confirmed", "verdict"),
    [
        (reruns(1.1), True, "confirmed"),
        (reruns(1.0), False, "dismissed"),
        (reruns(1.05, 3, noise=0.04), None, "undecided"),
        (reruns(1.0, failed=2), True, "confirmed"),
        (reruns(1.05, minutes=0.3), True, "confirmed"),
        (reruns(1.0, minutes=0.3), False, "dismissed"),
    ],
    ids=["slower", "equal", "noisy", "fails", "slower in slow minutes", "equal in slow minutes"],
)
def test_judge_events_writes_decision(runs, confirmed, verdict):
    event = {"workload": "a.x", "metric": "duration", "confirmed": None, "cause": "unclear"}

    waiting = module.judge_events(runs, [event], "e1")

    assert event["confirmed"] is confirmed
    assert event["again"]["verdict"] == verdict
    assert waiting == ({"a.x"} if confirmed is None else set())
    if verdict == "confirmed":
        assert event["cause"] == "code"


class FakeExperiment:
    """Records the requested measurements and returns durations with a change per workload."""

    log: list[tuple[str, int]] = []  # noqa: RUF012
    changes: dict[str, float] = {}  # noqa: RUF012

    def __init__(self, workloads, repeats):
        self.id = f"e{len(self.log)}"
        self.plan = plan_measurements(list(ARMS), dict.fromkeys(workloads, 60.0), repeats)
        self.rows, self.store = [], SimpleNamespace(runs=lambda experiment: self.table())

    def table(self):
        return pd.DataFrame(self.rows)

    def run(self, plan):
        rng = np.random.default_rng(0)
        for measurement in plan:
            if measurement.arm == "tonight":
                self.log.append((measurement.variant, measurement.block))
            change = self.changes.get(measurement.variant, 1.0)
            value = 10 * rng.lognormal(0, 0.01) * (change if measurement.arm == "tonight" else 1)
            self.rows.append(
                run_record(
                    0,
                    workload=measurement.variant,
                    arm=measurement.arm,
                    block=measurement.block,
                    duration=value,
                )
            )
            yield measurement


@pytest.fixture
def history():
    """Return the history of 12 workloads whose last night is 30 % slower."""
    rng = np.random.default_rng(1)
    rows = [
        run_record(
            night,
            workload=f"a.w{number:02}",
            host=host_name(),
            duration=10 * rng.lognormal(0, 0.01) * (1.3 + 0.01 * number if night == 29 else 1),
            packages_hash="old" if night < 29 else "new",
        )
        for night in range(30)
        for number in range(12)
    ]
    return build_history(pd.DataFrame(rows), metrics=["duration"])


@pytest.fixture
def confirm(monkeypatch, history):
    """Return a function that confirms the suspects of the history by fake experiments."""

    def plan(selection, *, repeats, **options):
        return FakeExperiment(selection.names, repeats), []

    monkeypatch.setattr(module, "plan_experiment", plan)
    monkeypatch.setattr(module, "build", lambda environment: None)
    good = Environment("last-good")
    monkeypatch.setattr(module, "environment_of_run", lambda attrs, name, base: good)
    store = SimpleNamespace(open=lambda run_id: SimpleNamespace(tree=SimpleNamespace(attrs={})))

    def run(**changes):
        FakeExperiment.log, FakeExperiment.changes = [], changes
        proposed = judge_night(history).proposed
        assert len(proposed) == 12
        return module.confirm(store, history, proposed, {"tip": Environment("tip")})

    return run


def test_confirm_attributes_suspects_to_machine_if_no_representative_is_confirmed(confirm):
    result = confirm()

    assert len({workload for workload, _ in FakeExperiment.log}) == module.REPRESENTATIVES
    assert len(FakeExperiment.log) == 3 * 3  # three blocks are enough to dismiss
    causes = [event["cause"] for event in result.events]
    assert causes.count("infrastructure") == 9
    assert all(event["confirmed"] is False for event in result.events)


def test_confirm_measures_all_suspects_if_a_representative_is_confirmed(confirm):
    changes = {f"a.w{number:02}": 1.3 for number in range(12)}
    result = confirm(**changes)

    assert {workload for workload, _ in FakeExperiment.log} == set(changes)
    assert all(event["confirmed"] is True for event in result.events)
    assert max(block for _, block in FakeExperiment.log) == 2  # confirmed at the first look


def test_confirm_names_builds_that_cannot_be_rebuilt(confirm, monkeypatch):
    def fail(*arguments):
        raise UsageError("no such build")

    monkeypatch.setattr(module, "environment_of_run", fail)
    result = confirm()

    assert "tip: not confirmed: no such build" in result.failures
    assert {event["confirmed"] for event in result.events} == {None}


@pytest.fixture
def alarms():
    """Return the alarms of 30 workloads of a machine that has been 30 % slower for three nights."""

    def make(n_workloads=30, aside=""):
        about = {"environment": "tip", "host": host_name(), "scale": 1.0, "metric": "duration"}
        return [
            {
                **about,
                "workload": f"a.w{number:02}",
                "ratio": 1.3 + 0.001 * (n_workloads - number),
                "suspect": False,
                "confirmed": None,
                **({"aside": aside} if aside else {}),
            }
            for number in range(n_workloads)
        ]

    return make


def measured_again(events, decisions):
    """Write the result of re-runs into the first events."""
    for event, decision in zip(events, decisions, strict=False):
        event |= {"confirmed": decision, "again": {"verdict": str(decision)}}


@pytest.mark.parametrize("decisions", [[False] * 3, [True] + [False] * 11])
def test_alarms_that_are_not_measured_share_the_fate_of_the_measured_ones(decisions, alarms):
    events = alarms()
    memory = [{**event, "metric": "memory_peak"} for event in alarms(4)]
    measured_again(events, decisions)

    module._share_fates([*events, *memory])

    n_left = 30 - len(decisions)
    assert [event["confirmed"] for event in events] == decisions + [False] * n_left
    assert all(event["cause"] == "infrastructure" for event in events[len(decisions) :])
    assert f"of {len(decisions)} series" in events[-1]["reason"]
    # no series of this metric was measured
    assert [event["confirmed"] for event in memory] == [None] * 4


@pytest.mark.parametrize("decisions", [[True] * 12, [True] * 7 + [False] * 5, [False] * 2])
def test_alarms_that_are_not_measured_stay_open_without_a_majority(decisions, alarms):
    events = alarms()
    measured_again(events, decisions)

    module._share_fates(events)

    assert {event["confirmed"] for event in events[len(decisions) :]} == {None}


def test_confirm_counts_alarms_when_it_asks_for_the_machine(history, alarms):
    for events in (alarms(12), alarms(2, aside="2026-03-28T02:00:00")):
        measured_again(events, [False] * 2)
        assert module._is_machine(history, events, {"a.w00", "a.w01"})
    events = alarms(2)
    measured_again(events, [False] * 2)
    assert not module._is_machine(history, events, {"a.w00", "a.w01"})


def test_undecided_alarm_of_nights_that_were_set_aside_is_not_opened(alarms):
    remembered, other = alarms(1, aside="2026-03-28T02:00:00"), alarms(1)
    for events in (remembered, other):
        measured_again(events, [None])
        module._share_fates(events)

    assert (remembered[0]["confirmed"], other[0]["confirmed"]) == (False, None)
    assert remembered[0]["reason"] == "set aside on 2026-03-28, and not reproduced"


def test_confirm_measures_the_largest_change_of_alarms_first(alarms):
    events = alarms()
    events[20]["ratio"] = 1.43
    assert module._ordered_workloads(events)[0] == "a.w20"
