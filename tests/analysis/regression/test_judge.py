"""Events of the ledger that follow from the runs of a night."""

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.regression.history import build_history
from benchkit.analysis.regression.judge import judge_night
from benchkit.analysis.regression.level_events import MARGIN_NIGHTS
from benchkit.analysis.regression.nights import night_notes
from benchkit.analysis.regression.regression import read_ledger
from benchkit.analysis.regression.status import improvements
from benchkit.measure.run_ids import new_id
from benchkit.store.marks import new_mark
from validation.run_records import FIRST, run_record

N = 60


def noise(seed, size=N):
    return 10 * np.exp(0.01 * np.random.default_rng(seed).standard_normal(size))


def replay(series, *, first=30, marks=(), control="control", outcomes=None, versions=None):
    """Judge night by night; `series` maps (workload, environment, ...) to durations."""
    rows, n_nights = [], len(next(iter(series.values())))
    for (workload, environment, *host), values in series.items():
        for night in range(n_nights):
            ended = (outcomes or {}).get((workload, environment, night), "ok")
            value = values[night] if ended == "ok" else None
            facts = {"duration": value, "outcome": ended, "host": host[0] if host else "ci"}
            if versions:
                facts["version"] = versions[workload, environment][night]
            rows.append(run_record(night, workload=workload, environment=environment, **facts))
    runs, events = pd.DataFrame(rows), []
    for night in range(first, n_nights):
        past_runs = runs[runs["started"] <= FIRST + pd.Timedelta(days=night)]
        history = build_history(past_runs, metrics=["duration"], marks=marks)
        judgement = judge_night(history, events, marks=marks, control=control)
        opened = [event for event in judgement.proposed if not event["suspect"]]
        new_events = (*opened, *judgement.events, *judgement.nights)
        events += [{"id": new_id(), **event} for event in new_events]
    return events


def kinds(events):
    return [event["kind"] for event in events if event["kind"] != "night"]


def stepped(seed, ratio, first=40, last=N):
    values = noise(seed)
    values[first:last] *= ratio
    return values


def test_judge_opens_regression_once():
    events = replay({("a.x", "tip"): stepped(1, 1.2), ("a.y", "tip"): noise(2)})
    assert kinds(events) == ["opened"]
    (regression,) = read_ledger(events)
    assert regression.is_open
    assert regression.workload == "a.x"
    assert regression.night[:10] == str(FIRST + pd.Timedelta(days=40))[:10]
    assert 1.18 < regression.ratio < 1.22
    assert 9.8 < regression.before < 10.2 < 11.8 < regression.after < 12.2
    assert regression.low < regression.ratio < regression.high


def test_judge_second_step_grows_regression():
    values = stepped(1, 1.2, first=35)
    values[50:] *= 1.3
    events = replay({("a.x", "tip"): values})
    assert kinds(events) == ["opened", "grown"]
    (regression,) = read_ledger(events)
    assert regression.state == "grown"
    assert 1.5 < regression.ratio < 1.62
    assert regression.night[:10] == str(FIRST + pd.Timedelta(days=35))[:10]


@pytest.mark.parametrize("gap", [2, 3, 5])
@pytest.mark.parametrize(("first", "second"), [(1.1, 1.1), (1.08, 1.3)])
def test_judge_ratio_of_two_steps_is_that_of_the_levels_beside_it(gap, first, second):
    values = stepped(1, first)
    values[40 + gap :] *= second
    (regression,) = read_ledger(replay({("a.x", "tip"): values}))
    assert abs(regression.ratio / (first * second) - 1) < 0.02
    assert abs(regression.after / regression.before / regression.ratio - 1) < 1e-9
    assert regression.low < regression.ratio < regression.high


def test_judge_three_nights_at_old_level_are_recovery():
    events = replay({("a.x", "tip"): stepped(1, 1.2, first=36, last=48)})
    assert kinds(events) == ["opened", "recovered"]
    (regression,) = read_ledger(events)
    assert regression.state == "recovered"
    assert regression.closed[:10] == str(FIRST + pd.Timedelta(days=50))[:10]


def test_judge_reports_improvement():
    events = replay({("a.x", "tip"): stepped(1, 0.8)})
    assert kinds(events) == ["improved"]
    assert read_ledger(events) == []


def test_judge_reports_no_improvement_of_a_workload_that_fails_more():
    outcomes = {("a.x", "tip", night): "timeout" for night in (41, 43)}
    events = replay({("a.x", "tip"): stepped(1, 0.8)}, outcomes=outcomes)
    assert "improved" not in kinds(events)
    assert [regression.metric for regression in read_ledger(events)] == ["outcome"]


def test_judge_sets_aside_change_shared_with_control():
    series = {
        ("a.x", "tip"): stepped(1, 1.2),
        ("a.x", "control"): stepped(2, 1.2),
        ("a.y", "tip"): stepped(3, 1.2),
        ("a.y", "control"): noise(4),
    }
    events = replay(series)
    assert [regression.workload for regression in read_ledger(events)] == ["a.y"]
    aside = {(e["workload"], e["environment"]) for e in events if e["kind"] == "set_aside"}
    assert aside == {("a.x", "tip"), ("a.x", "control")}
    reasons = {e["environment"]: e["reason"] for e in events if e["kind"] == "set_aside"}
    assert reasons["control"] == "in the control 'control', whose software never changes"
    assert "in the control 'control', the same workload changed by +" in reasons["tip"]


def test_improvements_leave_out_those_that_the_control_shares():
    series = {
        ("a.x", "tip"): stepped(1, 0.8),
        ("a.x", "control"): noise(2),
        ("a.y", "tip"): stepped(3, 0.8),
        ("a.y", "control"): stepped(4, 0.8),
    }
    events = replay(series)

    (found,) = improvements([*events, *events, {"kind": "improved"}])

    assert (found["workload"], found["environment"]) == ("a.x", "tip")
    assert 0.78 < found["ratio"] < 0.82
    assert {e["environment"] for e in events if e["kind"] == "set_aside"} == {"tip", "control"}


def test_judge_uses_the_control_of_the_same_machine():
    series = {
        ("a.x", "tip", "ci"): stepped(1, 1.2),
        ("a.x", "control", "ci"): noise(2),
        ("a.x", "tip", "lab"): stepped(3, 1.2),
        ("a.x", "control", "lab"): stepped(4, 1.2),
    }
    events = replay(series)
    assert [regression.about["host"] for regression in read_ledger(events)] == ["ci"]
    aside = {(e["host"], e["environment"]) for e in events if e["kind"] == "set_aside"}
    assert aside == {("lab", "tip"), ("lab", "control")}


def test_judge_compares_a_workload_without_control_with_the_median_of_the_control():
    control = {(f"a.{name}", "control"): stepped(ord(name), 1.2) for name in "pqr"}
    events = replay({("a.x", "tip"): stepped(1, 1.2)} | control)
    (aside,) = [e for e in events if e["kind"] == "set_aside" and e["environment"] == "tip"]
    assert "the median of 3 series changed by +" in aside["reason"]


@pytest.mark.parametrize(("in_control", "kind"), [(False, "opened"), (True, "set_aside")])
def test_judge_compares_changes_from_zero_with_the_control(in_control, kind):
    new = np.where(np.arange(N) < 40, 0.0, noise(1))
    old = new if in_control else np.zeros(N)
    events = replay({("a.x", "tip"): new, ("a.x", "control"): old})
    (event,) = [e for e in events if e["kind"] != "night" and e["environment"] == "tip"]
    assert event["kind"] == kind
    what = "rose from zero" if in_control else "changed by +0.0 %"
    assert (
        event["reason"]
        == f"in the control 'control', the same workload {what} over the same nights"
    )


def test_judge_uses_all_series_of_a_night_where_no_control_is_measured():
    series = {(f"a.{name}", "tip", "ci"): stepped(ord(name), 1.2) for name in "pqrs"}
    series[("a.p", "control", "lab")] = noise(1)  # on another machine
    events = replay(series)
    opened = [e for e in events if e["kind"] == "opened"]
    assert len(opened) == 4
    assert {e["cause"] for e in opened} == {"unclear"}
    assert {"no control was measured" in e["reason"] for e in opened} == {True}


@pytest.mark.parametrize(("machine", "code"), [(1.10, 1.08), (1.2, 1.06), (1.10, 1.25)])
def test_judge_opens_what_is_left_without_the_shift_of_the_control(machine, code):
    series = {}
    for number in range(6):
        for offset, environment in enumerate(("tip", "control")):
            values = stepped(2 * number + offset, machine)
            if environment == "tip" and number < 3:
                values[40:] *= code
            series[f"a.w{number}", environment] = values

    events = replay(series)

    ledger = read_ledger(events)
    assert sorted(each.workload for each in ledger) == ["a.w0", "a.w1", "a.w2"]
    ratios = [each.ratio for each in ledger]
    assert abs(np.mean(ratios) / code - 1) < 0.015
    assert all(each.low < each.ratio < each.high for each in ledger)
    assert np.allclose([each.after / each.before for each in ledger], ratios)
    aside = {e["workload"] for e in events if e["kind"] == "set_aside"}
    assert {"a.w3", "a.w4", "a.w5"} <= aside


def slow_growth(weekly, n_nights=140, first=45):
    """Return the ratio of each night to the level before a night."""
    return (1 + weekly) ** (np.clip(np.arange(n_nights) - first, 0, None) / 7)


@pytest.mark.parametrize("weekly", [0.01, 0.02])
def test_judge_slow_growth_has_the_size_of_its_last_week_without_the_machine(weekly):
    growth, machine = slow_growth(weekly), np.where(np.arange(140) < 100, 1.0, 1.06)
    series = {
        ("a.x", "tip"): noise(1, 140) * growth * machine,
        ("a.x", "control"): noise(2, 140) * machine,
    }

    (regression,) = read_ledger(replay(series, first=60))

    assert regression.state == "grown"
    assert abs(regression.ratio / growth[-1] - 1) < 0.03
    assert regression.low < regression.ratio < regression.high
    assert abs(regression.after / regression.before / regression.ratio - 1) < 1e-9


def test_judge_slow_weeks_of_the_machine_do_not_enlarge_a_regression():
    machine = np.where(np.arange(N) % 20 < 9, 1.08, 1.0)
    series = {
        ("a.x", "tip"): stepped(1, 1.2, first=35) * machine,
        ("a.x", "control"): noise(2) * machine,
    }

    events = [event for event in replay(series) if event["environment"] == "tip"]

    (regression,) = read_ledger(events)
    assert regression.state == "open"
    assert abs(regression.ratio / 1.2 - 1) < 0.03


def test_judge_single_control_night_does_not_hide_step():
    pinned = noise(2)
    pinned[42] *= 1.2  # the night on which the step is detected
    events = replay({("a.x", "tip"): stepped(1, 1.2), ("a.x", "control"): pinned})
    assert kinds(events)[0] == "opened"


def test_judge_single_outlier_night_is_suspect():
    values = noise(1)
    values[N - 1] *= 1.5
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]
    found = judge_night(build_history(pd.DataFrame(rows), metrics=["duration"]))
    assert [(event["suspect"], event["night"][:10]) for event in found.proposed] == [
        (True, str(FIRST + pd.Timedelta(days=N - 1))[:10])
    ]
    assert kinds(replay({("a.x", "tip"): values})) == []


def test_judge_opens_and_closes_failure():
    outcomes = {("a.x", "tip", night): "failed" for night in (40, 41, 42)}
    events = replay({("a.x", "tip"): noise(1)}, outcomes=outcomes)
    seen = [(e["kind"], e["seen"][:10]) for e in events if e["kind"] != "night"]
    days = [str(FIRST + pd.Timedelta(days=night))[:10] for night in (40, 44)]
    assert seen == [("opened", days[0]), ("recovered", days[1])]


def test_judge_ignores_infrastructure_outcome():
    outcomes = {("a.x", "tip", night): "infrastructure" for night in (40, 41)}
    assert kinds(replay({("a.x", "tip"): noise(1)}, outcomes=outcomes)) == []


def test_judge_sets_aside_failure_shared_with_control():
    outcomes = {("a.x", env, 40): "failed" for env in ("tip", "control")}
    series = {("a.x", "tip"): noise(1), ("a.x", "control"): noise(2)}
    assert set(kinds(replay(series, outcomes=outcomes))) == {"set_aside"}


def test_judge_accepted_level_becomes_reference():
    mark = {
        "id": new_id(),
        "kind": "accept",
        "workload": "a.x",
        "at": (FIRST + pd.Timedelta(days=40)).isoformat(),
    }
    values = stepped(1, 1.2)
    values[55:] *= 1.2
    events = replay({("a.x", "tip"): values})
    assert [regression.state for regression in read_ledger(events, [mark])] == ["accepted"]
    again = replay({("a.x", "tip"): values}, marks=[mark])
    (regression,) = read_ledger(again, [mark])
    assert regression.is_open
    assert regression.night[:10] == str(FIRST + pd.Timedelta(days=55))[:10]


def threshold(size, workload="a.*", **more):
    what = {"workload": workload, "metric": "duration", "size": size, **more}
    return new_mark("threshold", reason="smaller ones are noise", by="ann", **what)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([threshold("30%")], ["tolerated"]),
        ([threshold("10%")], ["opened"]),
        ([threshold("30%", workload="b.*")], ["opened"]),
        ([threshold("30%", where={"environment": "release"})], ["opened"]),
        ([threshold("30%", where={"environment": "tip"})], ["tolerated"]),
        ([threshold("10%"), threshold("30%")], ["tolerated"]),  # the newest one applies
        ([threshold("30%"), threshold("10%")], ["opened"]),
    ],
)
def test_judge_opens_no_regression_below_the_threshold_of_a_team(marks, expected):
    events = replay({("a.x", "tip"): stepped(1, 1.2), ("a.y", "tip"): noise(2)}, marks=marks)

    assert kinds(events) == expected
    if expected == ["tolerated"]:
        (event,) = [event for event in events if event["kind"] == "tolerated"]
        assert event["reason"] == "below the threshold of ann, +30 %: smaller ones are noise"
        assert event["ratio"] == pytest.approx(1.2, rel=0.02)


def test_judge_new_version_ends_regression():
    versions = {("a.x", "tip"): [1 if night < 50 else 2 for night in range(N)]}
    events = replay({("a.x", "tip"): stepped(1, 1.2)}, versions=versions)
    assert kinds(events) == ["opened", "ended"]
    (regression,) = read_ledger(events)
    assert regression.state == "ended"
    assert regression.events[-1]["reason"] == "version 1 -> 2 changed"


def test_judge_repeated_judgement_adds_nothing():
    events = replay({("a.x", "tip"): stepped(1, 1.2)})
    rows = [
        run_record(night, workload="a.x", duration=v) for night, v in enumerate(stepped(1, 1.2))
    ]
    history = build_history(pd.DataFrame(rows), metrics=["duration"])
    assert judge_night(history, events).nights == []
    assert judge_night(history, events).proposed == []
    twice = [*events, *({**event, "id": new_id()} for event in events)]
    assert len(read_ledger(twice)) == 1
    assert len(read_ledger(twice)[0].events) == 1


def test_judge_ignores_changes_before_first_judged_night():
    assert kinds(replay({("a.x", "tip"): stepped(1, 1.3, first=20)}, first=45)) == []


def test_judge_night_event_has_counts():
    events = replay({("a.x", "tip"): noise(1), ("a.y", "tip"): noise(2)})
    nights = [event for event in events if event["kind"] == "night"]
    assert len(nights) == N - 30
    assert {night["n_series"] for night in nights} == {2}
    assert all(0 < night["expected_false_alarms"] < 0.01 for night in nights)


def test_judge_accepts_history_before_first_night_of_a_workload():
    rows = [run_record(night, workload="a.x", duration=10.0) for night in range(20)]
    rows += [run_record(night, workload="a.y", duration=10.0) for night in range(15, 20)]
    rows[12] |= {"outcome": "failed", "duration": None}
    history = build_history(pd.DataFrame(rows), metrics=["duration"])

    judgement = judge_night(history.before(12))

    assert [(e["workload"], e["metric"]) for e in judgement.proposed] == [("a.x", "outcome")]


def test_judge_ignores_judged_night_of_the_future():
    night = {"kind": "night", "environment": "tip", "host": "ci", "seen": "2038-01-01T00:00:00"}
    rows = [run_record(n, duration=value) for n, value in enumerate(stepped(1, 1.5, first=N - 3))]
    history = build_history(pd.DataFrame(rows), metrics=["duration"])

    judgement = judge_night(history, [night])

    assert [event["kind"] for event in judgement.proposed] == ["opened"]


def test_judge_suspects_change_in_first_nights():
    values = np.append(noise(1, 7), 14.0)
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]
    found = judge_night(build_history(pd.DataFrame(rows), metrics=["duration"]))

    (event,) = found.proposed
    assert event["suspect"]
    assert event["reason"] == "7 of 10 nights of history, not confirmed yet"
    assert event["good_until"][:10] == str(FIRST + pd.Timedelta(days=1))[:10]
    assert event["night"][:10] == str(FIRST + pd.Timedelta(days=7))[:10]
    assert 1.35 < event["ratio"] < 1.45
    (night,) = found.nights
    assert (night["n_series"], night["n_short"], night["short_nights"]) == (1, 1, 7)
    assert night_notes(found.nights) == ["judged 0 of 1 series: 7 of 10 nights of history"]


def test_judge_waits_after_a_suspect_was_dismissed():
    values = noise(1)
    values[N - 1] *= 1.045  # four to five noise units
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]
    history = build_history(pd.DataFrame(rows), metrics=["duration"])
    (suspect,) = judge_night(history).proposed
    assert not suspect["large"]

    def proposed_after(nights_ago, kind="dismissed"):
        seen = str(history.times[-1 - nights_ago])[:19]
        return judge_night(history, [{**suspect, "kind": kind, "seen": seen}]).proposed

    assert [len(proposed_after(ago)) for ago in (1, 3, 4)] == [0, 0, 1]
    assert len(proposed_after(2, "undecided")) == 0


def test_judge_levels_give_the_change_beside_them():
    events = replay({("a.x", "tip"): stepped(1, 1.2)})
    (regression,) = read_ledger(events)
    assert abs(regression.after / regression.before / regression.ratio - 1) < 1e-9


def test_judge_places_jump_on_its_first_night():
    values = noise(1)
    values[N - 2 :] *= 1.3
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]

    (event,) = judge_night(build_history(pd.DataFrame(rows), metrics=["duration"])).proposed

    assert event["night"][:10] == str(FIRST + pd.Timedelta(days=N - 2))[:10]
    # The estimated first night may be late: the last good build is from some nights before it.
    assert event["good_until"][:10] <= str(FIRST + pd.Timedelta(days=N - 2 - MARGIN_NIGHTS))[:10]


def test_judge_detects_step_after_mended_and_confirmed_regressions():
    values = noise(1)
    faults = [(20, 24), (28, 32), (36, 40), (44, 48)]
    for first, stop in faults:
        values[first:stop] *= 1.3
    values[57:] *= 1.15
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]
    history = build_history(pd.DataFrame(rows), metrics=["duration"])
    about = history.series.iloc[0].to_dict()
    events = []
    for first, stop in faults:
        fact = {**about, "regression": str(first), "night": str(history.times[first])[:19]}
        opened = {"kind": "opened", "confirmed": True, "cause": "code", "reason": "", "ratio": 1.3}
        events.append({**fact, **opened, "seen": fact["night"]})
        events.append({**fact, "kind": "recovered", "seen": str(history.times[stop + 2])[:19]})

    assert kinds(judge_night(history, events).proposed) == ["opened"]
    assert kinds(judge_night(history, [{**e, "confirmed": None} for e in events]).proposed) == []
