"""Nights check the models of predictions with their own runs."""

import json

import pandas as pd
import pytest

from benchkit.analysis.regression.history import build_history
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.nightly.model_check import MAX_RUNS, replay_errors
from benchkit.experiment.nightly.night import Night, read_night
from benchkit.experiment.nightly.nightly import judge_and_record
from benchkit.show.pages.machines import machines_page
from benchkit.show.pages.night import page as night_page
from benchkit.store.store import Store
from validation.graph_runs import MadeTask, graph_run
from validation.run_records import run_record
from validation.synthetic_runs import make_run


def night_run(folder, workload, *, gap=0.0, **facts):
    """Return a run of 20 tasks of 0.1 s and one more, after a gap that no model explains."""
    tasks = [MadeTask(f"a-{n}", 0.1 * n, 0.1 * n + 0.1) for n in range(20)]
    tasks.append(MadeTask("b-0", 2 + gap, 2.1 + gap))
    wanted = [list(range(len(tasks)))]
    tree = graph_run(folder / workload, tasks, duration=2.1 + gap, wanted=wanted).tree
    record = json.loads(tree.attrs["record"])
    record |= {"workload": workload, "environment": "tip", "host": "ci", "quality": "{}", **facts}
    tree.attrs |= {name: record[name] for name in ("workload", "environment", "host")}
    tree.attrs["record"] = json.dumps(record)
    return tree


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", create=True)


def add_night(store, tmp_path, gap):
    for number in range(4):
        store.add(night_run(tmp_path, f"a.w{number}", gap=gap))


def test_night_says_how_far_replays_of_its_runs_are_off(store, tmp_path):
    add_night(store, tmp_path, gap=0.0)
    result = Night("", store)

    judge_and_record(result, metrics=["duration"])

    assert result.notes[-1] == "4 runs replayed: whatif is off by 0.0 % (median)"
    assert result.failures == []
    (event,) = [event for event in store.events() if event["kind"] == "night"]
    assert sorted(row["workload"] for row in event["model"]) == ["a.w0", "a.w1", "a.w2", "a.w3"]
    titles = [section.title for section in night_page(result, [], {}).sections]
    assert "Which runs are predicted badly?" not in titles


def test_model_that_is_off_by_more_than_a_tenth_is_an_alarm(store, tmp_path):
    add_night(store, tmp_path, gap=0.5)
    result = Night("", store)

    judge_and_record(result, metrics=["duration"])

    text = "whatif is off by 19.2 %, more than 10 %"
    assert result.failures == []  # the judgement of the night is right all the same
    again = read_night(store)
    assert again.notes[-1] == f"4 runs replayed: {text} (median)"
    section = night_page(again, [], {}).sections[-1]
    assert section.title == "Which runs are predicted badly?"
    assert [row.cells[1] for row in section.content.rows] == ["−19 %"] * 4


def test_one_odd_run_is_no_alarm(store, tmp_path):
    store.add(night_run(tmp_path, "a.odd", gap=0.5))
    result = Night("", store)

    judge_and_record(result, metrics=["duration"])

    assert result.notes[-1] == "1 run replayed: whatif is off by 19.2 % (median)"
    assert result.failures == []


def test_both_engines_replay_runs_of_environments_that_are_built(store, tmp_path):
    store.add(night_run(tmp_path, "a.w"))

    (row,) = replay_errors(store, store.runs(), {"tip": Environment("tip")})

    assert (row["workload"], row["environment"], row["host"]) == ("a.w", "tip", "ci")
    assert abs(row["replay"]) < 0.01
    assert abs(row["simulation"]) < 0.1


def test_runs_that_say_nothing_of_the_model_are_left_out(store, tmp_path):
    for name, facts in {
        "a.disturbed": {"quality": '{"duration": "disturbed"}'},
        "a.large": {"n_tasks": 50_000.0},
        "a.failed": {"outcome": "failed"},
        "a.light": {"capture": "light"},
    }.items():
        store.add(night_run(tmp_path, name, **facts))
    store.add(make_run("a.without_graph"))

    assert list(replay_errors(store, store.runs(), {})) == []


def test_ten_workloads_are_replayed(store, tmp_path):
    for number in range(MAX_RUNS + 2):
        store.add(night_run(tmp_path, f"a.w{number}"))
    store.add(night_run(tmp_path / "again", "a.w0"))

    rows = list(replay_errors(store, store.runs(), {}))

    assert len({row["workload"] for row in rows}) == len(rows) == MAX_RUNS


def test_machines_page_has_the_errors_of_all_nights():
    nights = [
        {"kind": "night", "seen": f"2026-01-0{day}", "host": host,
         "model": [{"workload": "w", "run": "r", "replay": error, "simulation": -2 * error}]}
        for day, errors in ((2, (0.05, 0.07)), (1, (-0.02, 0.02)))
        for host, error in zip("ab", errors, strict=True)
    ]  # fmt: skip

    history = build_history(pd.DataFrame([run_record(0, workload="w")]), metrics=["duration"])

    section = machines_page(history, nights, []).sections[-1]
    rows = [row.cells for row in section.content.rows]

    assert [row[:3] for row in rows] == [
        ["whatif", "6.0 %", "4.0 %"], ["simulate", "12.0 %", "8.0 %"],
    ]  # fmt: skip
    assert rows[0][3].values.tolist() == pytest.approx([0.02, 0.06])
