import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from benchkit.analysis.run.baseline import against_previous, comparable


def frame(durations, **fields):
    n = len(durations)
    return pd.DataFrame(
        {
            "id": [f"run{i}" for i in range(n)],
            "workload": "a.b",
            "outcome": "ok",
            "host": "here",
            "n_threads": pd.array([2] * n, dtype="Int64"),
            "started": pd.date_range("2026-01-01", periods=n, tz="UTC"),
            "duration": durations,
            **fields,
        }
    )


def record(**fields):
    base = {
        "id": "new",
        "workload": "a.b",
        "host": "here",
        "n_threads": 2,
        "started": "2026-03-01T00:00:00+00:00",
        "duration": 11.0,
    }
    return {**base, **fields}


def test_comparable_separates_simulated_from_measured_runs():
    runs = frame([5.0, 7.0, 9.0], simulated=[1, None, 1])

    assert comparable(runs, record())["duration"].tolist() == [7.0]
    assert comparable(runs, record(simulated=1))["duration"].tolist() == [5.0, 9.0]
    assert comparable(frame([5.0]), record(simulated=1)).empty


def test_against_previous_ratio_is_to_geometric_mean():
    found = against_previous(frame([5.0, 20.0]), record())

    assert found.n_runs == 2
    assert found.ratio == pytest.approx(1.1)
    assert found.unusual is None


@pytest.mark.parametrize(
    "other",
    [{"workload": "a.c"}, {"host": "there"}, {"n_threads": 4}, {"started": "2025-01-01T00:00Z"}],
)
def test_comparable_excludes_runs_with_other_fields(other):
    assert comparable(frame([5.0, 6.0]), record(**other)).empty


def test_comparable_excludes_failed_runs_and_itself():
    runs = frame([5.0, 6.0, 7.0], outcome=["ok", "failed", "ok"])

    assert list(comparable(runs, record(id="run2"))["id"]) == ["run0"]


def test_against_previous_is_none_without_values():
    assert against_previous(frame([np.nan]), record()) is None
    assert against_previous(frame([1.0]), record(duration=None)) is None
    assert against_previous(pd.DataFrame(), record()) is None


def test_unusual_has_nominal_error_rate():
    rng = np.random.default_rng(7)
    n_trials = 600
    values = rng.lognormal(1.0, 0.08, size=(n_trials, 7))

    unusual = sum(
        against_previous(frame(row[:6]), record(duration=row[6])).unusual for row in values
    )

    assert binomtest(int(unusual), n_trials, 0.05).pvalue > 1e-4
    assert unusual > 0
