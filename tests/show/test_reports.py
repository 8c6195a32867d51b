import json
import re

import nbformat
import pytest
from bokeh.models import Range1d

from benchkit import plots
from benchkit.errors import MissingParts, UnknownRun
from benchkit.experiment.paths import notebook_path
from benchkit.show.pages import run as run_page
from benchkit.show.pages.page import Figure, Table
from benchkit.show.render.html import static_figure
from benchkit.show.reports.reports import ab_report, run_report
from benchkit.store.run import Run
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

ADDRESS = re.compile(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""")


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    store = Store(tmp_path_factory.mktemp("reports") / "store")
    store.add(a_run)
    return store


@pytest.fixture(scope="module")
def report(store):
    return run_report(store)


def test_run_report_has_figures_without_code_or_urls(report, a_run):
    text = report.read_text()

    assert report.parent.parent.parent.name == "experiments"
    assert a_run.attrs["workload"] in text
    assert text.count("data-root-id") >= 3
    assert "wall time" in text
    assert "plots.memory_by_kind" not in text
    assert "There is no comparable earlier run." in text
    heads = re.findall(r"<h2[^>]*>([\w ?]+)", text)
    assert heads[:4] == [
        "What bounds this run",
        "Which task groups kept the threads busy?",
        "How many threads were busy?",
        "How was memory used?",
    ]
    assert re.search(r"Were there problems.*?Nothing: no error", text, re.DOTALL)
    assert re.search(r">memory_limit<.*?>[\d.]+ [KMG]iB<", text)
    assert ">quality<" not in text
    assert not ADDRESS.search(text)
    executed = nbformat.read(report.with_suffix(".ipynb"), as_version=4)
    assert executed.metadata["benchkit"]["status"] == "completed"
    kinds = {kind for cell in executed.cells for out in cell.get("outputs", ())
             for kind in out.get("data", ())}  # fmt: skip
    assert "application/javascript" in kinds
    assert "application/vnd.bokehjs_load.v0+json" not in kinds  # the same script again


@pytest.mark.browser
def test_run_report_fits_the_screen_of_a_telephone(report, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(f"file://{report}")
    page.wait_for_function("window.Bokeh && Bokeh.documents.every(d => d.is_idle)")

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert (
        page.evaluate("""[...document.querySelectorAll("h1, h2, h4")]
        .filter(head => head.scrollWidth > head.clientWidth).length""")
        == 0
    )
    # No table is wider than its frame except those of numbers.
    wide = page.evaluate("""[...document.querySelectorAll("table")]
        .filter(table => table.offsetWidth > table.parentElement.clientWidth)
        .map(table => table.querySelector("th").textContent)""")
    assert set(wide) <= {"task group"}


@pytest.mark.browser
def test_run_report_draws_figures_without_requests(report, browser, artifacts):
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(f"file://{report}")
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


def test_run_report_shows_what_a_damaged_run_has(tmp_path, a_run):
    tree = a_run.copy(deep=True)
    tree["tasks/key_blob"][:] = 0  # no zlib: the names of the tasks are lost
    tree["profile/parent"][:] = 10**6  # no such call
    store = Store(tmp_path / "store")
    store.add(tree)

    with pytest.raises(MissingParts, match="written, but This part cannot be shown: ") as raised:
        run_report(store)

    text = raised.value.page.read_text()
    assert text.count("This part cannot be shown: ") == len(raised.value.lines) >= 1
    assert "Traceback" not in text
    for title in ("Which task groups kept the threads busy?", "Were there problems", "usual?"):
        assert title in text
    assert text.count("data-root-id") >= 3


def test_ab_report_shows_what_a_damaged_plan_allows(tmp_path):
    store = Store(tmp_path / "store")
    runs = [
        make_run(
            experiment="e1", environment=arm, arm=arm, block=block, order=2 * block, seed=block
        )
        for arm in ("old", "new")
        for block in range(3)
    ]
    store.add_many(runs)
    plan = {"arms": [{"name": "old"}, {"name": "new"}], "baseline": "old", "words": {}}
    store.files.create("experiments/e1/plan.json", json.dumps(plan).encode())

    with pytest.raises(MissingParts, match="written, but This part cannot be shown: ") as raised:
        ab_report(store, "e1")

    text = raised.value.page.read_text()
    assert text.count("This part cannot be shown: ") == len(raised.value.lines) >= 1
    assert "How did the runs end?" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", ["ab", "bisect"])
def test_no_part_stops_a_report_whose_subject_was_read(name):
    cells = json.loads(notebook_path(name).read_text())["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    (first,) = (i for i, c in enumerate(cells) if "replace_missing_parts()" in "".join(c["source"]))

    assert all("raises-exception" in cell["metadata"]["tags"] for cell in cells[first:])
    assert 1 < first < 4


def test_run_report_rejects_unknown_run_before_writing(store, tmp_path):
    with pytest.raises(UnknownRun):
        run_report(store, "nosuch", tmp_path / "x.html")

    assert list(tmp_path.iterdir()) == []


def test_time_axes_of_report_have_same_ends(a_run):
    page = run_page.page(run_page.RunData.read(Run(a_run)), {})
    figures = [
        static_figure(content)
        for key in ("memory", "threads", "stream", "machines")
        for content in page[key].contents()
        if isinstance(content, Figure)
    ]

    assert len(figures) >= 6
    assert len({fig.min_border_left for fig in figures}) == 1
    assert all(isinstance(fig.x_range, Range1d) for fig in figures)
    assert len({(fig.x_range.start, fig.x_range.end) for fig in figures}) == 1
    assert not any(fig.right for fig in figures)  # the legends are below


def test_task_group_table_numbers_groups_as_the_figures(a_run):
    page = run_page.page(run_page.RunData.read(Run(a_run)), {})
    table = next(each for each in page["groups"].contents() if isinstance(each, Table))
    names = [row.cells[0] for row in table.rows]
    (bars,) = (r.data_source.data for r in plots.task_group_bars(a_run).renderers[:1])

    assert names == [str(label) for label in bars["label"][: len(names)]]
    assert len(set(names)) == len(names)
