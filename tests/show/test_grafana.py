"""The Grafana dashboard, and the links between it and a run."""

import json
import re
import sys
import urllib.request

import panel as pn
import pytest
import xarray as xr
from click.testing import CliRunner
from distributed import Client, LocalCluster

from benchkit.cli.main import benchkit as main
from benchkit.errors import UsageError
from benchkit.show.grafana import annotation, grafana_link
from benchkit.store.run import Run

TEMPLATE = "https://grafana.example/d/dask?from={from_ms}&to={to_ms}&var-w={workload}&i={scheduler}"
HOSTILE = 't.x"><script>alert(1)</script>&from=0'


@pytest.fixture
def run():
    coords = {"instance": ["10.0.0.1:8787", "w:1"], "role": ("instance", ["scheduler", "worker"])}
    attrs = {"id": "r", "workload": HOSTILE, "environment": "main", "outcome": "ok"}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(), "/prometheus": xr.Dataset(coords=coords)})
    tree.attrs = {**attrs, "clock_on": 1.8e9 + 0.0004, "clock_off": 1.8e9 + 5.0004}
    return Run(tree)


@pytest.mark.slow
def test_grafana_board_queries_metrics_that_dask_exposes(tmp_path):
    file = tmp_path / "dask.json"
    result = CliRunner().invoke(main, ["report", "grafana", "-o", str(file)])
    assert result.exit_code == 0, result.output
    board = json.loads(file.read_text())

    if sys.version_info >= (3, 11):  # as the package
        from grafana_foundation_sdk.models.dashboard import Dashboard

        assert Dashboard.from_json(board).title == "Dask"
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {v["name"] for v in board["templating"]["list"]} == {"datasource", "job", "worker"}
    (notes,) = board["annotations"]["list"]
    assert notes["target"]["tags"] == ["benchkit"]

    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    queried = set(re.findall(r"\b(?:dask|process)_\w+", " ".join(queries)))
    labels = set(re.findall(r"by \((\w+)\)|,(\w+)[=!]", " ".join(queries)))
    text = ""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(abs, range(10), pure=False))
        info = client.scheduler_info(n_workers=-1)
        for process in (info, *info["workers"].values()):
            address = f"http://127.0.0.1:{process['services']['dashboard']}/metrics"
            text += urllib.request.urlopen(address, timeout=60).read().decode()
    exposed = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    assert len(queried) > 15
    assert queried <= exposed
    exposed_labels = set(re.findall(r"[{,](\w+)=", text)) | {"instance", "activity"}
    assert {name for pair in labels for name in pair if name} <= exposed_labels


def test_grafana_link_quotes_fields_of_the_run(run):
    link = grafana_link(run, TEMPLATE)

    assert link.startswith("https://grafana.example/d/dask?from=1800000000000&to=1800000005001&")
    assert link.endswith("&i=10.0.0.1%3A8787")
    assert not set('<>"') & set(link)
    assert link.count("from=") == 1
    del run.tree.attrs["clock_on"]
    assert grafana_link(run, TEMPLATE) == ""
    with pytest.raises(UsageError, match="clock was never started"):
        annotation(run)


def test_grafana_link_rejects_invalid_template(run, monkeypatch):
    for wrong, message in (
        ("https://grafana.example/?w={worklod}", "field {worklod}: did you mean 'workload'"),
        ("javascript:alert(1)", "must be a URL"),
        ("https://{workload}/", "must be a URL"),
        ("https://grafana.example/{id", "BENCHKIT_GRAFANA"),
        ("https://grafana.example/{id.__class__}", "unknown field"),
        ("https://grafana.example/{id:>9999999999}", "takes no format"),
    ):
        monkeypatch.setenv("BENCHKIT_GRAFANA", wrong)
        with pytest.raises(UsageError, match=re.escape(message)):
            grafana_link(run)
        result = CliRunner().invoke(main, ["dashboard", "--port", "0"])
        assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output


def test_annotation_has_time_range_tags_and_escaped_text(run):
    note = annotation(run)

    assert (note["time"], note["timeEnd"]) == (1800000000000, 1800000005001)
    assert note["tags"][0] == "benchkit"
    assert "<script>" not in note["text"]


def test_run_page_links_to_grafana_or_shows_the_error(a_run, tmp_path, monkeypatch):
    from benchkit.show.dashboard.run.page import view
    from benchkit.store.store import Store

    Store(tmp_path / "store").add(a_run)
    monkeypatch.setenv("BENCHKIT_STORE", str(tmp_path / "store"))

    def page(template):
        monkeypatch.setenv("BENCHKIT_GRAFANA", template)
        shown = view({"id": a_run.attrs["id"]})
        return "".join(pane.object for pane in shown.select(pn.pane.HTML))

    begin = str(int(1000 * a_run.attrs["clock_on"]))
    assert f'href="https://grafana.example/d/dask?from={begin}&amp;to=' in page(TEMPLATE).replace(
        "'", '"'
    )
    message = page("javascript:alert(1)")
    assert "must be a URL" in message
    assert "href='javascript" not in message
