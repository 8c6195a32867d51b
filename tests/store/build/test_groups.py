"""Conversion of raw columns to the groups of a run file: shapes, units, clocks, hostile text."""

import json
import zlib
from array import array

import numpy as np
import pytest

from benchkit import Store
from benchkit.errors import NotRecorded
from benchkit.measure.capture.columns import CLIENT_COLUMNS, HELD_COLUMNS, THREAD_COLUMNS
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.schema import COORDINATES, GROUPS
from validation.synthetic_recordings import (
    MB,
    ON,
    graph,
    group,
    record,
    rows,
    segment,
    stacks,
    worker,
)

HOSTILE = "half \udc80, NUL \0, <b>bold</b>, µ,\nnew line"


def sample(moment, index, **values):
    return {"time": ON + moment, "worker": index, **values}


def complete_segment():
    """Return a segment in which every table has rows."""
    return segment(
        samples=[sample(1, 0, process=MB, gpu_utilization=50.0), sample(1, 1, gpu_memory_used=MB)],
        scheduler=[{"time": ON + 1, "cpu": 5.0}],
        held=rows(HELD_COLUMNS, {"time": ON + 1, "group": 0, "worker": 1, "nbytes": MB}),
        memory=[{"time": ON + 1, "worker": 0, "rss": MB}],
        tasks=[{"ok": 1, "start": ON + 2, "stop": ON + 2.5}],
        keys=["a"],
        task_events=[{"action": "transfer", "start": ON + 1.5, "stop": ON + 2}],
        groups=[group("g", n_tasks=1, seconds={"compute": 0.5})],
        fine=[
            ["execute", "g", "thread-cpu", "seconds", 0.25, "s1"],
            ["execute", "g", "deserialize", "seconds", 0.5, ""],
        ],
        events=[[ON + 3, "steal", 1, "{}"]],
        task_errors=[[ON + 4, "a", 0, "ValueError()", "Traceback"]],
        reports={
            "0": {
                "transfers": [[0, "tcp://10.0.0.1:1", 2, 100.0, float("nan"), 0.5]],
                "logs": [[ON + 5, "WARNING", "slow"]],
                "profile": stacks([["g", "", 0], ["f", "x.py", 3]], [-1, 0, 9, 0, 1, 9]),
                "memory": 5.0 * MB,
            },
            "1": {"transfers": [[1, "tcp://10.0.0.1:0", 2, 100.0, 40.0, 0.4]]},
        },
        threads=rows(
            THREAD_COLUMNS, {"time": ON, "server": -1, "role": 0, "ident": 5, "native_id": 7}
        ),
        client=rows(CLIENT_COLUMNS, {"time": ON + 1, "rss": MB}),
        scheduler_profile=[stacks([["scheduler", "", 0]], [-1, 0, 5])],
        spans=[["id", "outer/inner", "", ON, ON + 1, ON + 2, 3.0]],
        logs=[["scheduler", ON + 1, "ERROR", "lost"]],
        **graph((0, ()), (0, (0,)), wanted=(1,)),
    )


def test_groups_contain_every_variable_of_the_schema(tmp_path):
    phases = [[None, ON + 0.5, ON + 0.7]]
    content = complete_segment()
    del content["reports"]["0"]["transfers"]  # a worker whose log is not complete
    tree = run_from_recording(record(tmp_path, content, client_phases=phases))

    assert set(tree.children) == set(GROUPS)
    for name, variables in GROUPS.items():
        dataset = tree[name].to_dataset()
        for variable in variables:
            stored = dataset[variable.name]
            assert stored.dims == variable.dims, variable.name
            assert stored.attrs == variable.attrs, variable.name
            assert {"units", "long_name", "source"} <= set(stored.attrs)
            assert stored.size > 0, f"{name}/{variable.name}: an empty variable tests nothing"
            dtype = object if variable.dtype == "str" else np.dtype(variable.dtype)
            assert stored.dtype == dtype, variable.name
        for dim in dataset.dims:
            for coordinate in COORDINATES.get(dim, ()):
                assert dataset[coordinate.name].attrs == coordinate.attrs


def test_groups_use_known_units_only():
    units = {variable.units for variables in GROUPS.values() for variable in variables}

    assert units <= {"s", "B", "B/s", "B s", "%", "1", "", "see coordinate unit"}


def test_groups_count_time_from_clock_on(tmp_path):
    tree = run_from_recording(record(tmp_path, complete_segment()))

    assert tree["workers/time"].values.tolist() == [1.0]
    assert tree["workers/joined"].values.tolist() == [-5.0, -5.0]
    assert tree["tasks/start"].values.tolist() == [2.0]
    assert tree["task_groups/start"].values.tolist() == [1.0]
    assert tree["task_events/stop"].values.tolist() == [2.0]
    assert tree["events/time"].values.tolist() == [3.0]
    assert tree["spans/stop"].values.tolist() == [2.0]
    assert tree["logs/time"].values.tolist() == [1.0, 5.0]
    assert tree.attrs["clock_on"] == ON


def test_graph_is_ordered_by_submission_and_priority(tmp_path):
    # The capture's order is that of creation: here a dependent comes before its dependencies.
    tables = graph((0, (1, 2)), (0, ()), (0, (1,)), wanted=(0,))
    tables["nodes"]["order"] = array("i", [2, 0, 1]).tobytes()
    tasks = [{"ok": 1, "start": ON + 3, "stop": ON + 4, "node": 0}]
    made = segment(tasks=tasks, keys=["last"], groups=[group("g", n_tasks=1)], **tables)

    run = Run(run_from_recording(record(tmp_path, made)))

    found = run.task_graph()
    assert found.indptr.tolist() == [0, 0, 1, 3]
    assert found.indices.tolist() == [0, 0, 1]
    assert found.row.tolist() == [-1, -1, 0]
    assert found.producer.tolist() == [False, False, True]
    assert found.submissions["wanted"][0].tolist() == [2]
    assert found.released[2] == 10.0
    assert found.options == {2: {"retries": 1}}


def test_incomplete_graph_is_not_stored(tmp_path):
    tables = graph((0, ()), (0, (0,)))
    tables["dependencies"] = b""

    tree = run_from_recording(record(tmp_path, segment(**tables)))

    assert "submissions" not in tree.children
    with pytest.raises(NotRecorded):
        Run(tree).task_graph()


def test_workers_keep_values_until_next_heartbeat_or_leaving(tmp_path):
    workers = [worker(0), worker(1, joined=ON + 2, left=ON + 6)]
    samples = [
        sample(0, 0, process=1.0),
        sample(3, 1, process=10.0),
        sample(4, 0, process=2.0),
        sample(5, 1, process=20.0),
        sample(8, 0, process=3.0),
    ]
    tree = run_from_recording(record(tmp_path, segment(workers=workers, samples=samples)))

    np.testing.assert_array_equal(tree["workers/process"].values[:, 0], [1, 1, 2, 2, 3])
    nan = np.nan
    np.testing.assert_array_equal(tree["workers/process"].values[:, 1], [nan, 10, 10, 20, nan])


def test_groups_concatenate_segments_and_use_last_snapshot(tmp_path):
    first = segment(tasks=[{"group": 0, "ok": 1}], keys=["a"], groups=[group("g", n_tasks=1)])
    second = segment(
        tasks=[{"group": 1, "ok": 0}, {"group": 0, "ok": 1}],
        keys=["b", "c"],
        groups=[group("g", n_tasks=2), group("h", n_tasks=1, n_erred=1)],
    )
    tree = run_from_recording(record(tmp_path, first, second))

    assert tree["tasks/group"].values.tolist() == [0, 1, 0]
    assert tree["tasks/ok"].values.tolist() == [1, 0, 1]
    blob = zlib.decompress(tree["tasks/key_blob"].values.tobytes()).decode()
    assert blob.split("\n") == ["a", "b", "c"]
    assert tree["task_groups/task_group"].values.tolist() == ["g", "h"]
    assert tree["task_groups/n_tasks"].values.tolist() == [2, 1]


def test_groups_of_killed_recording_keep_tasks_without_sums(tmp_path):
    first = segment(tasks=[{"group": 0, "ok": 1}], keys=["a"], groups=[group("g", n_tasks=1)])
    second = segment(tasks=[{"group": 2, "ok": 1}], keys=["b"], state={"t_off": None})
    del second["groups"]
    second["group_names"] = ["g", "unused", "late"]
    tree = run_from_recording(record(tmp_path, first, second, killed=True))

    assert tree.attrs["outcome"] == "infrastructure"
    names = tree["task_groups/task_group"].values[tree["tasks/group"].values]
    assert names.tolist() == ["g", "late"]


def test_groups_merge_task_groups_with_equal_names(tmp_path):
    rows = [
        group("sum", n_tasks=1, seconds={"compute": 1.0}, nbytes=5, dependencies=["x"]),
        group("sum", n_tasks=2, seconds={"compute": 2.0, "transfer": 1.0}, nbytes=7),
        group("idle"),
    ]
    tasks = [{"group": 1, "ok": 1}, {"group": 0, "ok": 1}]
    tree = run_from_recording(record(tmp_path, segment(groups=rows, tasks=tasks, keys=["a", "b"])))
    groups = tree["task_groups"].to_dataset()

    assert groups["task_group"].values.tolist() == ["sum"]
    assert float(groups["seconds"].sel(action="compute").item()) == 3.0
    assert (groups["n_tasks"].item(), groups["nbytes"].item()) == (3, 12)
    assert json.loads(groups["dependencies"].item()) == ["x"]
    assert tree["tasks/group"].values.tolist() == [0, 0]


@pytest.mark.parametrize("where", ["groups", "errors", "events", "logs", "workers", "tail"])
def test_groups_with_hostile_text_are_stored_and_read_back(tmp_path, where):
    content = complete_segment()
    tail = {}
    if where == "groups":
        content["groups"] = [group(HOSTILE, n_tasks=1, prefix=HOSTILE, dependencies=[HOSTILE])]
        content["fine"] = [["execute", HOSTILE, HOSTILE, "seconds", 1.0]]
    elif where == "errors":
        content["task_errors"] = [[ON, HOSTILE, 0, HOSTILE, HOSTILE]]
    elif where == "events":
        content["events"] = [[ON, HOSTILE, 0, json.dumps({"key": HOSTILE})]]
    elif where == "logs":
        content["logs"] = [["scheduler", ON, "ERROR", HOSTILE]]
        content["spans"] = [["id", HOSTILE, "", ON, ON, ON, 1.0]]
    elif where == "workers":
        content["workers"] = [worker(0, name=HOSTILE), worker(1, host=HOSTILE)]
    else:
        tail = {"error": HOSTILE, "traceback": HOSTILE, "outcome": "failed"}
    store = Store(tmp_path / "store")

    tree = store.open(store.add(run_from_recording(record(tmp_path, content, **tail)))).tree
    tree.load()

    assert "infrastructure" not in tree.attrs["outcome"]
    if where == "groups":
        assert "half \\udc80, NUL \\x00" in str(tree["task_groups/task_group"].values[0])
    if where == "tail":
        assert "<b>bold</b>" in store.runs()["error"][0]


def test_groups_are_absent_if_the_clock_never_started(tmp_path):
    tree = run_from_recording(
        record(tmp_path, outcome="failed", error="RuntimeError: no", t_on=None, t_off=None)
    )

    assert not tree.children
    assert tree.attrs["outcome"] == "failed"


def test_task_groups_count_spilling_like_the_metrics(tmp_path):
    rows = [
        group("a", prefix="load", n_tasks=1, seconds={"disk-write": 1.0}),
        group("b", prefix="load", n_tasks=3, seconds={"disk-write": 3.0}),
    ]
    fine = [
        ["execute", "load", "disk-write", "seconds", 6.0, "span 1"],
        ["execute", "load", "disk-write", "seconds", 2.0, "span 2"],
        ["memory-monitor", "", "disk-write", "seconds", 5.0, ""],
        ["p2p", "background-disk", "disk-write", "seconds", 7.0, ""],  # files of the shuffle
        ["p2p", "foreground", "disk-read", "seconds", 9.0, ""],
        ["get-data", "", "disk-read", "seconds", 1e-6, ""],
    ]
    tree = run_from_recording(record(tmp_path, segment(groups=rows, fine=fine)))

    groups = tree["task_groups"].to_dataset()
    written = groups["seconds"].sel(action="disk-write")
    assert groups["task_group"].values.tolist() == ["a", "b", "(memory-monitor)"]
    assert written.values.tolist() == [2.0, 6.0, 5.0], "both groups wrote in their proportion"
    assert float(written.sum()) == float(tree["disk_write_time"]) == 13.0
    assert tree.attrs["biggest_group"] == "b", "a row without tasks is no task group"


@pytest.mark.parametrize(
    ("fine", "expected"),
    [
        ([["execute", "load", "thread-cpu", "seconds", 1.0, ""]], 0.0),
        ([["execute", "load", "disk-write", "seconds", 0.5, ""]], 0.5),
        ([], 0.25),  # an old release
    ],
)
def test_slow_storing_of_a_result_is_no_spilling(tmp_path, fine, expected):
    """distributed notes "disk-write" if it takes more than 5 ms, also of a result in memory."""
    content = segment(
        tasks=[{"ok": 1, "start": ON + 1, "stop": ON + 2}],
        keys=["a"],
        task_events=[{"action": "disk-write", "start": ON + 2, "stop": ON + 2.25}],
        groups=[group("a", prefix="load", n_tasks=1, seconds={"disk-write": 0.25})],
        fine=fine,
    )

    tree = run_from_recording(record(tmp_path, content))

    assert tree["task_groups"]["seconds"].sel(action="disk-write").sum() == expected
    assert tree["task_events"].sizes["event"] == (1 if expected else 0)
