"""Judging a night: what becomes an event of the ledger, and what does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
from helpers.run_records import FIRST, run_record

from benchkit.analysis.regression.history import build_history
from benchkit.analysis.regression.judge import judge_night
from benchkit.analysis.regression.regression import read_ledger
from benchkit.measure.run_ids import new_id

N = 60


def noise(seed, size=N):
    return 10 * np.exp(0.01 * np.random.default_rng(seed).standard_normal(size))


def replay(series, *, first=30, marks=(), control="control", outcomes=None, versions=None):
    """Judge night by night; `series` maps (workload, environment) to durations."""
    rows = []
    for (workload, environment), values in series.items():
        for night in range(N):
            ended = (outcomes or {}).get((workload, environment, night), "ok")
            value = values[night] if ended == "ok" else None
            facts = {"duration": value, "outcome": ended}
            if versions:
                facts["version"] = versions[workload, environment][night]
            rows.append(run_record(night, workload=workload, environment=environment, **facts))
    runs, events = pd.DataFrame(rows), []
    for night in range(first, N):
        known = runs[runs["started"] <= FIRST + pd.Timedelta(days=night)]
        history = build_history(known, metrics=["duration"], marks=marks)
        found = judge_night(history, events, marks=marks, control=control)
        settled = [one for one in found.proposed if not one["suspect"]]
        told = (*settled, *found.events, *found.nights)
        events += [{"id": new_id(), **event} for event in told]
    return events


def kinds(events):
    return [event["kind"] for event in events if event["kind"] != "night"]


def stepped(seed, ratio, first=40, last=N):
    values = noise(seed)
    values[first:last] *= ratio
    return values


def test_a_step_is_opened_once_with_its_levels_and_night():
    events = replay({("a.x", "tip"): stepped(1, 1.2), ("a.y", "tip"): noise(2)})
    assert kinds(events) == ["opened"]
    (one,) = read_ledger(events)
    assert one.is_open
    assert one.workload == "a.x"
    assert one.night[:10] == str(FIRST + pd.Timedelta(days=40))[:10]
    assert 1.18 < one.ratio < 1.22
    assert 9.8 < one.before < 10.2 < 11.8 < one.after < 12.2
    assert one.low < one.ratio < one.high


def test_a_second_step_grows_it_and_the_whole_size_counts():
    values = stepped(1, 1.2, first=35)
    values[50:] *= 1.3
    events = replay({("a.x", "tip"): values})
    assert kinds(events) == ["opened", "grown"]
    (one,) = read_ledger(events)
    assert one.state == "grown"
    assert 1.5 < one.ratio < 1.62
    assert one.night[:10] == str(FIRST + pd.Timedelta(days=35))[:10]


def test_three_nights_back_are_a_recovery_and_no_improvement():
    events = replay({("a.x", "tip"): stepped(1, 1.2, first=36, last=48)})
    assert kinds(events) == ["opened", "recovered"]
    (one,) = read_ledger(events)
    assert one.state == "recovered"
    assert one.closed[:10] == str(FIRST + pd.Timedelta(days=50))[:10]


def test_a_change_for_the_better_is_told_and_opens_nothing():
    events = replay({("a.x", "tip"): stepped(1, 0.8)})
    assert kinds(events) == ["improved"]
    assert read_ledger(events) == []


def test_what_the_control_does_too_is_the_machine():
    series = {
        ("a.x", "tip"): stepped(1, 1.2),
        ("a.x", "control"): stepped(2, 1.2),
        ("a.y", "tip"): stepped(3, 1.2),
        ("a.y", "control"): noise(4),
    }
    events = replay(series)
    assert [one.workload for one in read_ledger(events)] == ["a.y"]
    aside = {(e["workload"], e["environment"]) for e in events if e["kind"] == "set_aside"}
    assert aside == {("a.x", "tip"), ("a.x", "control")}


def test_one_night_of_the_control_does_not_hide_a_step():
    pinned = noise(2)
    pinned[42] *= 1.2  # the very night on which the step is seen
    events = replay({("a.x", "tip"): stepped(1, 1.2), ("a.x", "control"): pinned})
    assert kinds(events)[0] == "opened"


def test_one_wild_night_is_suspect_and_opens_nothing_by_itself():
    values = noise(1)
    values[N - 1] *= 1.5
    rows = [run_record(night, duration=value) for night, value in enumerate(values)]
    found = judge_night(build_history(pd.DataFrame(rows), metrics=["duration"]))
    assert [(one["suspect"], one["night"][:10]) for one in found.proposed] == [
        (True, str(FIRST + pd.Timedelta(days=N - 1))[:10])
    ]
    assert kinds(replay({("a.x", "tip"): values})) == []


def test_a_workload_that_fails_is_opened_at_once_and_recovers_after_two_good_nights():
    outcomes = {("a.x", "tip", night): "failed" for night in (40, 41, 42)}
    events = replay({("a.x", "tip"): noise(1)}, outcomes=outcomes)
    told = [(e["kind"], e["seen"][:10]) for e in events if e["kind"] != "night"]
    days = [str(FIRST + pd.Timedelta(days=night))[:10] for night in (40, 44)]
    assert told == [("opened", days[0]), ("recovered", days[1])]


def test_infrastructure_is_no_failure_of_a_workload():
    outcomes = {("a.x", "tip", night): "infrastructure" for night in (40, 41)}
    assert kinds(replay({("a.x", "tip"): noise(1)}, outcomes=outcomes)) == []


def test_what_fails_in_the_control_too_is_set_aside():
    outcomes = {("a.x", env, 40): "failed" for env in ("tip", "control")}
    series = {("a.x", "tip"): noise(1), ("a.x", "control"): noise(2)}
    assert set(kinds(replay(series, outcomes=outcomes))) == {"set_aside"}


def test_an_accepted_regression_is_closed_and_the_new_level_is_the_reference():
    mark = {
        "id": new_id(),
        "kind": "accept",
        "workload": "a.x",
        "at": (FIRST + pd.Timedelta(days=40)).isoformat(),
    }
    values = stepped(1, 1.2)
    values[55:] *= 1.2
    events = replay({("a.x", "tip"): values})
    assert [one.state for one in read_ledger(events, [mark])] == ["accepted"]
    again = replay({("a.x", "tip"): values}, marks=[mark])
    (one,) = read_ledger(again, [mark])
    assert one.is_open
    assert one.night[:10] == str(FIRST + pd.Timedelta(days=55))[:10]


def test_a_new_version_ends_what_can_no_longer_be_followed():
    versions = {("a.x", "tip"): [1 if night < 50 else 2 for night in range(N)]}
    events = replay({("a.x", "tip"): stepped(1, 1.2)}, versions=versions)
    assert kinds(events) == ["opened", "ended"]
    (one,) = read_ledger(events)
    assert one.state == "ended"
    assert one.events[-1]["reason"] == "version 1 -> 2 changed"


def test_judging_again_and_judging_twice_at_once_change_nothing():
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


def test_what_was_before_the_first_judged_night_is_history():
    assert kinds(replay({("a.x", "tip"): stepped(1, 1.3, first=20)}, first=45)) == []


def test_the_books_count_what_was_judged_and_what_to_expect():
    events = replay({("a.x", "tip"): noise(1), ("a.y", "tip"): noise(2)})
    nights = [event for event in events if event["kind"] == "night"]
    assert len(nights) == N - 30
    assert {night["n_series"] for night in nights} == {2}
    assert all(0 < night["expected_false_alarms"] < 0.01 for night in nights)
