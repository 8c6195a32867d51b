"""Forms that write marks."""

import panel as pn
import pytest
from helpers.dashboards import served

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.show.dashboard.components import mark_form
from benchkit.show.dashboard.state import cache, nights
from benchkit.store.run import Run
from benchkit.store.store import Store
from validation.dashboard_server import HOSTILE, open_page, sees
from validation.history_data import SLOWER


@pytest.mark.browser
def test_mark_form_needs_allow_marks(page, running_site, running_store, own_store):
    button = page.get_by_role("button", name="Write the mark")
    open_page(page, f"{running_site}?view=run&id={running_store.ids()[0]}")
    sees(page, "The whole run,")
    assert button.count() == 0

    with served(own_store.path, "--allow-marks", page=page) as url:
        open_page(page, f"{url}?view=run&id={own_store.ids()[0]}")
        sees(page, "The whole run,")
        button.click()
        sees(page, "needs a reason and an author")
        page.get_by_label("Reason").fill(HOSTILE)
        page.get_by_label("Author").fill("ann")
        page.wait_for_timeout(300)
        button.click()
        sees(page, "Marked as exclude")

    (mark,) = own_store.marks()
    assert (mark["kind"], mark["reason"], mark["runs"]) == (
        "exclude",
        HOSTILE,
        [own_store.ids()[0]],
    )


def test_mark_form_absent_without_flag(monkeypatch, a_run):
    monkeypatch.delenv(mark_form.MARKS_VARIABLE, raising=False)

    assert mark_form.mark_run(Run(a_run)) == []
    assert (
        mark_form.mark_series({"workload": "x", "environment": "e", "host": "h"}, "duration") == []
    )


def test_mark_author_is_logged_in_user(nightly_store, monkeypatch):
    monkeypatch.setenv(mark_form.MARKS_VARIABLE, "1")
    monkeypatch.setattr(type(pn.state), "user", property(lambda state: "ada"))
    form = pn.Column(*mark_form.mark_run(cache.open_run(cache.runs_table(["id"])["id"].iloc[0])))
    reason, author = form.select(pn.widgets.TextInput)
    reason.value, author.value = "broken disk", "another author"
    form.select(pn.widgets.Button)[0].clicks += 1

    assert [
        mark["by"] for mark in Store(nightly_store.path).marks() if mark["kind"] == "exclude"
    ] == ["ada"]
    assert author.disabled


def test_mark_applies_to_shown_series(nightly_store, monkeypatch):
    monkeypatch.setenv(mark_form.MARKS_VARIABLE, "1")
    about = nights.nights_of_workload(SLOWER).series.iloc[0].to_dict()
    form = pn.Column(*mark_form.mark_series(about, "duration"))
    reason, author, _ = form.select(pn.widgets.TextInput)
    reason.value, author.value = "wanted", "me"
    form.select(pn.widgets.Button)[0].clicks += 1

    (mark,) = Store(nightly_store.path).marks()
    where = {name: about[name] for name in SERIES_FIELDS[1:] if about[name] is not None}
    assert mark["where"] == where
    assert "scale" in mark["where"]
