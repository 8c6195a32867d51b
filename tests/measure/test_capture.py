"""Data of a capture: levels, sums, transfers, logs, spans; concurrent captures; removal."""

import json
import mmap
import time
import zlib

import distributed
import numpy as np
import pytest
from distributed import Client, wait
from helpers.capture import capture_errors, inc, keys_of, nap, plugin_of, run_tasks

# -- data ------------------------------------------------------------------------------------


def test_capture_level_selects_data(client, observed):
    kept = {}
    for level in ("off", "light", "full"):
        with observed(client, level) as observation:
            run_tasks(client, 30)
        kept[level] = observation.run

    off, light, full = kept.values()
    assert not off.tree.children
    assert list(off.metrics) == ["duration"]
    assert light.tree["tasks"].sizes["task"] == light.tree["profile"].sizes["frame"] == 0
    assert light.metrics["n_tasks"] == full.metrics["n_tasks"] == 30
    assert full.tree["tasks"].sizes["task"] == len(keys_of(full)) == 30
    assert {*light.tree.children, "submissions", "held"} == set(full.tree.children)
    for run in (light, full):
        assert run.tree["workers"].sizes["worker"] == 2
        assert run.metrics["memory_peak_worker"] > 2**20
        assert capture_errors(run) == []


def test_group_sums_equal_stream_sums(client, observed):
    import dask.array as da

    with observed(client) as observation:
        wait(client.map(nap, [0.01] * 20, pure=False))
        array = da.random.random((400, 400), chunks=(100, 100))
        (array @ array.T).sum().compute()
    run = observation.run

    stream, groups = run.task_stream(), run.task_groups()
    by_group = stream.groupby("task_group", observed=True)["duration"].sum()
    assert by_group.to_dict() == pytest.approx(
        # The scheduler rounds each to a microsecond.
        groups["compute (s)"].loc[list(by_group.index)].to_dict(),
        abs=1e-4,
    )
    events = run.tree["task_events"].to_dataset()
    transfer = json.loads(events.attrs["actions"]).index("transfer")
    seconds = (events["stop"] - events["start"]).where(events["action"] == transfer)
    assert float(seconds.sum()) == pytest.approx(groups["transfer (s)"].sum(), abs=1e-4)
    assert run.metrics["compute_time"] >= 0.2


def test_tasks_before_clock_are_not_counted(client, observed):
    held = client.map(nap, [0.3] * 4, pure=False)
    wait(held)
    with observed(client) as observation:
        more = client.map(nap, [0.05] * 2, pure=False)
        wait(more)
    run = observation.run

    assert run.metrics["n_tasks"] == 2
    assert 0.1 <= run.metrics["compute_time"] < 1.2  # a busy machine wakes sleepers late
    assert 0.1 <= run.task_groups()["compute (s)"].sum() < 1.2


def test_groups_count_retries_and_errors_separately(client, observed, tmp_path):
    mark = tmp_path / "tried"

    def fail_once():
        if not mark.exists():
            mark.touch()
            raise OSError("not yet")
        return 1

    def fail():
        raise ValueError("never")

    with observed(client) as observation:
        assert client.submit(fail_once, retries=3, pure=False).result() == 1
        with pytest.raises(ValueError, match="never"):
            client.submit(fail, pure=False).result()
    run = observation.run

    groups = run.task_groups()[["n_tasks", "n_erred", "n_retried"]]
    assert groups.loc[
        [name for name in groups.index if name.startswith("fail_once")]
    ].values.tolist() == [[1, 0, 1]]
    assert groups["n_erred"].sum() == 1
    assert run.tree["errors/exception"].values.tolist() == ["ValueError('never')"]
    assert "fail" in run.tree["errors/traceback"].values[0]


def test_transfers_name_sender_and_receiver(client, observed):
    a, b = client.scheduler_info()["workers"]
    with observed(client) as observation:
        made = client.submit(bytes, 200_000, workers=[a], pure=False)
        moved = client.submit(len, made, workers=[b], allow_other_workers=False, pure=False)
        assert moved.result() == 200_000
    transfers = observation.run.tree["transfers"].to_dataset()

    addresses = observation.run.tree["workers/address"].values.tolist()
    ends = zip(transfers["source"].values, transfers["destination"].values, strict=True)
    pair = addresses.index(a), addresses.index(b)
    (place,) = [place for place, end in enumerate(ends) if end == pair]
    there = transfers.isel(pair=place)
    assert (int(there["count"]), transfers["incomplete"].size) == (1, 0)
    between = (transfers["source"] >= 0) & (transfers["destination"] >= 0)
    assert int(between.sum()) == 1, "nothing was sent back"
    assert 200_000 <= int(there["bytes"]) < 210_000
    assert float(there["bytes_compressed"]) > 0
    assert float(there["seconds"]) > 0
    assert transfers["bytes"].attrs["units"] == "B"


def test_call_stacks_form_tree_by_prefix(client, observed):
    wait(client.submit(nap, 0.3, key="before-the-clock"))
    with observed(client) as observation:
        wait(client.map(nap, [0.3] * 4, pure=False))
    profile = observation.run.tree["profile"].to_dataset()

    parent, count = profile["parent"].values, profile["count"].values
    places = zlib.decompress(profile["code_blob"].values.tobytes()).decode().split("\n")
    names = [places[code].split("\t")[0] for code in profile["code"].values]
    assert (parent < np.arange(len(parent))).all()
    roots = [names[place] for place in np.flatnonzero(parent == -1)]
    assert roots == ["nap"], "no frames of tasks before the clock"
    assert names.count("nap") >= 2, "the prefix and the function below it"
    children = np.zeros(len(count), int)
    np.add.at(children, parent[parent >= 0], count[parent >= 0])
    assert (children <= count).all()


def test_logs_contain_worker_warnings(client, observed):
    def complain():
        import logging

        logging.getLogger("distributed.worker").warning("too much of this")
        logging.getLogger("distributed.worker").info("and so on")

    with observed(client) as observation:
        client.submit(complain, pure=False).result()
    logs = observation.run.tree["logs"].to_dataset()

    # A busy machine adds lines: "Event loop was unresponsive".
    at = next(i for i, text in enumerate(logs["text"].values) if "too much of this" in text)
    assert logs["level"].values[at] == "WARNING"
    # Times are those of a wall clock, the duration is that of a steady one.
    assert 0 <= float(logs["time"].values[at]) <= observation.run.metrics["duration"] + 0.05
    assert not any("and so on" in text for text in logs["text"].values)


def test_spans_include_parents(client, observed):
    spans = pytest.importorskip("distributed.spans")
    with spans.span("before"):
        client.submit(inc, 1, pure=False).result()
    with observed(client) as observation, spans.span("outer"), spans.span("inner"):
        client.submit(inc, 2, pure=False).result()
    found = observation.run.tree["spans"].to_dataset()

    names = found["name"].values.tolist()
    assert sorted(names) == ["outer", "outer/inner"]
    inner, outer = names.index("outer/inner"), names.index("outer")
    assert found["parent"].values[inner] == found["id"].values[outer]
    assert observation.run.tree["task_groups/span"].values.tolist() == [found["id"].values[inner]]
    fine = observation.run.fine_metrics()
    executed = fine[(fine["context"] == "execute") & (fine["prefix"] == "inc")]
    assert set(executed["span"]) == {found["id"].values[inner]}
    assert {"thread-cpu", "deserialize"} & set(executed["activity"])
    assert (executed.loc[executed["unit"] == "seconds", "value"] >= 0).all()
    assert set(fine["span"]) <= {"", found["id"].values[inner]}


def test_trimmed_memory_is_a_metric(client, observed):
    with observed(client) as observation:
        run_tasks(client, 5)
    run = observation.run

    trimmed = run.tree["workers/trimmed"].values
    assert (trimmed > 2**20).all()
    assert run.metrics["memory_trimmed"] == trimmed.max(), "both workers are in this process"


def test_rss_peak_between_heartbeats_is_recorded(client, observed):
    def spike():
        # 128 MiB, freed before the next heartbeat. Not by malloc, which may have them: this process
        # has run other tests.
        area = mmap.mmap(-1, 2**27)
        np.frombuffer(area, np.uint8)[::4096] = 1
        area.close()

    with observed(client) as observation:
        client.submit(spike, pure=False).result()
    workers = observation.run.tree["workers"].to_dataset()

    peaks = workers["rss_peak"].max("time").values
    before = workers["process"].isel(time=0).values
    assert (peaks > before + 100 * 2**20).all()


def test_maxima_of_a_heartbeat_that_another_follows_at_once_are_recorded(cluster, client, observed):
    def block_loop(dask_worker):
        time.sleep(0.7)

    regular = [worker.periodic_callbacks["heartbeat"] for worker in cluster.workers.values()]
    with observed(client) as observation:
        for callback in regular:
            callback.stop()
        client.run(block_loop, workers=[cluster.workers[0].address])  # all share the loop
        for _ in range(2):
            for worker in cluster.workers.values():
                cluster.sync(worker.heartbeat)
        for callback in regular:
            cluster.loop.add_callback(callback.start)
    workers = observation.run.tree["workers"].to_dataset()

    assert (workers["tick_max"].max("time") > 0.5).all()


def test_memory_is_not_trimmed_during_other_capture(client, observed):
    with observed(client) as theirs:
        with observed(client) as ours:
            run_tasks(client, 5)
        run_tasks(client, 5)

    assert "memory_trimmed" not in ours.run.metrics
    assert "memory_trimmed" in theirs.run.metrics


# -- concurrent captures and removal ----------------------------------------------------------


def test_concurrent_captures_have_own_windows(cluster, client, observed):
    with Client(cluster, set_as_default=False) as other, observed(client) as first:
        run_tasks(client, 10)
        with observed(other) as second:
            run_tasks(other, 20)
        run_tasks(client, 40)

    assert first.run.metrics["n_tasks"] == 70
    assert second.run.metrics["n_tasks"] == 20
    assert set(keys_of(second.run)) < set(keys_of(first.run))
    for run in (first.run, second.run):
        assert np.isfinite(run.tree["workers/rss_peak"].values).any(axis=0).all()
        assert capture_errors(run) == []


def traces(cluster):
    scheduler = cluster.scheduler
    workers = list(cluster.workers.values())
    timers = [
        handle
        for loop in {id(x.loop): x.loop for x in [scheduler, *workers]}.values()
        for handle in loop.asyncio_loop._scheduled
        if not handle.cancelled() and ("LoopLag" in repr(handle) or "_sample" in repr(handle))
    ]
    return {
        "scheduler": [sorted(scheduler.plugins), sorted(vars(scheduler))],
        "worker plugins": sorted(scheduler.worker_plugins),
        "handlers": sorted(scheduler.handlers),
        "workers": [
            [*map(sorted, (w.plugins, w.metrics, w.handlers))] for w in workers
        ],
        # Not its modules and lazily imported names, which any import adds.
        "process": sorted(name for name in vars(distributed) if "benchkit" in name),
        "callbacks": [sorted(x.periodic_callbacks) for x in [scheduler, *workers]],
        "timers": len(timers),
    }  # fmt: skip


def traces_before(cluster):
    for name in traces(cluster)["process"]:  # of a cluster of another test, closed in a capture
        delattr(distributed, name)
    return traces(cluster)


def test_uninstall_restores_cluster_state(cluster, client, observed):
    before = traces_before(cluster)
    with observed(client):
        run_tasks(client, 5)
        during = traces(cluster)

    assert traces(cluster) == before
    for kind in set(before) - {"callbacks"}:
        assert during[kind] != before[kind], f"the test does not detect changes in {kind}"


def test_capture_without_client_removes_itself(cluster, client, observed):
    before = traces_before(cluster)
    with observed(client) as observation:
        observer = observation.observer
        observer._stop.set()  # as if the process had been killed
        observer.process._in_loop(observer.process.lag.stop)
        plugin_of(cluster, observation).client_timeout_s = 0.5
        end = time.time() + 200
        while traces(cluster) != before and time.time() < end:
            time.sleep(0.05)
        left = traces(cluster)

    assert left == before


# -- unusual names ----------------------------------------------------------------------------


def test_unusual_keys_and_errors_are_stored(client, observed, tmp_path):
    from benchkit import Store

    def shout():
        raise ValueError("half a pair \udc80, a NUL \0 and\nlines")

    with observed(client) as observation:
        client.submit(inc, 1, key="two\nlines\r\tand µ").result()
        client.submit(inc, 1, key="<script>alert(1)</script>").result()
        with pytest.raises(ValueError, match="half"):
            client.submit(shout, key="a\0b").result()
    store = Store(tmp_path / "store")
    tree = store.open(store.add(observation.run.tree)).tree

    keys = zlib.decompress(tree["tasks/key_blob"].values.tobytes()).decode().split("\n")
    assert sorted(keys) == ["<script>alert(1)</script>", "a\0b", "two\\nlines\r\tand µ"]
    assert "half a pair" in str(tree["errors/exception"].values[0])
