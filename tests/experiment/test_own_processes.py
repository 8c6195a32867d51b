"""Waits for a processor, the client's process, and own metrics, on a cluster of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import benchkit
from benchkit.analysis.metric_names import check_metrics
from benchkit.cli.list import metric_rows
from benchkit.errors import UsageError
from benchkit.store.schema import METRICS

MB = 10**6


def spin(cpu_s):
    """Use the processor, and return the seconds that this thread ran and waited by the kernel."""

    def counters():
        with open("/proc/thread-self/schedstat") as file:
            return np.array(file.read().split()[:2], float) / 1e9

    before, begin = counters(), time.thread_time()
    while time.thread_time() - begin < cpu_s:
        pass
    return counters() - before


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    store = benchkit.Store(tmp_path_factory.mktemp("own") / "store")
    truth = SimpleNamespace()
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for turn in benchkit.interleave(["a", "b"], repeats=2):
            with turn.record(client, workload="own.rows", store=store):
                used = time.process_time()
                futures = client.map(spin, [0.1] * 8, pure=False)
                truth.ran, truth.waited = np.sum(client.gather(futures), axis=0)
                block = np.ones(200 * MB, np.uint8)
                time.sleep(0.3)
                del block
                truth.client_cpu = time.process_time() - used
                value = 100.0 + (turn.block or 0) + 50 * (turn.arm == "b")
                turn.metric("rows_per_s", value, unit="1/s", better="more")
                turn.data("steps", xr.Dataset({"loss": ("step", [3.0, 2.0])}))
    return SimpleNamespace(store=store, run=store.open("latest"), truth=truth)


def threads_of(run):
    threads = run.tree["thread_times"].to_dataset()
    names = ("server", "role", "task_thread", "thread_process", "native_id")
    frame = pd.DataFrame({name: threads[name].values for name in names})
    samples = pd.DataFrame(
        {name: threads[name].values for name in ("sample_thread", "ran", "waited")}
    ).groupby("sample_thread")
    return frame.join(samples.max() - samples.min())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts waits of threads")
def test_threads_of_tasks_ran_and_waited_as_the_kernel_says(measured):
    threads = threads_of(measured.run)
    tasks = threads[threads["role"] == "task"]

    assert tasks["ran"].sum() == pytest.approx(measured.truth.ran, rel=0.1, abs=0.05)
    assert tasks["waited"].sum() >= 0.95 * measured.truth.waited
    assert set(measured.run.task_stream()["thread"]) <= set(tasks["task_thread"])
    found = set(threads["server"] + " " + threads["role"])
    assert {"client main", "client loop", "scheduler loop", "worker loop"} <= found
    loops = threads[(threads["role"] == "loop") & (threads["server"] != "worker")]
    assert loops["native_id"].nunique() == loops["thread_process"].nunique() == 1


def spin_on(processors, cpu_s):
    os.sched_setaffinity(0, processors)
    return spin(cpu_s)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts waits of threads")
def test_processor_wait_share_is_that_of_a_task_among_busy_processes(tmp_path):
    """Four processes on one processor: each waits for three times as long as it runs, or longer."""
    processors = {min(os.sched_getaffinity(0))}
    code = f"import os\nos.sched_setaffinity(0, {processors})\nprint(flush=True)\nwhile True: pass"
    others = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        try:
            for _ in range(3):
                command = [sys.executable, "-c", code]
                others.append(subprocess.Popen(command, stdout=subprocess.PIPE))
                others[-1].stdout.readline()
            with benchkit.record(client, workload="own.waits", store=tmp_path / "s") as recorded:
                ran, waited = client.submit(spin_on, processors, 0.8).result()
        finally:
            for other in others:
                other.kill()
                other.communicate()

    threads, run = threads_of(recorded.run), recorded.run
    share, others_ran = run.metrics["processor_wait_share"], threads["ran"].sum() - ran
    assert waited > ran
    # Other threads run for a known time. That they wait makes the share larger, but no thread runs
    # and waits for longer than the run takes.
    assert 0.95 * waited / (waited + ran + others_ran) < share
    assert share < 1 - 0.95 * ran / (len(threads) * run.metrics["duration"])


def test_memory_and_cpu_of_the_client_are_its_own(measured):
    metrics, client = measured.run.metrics, measured.run.tree["client"].to_dataset()
    before = float(client["rss"][0])

    assert metrics["client_memory_peak"] - before > 190 * MB
    assert metrics["client_memory_mean"] < metrics["client_memory_peak"] - 50 * MB
    assert metrics["memory_peak"] < before + 190 * MB  # of the workers
    both = metrics["client_cpu_time"] + metrics["scheduler_cpu_time"]
    assert both == pytest.approx(measured.truth.client_cpu, rel=0.2, abs=0.15)
    assert metrics["scheduler_cpu_time"] > 0


def test_call_stacks_are_those_of_their_cycles(measured):
    profile = measured.run.tree["profile"].to_dataset()
    total = profile["count"].values[profile["parent"].values < 0].sum()

    assert profile["entry_count"].values.sum() == total > 0
    assert (profile["cycle_stop"].values > profile["cycle_start"].values).all()
    assert profile["cycle_start"].values.min() > -1.5
    middle = float(profile["cycle_stop"].values.min()) + 1e-3
    later = measured.run.profile(start=middle)["count"]
    assert measured.run.profile(start=-9, stop=1e9).equals(measured.run.profile())
    assert 0 <= later.max() < total
    assert len(measured.run.threads()) == measured.run.tree["thread_times"].sizes["thread"]


def test_metric_of_ones_own_is_stored_and_compared(measured):
    runs = measured.store.runs()
    arms = (runs[runs["arm"] == arm] for arm in "ab")
    [row] = benchkit.compare(*arms, metrics=["rows_per_s"]).to_records()

    assert (
        measured.run.rows_per_s == measured.run.metrics["rows_per_s"] == runs["rows_per_s"].iloc[-1]
    )
    assert measured.run.tree["rows_per_s"].attrs["units"] == "1/s"
    assert (row["unit"], row["better"]) == ("1/s", "higher")
    assert row["ratio"] == pytest.approx(1.5, abs=0.01)


def test_metric_of_ones_own_is_known_by_the_runs_of_a_store(measured, monkeypatch):
    monkeypatch.setattr(METRICS, "own", {})

    assert check_metrics(["rows_per_s"], measured.store) == ("rows_per_s",)
    monkeypatch.setattr(METRICS, "own", {})
    assert "rows_per_s" in {row["name"] for row in metric_rows(measured.store)}


def test_dataset_of_ones_own_is_a_group_of_the_tree(measured):
    assert measured.run.tree["steps"]["loss"].values.tolist() == [3.0, 2.0]


def test_names_that_every_run_has_are_refused(measured, tmp_path):
    with LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client, benchkit.record(client, store=tmp_path) as recorded:
            client.submit(abs, 1).result()
            for name in ("duration", "thread_times", "not a name"):
                with pytest.raises(UsageError, match=name):
                    recorded.metric(name, 1.0)
            with pytest.raises(UsageError, match="finite"):
                recorded.metric("share", float("nan"))
            with pytest.raises(UsageError, match="better"):
                recorded.metric("share", 1.0, better="big")
            with pytest.raises(UsageError, match="Dataset"):
                recorded.data("table", [1, 2])

    # One process: what is the client's is unknown.
    assert "client_memory_peak" not in recorded.run.metrics
    assert recorded.run.quality()["metrics"].str.contains("client_memory_peak").any()
