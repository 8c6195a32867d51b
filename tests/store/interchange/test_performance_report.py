"""Import of the page that distributed's `performance_report` writes."""

import html
import json
import re
import sys
import time
import zlib

import dask
import distributed
import pytest
from dask.distributed import Client, LocalCluster, performance_report
from distributed import profile
from helpers.small_tasks import add, broken, slowly

from benchkit.errors import InvalidImportError
from benchkit.store.interchange.performance_report import _stacks
from benchkit.store.interchange.results import import_results
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

HELD = {
    "duration", "compute_time", "transfer_time", "disk_read_time", "disk_write_time", "n_tasks",
    "scheduler_cpu_mean", "scheduler_memory_peak",
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a folder with two real pages, the second with a failed task, and least durations."""
    folder, seconds = tmp_path_factory.mktemp("pages"), []
    # Workers in the process of all tests, which may have a GiB: with less they would pause.
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "4 GiB"}
    with (
        dask.config.set({"distributed.worker.profile.cycle": "100ms"}),  # 1 s by default
        LocalCluster(**options, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for name, function in (("dask-report", add), ("failed", broken)):
            begin = time.time()
            with performance_report(folder / f"{name}.html"):
                # From both workers: one fetches from the other.
                parts = client.map(
                    slowly,
                    range(8),
                    pure=False,
                    key=[(f"slowly-{name}", n) for n in range(8)],
                )
                distributed.wait(client.submit(function, *parts[: 1 if function is broken else 8]))
                seconds.append(time.time() - begin)
    return folder, seconds


def imported(store, path):
    report = import_results(store, path)
    assert (report.rows, report.added, report.odd) == (1, 1, [])
    return store.open(store.runs()["id"].iloc[0])


def test_report_becomes_a_run_with_its_tasks(store, pages):
    folder, (seconds, _) = pages

    run = imported(store, folder / "dask-report.html")

    assert (run.workload, run.outcome, run.tags["imported"]) == (
        "dask-report", "ok", "performance-report",
    )  # fmt: skip
    assert seconds - 0.01 <= run.duration < seconds + 5  # until the last request of the page
    assert run.n_tasks == 9
    tasks = run.task_stream()
    slow = tasks[tasks["task_group"] == "slowly-dask-report"]
    assert (len(tasks), len(slow)) == (9, 8)
    assert slow["duration"].between(0.1, 0.2).all()
    assert sorted(set(tasks["worker"])) == [0, 1]
    assert tasks["start"].between(0, run.duration).all()
    assert run.compute_time == pytest.approx(tasks["duration"].sum())
    assert run.transfer_time > 0
    record = run.record
    assert (record["dask"], record["distributed"]) == (dask.__version__, distributed.__version__)
    assert (record["n_workers"], record["n_threads"]) == (2, 2)
    assert record["memory_limit"] == pytest.approx(2**33, rel=0.01)
    assert "performance_report(folder" in run.tree.attrs["source"]


def test_report_has_call_stacks_of_tasks(store, pages):
    stacks = imported(store, pages[0] / "dask-report.html").profile()

    roots = stacks[stacks["parent"] < 0]
    assert list(roots["function"]) == ["all tasks"]
    assert len(stacks) > 1
    below = stacks[stacks["parent"] >= 0].groupby("parent")["count"].sum()
    assert (below <= stacks["count"].loc[below.index] + 1).all()  # shares of bars are rounded


def test_call_stacks_have_the_counts_of_the_profiler():
    state = profile.create()

    def sample(depth):
        if depth:
            sample(depth - 1)
        profile.process(sys._getframe(), None, state)

    for depth in (0, 1, 1, 3):
        sample(depth)

    def counts(node):
        return [node["count"], *(n for c in node["children"].values() for n in counts(c))]

    content = json.loads(zlib.decompress(_stacks(profile.plot_data(state), "all tasks")))
    assert content["nodes"][2::3] == counts(state)
    assert content["frames"][0] == ["all tasks", "", 0]
    parents = content["nodes"][0::3]
    assert parents[0] == -1
    assert all(parent < number for number, parent in enumerate(parents))


def test_report_names_what_it_does_not_hold(store, pages):
    run = imported(store, pages[0] / "dask-report.html")
    quality = run.quality()

    assert set(run.metrics) <= HELD
    (absent,) = quality[quality["kind"] == "unmeasured"]["metrics"]
    assert set(absent.split(", ")) == set(METRICS) - set(run.metrics) - {"cost", "seceded_time"}
    assert "performance report, which does not hold it" in " ".join(quality["text"])
    assert "nbytes" not in run.tree["task_groups"]


def test_report_is_imported_once(store, pages):
    imported(store, pages[0] / "dask-report.html")

    assert import_results(store, pages[0] / "dask-report.html").added == 0
    assert len(store.runs()) == 1


def test_report_with_a_failed_task_is_a_failed_run(store, pages):
    run = imported(store, pages[0] / "failed.html")

    assert (run.outcome, run.error) == ("failed", "1 task failed, says the task stream")


def as_bokeh_2(value, references):
    """Return an object of Bokeh 3's JSON as in Bokeh 2, which lists all objects side by side."""
    if isinstance(value, list):
        return [as_bokeh_2(item, references) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "map":
        return {key: as_bokeh_2(item, references) for key, item in value.get("entries", ())}
    if value.get("type") == "object":
        attributes = as_bokeh_2(value.get("attributes", {}), references)
        kind = {"TabPanel": "Panel"}.get(value["name"], value["name"])
        references.append({"attributes": attributes, "id": value["id"], "type": kind})
        return {"id": value["id"]}
    return {key: as_bokeh_2(item, references) for key, item in value.items()}


def test_report_of_an_old_bokeh_is_read_alike(tmp_path, pages):
    page = (pages[0] / "dask-report.html").read_text()
    (text,) = re.findall(r'type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    documents = {}
    for name, document in json.loads(html.unescape(text)).items():
        references = []
        roots = as_bokeh_2(document["roots"], references)
        ids = [root["id"] for root in roots]
        documents[name] = {"roots": {"references": references[::-1], "root_ids": ids}}
    old = html.escape(json.dumps(documents), quote=False)
    (tmp_path / "dask-report.html").write_text(page.replace(text, old))

    new_run = imported(Store(tmp_path / "new"), pages[0] / "dask-report.html")
    old_run = imported(Store(tmp_path / "old"), tmp_path / "dask-report.html")

    assert old_run.metrics == new_run.metrics
    assert old_run.task_stream().equals(new_run.task_stream())
    assert old_run.profile().equals(new_run.profile())


@pytest.mark.parametrize("change", [
    (r"Duration: [^&]*", "Duration of "),
    (r'"worker_thread"', '"thread"'),
    (r"application/json", "text/plain"),
])  # fmt: skip
def test_page_without_a_report_is_refused_in_one_line(store, tmp_path, pages, change):
    path = tmp_path / "other.html"
    path.write_text(re.sub(*change, (pages[0] / "dask-report.html").read_text()))

    with pytest.raises(InvalidImportError, match=r"other.html: cannot be read as a performance"):
        import_results(store, path)
    assert not (tmp_path / "store").exists()
