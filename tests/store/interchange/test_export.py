"""Exports of runs, read by the readers of their formats."""

import gzip
import json
import subprocess
import sys
import zlib

import numpy as np
import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.errors import UsageError
from benchkit.store.interchange import trace
from benchkit.store.interchange.export import RUN_FORMATS, STORE_FORMATS, export_run, export_runs
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from validation.graph_runs import graph_run, tasks_of
from validation.synthetic_runs import make_run

COMMITS = ["a" * 40, "b" * 40]


@pytest.fixture
def runs(store):
    """Return a store: two commits of one workload, three runs each, and two other outcomes."""
    for index in range(6):
        store.add(
            make_run(
                seed=index,  # its duration is 10 s + seed
                started=f"2026-08-0{1 + index}T02:00:00.000000+00:00",
                git_commit=COMMITS[index // 3],
                owner="array-team",
            )
        )
    store.add(make_run("df.join", groups=False, outcome="failed", error="ValueError: \ufffe <no>"))
    store.add(make_run("df.sort", groups=False, outcome="skipped", error="no package"))
    store.add(make_run("df.old", groups=False, outcome="infrastructure", error="no cluster"))
    return store


@pytest.fixture
def run():
    """Return a run with eleven call stacks of known counts."""
    tree = make_run(n_tasks=50)
    profile = tree["profile"].to_dataset()
    lines = ["sum\t\t0", "load\ta.py\t3", "read\ta.py\t7", "add\tb.py\t1", "load\ta.py\t3"]
    blob = np.frombuffer(zlib.compress("\n".join(lines).encode()), np.uint8)
    profile = profile.drop_vars("code_blob").assign(
        code_blob=("byte", blob),
        parent=("frame", np.array([-1, 0, 1, 0, 3], "i4")),
        code=("frame", np.arange(5, dtype="i4")),
        count=("frame", np.array([11, 6, 4, 5, 2])),
    )
    tree["profile"] = type(tree)(profile)
    events = tree["task_events"].to_dataset()
    events.attrs["actions"] = json.dumps(["compute", "transfer", "disk-read"])
    n = events.sizes["event"]
    events = events.assign(
        action=("event", np.resize([1, 2, 0], n).astype("i1")),
        source=("event", np.resize([0, -1, -1], n).astype("i4")),
        start=("event", np.full(n, 1.5)),
        stop=("event", np.full(n, 2.0)),
        task=("event", np.arange(n, dtype="i4")),
    )
    tree["task_events"] = type(tree)(events)
    tasks = tree["tasks"].to_dataset()
    finite = {name: np.linspace(0.25, 1.0, 50) for name in ("start", "duration")}
    tree["tasks"] = type(tree)(
        tasks.assign({name: ("task", values) for name, values in finite.items()})
    )
    return Run(tree)


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_trace_has_the_seconds_of_tasks_and_activities(run, tmp_path, name):
    export_run(run, tmp_path / name)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "rt") as file:
        trace = json.load(file)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    seconds = {
        category: sum(e["dur"] for e in slices if e["cat"] == category) / 1e6
        for category in ("compute", "transfer", "disk-read")
    }
    events = run.tree["task_events"].to_dataset()
    n_transfers, n_reads = (int((events["action"] == code).sum()) for code in (1, 2))
    assert n_transfers > 1
    assert n_reads > 1
    assert seconds["compute"] == pytest.approx(run.task_stream()["duration"].sum(), abs=1e-6)
    assert seconds["transfer"] == pytest.approx(0.5 * n_transfers)
    assert seconds["disk-read"] == pytest.approx(0.5 * n_reads)
    assert {e["args"]["key"] for e in slices if e["cat"] == "compute"} == set(run.task_keys())
    assert trace["otherData"]["run"] == run.id


def test_trace_slices_of_a_track_do_not_overlap(run, tmp_path):
    export_run(run, tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    lanes = {}
    for event in events:
        if event["ph"] == "X" and event["cat"] in ("transfer", "disk-read"):
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    assert all(len(lane) == 1 for lane in lanes.values())  # all at the same time
    arrows = [e for e in events if e.get("cat") == "fetch"]
    flows = {kind: [e for e in arrows if e["ph"] == kind] for kind in "sf"}
    fetches = [e for e in events if e["ph"] == "X" and e["cat"] == "transfer"]
    assert len(flows["s"]) == len(flows["f"]) == len(fetches)
    assert {e["pid"] for e in flows["s"]} == {1}  # worker 0 sent all of them
    assert sorted(e["tid"] for e in flows["f"]) == sorted(e["tid"] for e in fetches)


@pytest.fixture
def graph(tmp_path):
    """Return a run of five tasks; `sum-0` waits for `load-1` last."""
    tasks = tasks_of(
        ("load-0", 0.0, 1.0, ""),
        ("load-1", 1.0, 2.0, ""),
        ("sum-0", 2.0, 2.25, "load-0 load-1"),
        ("sum-1", 2.25, 4.0, "load-1"),
        ("end-0", 4.0, 4.5, "sum-0 sum-1"),
    )
    return graph_run(tmp_path, tasks, duration=5.0)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (5, ["load-0 sum-0", "load-1 sum-0", "load-1 sum-1", "sum-0 end-0", "sum-1 end-0"]),
        (4, ["load-1 sum-0", "load-1 sum-1", "sum-1 end-0"]),
        (2, ["load-1 sum-1", "sum-1 end-0"]),
    ],
)
def test_trace_flows_join_the_slices_of_dependencies(graph, tmp_path, monkeypatch, limit, expected):
    monkeypatch.setattr(trace, "_MAX_DEPENDENCIES", limit)
    export_run(graph, tmp_path / "run.json")
    content = json.loads((tmp_path / "run.json").read_text())
    events = content["traceEvents"]
    slices = [e for e in events if e.get("cat") == "compute"]

    def key_at(flow):
        """Return the task whose slice contains the end of a flow, as Perfetto finds it."""
        return next(
            e["args"]["key"]
            for e in slices
            if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
            and e["ts"] <= flow["ts"] < e["ts"] + e["dur"]
        )

    flows = [e for e in events if e.get("cat") == "dependency"]
    starts, ends = ({e["id"]: e for e in flows if e["ph"] == kind} for kind in "sf")
    assert starts.keys() == ends.keys()
    drawn = [f"{key_at(starts[number])} {key_at(ends[number])}" for number in starts]
    assert sorted(drawn) == sorted(expected)
    assert content["otherData"]["dependencies"] == f"{len(expected)} of 5"


def test_trace_says_why_it_has_no_dependencies(tmp_path):
    for name in "tu":
        (tmp_path / f"run-{name}").mkdir()
        tasks = tasks_of(("a-0", 0, 1, ""), ("b-0", 1, 2, "a-0"))
        run = graph_run(tmp_path / f"run-{name}", tasks, duration=2)
        if name == "t":
            run.tree["tasks/dependency"] = run.tree["tasks/dependency"] + 3
        else:
            del run.tree["submissions"]
        trace.write_trace(run, tmp_path / f"{name}.json")

    said = [json.loads((tmp_path / f"{n}.json").read_text())["otherData"] for n in "tu"]
    assert said[0]["dependencies"].endswith("a task depends on itself or on a later task")
    assert said[1]["dependencies"] == "not recorded"


def test_trace_counters_have_the_memory_of_each_worker(run, tmp_path):
    export_run(run, tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    counters = [
        e["args"]["value"]
        for e in events
        if e["ph"] == "C" and e["pid"] == 2 and "process" in e["name"]
    ]
    values = run.tree["workers"]["process"].transpose("worker", "time").values[1]
    assert counters == pytest.approx(values[~np.isnan(values)], rel=1e-5)


def test_speedscope_weights_are_samples(run, tmp_path):
    export_run(run, tmp_path / "run.speedscope.json")
    content = json.loads((tmp_path / "run.speedscope.json").read_text())
    (profile,) = content["profiles"]
    names = [frame["name"] for frame in content["shared"]["frames"]]
    stacks = {
        "/".join(names[frame] for frame in stack): weight
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True)
    }
    assert stacks == {"sum/load": 2, "sum/load/read": 4, "sum/add": 3, "sum/add/load": 2}
    assert profile["endValue"] == 11
    assert len(names) == 4  # the function `load` is one frame


def test_run_without_call_stacks_writes_nothing(tmp_path):
    run = Run(make_run(groups=False))
    with pytest.raises(UsageError, match="has no call stacks"):
        export_run(run, tmp_path / "run.speedscope.json")
    assert list(tmp_path.iterdir()) == []


def test_openmetrics_has_a_sample_per_successful_run(runs, tmp_path):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    export_runs(runs, tmp_path / "runs.om")
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families((tmp_path / "runs.om").read_text())
    }
    samples = families["benchkit_duration_seconds"].samples
    assert [sample.value for sample in samples] == [10, 11, 12, 13, 14, 15]
    assert {sample.labels["workload"] for sample in samples} == {"array.basic_sum[chunks=thin]"}
    starts = runs.runs(outcome="ok")["started"].sort_values()
    assert [float(sample.timestamp) for sample in samples] == [t.timestamp() for t in starts]
    assert families["benchkit_memory_peak_bytes"].unit == "bytes"


def test_junit_has_a_case_per_run(runs, tmp_path):
    junitparser = pytest.importorskip("junitparser")
    export_runs(runs, tmp_path / "runs.xml")
    (suite,) = junitparser.JUnitXml.fromfile(str(tmp_path / "runs.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (9, 1, 1, 1)
    cases = list(suite)
    assert sum(case.time or 0 for case in cases) == pytest.approx(75)
    (failed,) = [case for case in cases if case.name == "df.join"]
    (result,) = failed.result
    assert isinstance(result, junitparser.Failure)
    assert (result.message, result.type) == ("ValueError: \N{REPLACEMENT CHARACTER} <no>", "failed")


def test_pytest_benchmark_compares_the_latest_build(runs, tmp_path):
    path = tmp_path / "runs.json"
    export_runs(runs, path, form="pytest-benchmark")
    (result,) = json.loads(path.read_text())["benchmarks"]
    assert result["stats"]["data"] == [13, 14, 15]
    assert result["stats"]["median"] == 14
    assert result["stats"]["stddev"] == pytest.approx(1.0)
    reader = [sys.executable, "-m", "pytest_benchmark", "compare", str(path)]
    done = subprocess.run(reader, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "array.basic_sum[chunks=thin]" in done.stdout
    assert "14.0000" in done.stdout


def test_asv_reads_the_results_of_each_commit(runs, tmp_path):
    results = pytest.importorskip("asv.results")
    export_runs(runs, tmp_path / "results", form="asv")
    read = {r.commit_hash: r for r in results.iter_results(str(tmp_path / "results"))}
    name = "array.time_basic_sum[chunks=thin]"
    values = {commit: result.get_result_value(name, []) for commit, result in read.items()}
    assert values == {COMMITS[0]: [11.0], COMMITS[1]: [14.0]}
    assert read[COMMITS[1]].get_result_samples(name, []) == [[13.0, 14.0, 15.0]]


def test_exports_of_an_empty_store_say_why(store, tmp_path):
    for form in ("pytest-benchmark", "asv"):
        with pytest.raises(UsageError, match=r"none of these runs|no successful runs"):
            export_runs(store, tmp_path / "out", form=form)
        assert list(tmp_path.glob("*out*")) == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["store", "export", "runs.jsn"], "unknown suffix: use .db"),
        (["store", "export", "x", "--format", "junitt"], "did you mean 'junit'?"),
        (["store", "export", "x", "--format", "best"], f"use {', '.join(STORE_FORMATS)}"),
        (["report", "trace", "latest", "-o", "x.txt"], "unknown suffix: use .json"),
        (
            ["report", "trace", "latest", "-o", "x", "--format", "y"],
            f"use {', '.join(RUN_FORMATS)}",
        ),
        (["report", "trace", "nope", "-o", "x.json"], "nope"),
    ],
)
def test_unknown_formats_are_refused(runs, tmp_path, monkeypatch, command, problem):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(main, [*command, "--store", str(runs.path)])
    assert result.exit_code == 2
    assert problem in result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_commands_write_and_never_replace(store, run, tmp_path):
    store.add(run.tree)
    path = str(tmp_path / "run.json.gz")
    options = ["--store", str(store.path)]
    done = CliRunner().invoke(main, ["report", "trace", run.id[:13], "-o", path, *options])
    assert (done.exit_code, done.stdout.strip()) == (0, path)
    assert "ui.perfetto.dev" in done.stderr
    again = CliRunner().invoke(main, ["report", "trace", run.id, "-o", path, *options])
    assert again.exit_code == 2
    assert "already exists" in again.output


def test_every_metric_name_is_valid_in_openmetrics():
    assert all(name.isidentifier() for name in METRICS)
