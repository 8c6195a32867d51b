"""Page of regressions and improvements."""

import re

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.regression.status import reported_change
from benchkit.show.dashboard.nights import overview, regressions
from benchkit.show.dashboard.state import nights
from benchkit.store.store import Store
from validation import history_data
from validation.dashboard_server import text_of
from validation.history_data import FASTER, SLOWER, fill


def cells(view):
    """Return the texts of the cells of each row."""
    rows = re.findall(r"<tr>(.*?)</tr>", text_of(view))
    texts = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    return [[re.sub("<[^>]*>", "", text) for text in row] for row in texts if row]


def test_regressions_page_has_size_and_owner(nightly_store):
    ((state, title, size, where, since, who),) = cells(regressions.view({}))

    assert (state, where, who) == ("▲ open", "main on bench-1", "array team")
    assert title == f"{SLOWER}: wall time of the workload +14 %"
    assert size.startswith("+14 % (+11.0 to +17.0), ")
    assert since == "2026-11-18"


def test_regressions_page_says_that_no_owner_is_declared(nightly_store, monkeypatch):
    monkeypatch.setattr(regressions, "owners", dict)
    ((*_, who),) = cells(regressions.view({}))

    assert who == "no owner declared"


def test_regressions_page_filters_by_period_state_and_text(nightly_store):
    assert len(cells(regressions.view({"days": "7", "state": "open"}))) == 1
    assert cells(regressions.view({"state": "closed"})) == []
    assert cells(regressions.view({"find": "no such thing"})) == []


def test_regressions_page_has_improvements_in_period(tmp_path, a_run, monkeypatch):
    monkeypatch.setattr(history_data, "PACKAGES_EVERY", history_data.FASTER_SINCE)
    store = fill(tmp_path / "store", a_run, n_nights=60)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    every = [row for row in cells(regressions.view({})) if row[0].startswith("▼")]
    recent = cells(regressions.view({"days": "30"}))
    changes = [row for row in cells(regressions.view({})) if row[0] == FASTER]

    assert [row[1:5] for row in every] == [
        [FASTER, "wall time of the workload", "main on bench-1", "2026-10-12"],
        [FASTER, "wall time of the workload", "release on bench-1", "2026-10-12"],
    ]
    assert all(re.fullmatch("▼ −1[5-9] %", row[0]) for row in every)
    assert not [row for row in recent if row[0].startswith("▼")]
    assert "2 improvements" in text_of(regressions.view({}))
    assert [row[1] for row in changes] == ["2026-10-12", "2026-10-12"]
    (packages,) = [row[-1] for row in changes if "main" in row[4]]
    assert packages.startswith("dask 2026.7.0 → 2026.8.0, distributed 2026.7.0 → 2026.8.0")


def test_charts_and_tables_have_size_of_ledger(nightly_store):
    (regression,) = nights.regressions()
    change = ChangePoint(9, 1.21, 1.1, 1.3, 0.999, 1, 11)
    shown = reported_change(change, regression.about, "2026-11-17T02:00:00", [regression])

    assert (shown.ratio, shown.low, shown.high) == (1.14, 1.11, 1.17)
    assert reported_change(change, regression.about, "2026-10-17T02:00:00", [regression]) is change
    other = {**regression.about, "environment": "release"}
    assert reported_change(change, other, "2026-11-18T02:00:00", [regression]) is change
    assert "+14 %" in text_of(overview.view({"view": "overview"}))


def test_first_page_of_store_without_nights_says_so(tmp_path, a_run, monkeypatch):
    store = Store(tmp_path / "store")
    store.add(a_run)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    text = text_of(overview.view({}))

    assert ("No nights yet" in text) != ("runs of 1 day; changes need 3." in text)
    assert "1 night" not in text
    assert "1 run" in text
