"""An experiment in progress: the data that viewers share, and the page of a stopped experiment."""

from __future__ import annotations

import pandas as pd
import pytest

from benchkit.experiment.run.status import Status
from benchkit.show.dashboard import live as follow
from benchkit.show.dashboard.state.table_state import page_of
from benchkit.store.store import Store

EXPERIMENT = "01a20f7d-3ece-729d-98cf-2e770a0e00d3"


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    store._create_if_missing()
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    return store


def status(n_runs=2):
    """Return a stopped experiment with one measurement done and one planned."""
    names = ["block", "variant", "arm", "state", "run", "outcome", "duration"]
    rows = [
        (0, "tests.sum", "main", "done", "", "ok", 1.0),
        (0, "tests.sum", "new", "planned", "", "", None),
    ]
    runs = pd.DataFrame({"id": range(n_runs)})
    return Status(EXPERIMENT, {}, pd.DataFrame(rows, columns=names), runs, False, 60.0)


def count_calls(monkeypatch, name, answer):
    calls = []

    def counted(*given, **named):
        calls.append(given)
        return answer() if callable(answer) else answer

    monkeypatch.setattr(follow, name, counted)
    return calls


def test_those_who_watch_share_what_one_of_them_has_read(store, monkeypatch):
    read = count_calls(monkeypatch, "read_status", status)

    for _ in range(3):
        follow._content({"experiment": EXPERIMENT}, [])

    assert len(read) == 1


def test_those_who_watch_share_the_verdicts_until_another_run_has_come(store, monkeypatch):
    class Comparison:
        frame = pd.DataFrame()

    compared = count_calls(monkeypatch, "compare_experiment", Comparison)

    for n_runs in (2, 2, 3, 3):
        follow._interim(status(n_runs))

    assert len(compared) == 2


def test_what_goes_on_with_an_experiment_is_shown_as_a_command():
    _, resume = follow._head(status())

    assert f"<code>benchkit ab --resume {EXPERIMENT[:13]}</code>" in resume.object


@pytest.mark.parametrize(
    ("word", "page"),
    [("2", 2), ("0", 1), ("000002", 2), ("99", 4), ("9" * 5000, 4), ("x", 1), ("", 1), ("٢", 1)],
)
def test_any_word_for_a_page_is_the_nearest_page_that_there_is(word, page):
    assert page_of(word, n_rows=100, page_size=25) == page
