import asyncio
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from distributed import Client, LocalCluster

import benchkit
from benchkit.errors import StoreTrouble, UsageError
from benchkit.measure import recording

OPTIONS = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}


def test_the_run_of_ones_own_code_is_kept_and_found_by_its_tag(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="etl", tags={"variant": "A"}, store=store) as it:
            client.gather(client.map(abs, range(20), pure=False))
        with (
            pytest.raises(ZeroDivisionError),
            benchkit.record(client, workload="etl", store=store) as failed,
        ):
            client.submit(lambda: 1 / 0).result()

    assert it.run.outcome == "ok"
    assert it.run.metrics["n_tasks"] == 20
    assert failed.run.outcome == "failed"
    assert store.runs(variant="A")["id"].tolist() == [it.run.id]


def test_an_asynchronous_client_is_recorded_too_and_refused_in_a_plain_with(tmp_path):
    async def measure():
        async with (
            LocalCluster(processes=False, asynchronous=True, **OPTIONS) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(UsageError, match="async with"):
                benchkit.record(client, store=tmp_path / "store").__enter__()
            async with benchkit.record(client, store=tmp_path / "store") as it:
                await client.gather(client.map(abs, range(7), pure=False))
            return it.run

    # In a thread of its own: the browser of other tests keeps a loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(asyncio.run, measure()).result()

    assert run.outcome == "ok"
    assert run.metrics["n_tasks"] == 7


KILLED = """
import os, signal, sys, time
from distributed import Client, LocalCluster
import benchkit

if __name__ == "__main__":
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=False, **options) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="etl", store=sys.argv[1]):
            client.gather(client.map(abs, range(30), pure=False))
            time.sleep(3)  # a drain each second
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_a_run_to_the_next_check(tmp_path, monkeypatch):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "store")], timeout=100)
    assert done.returncode == -signal.SIGKILL

    store = benchkit.Store(tmp_path / "store")
    assert store.check().rescued == []  # whoever started it may be about to take it
    monkeypatch.setattr(recording, "TAKEN_WITHIN_S", 0.0)
    (rescued,) = store.check().rescued
    run = benchkit.Run(store.open(rescued))
    assert run.outcome == "infrastructure"
    assert run.tree.attrs["phase"] == "killed"
    assert int(run.tree["task_groups"]["n_tasks"].sum()) == 30
    assert store.runs()["workload"].tolist() == ["etl"]
    assert store.check().rescued == []
    assert not list((tmp_path / "store" / "tmp" / "recordings").iterdir())


def test_a_recording_under_way_is_left_alone(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="etl", store=store) as it:
            client.submit(abs, -1).result()
            assert store.check().rescued == []
    assert it.run.outcome == "ok"
    assert store.ids() == [it.run.id]


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_recorded(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    store.path.mkdir()
    (store.path / "tmp").write_text("a file is in the way")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        recorder = benchkit.record(client, store=store)
        with pytest.raises(StoreTrouble, match="could not be written"), recorder:
            pass
