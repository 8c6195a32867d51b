"""Remote clusters are reused for several runs; a local cluster stands for a remote cluster."""

import json
from pathlib import Path

import pytest

from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.events import finished_records

CLOUD = """from pathlib import Path
from distributed import LocalCluster

class Cloud(LocalCluster):
    "A cluster of an unknown class; counts its starts and ends."
    def __init__(self, note="", **options):
        self.note = Path(note)
        self.note.open("a").write("start\\n")
        super().__init__(dashboard_address=None, **options)

    def close(self, timeout=None):
        self.note.open("a").write("close\\n")
        return super().close(timeout)
"""
WORKLOAD = """import os
from benchkit.measure import workload

@workload(metrics={"pid": "1"})
def pid(client, scale):
    "Return the process of the worker."
    return client.submit(os.getpid)

@pid.check
def _(result):
    return {"pid": result.result() if hasattr(result, "result") else result}
"""


@pytest.mark.slow
def test_remote_cluster_is_reused_with_new_workers_and_closed(tmp_path, monkeypatch):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "own.py").write_text(WORKLOAD)
    (tmp_path / "benchkit_test_cloud.py").write_text(CLOUD)
    note = tmp_path / "note"
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "cloud.yaml").write_text(
        "cluster: {class: benchkit_test_cloud.Cloud, n_workers: 1, threads_per_worker: 1, "
        f"note: {note}}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    selection = Selection(
        folders=[tmp_path / "w"], environments=["cloud"], environment_folders=[tmp_path / "e"]
    )
    experiment, _ = plan_experiment(
        selection,
        store=tmp_path / "store",
        repeats=3,
    )
    records = list(finished_records(experiment.run()))

    assert [record["outcome"] for record in records] == ["ok"] * 3, records[0].get("error")
    pids = {json.loads(record["extra_metrics"])["pid"] for record in records}
    assert len(pids) == 3
    assert Path(note).read_text().split().count("start") == 1
    assert "close" in Path(note).read_text().split()
    descriptions = [
        json.loads(experiment.store.open(record["id"]).tree.attrs["cluster_description"])
        for record in records
    ]
    assert [d["workers"] for d in descriptions] == [
        "new",
        "restarted",
        "restarted",
    ]
