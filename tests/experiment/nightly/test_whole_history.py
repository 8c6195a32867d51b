"""A history that comes at once is judged night by night, as if it had grown."""

import numpy as np
import pytest

from benchkit.experiment.nightly.night import Night
from benchkit.experiment.nightly.nightly import judge_and_record
from benchkit.store.store import Store
from validation.synthetic_runs import make_run


@pytest.fixture
def store(tmp_path):
    """Return a store with 40 nights: a step on night 25, and a fault of nights 20 to 26."""
    store = Store(tmp_path / "store", create=True)
    rng = np.random.default_rng(0)
    for night in range(40):
        started = str(np.datetime64("2026-03-01T02:00") + np.timedelta64(night, "D"))
        for name, ratio in (
            ("a.step", 1.3 if night >= 25 else 1.0),
            ("a.fault", 1.4 if 20 <= night < 27 else 1.0),
        ):
            duration = float(10 * rng.lognormal(0, 0.01) * ratio)
            store.add(make_run(name, groups=False, started=started + "+00:00", duration=duration))
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
