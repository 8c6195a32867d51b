"""Versions of definitions and notes on quality in tables of runs."""

import numpy as np
import pandas as pd

import benchkit
from benchkit.analysis.metric_limits import (
    decode_column,
    newest_definitions,
    quality_warnings,
    same_definitions,
)
from benchkit.analysis.regression.history import build_history
from benchkit.analysis.run.baseline import against_previous, metrics_against_previous
from benchkit.analysis.run.noise import run_noise
from benchkit.store.schema import METRICS

OLD, NEW = "{}", '{"memory_mean": 2}'


def runs_of(values, versions, **columns):
    return pd.DataFrame(
        {
            "workload": "w",
            "outcome": "ok",
            "memory_mean": values,
            "duration": 1.0,
            "metric_versions": versions,
            **columns,
        }
    )


def test_newest_definitions_removes_older_values():
    old, new = runs_of([1.0, 2.0], [OLD, OLD]), runs_of([3.0], [NEW])

    (left, right), warnings = newest_definitions([old, new], ["memory_mean", "duration"])

    assert left["memory_mean"].isna().all()
    assert left["duration"].notna().all(), "its definition is the same"
    assert right["memory_mean"].tolist() == [3.0]
    assert old["memory_mean"].tolist() == [1.0, 2.0], "the argument is unchanged"
    assert warnings == [
        "memory_mean: without the values of 2 runs that an older benchkit measured by another "
        "definition"
    ]


def test_newest_definitions_keeps_values_of_one_version():
    tables = [runs_of([1.0], [OLD]), runs_of([2.0], [OLD]).drop(columns="metric_versions")]

    kept, warnings = newest_definitions(tables, ["memory_mean"])

    assert [table["memory_mean"].tolist() for table in kept] == [[1.0], [2.0]]
    assert warnings == []


def test_newest_definitions_judges_each_series_alone():
    """A workload that was not measured again keeps its values."""
    runs = runs_of([1.0, 2.0, 3.0], [OLD, OLD, NEW])
    runs["workload"] = ["a", "b", "b"]

    (kept,), warnings = newest_definitions([runs], ["memory_mean"], by=["workload"])

    assert kept["memory_mean"].fillna(-1).tolist() == [1.0, -1, 3.0]
    assert warnings[0].startswith("memory_mean: without the values of 1 run ")


def test_same_definitions_removes_newer_and_older_values():
    runs = runs_of([1.0, 2.0, 3.0], [OLD, NEW, '{"memory_mean": 3}'])

    kept = same_definitions(runs, {"metric_versions": NEW}, ["memory_mean", "duration"])

    assert kept["memory_mean"].fillna(-1).tolist() == [-1, 2.0, -1]
    assert kept["duration"].notna().all()
    assert same_definitions(runs, {}, ["memory_mean"])["memory_mean"].tolist()[0] == 1.0


def test_runs_before_do_not_mix_definitions():
    started = pd.date_range("2026-01-01", periods=5, freq="D", tz="UTC")
    runs = runs_of([1.0, 1.0, 5.0, 5.0, 5.0], [OLD] * 2 + [NEW] * 3)
    runs = runs.assign(id=list("abcde"), started=started, comparable=True)

    previous = against_previous(runs, runs.iloc[-1].to_dict(), "memory_mean")
    table = metrics_against_previous(runs, runs.iloc[-1].to_dict())

    assert (previous.n_runs, previous.ratio) == (2, 1.0)
    assert table.loc[METRICS["memory_mean"].long_name, "runs before"] == 2
    assert table.loc[METRICS["duration"].long_name, "runs before"] == 4


def test_run_noise_does_not_mix_definitions():
    started = pd.date_range("2026-01-01", periods=10, freq="D", tz="UTC")
    runs = runs_of([1.0] * 5 + [5.0] * 5, [OLD] * 5 + [NEW] * 5)
    runs = runs.assign(started=started, comparable=True)

    noise = run_noise(runs, "memory_mean")

    assert noise["n_runs"].tolist() == [5]
    assert noise["level"].tolist() == [5.0]


def test_quality_warnings_count_runs_by_kind():
    quality = ['{"duration": "disturbed"}', '{"duration": "disturbed unfinished"}', None]
    runs = runs_of([1.0, 1.0, 1.0], [OLD] * 3, quality=quality)

    warnings = quality_warnings({"B": runs}, ["duration", "memory_mean"])

    assert [line.partition(";")[0] for line in warnings] == [
        "duration: 2 of 3 runs of B disturbed",
        "duration: 1 of 3 runs of B unfinished",
    ]


def test_compare_leaves_out_values_of_an_older_definition():
    old = runs_of([1.0, 1.1, 1.2, 1.1], [OLD] * 4)
    new = runs_of([5.0, 5.1, 5.2, 5.1], [NEW] * 4)

    comparison = benchkit.compare(old, new, metrics=["memory_mean", "duration"])

    row = comparison.frame.set_index("metric").loc["memory_mean"]
    assert row["n_baseline"] == 0
    assert np.isnan(row["ratio"])
    assert any("another definition" in text for text in comparison.warnings)


def test_history_of_a_metric_begins_with_its_newest_definition():
    nights = pd.date_range("2026-01-01", periods=4, freq="D", tz="UTC")
    runs = runs_of(
        [1.0, 1.0, 5.0, 5.0],
        [OLD, OLD, NEW, NEW],
        id=list("abcd"),
        started=nights,
        tags="{}",
        environment="e",
        host="h",
        scale=1.0,
        capture="full",
    )

    history = build_history(runs)
    values = dict(zip(history.series["metric"], history.values, strict=True))

    assert np.isnan(values["memory_mean"][:2]).all()
    assert values["memory_mean"][2:].tolist() == [5.0, 5.0]
    assert np.isfinite(values["duration"]).all()


def test_decode_column_decodes_each_distinct_text_once():
    codes, objects = decode_column(pd.Series(['{"a": 1}', None, "no", '{"a": 1}']))

    assert [objects[code] for code in codes] == [{"a": 1}, {}, {}, {"a": 1}]
    assert len(objects) == 3
