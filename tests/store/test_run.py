"""The views of a run, ready to plot, and its representations, which escape hostile text."""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benchkit.errors import UnreadableRun, UsageError
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import ACCESSORS, Run
from benchkit.store.schema import METRICS
from validation.synthetic_recordings import MB, ON, group, record, segment, stacks

MARKUP = "<script>alert('x')</script>"


def sample(moment, index, **values):
    return {"time": ON + moment, "worker": index, **values}


@pytest.fixture
def run(tmp_path):
    recorded = segment(
        samples=[sample(t, i, process=(t + i) * MB, spilled=0) for t in (1, 2) for i in (0, 1)],
        scheduler=[{"time": ON + t, "process": t * MB, "managed": MB} for t in (1, 2, 3)],
        groups=[
            group("small", seconds={"compute": 1.0}, n_tasks=1, nbytes=10),
            group("big", seconds={"compute": 2.0, "transfer": 3.0}, n_tasks=2, nbytes=20),
        ],
        tasks=[
            {"group": 1, "worker": 1, "thread_id": 77, "ok": 1, "start": ON + 1, "stop": ON + 1.5},
            {"group": 0, "worker": 0, "thread_id": 77, "ok": 0, "start": ON + 2, "stop": ON + 2.25},
            {"group": 1, "worker": -1, "thread_id": 9, "ok": 1, "start": ON + 3, "stop": ON + 3.5},
        ],
        keys=["a", "b", "c"],
        events=[[ON + 1, "steal", 1, '{"key": "a"}']],
        task_errors=[[ON + 2, "b", 0, MARKUP, "Traceback"]],
        reports={
            "0": {
                "profile": stacks(
                    frames=[["big", "", 0], ["work", "lib.py", 7], ["small", "", 0]],
                    nodes=[-1, 0, 8, 0, 1, 6, -1, 2, 1],
                ),
                "logs": [[ON + 1, "WARNING", MARKUP]],
                "transfers": [[1, "tcp://10.0.0.1:1", 2, 100.0, 50.0, 0.5]],
            }
        },
        spans=[["s1", "etl/load", "", ON, ON + 1, ON + 2, 3.0]],
    )
    return Run(run_from_recording(record(tmp_path, recorded)))


def test_memory_has_sums_and_values_per_worker(run):
    memory = run.memory()

    assert memory["process"].values.tolist() == [MB, 2 * MB, 3 * MB]
    assert memory["worker_process"].sel(worker="1").values.tolist() == [2 * MB, 3 * MB]
    assert memory["worker_process"].attrs["units"] == memory["managed"].attrs["units"] == "B"
    assert {f"worker_{kind}" for kind in ("managed", "spilled", "unmanaged_old")} <= set(memory)


def test_memory_can_be_drawn_by_hvplot(run):
    pytest.importorskip("hvplot.xarray")
    memory = run.memory()
    lines = memory["worker_process"].hvplot.line(x="worker_time", by="worker")
    area = memory[["managed", "unmanaged_old"]].hvplot.area(x="time")

    assert set(lines.keys()) == {*memory["worker"].values}
    assert len(area) == 2


def test_task_groups_are_sorted_by_seconds(run):
    frame = run.task_groups()

    assert frame.index.tolist() == ["big", "small"]
    assert frame["total (s)"].tolist() == [5.0, 1.0]
    assert frame.loc["big", ["compute (s)", "transfer (s)"]].tolist() == [2.0, 3.0]
    assert frame["result (B)"].tolist() == [20, 10]
    assert frame["n_tasks"].tolist() == [2, 1]


def test_task_stream_has_a_row_per_task(run):
    frame = run.task_stream()

    assert frame["task_group"].tolist() == ["big", "small", "big"]
    assert frame["worker"].tolist() == [1, 0, -1]
    assert frame["start"].tolist() == [1.0, 2.0, 3.0]
    assert frame["duration"].tolist() == [0.5, 0.25, 0.5]
    assert frame["thread"].tolist() == [0, 1, 2]  # the same name on two workers: two threads
    assert frame["ok"].tolist() == [1, 0, 1]


def test_profile_has_prefix_of_the_root(run):
    frame = run.profile()

    assert frame["function"].tolist() == ["big", "work", "small"]
    assert frame["prefix"].tolist() == ["big", "big", "small"]
    assert frame["parent"].tolist() == [-1, 0, -1]
    assert frame["line"].tolist() == [0, 7, 0]
    assert frame["count"].tolist() == [8, 6, 1]


def test_transfers_spans_logs_events_and_errors_are_tables(run):
    transfers = run.transfers()
    ends = [transfers[end].values.tolist() for end in ("source", "destination")]
    assert (ends, transfers["bytes"].values.tolist()) == ([[0], [1]], [100])
    assert run.spans()["name"].tolist() == ["etl/load"]
    assert run.logs()[["time", "level", "server", "worker"]].values.tolist() == [
        [1.0, "WARNING", "worker", 0]
    ]
    assert run.events()["topic"].tolist() == ["steal"]
    assert run.errors()["exception"].tolist() == [MARKUP]


def test_run_without_capture_has_empty_tables(tmp_path):
    run = Run(run_from_recording(record(tmp_path)))

    for view in ("memory", "task_groups", "task_stream", "transfers", "profile", "spans", "logs"):
        assert not len(getattr(run, view)()), view
    assert run.metrics == {"duration": 10.0}
    assert "10.0 s" in repr(run)


def test_run_html_escapes_markup(tmp_path):
    path = record(tmp_path, outcome="failed", error=f"ValueError: {MARKUP}")
    tree = run_from_recording(path)
    tree.attrs |= {"workload": MARKUP, "dask": MARKUP, "started": MARKUP, "outcome": MARKUP}

    html = Run(tree)._repr_html_()

    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("&lt;script&gt;") >= 4


def test_run_repr_is_one_line(run):
    assert repr(run).startswith("<benchkit.Run ")
    assert "t.made[size=1] ok 10.0 s" in repr(run)
    assert "\n" not in repr(run)


def test_run_metrics_are_equal_to_its_record(run):
    assert run.metrics["compute_time"] == 3.0
    assert run.record["compute_time"] == 3.0
    assert all(np.isfinite(value) for value in run.metrics.values())
    assert run.record["workload"] == run.workload == "t.made[size=1]"


def test_compare_has_no_ratio_of_different_definitions(run):
    other = Run(run.tree.copy(deep=True))
    record = other.record
    assert json.loads(record["metric_versions"])["compute_time"] == 2
    other.tree.attrs["record"] = json.dumps({**record, "metric_versions": '{"compute_time": 3}'})

    table = run.compare(other)

    assert np.isnan(table.loc[METRICS["compute_time"].long_name, "ratio"])
    assert table.loc[METRICS["duration"].long_name, "ratio"] == 1.0


def test_run_has_metrics_as_attributes(run):
    assert run.duration == run.metrics["duration"]
    assert "duration" in dir(run)
    with pytest.raises(AttributeError, match=r"this run has no cost: `run.quality\(\)` says why"):
        run.cost  # noqa: B018
    with pytest.raises(AttributeError, match="a run has no 'durration'"):
        run.durration  # noqa: B018


@pytest.mark.parametrize("other", ["latest", None, 3])
def test_run_names_what_it_takes(run, other):
    with pytest.raises(UsageError, match="compare takes a Run, not"):
        run.compare(other)
    with pytest.raises(UsageError, match="Run takes a DataTree, not"):
        Run(other)


def test_run_has_a_method_for_each_declared_accessor():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    section = project.partition(f'[project.entry-points."{ACCESSORS}"]')[2].partition("\n[")[0]
    declared = re.findall(r'^(\w+) = "(.*)"$', section, re.MULTILINE)
    assert len(declared) >= 4

    for name, target in declared:
        module, _, attribute = target.partition(":")
        assert callable(getattr(import_module(module), attribute))
        assert name in vars(Run), name


def test_task_graph_that_contradicts_itself_is_unreadable(store, make_run):
    run = store.open(store.add(make_run()))
    run.tree["tasks/n_dependencies"] = run.tree["tasks/n_dependencies"] + 3  # more than there are

    with pytest.raises(UnreadableRun, match=f"run {run.id}: its task graph is inconsistent: "):
        run.task_graph()


def test_accessor_of_an_older_installation_says_what_to_do(run, monkeypatch):
    monkeypatch.setattr("benchkit.store.run.entry_points", lambda **_: ())
    with pytest.raises(UsageError, match=r"run\.plot: .* install benchkit again"):
        run.plot  # noqa: B018


def test_transfers_of_older_files_are_pairs():
    counts = np.array([[0, 5, 2], [np.nan, np.nan, np.nan], [0, np.nan, np.nan]])
    ends = {"source": [0, 1, -1], "destination": [0, 1, -1]}
    data = xr.Dataset(
        {name: (("source", "destination"), counts * 2) for name in ("count", "bytes")},
        ends,
        {"unheard": 1},
    )

    transfers = Run(xr.DataTree.from_dict({"/transfers": data})).transfers()

    assert transfers["source"].values.tolist() == [0, 0]
    assert transfers["destination"].values.tolist() == [1, -1]
    assert transfers["bytes"].values.tolist() == [10, 4]
    assert transfers["incomplete"].values.tolist() == [1]
    assert transfers.attrs == {"unheard": 1}
