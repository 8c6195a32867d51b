"""A history that comes at once is judged night by night, as if it had grown."""

import numpy as np
import pytest

from benchkit.analysis.regression import history
from benchkit.errors import UsageError
from benchkit.experiment.nightly.night import Night
from benchkit.experiment.nightly.nightly import judge_and_record
from benchkit.store.store import Store
from validation.synthetic_runs import make_run


def fill(store, nights, *, seed=0, last=1.0, **facts):
    """Add nights: a step on night 25, a fault of nights 20 to 26; `last`: ratio of night 39."""
    rng = np.random.default_rng(seed)
    for night in nights:
        started = str(np.datetime64("2026-03-01T02:00") + np.timedelta64(night, "D"))
        for name, ratio in (
            ("a.step", 1.3 if night >= 25 else 1.0),
            ("a.fault", 1.4 if 20 <= night < 27 else last if night == 39 else 1.0),
        ):
            duration = float(10 * rng.lognormal(0, 0.01) * ratio)
            facts |= {"started": started + "+00:00", "duration": duration}
            store.add(make_run(name, groups=False, **facts))


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store", create=True)
    fill(store, range(40))
    return store


def test_whole_history_opens_regressions_on_the_nights_they_would_have_opened(store):
    result = Night("", store)
    judge_and_record(result, metrics=["duration"])

    ledger = {each.workload: each for each in result.regressions}
    assert ledger["a.step"].seen[:10] == "2026-03-28"
    assert ledger["a.step"].is_open
    assert ledger["a.fault"].seen[:10] == "2026-03-23"
    assert ledger["a.fault"].closed[:10] == "2026-03-30"
    assert result.night == "2026-04-09T00:00:00"
    assert "opened" not in [event["kind"] for event in result.events]
    assert result.notes[0].startswith("judged 39 earlier nights (2026-03-01 to 2026-04-08)")
    again = Night("", store)
    judge_and_record(again, metrics=["duration"])
    assert (again.earlier, again.events) == ([], [])
    assert again.notes == ["judged before: its verdicts are in the ledger"]


def test_whole_history_is_read_once(store, monkeypatch):
    read = []

    class Counted(history.Detector):
        def __init__(self, values, **options):
            read.append(values.shape[1])
            super().__init__(values, **options)

    monkeypatch.setattr(history, "Detector", Counted)
    judge_and_record(Night("", store), metrics=["duration"])

    assert read == [40]


def test_import_into_a_judged_store_is_judged_night_by_night(store):
    judge_and_record(Night("", store), metrics=["duration"])
    before = [event for event in store.events() if event["kind"] != "night"]
    fill(store, range(40), seed=1, environment="other")
    result = Night("", store)
    judge_and_record(result, metrics=["duration"])

    opened = {e["workload"]: e for e in result.earlier if e["kind"] == "opened"}
    assert {name: event["seen"][:10] for name, event in opened.items()} == {
        "a.step": "2026-03-28",
        "a.fault": "2026-03-23",
    }
    assert {event["environment"] for event in result.earlier} == {"other"}
    assert [e for e in store.events() if e["kind"] != "night"][: len(before)] == before
    assert len({each.id for each in result.regressions}) == 4


def test_imported_earlier_nights_open_no_known_change_again(tmp_path):
    store = Store(tmp_path / "store", create=True)
    fill(store, range(12, 40))
    judge_and_record(Night("", store), metrics=["duration"])
    known = {e["regression"] for e in store.events() if e["kind"] == "opened"}
    fill(store, range(12), seed=1)
    result = Night("", store)
    judge_and_record(result, metrics=["duration"])

    assert known == {each.id for each in result.regressions}
    assert {event["seen"][:10] for event in result.earlier} == {
        str(np.datetime64("2026-03-01") + n) for n in range(12)
    }


def test_one_night_is_judged_by_its_date(store):
    result = Night("", store)
    judge_and_record(result, metrics=["duration"], night="2026-03-28")

    assert result.night == "2026-03-28T00:00:00"
    assert [(e["workload"], e["night"][:10]) for e in result.worse] == [("a.step", "2026-03-26")]
    assert max(event["seen"] for event in store.events()) == result.night
    again = Night("", store)
    judge_and_record(again, metrics=["duration"], night="2026-03-20")
    assert (again.night[:10], again.judged_before) == ("2026-03-20", True)
    with pytest.raises(UsageError, match=r"night 2025-01-01: not in .* 2026-03-01 to 2026-04-09"):
        judge_and_record(again, metrics=["duration"], night="2025-01-01")


def test_suspects_that_are_counted_are_named(tmp_path):
    store = Store(tmp_path / "store", create=True)
    fill(store, range(40), last=1.25)
    result = Night("", store)
    judge_and_record(result, metrics=["duration"])

    (note,) = [text for text in result.notes if "suspects" in text]
    assert note.startswith("suspects not measured again: 1 (a.fault duration +2")
