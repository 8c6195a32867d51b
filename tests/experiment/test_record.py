import json
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from unittest.mock import Mock

import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from helpers.event_loops import run_in_thread

import benchkit
from benchkit.errors import StoreError, UsageError
from benchkit.measure import recording
from benchkit.measure.outcomes import RECORDED_STEP, classify_error

OPTIONS = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}


def test_record_stores_run_with_tags(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        with benchkit.record(
            client, workload="etl", tags={"variant": "A"}, store=store
        ) as recorder:
            client.gather(client.map(abs, range(20), pure=False))
        with (
            pytest.raises(ZeroDivisionError),
            benchkit.record(client, workload="etl", store=store) as failed,
        ):
            client.submit(lambda: 1 / 0).result()

    with pytest.raises(AttributeError, match=r"'duration': use recorded\.run\.duration "):
        _ = recorder.duration
    with pytest.raises(AttributeError, match=r"^a recorder has no 'nothing'$"):
        _ = recorder.nothing
    assert recorder.run.outcome == "ok"
    assert recorder.run.metrics["n_tasks"] == 20
    assert failed.run.outcome == "failed"
    assert store.runs(variant="A")["id"].tolist() == [recorder.run.id]


def test_record_asynchronous_client_needs_async_with(tmp_path):
    async def measure():
        async with (
            LocalCluster(processes=False, asynchronous=True, **OPTIONS) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(UsageError, match="async with"):
                benchkit.record(client, store=tmp_path / "store").__enter__()
            async with benchkit.record(client, store=tmp_path / "store") as recorder:
                await client.gather(client.map(abs, range(7), pure=False))
            return recorder.run

    run = run_in_thread(measure())

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


def test_record_rejects_invalid_capture_before_writing(tmp_path):
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        for capture, message in (
            ("full+memray", "benchkit run"),
            ("everything", "full, light, off"),
        ):
            with pytest.raises(UsageError, match=message):
                benchkit.record(client, store=tmp_path / "store", capture=capture)

    assert not (tmp_path / "store").exists()


def test_record_lost_scheduler_is_infrastructure(tmp_path):
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        recorded = benchkit.record(client, store=tmp_path / "store")

        def lose_the_scheduler():
            with recorded:
                waiting = client.submit(time.sleep, 60)
                cluster.close()
                waiting.result()

        with pytest.raises((CommClosedError, CancelledError)):
            lose_the_scheduler()

    assert recorded.run.outcome == "infrastructure"


def test_record_refuses_what_is_no_client(tmp_path):
    with pytest.raises(UsageError, match=r"record: client='x': give a distributed.Client"):
        benchkit.record("x", store=tmp_path / "store")

    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("status", "outcome"), [("closed", "infrastructure"), ("running", "failed")]
)
def test_record_closed_client_outcome(status, outcome, tmp_path):
    class ClosedClientError(Exception):
        """Error of newer releases of distributed."""

    recorder = benchkit.record(Mock(spec=Client, status=status), store=tmp_path)
    alive = recorder._scheduler_alive
    assert classify_error(ClosedClientError(), RECORDED_STEP, alive) == outcome


@pytest.mark.slow
def test_store_check_rescues_run_of_killed_process(tmp_path, monkeypatch):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "store")], timeout=280)
    assert done.returncode == -signal.SIGKILL

    store = benchkit.Store(tmp_path / "store")
    (head,) = (tmp_path / "store" / "tmp" / "recordings").glob("**/head.json")
    (head.parent / "memray").mkdir()
    (head.parent / "memray" / "worker.bin").write_bytes(b"profile")
    assert store.check().rescued == []  # its process may still run
    monkeypatch.setattr(recording, "STORE_WITHIN_S", 0.0)
    (rescued,) = store.check().rescued
    run = store.open(rescued)
    assert run.outcome == "infrastructure"
    assert run.tree.attrs["phase"] == "killed"
    assert int(run.tree["task_groups"]["n_tasks"].sum()) == 30
    assert store.runs()["workload"].tolist() == ["etl"]
    (extra,) = store.extras(rescued)
    assert extra.read_bytes() == b"profile"
    (folder,) = json.loads(run.tree.attrs["extras"])
    assert (store.path / folder / "worker.bin") == extra
    assert store.check().rescued == []
    assert not list((tmp_path / "store" / "tmp" / "recordings").iterdir())


def test_store_check_ignores_running_recording(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="etl", store=store) as recorder:
            client.submit(abs, -1).result()
            assert store.check().rescued == []
    assert recorder.run.outcome == "ok"
    assert store.ids() == [recorder.run.id]


def test_record_rejects_unwritable_store(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    store.path.mkdir()
    (store.path / "tmp").write_text("a file is in the way")
    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        recorder = benchkit.record(client, store=store)
        with pytest.raises(StoreError, match="could not be written"), recorder:
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": ""}, "workload='': is empty"),
        ({"workload": 7}, "workload=7: must be text"),
        ({"tags": "x"}, "tags='x': must be a dict"),
        ({"environment": 3}, "environment=3: must be text"),
        ({"capture": None}, "capture=None: must be text"),
    ],
)
def test_record_refuses_invalid_argument(tmp_path, options, message):
    with pytest.raises(UsageError) as caught:
        benchkit.record(object(), store=tmp_path / "store", **options)

    assert str(caught.value).startswith(message)
    assert not (tmp_path / "store").exists()


def test_record_keeps_error_that_cannot_be_printed(tmp_path):
    class UnprintableError(Exception):
        def __str__(self):
            return self.args[1]

    with LocalCluster(processes=False, **OPTIONS) as cluster, Client(cluster) as client:
        with pytest.raises(UnprintableError), benchkit.record(client, store=tmp_path) as recorded:
            raise UnprintableError("only one")

    error = recorded.run.tree.attrs["error"]
    assert error == "UnprintableError: its message cannot be printed"


def test_record_by_address_names_the_address(tmp_path):
    with LocalCluster(processes=False, **OPTIONS) as cluster:
        address = cluster.scheduler_address
        with Client(address) as client, benchkit.record(client, store=tmp_path) as recorded:
            client.submit(sum, [1]).result()

    assert recorded.run.record["cluster"] == address
