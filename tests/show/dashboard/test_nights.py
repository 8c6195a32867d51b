"""The dashboard's night pages: from the overview to the history of a workload and to a run."""

import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from helpers.dashboards import served
from playwright.sync_api import expect

from benchkit.analysis.regression.history import build_history
from benchkit.analysis.regression.status import series_label, series_statuses
from benchkit.formatting import MISSING
from benchkit.show.dashboard.nights import history, overview
from benchkit.show.dashboard.state import cache, nights
from benchkit.show.pages import night as pages
from benchkit.show.render.markdown import table_markdown
from validation.dashboard_server import HOSTILE, READY, text_of
from validation.history_data import FAILING, FASTER, SLOWER, fill

#: JavaScript that returns the position of a run in a history: its kind, and its index from the end.
DOT = """([kind, back]) => {
  const figure = [...Bokeh.documents[0]._all_models.values()].find(
    m => m.type === "Figure" && m.toolbar.tools.length > 3);
  const source = figure.renderers.find(r => r.data_source.name === kind).data_source;
  const at = source.data.id.length - 1 - back, view = Bokeh.index.find_one(figure);
  const box = view.canvas_view.el.getBoundingClientRect();
  return [box.x + view.frame.x_scale.compute(source.data.x[at]),
          box.y + view.frame.y_scale.compute(source.data.y[at])];
}"""

CHOSEN = """[...Bokeh.documents[0]._all_models.values()]
  .filter(m => m.name === "runs" || m.name === "failures")
  .reduce((n, m) => n + m.selected.indices.length, 0)"""


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    return fill(tmp_path_factory.mktemp("nights") / "store", a_run, n_nights=60)


@pytest.fixture(scope="module")
def site(store):
    with served(store.path) as url:
        yield url


def filters(**values):
    """Return the values of the overview's filters."""
    return {"metric": "duration", "find": "", "size": "", "show": "all", "night": "", **values}


def test_series_statuses_order_by_severity(store):
    built = build_history(store.runs(), metrics=["duration"], marks=[])
    statuses = series_statuses(built, store.events())
    states = {
        (status.about["workload"], status.about["environment"]): status.state for status in statuses
    }

    assert states[FAILING, "main"] == "failed"
    assert states[SLOWER, "main"] == "regressed"
    assert states[SLOWER, "release"] == "unchanged"
    assert statuses[0].state == "failed"
    assert statuses[1].about["workload"] == SLOWER
    assert statuses[1].ratio == pytest.approx(1.14)
    assert statuses[1].units > 3
    order = [status.severity for status in statuses]
    assert order == sorted(order)
    assert all(np.isfinite(status.value) for status in statuses if status.state == "unchanged")


def test_series_label_leaves_out_unknown_fields():
    about = {"environment": "main", "host": float("nan"), "scale": None, "capture": float("nan")}
    assert series_label(about) == "main"
    assert series_label({**about, "host": "ci", "scale": 0.5}) == "main on ci, scale 0.5"


def test_overview_shows_workloads_without_ok_run(tmp_path, a_run, monkeypatch):
    store = fill(tmp_path / "store", a_run, n_nights=5, never_ok=HOSTILE)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))

    text = text_of(overview.view({"view": "overview", "find": HOSTILE}))
    assert "failed, never ok" in text
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    assert f"id={store.runs(workload=HOSTILE)['id'].iloc[-1]}" in text
    assert "since 2026" in text
    series = nights.night_series("duration")
    (row,) = pages.frame(series, filters(find=HOSTILE, show="news")).to_dict("records")
    assert (row["state"], row["workload"]) == ("failed, never ok", HOSTILE)
    table = pages.series_table(series, filters(find=HOSTILE))
    assert "<" not in table_markdown(table)
    assert pages.series_table(series, filters(find="nothing")).rows == []


def chosen(state):
    """Return the initial choice of rows of the overview."""
    (show,) = overview.view(state).select(lambda part: getattr(part, "name", "") == "Show")
    return show.value


def test_overview_of_many_series_starts_filtered(store, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))

    assert chosen({}) == "all"
    monkeypatch.setattr(overview, "ROWS_SHOWN", 5)
    assert chosen({}) == "news"
    assert chosen({"show": "all"}) == "all"


def test_overview_file_contains_filtered_rows(store, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))

    shown = filters(find="vorticity main", show="news")
    series = nights.night_series("duration")
    rows = pages.frame(series, shown)

    (row,) = rows.to_dict("records")
    assert (row["workload"], row["state"]) == (SLOWER, "regressed, new")
    assert row["change"] == pytest.approx(0.14)
    assert row["low"] < row["change"] < row["high"]
    assert (row["metric"], row["units"]) == ("duration", "s")
    lines = table_markdown(pages.series_table(series, shown)).splitlines()
    assert len(lines) == 3
    assert "+14 %" in lines[-1]
    assert pages.frame(series, filters(find="nothing-like-it", show="all")).empty


@pytest.mark.parametrize(("size", "workloads"), [("5", {SLOWER, FAILING}), ("", None)])
def test_overview_filters_by_size_of_change(size, workloads, store, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))

    rows = pages.frame(nights.night_series("duration"), filters(find="main", size=size))

    if workloads is None:
        assert len(rows) > 5
    else:  # the improvement is 40 nights old: its level is the usual one now
        assert workloads <= set(rows["workload"]) <= workloads | {FASTER}


def test_list_of_histories_has_sparklines(store, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))

    text = text_of(history.view({"find": "vorticity"}))

    assert "1 workload with nightly runs" in text
    assert text.count("<svg") == 2  # in both environments
    assert "▲ regressed" in text


def test_sparkline_label_describes_series(store, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    series = nights.night_series("duration")
    status = next(status for status in series.statuses if status.state == "regressed")

    label = pages.spark(pages.SeriesRow(series, 60, status)).label

    assert label == f"{SLOWER}, 60 nights: regressed, new, +14 % since {status.since}"


@pytest.mark.browser
def test_overview_links_to_history_and_run(page, site, artifacts):
    page.goto(site)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Night of 2026-11-20")
    expect(page.get_by_text("regressed, new")).to_be_visible()
    n_rows = page.locator("tbody tr").count()
    page.screenshot(path=artifacts / "dashboard-overview.png", full_page=True)

    page.get_by_label("Show").select_option(label="what needs attention")
    page.wait_for_url("**show=news**")
    expect(page.get_by_text(re.compile(r"\d+ of \d+ hidden"))).to_be_visible()
    assert page.locator("tbody tr").count() < n_rows
    page.get_by_label("Metric").select_option(label="cluster process memory, highest sum")
    page.wait_for_url("**metric=memory_peak**")
    page.get_by_label("Metric").select_option(label="wall time of the workload")
    page.wait_for_url("**metric=duration**")
    page.get_by_role("link", name=SLOWER).first.click()

    page.wait_for_url("**view=history**")
    expect(page.get_by_role("heading", level=1)).to_have_text(SLOWER)
    expect(page.get_by_text("82 % of it is transfer in the group sum.")).to_be_visible()
    page.wait_for_function(READY)
    page.screenshot(path=artifacts / "dashboard-history.png", full_page=True)
    page.get_by_label("Axis from zero").check()
    page.wait_for_url("**zero=1**")
    page.locator("tbody a[href*='view=run']").first.click()

    page.wait_for_url("**view=run&id=*")
    expect(page.get_by_role("heading", level=1)).to_contain_text(SLOWER)
    page.go_back()
    page.wait_for_url("**view=history**")
    expect(page.get_by_role("heading", level=1)).to_have_text(SLOWER)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("view=history", "Workloads over time"),
        ("view=history&workload=nothing", "No such workload"),
        ("view=history&workload=" + HOSTILE.replace("&", "%26"), "No such workload"),
        (f"view=history&workload={FASTER}&metric=nonsense", "A click on a dot"),
        ("view=overview&find=nothing-like-it", "16 of 16 hidden"),
        ("view=overview&metric=nonsense", "Night of"),
    ],
)
def test_invalid_night_addresses_show_message(page, site, address, message):
    page.goto(f"{site}?{address}")

    expect(page.get_by_text(message).first).to_be_visible()
    assert page.evaluate("window.hacked") is None


@pytest.mark.browser
def test_history_shift_click_compares_two_nights(page, site):
    page.goto(f"{site}?view=history&workload={SLOWER}&environment=main")
    page.wait_for_function(READY)
    page.mouse.click(*page.evaluate(DOT, ["runs", 0]))
    page.wait_for_url("**view=run&id=**")
    page.go_back()
    page.wait_for_url("**view=history**")
    page.wait_for_function(READY)
    shift_click_both(page, ["runs", 0], ["runs", 1])
    expect(page.get_by_text("B − A").first).to_be_visible()


@pytest.mark.browser
def test_history_shift_click_compares_ok_and_failed_night(page, site, store):
    page.goto(f"{site}?view=history&workload={FAILING}&environment=main")
    page.wait_for_function(READY)

    shift_click_both(page, ["failures", 0], ["runs", 0])

    ids, outcomes = parse_qs(urlsplit(page.url).query), store.runs().set_index("id")["outcome"]
    assert [outcomes[ids[name][0]] for name in "ab"] == ["ok", "failed"]


def shift_click_both(page, first, second):
    """Click two dots with Shift held, and wait for the page of two runs."""
    page.keyboard.down("Shift")
    page.mouse.click(*page.evaluate(DOT, first))
    page.wait_for_function(f"{CHOSEN} === 1")
    page.wait_for_timeout(600)  # two fast taps would count as a double tap
    page.mouse.click(*page.evaluate(DOT, second))
    page.wait_for_url("**view=pair&a=**&b=**")


def test_history_shows_missing_versions_as_missing(nightly_store):
    nights_of_store = build_history(nightly_store.runs(), metrics=["duration"])
    nights_of_store.runs[["distributed", "python"]] = None
    series = nights_of_store.series.iloc[0].to_dict()

    (section, *_) = history._runs(nights_of_store, series, "duration")

    assert "nan" not in section.object.lower()
    text = f"distributed {MISSING}, Python {MISSING}<"
    assert section.object.count(text) == len(nights_of_store.times)


def test_pages_show_the_newest_nights_of_a_large_store(nightly_store, monkeypatch):
    every = build_history(nightly_store.runs(), metrics=["duration"])
    per_night = every.runs.groupby("night").size()
    n_runs = int(per_night.iloc[-5:].sum())
    assert nights.left_out_nights() == []

    # One run fewer than six nights have: the sixth is left out as a whole.
    monkeypatch.setattr(cache, "MAX_RUNS_READ", n_runs + int(per_night.iloc[-6]) - 1)
    nights._nights.clear()

    assert list(nights.all_nights().times) == list(every.times[-5:])
    assert len(nights.all_nights().runs) == n_runs
    (note,) = nights.left_out_nights()
    assert note == (
        f"Nights until {str(every.times[-6])[:10]} are not shown: the pages of nights read the "
        f"newest {cache.MAX_RUNS_READ} runs of the store."
    )
    assert note in text_of(overview.view({"view": "overview"}))
