"""The rows of the list of runs, which are made for a million runs at once."""

import pandas as pd
import panel as pn
import pytest

from benchkit.formatting import format_outcome
from benchkit.show.dashboard.lists import runs
from benchkit.show.dashboard.lists.runs import _pair_link, _run_link, _table
from benchkit.show.dashboard.nights import overview
from benchkit.store.store import Store
from validation.large_index import fill_index


def test_rows_have_the_links_and_texts_of_their_runs(tmp_path):
    frame = fill_index(tmp_path / "store", 120).runs()
    frame["simulated"] = pd.Series([1] + [None] * 119, dtype="Int64")
    frame["tags"] = ["{}", '{"variant": "<b>"}'] * 60
    ids = frame["id"].astype(str).tolist()
    picked = ids[3]

    for first in ("", picked):
        table = _table(frame, first)
        assert table["id"].tolist() == ids
        assert table["open"].tolist() == [_run_link(run_id) for run_id in ids]
        assert table["compare"].tolist() == [_pair_link(run_id, first) for run_id in ids]

    assert table["compare"][3] == "selected"
    outcomes = [format_outcome({"outcome": outcome}) for outcome in frame["outcome"]]
    assert len(set(outcomes)) == 2
    assert table["outcome"].tolist() == [f"{outcomes[0]}, simulated", *outcomes[1:]]
    assert table["tags"].tolist() == ["", "variant=<b>"] * 60


def test_rows_and_counts_name_disturbed_runs():
    disturbed = '{"duration": "disturbed"}'
    frame = pd.DataFrame(
        {"outcome": ["ok", "ok", "failed"], "quality": [disturbed, "{}", None], "simulated": None}
    )

    assert runs._column(frame, "outcome").tolist() == ["✓ ok, disturbed", "✓ ok", "✗ failed"]
    assert runs._outcomes(frame) == "2 ok, 1 failed, 1 disturbed"


@pytest.fixture
def large_store(tmp_path, monkeypatch):
    """Return a store of 120 runs, of which the list shows 10."""
    store = fill_index(tmp_path / "store", 120)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    monkeypatch.setattr(runs, "MAX_ROWS", 10)
    return store


def shown(page):
    """Return the table of a page, the ids of its rows, and the texts above it."""
    (table,) = page.select(pn.widgets.Tabulator)
    return table, table.value["id"].tolist(), " ".join(p.object for p in page.select(pn.pane.HTML))


def test_large_list_shows_newest_runs(large_store):
    newest = large_store.runs()["id"].tolist()[::-1]

    _, ids, text = shown(runs.view({}))

    assert ids == newest[:10]
    assert "120 runs" in text
    assert "The newest 10 of 120 runs are listed" in text


def test_first_page_of_a_large_store_shows_newest_runs_without_scripts(large_store, monkeypatch):
    newest = large_store.runs()["id"].tolist()[::-1]

    page = overview.view({})

    text = " ".join(pane.object for pane in page.select(pn.pane.HTML))
    linked = [text.index(f"&amp;id={run_id}'") for run_id in newest[: runs.ROWS_SHOWN]]
    assert linked == sorted(linked)
    assert newest[runs.ROWS_SHOWN] not in text
    assert "120 runs" in text
    assert "117 ok, 3 " in text
    assert '?view=runs">all runs</a>' in text
    assert not page.select(pn.widgets.Tabulator)
    monkeypatch.setattr(runs, "MAX_ROWS", 200)
    assert overview.view({}).select(pn.widgets.Tabulator)


def test_large_list_filters_all_runs(large_store):
    page = runs.view({})
    table, _, _ = shown(page)
    table.filters = [{"field": "outcome", "type": "like", "value": "FAIL"}]

    _, ids, text = shown(page)

    failed = large_store.runs(outcome="failed")["id"].tolist()[::-1]
    assert len(failed) == 3
    assert ids == failed
    assert "3 of 120 are shown. Only where outcome contains" in text
    assert "are listed" not in text
    assert table.current_view["id"].tolist() == failed

    table.filters = []
    _, ids, text = shown(page)
    assert len(ids) == 10
    assert "The newest 10 of 120 runs are listed" in text


@pytest.mark.parametrize(("order", "ascending"), [("duration (s)", True), ("-duration (s)", False)])
def test_large_list_sorts_all_runs(large_store, order, ascending):
    page = runs.view({})
    table, _, _ = shown(page)
    direction = "asc" if ascending else "desc"
    table.sorters = [{"field": "duration (s)", "dir": direction}]

    _, ids, text = shown(page)

    values = large_store.runs(columns=["id", "duration"]).set_index("id")["duration"]
    extreme = values.sort_values(ascending=ascending).index[:10]
    assert ids == list(extreme)
    assert "The first 10 of 120 runs are listed" in text
    _, linked, _ = shown(runs.view({"sort": order}))
    assert linked == ids


def test_large_list_of_address_has_filtered_runs_and_all_pages(large_store, monkeypatch):
    monkeypatch.setattr(runs, "ROWS_SHOWN", 4)
    newest = large_store.runs(environment="env-3")["id"].tolist()[::-1]

    table, ids, text = shown(runs.view({"environment": "ENV-3", "sort": "started"}))

    assert len(newest) == 17
    assert ids == newest[::-1][:10]
    assert "The first 10 of 17 runs are listed" in text
    assert table.pagination == "remote"


def test_csv_of_large_list_has_all_matching_runs(large_store):
    page = runs.view({"outcome": "failed"})
    (table,) = page.select(pn.widgets.Tabulator)
    (button,) = page.select(pn.widgets.FileDownload)

    rows = pd.read_csv(button.callback())
    table.filters = [{"field": "outcome", "type": "like", "value": "failed"}]  # of the browser
    table.filters = []
    every = pd.read_csv(button.callback())

    assert rows["id"].tolist() == large_store.runs(outcome="failed")["id"].tolist()[::-1]
    assert every["id"].tolist() == large_store.runs()["id"].tolist()[::-1]
    assert {"id", "duration", "source_hash", "comparable"} <= set(every.columns)


def test_first_page_reads_only_its_columns(large_store, monkeypatch):
    asked = set()
    read = Store.runs

    def runs_asked(store, *args, columns=None, **filters):
        asked.update(columns if filters.get("id") is None else ())
        return read(store, *args, columns=columns, **filters)

    monkeypatch.setattr(Store, "runs", runs_asked)

    overview.view({})

    list_columns = {
        "id",
        "started",
        "workload",
        "environment",
        "host",
        "dask",
        "outcome",
        "quality",
    }
    list_columns |= {"simulated", "tags", "duration", "memory_peak", "spilled_peak"}
    nights = {"id", "started", "tags", "experiment", "arm", "simulated", "comparable"}
    assert asked == list_columns | {"network_bytes", "n_tasks"} | nights
