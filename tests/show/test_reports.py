import json
import re

import nbformat
import pytest

from benchkit.errors import UnknownRun
from benchkit.show.reports.reports import run_report
from benchkit.store.store import Store

ADDRESS = re.compile(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""")


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    store = Store(tmp_path_factory.mktemp("reports") / "store")
    store.add(a_run)
    return store


def test_run_report_has_figures_without_code_or_urls(store, a_run):
    page = run_report(store)
    text = page.read_text()

    assert page.parent.parent.parent.name == "experiments"
    assert a_run.attrs["workload"] in text
    assert text.count("data-root-id") >= 3
    assert "wall time" in text
    assert "plots.memory_by_kind" not in text
    assert not ADDRESS.search(text)
    executed = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    assert executed.metadata["benchkit"]["status"] == "completed"


@pytest.mark.browser
def test_run_report_draws_figures_without_requests(store, browser, artifacts):
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(f"file://{run_report(store)}")
    page.wait_for_function("window.Bokeh && Bokeh.documents.every(d => d.is_idle)")

    assert page.locator("canvas").count() >= 3
    assert errors == []
    assert [url for url in asked if url.startswith("http")] == []
    page.screenshot(path=artifacts / "report-run.png", full_page=True)


def test_run_report_of_failed_run_without_records(tmp_path, a_run):
    failed = a_run.copy(deep=True)
    for name in list(failed.children):
        del failed[name]
    failed.dataset = failed.to_dataset().drop_vars(list(failed.data_vars))
    record = {
        "id": a_run.attrs["id"],
        "workload": "a.b",
        "outcome": "failed",
        "started": a_run.attrs["started"],
        "error": "<script>alert(1)</script>",
    }
    failed.attrs = {**record, "record": json.dumps(record), "capture_errors": "[]"}
    store = Store(tmp_path / "store")
    store.add(failed)

    text = run_report(store, output=tmp_path / "page.html").read_text()

    assert "failed" in text
    assert "<script>alert(1)" not in text


def test_run_report_rejects_unknown_run_before_writing(store, tmp_path):
    with pytest.raises(UnknownRun):
        run_report(store, "nosuch", tmp_path / "x.html")

    assert list(tmp_path.iterdir()) == []
