import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from distributed import Client, LocalCluster

import benchkit
from benchkit.errors import UsageError

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
