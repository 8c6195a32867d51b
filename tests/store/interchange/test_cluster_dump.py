"""Import of the files that `Client.dump_cluster_state` writes."""

import copy
import gzip
import time

import dask
import distributed
import msgpack
import pytest
import yaml
from dask.distributed import Client, LocalCluster
from helpers.small_tasks import add, broken, slowly

from benchkit.errors import InvalidImportError
from benchkit.store.interchange.cluster_dump import read_dump
from benchkit.store.interchange.results import import_results
from benchkit.store.schema import METRICS
from benchkit.store.store import Store


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Return a folder with real dumps: two formats, and one with a failed and a waiting task."""
    folder = tmp_path_factory.mktemp("dumps")
    # Workers in the process of all tests, which may have a GiB: with less they would pause.
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "4 GiB"}
    with (
        LocalCluster(**options, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        parts = client.map(slowly, range(8), key=[("slowly", n) for n in range(8)])
        total = client.submit(add, *parts)
        distributed.wait(total)
        for form in ("msgpack", "yaml"):
            client.dump_cluster_state(str(folder / "done"), format=form)
        bad = client.submit(broken, total)
        distributed.wait(bad)
        waiting = client.submit(add, total, resources={"GPU": 1})  # no worker has any
        tasks = cluster.scheduler.tasks
        while waiting.key not in tasks or tasks[waiting.key].state != "no-worker":
            time.sleep(0.01)
        client.dump_cluster_state(str(folder / "stuck"))
    return folder


def imported(store, path):
    report = import_results(store, path)
    assert (report.rows, report.added, report.odd) == (1, 1, [])
    return store.open(store.runs()["id"].iloc[0])


def content_of(path):
    data = gzip.decompress(path.read_bytes())
    return msgpack.unpackb(data, use_list=False, strict_map_key=False)


@pytest.mark.parametrize("name", ["done.msgpack.gz", "done.yaml"])
def test_dump_becomes_a_run_with_its_groups_and_tasks(store, dumps, name):
    run = imported(store, dumps / name)

    assert (run.workload, run.outcome, run.tags["imported"]) == ("done", "ok", "cluster-dump")
    groups = run.task_groups()
    assert groups.loc["slowly", "n_tasks"] == 8
    assert groups.loc["slowly", "compute (s)"] == pytest.approx(0.8, rel=0.3)
    assert groups["result (B)"].gt(0).all()
    tasks = run.task_stream()
    slow = tasks[tasks["task_group"] == "slowly"]
    assert len(tasks) == run.n_tasks == 9
    assert slow["duration"].between(0.1, 0.3).all()
    assert sorted(set(slow["worker"])) == [0, 1]
    assert run.tree["workers"]["nthreads"].values.tolist() == [1, 1]
    assert (run.tree["workers"]["process"].values[-1] > 0).all()
    between = run.tree["transfers"]
    assert between["count"].values.sum() >= 1
    record = run.record
    assert (record["dask"], record["distributed"]) == (dask.__version__, distributed.__version__)
    assert (record["n_workers"], record["n_threads"]) == (2, 2)
    assert record["memory_limit"] == 2**33


def test_dump_names_what_it_does_not_hold(store, dumps):
    run = imported(store, dumps / "done.msgpack.gz")
    quality = run.quality()

    assert set(run.metrics) == {
        "compute_time", "transfer_time", "disk_read_time", "disk_write_time", "n_tasks",
    }  # fmt: skip
    (absent,) = quality[quality["kind"] == "unmeasured"]["metrics"]
    assert set(absent.split(", ")) == set(METRICS) - set(run.metrics) - {"cost", "seceded_time"}
    assert "read from a cluster dump, which does not hold it" in " ".join(quality["text"])


def test_dump_of_a_stuck_cluster_is_a_failed_run(store, dumps):
    run = imported(store, dumps / "stuck.msgpack.gz")

    assert run.outcome == "failed"
    assert run.error.endswith("ZeroDivisionError('of a test')")
    (error,) = run.errors().itertuples()
    assert "of a test" in error.exception
    assert "raise ZeroDivisionError" in error.traceback
    assert error.worker in (0, 1)
    kinds = run.quality().set_index("kind")["text"]
    assert kinds["unfinished"] == "unfinished when the state was dumped: 1 no-worker"


def test_dump_is_imported_once(store, dumps):
    imported(store, dumps / "done.yaml")

    assert import_results(store, dumps / "done.yaml").added == 0


def test_dump_of_an_old_release_has_the_tasks_of_its_logs(dumps):
    """As in 2022.1: no task groups, other names in the state of a worker and in its log."""
    new = content_of(dumps / "done.msgpack.gz")
    old = copy.deepcopy(new)
    del old["scheduler"]["task_groups"]
    for state in old["scheduler"]["workers"].values():
        state["metrics"]["in_memory"] = state["metrics"].pop("task_counts").get("memory", 0)
        del state["memory"], state["time_delay"]
    for report in old["workers"].values():
        report["incoming_transfer_log"] = report.pop("transfer_incoming_log")

    content = read_dump(old)

    assert content.metrics == ()
    assert {row["name"]: row["n_tasks"] for row in content.tables["groups"]}["slowly"] == 8
    assert content.tables["told"] == read_dump(new).tables["told"]
    assert any("no task groups" in text for _, _, text in content.notes)


def test_dump_with_a_worker_that_did_not_answer_says_so(dumps):
    dump = content_of(dumps / "done.msgpack.gz")
    address = next(iter(dump["workers"]))
    dump["workers"][address] = "OSError('timed out')"

    content = read_dump(dump)

    assert len(content.workers) == 2
    assert ("cut", (), "1 worker did not answer when the state was dumped") in content.notes


NO_DUMPS = {
    "empty": b"",
    "cut": b"\x1f\x8b",
    "no msgpack": gzip.compress(b"\xc1"),
    "list": gzip.compress(msgpack.packb([1])),
    "empty states": gzip.compress(msgpack.packb({"scheduler": {}, "workers": {}})),
    "wrong types": gzip.compress(
        msgpack.packb({"scheduler": {"workers": {"a": 1}, "tasks": {}}, "workers": {}})
    ),
}


@pytest.mark.parametrize("data", NO_DUMPS.values(), ids=NO_DUMPS)
def test_file_that_is_no_dump_is_refused_in_one_line(store, tmp_path, data):
    path = tmp_path / "dump.msgpack.gz"
    path.write_bytes(data)

    with pytest.raises(InvalidImportError, match=r"dump.msgpack.gz: cannot be read as a cluster"):
        import_results(store, path)


@pytest.mark.parametrize("text", ["a: [", "a: !!python/object:os.system {}", "- 1"])
def test_yaml_that_is_no_dump_is_refused_in_one_line(store, tmp_path, text):
    path = tmp_path / "dump.yaml"
    path.write_text(text)

    with pytest.raises(InvalidImportError, match=r"dump.yaml: cannot be read as a cluster"):
        import_results(store, path)


def test_yaml_with_tuples_as_keys_is_read(tmp_path, dumps):
    """Keys of tasks may be tuples; some releases wrote them as such."""
    dump = yaml.load((dumps / "done.yaml").read_text(), Loader=yaml.CSafeLoader)
    report = next(iter(dump["workers"].values()))
    report["log"] = [
        [("sum", 0), "ready", "executing", "executing", {}, "s", 1700000000.0],
        [("sum", 0), "executing", "memory", "memory", {}, "s", 1700000001.0],
    ]
    path = tmp_path / "tuples.yaml"
    path.write_text(yaml.dump(dump))

    run = imported(Store(tmp_path / "store"), path)

    assert "!!python/tuple" in path.read_text()
    assert "('sum', 0)" in run.task_keys()
