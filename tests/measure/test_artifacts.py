import json

import pytest
from distributed import Client, LocalCluster

from benchkit.measure import workload
from benchkit.measure.artifacts import collect_extras, parse_capture
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import UsageError
from benchkit.measure.runner import execute

LOCAL = ClusterSpec.from_dict({"n_workers": 1, "threads_per_worker": 1, "memory_limit": "512 MiB"})


def test_parse_capture_returns_level_and_extras():
    assert parse_capture("full") == ("full", ())
    assert parse_capture("off+cluster-dump+memray") == ("off", ("cluster-dump", "memray"))
    for wrong, message in (("ful", "did you mean 'full'"), ("full+dump", "no extra named")):
        with pytest.raises(UsageError, match=message):
            parse_capture(wrong)


@pytest.mark.slow
def test_execute_writes_selected_extras(tmp_path):
    @workload(category="tests")
    def add(client):
        """Add."""
        return client.map(abs, range(20), pure=False)

    (variant,) = add.variants()
    path = execute(
        variant, LOCAL, folder=tmp_path, capture="light+performance-report+cluster-dump+memray"
    )
    tail = json.loads((path / "tail.json").read_text())

    assert tail["outcome"] == "ok", tail["error"]
    assert tail["capture_errors"] == []
    assert "Dask Performance Report" in (path / "performance-report.html").read_text()
    assert (path / "cluster-dump.msgpack.gz").stat().st_size > 1000
    (flames,) = (path / "memray").rglob("*.html")
    assert "memray" in flames.read_text()


def test_collect_extras_reports_error_and_continues(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed.diagnostics.memray", None)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    noted = []
    with LocalCluster(**options, dashboard_address=None) as cluster, Client(cluster) as client:
        with collect_extras(client, ("memray", "cluster-dump"), tmp_path, noted.append):
            assert client.submit(abs, -3).result() == 3

    assert len(noted) == 1
    assert noted[0].startswith("memray: ")
    assert (tmp_path / "cluster-dump.msgpack.gz").exists()
