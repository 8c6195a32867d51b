"""Import of results of asv and pytest-benchmark."""

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.errors import InvalidImportError
from benchkit.store.interchange.export import export_runs
from benchkit.store.interchange.results import import_results
from benchkit.store.schema import METRICS

PYTEST = {
    "machine_info": {"node": "big", "python_version": "3.11.7"},
    "commit_info": {"id": "c0ffee"},
    "benchmarks": [
        {"name": "test_sum[1]", "fullname": "tests/test_array.py::test_sum[1]", "group": None,
         "params": {"n": 1},
         "stats": {"min": 0.1, "mean": 0.2, "median": 0.125, "rounds": 5}},
        {"name": "test_old", "fullname": "benchmarks/test_df.py::TestX::test_old", "params": None,
         "stats": {"min": 0.1, "mean": 0.25, "rounds": 3}},
    ],
    "datetime": "2026-11-20T02:00:00.5+00:00",
    "version": "5.1.0",
}  # fmt: skip
ASV = {
    "commit_hash": "abcdef12", "env_name": "virtualenv-py3.11-dask", "date": 1760000000000,
    "params": {"machine": "box", "python": "3.11"}, "python": "3.11",
    "requirements": {"dask": "2025.9.0", "distributed": "2025.9.1"},
    "result_columns": ["result", "params", "version", "started_at", "duration", "samples"],
    "results": {
        "rechunk.Swap.time_swap": [
            [0.5, None, math.nan, 0.75], [["1", "2"], ["'a'", "'b'"]], "v1", 1760000100000, 4.0,
            [[0.4, 0.5, 0.6], None, None, [0.75]],
        ],
        "mem.peakmem_sum": [[2048], [], "v2"],
        "graph.track_tasks": [[7.0], [], "v3"],
        "mem.time_broken": [None, [], "v4"],
    },
    "version": 2,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Return a folder as asv and pytest-benchmark fill it."""
    files = {
        "results/box/abcdef12-virtualenv.json": ASV,
        "results/box/machine.json": {"machine": "box", "cpu": "i7", "num_cpu": 8, "version": 1},
        "results/benchmarks.json": {
            "graph.track_tasks": {"unit": "tasks", "param_names": [], "version": "v3"},
            "rechunk.Swap.time_swap": {"unit": "seconds", "param_names": ["n", "kind"]},
            "version": 2,
        },
        ".benchmarks/0001_run.json": PYTEST,
    }
    for name, content in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return tmp_path / "in"


def test_pytest_results_become_runs_with_median(store, folder):
    report = import_results(store, folder / ".benchmarks" / "0001_run.json")
    runs = store.runs().set_index("workload")

    assert str(report) == "2 rows, 2 of them new in the store"
    assert runs["duration"].to_dict() == {"tests.array.sum[1]": 0.125, "df.TestX.old": 0.25}
    first = runs.loc["tests.array.sum[1]"]
    assert json.loads(first["params"]) == {"n": 1}
    assert first["started"] == pd.Timestamp("2026-11-20T02:00:00.5", tz="UTC")
    assert (first["host"], first["python"], first["git_commit"]) == ("big", "3.11.7", "c0ffee")
    tags = {"imported": "pytest-benchmark", "n_samples": "5", "tool_version": "5.1.0"}
    assert json.loads(first["tags"]) == tags


#: An entry as pytest-benchmark 5 writes it.
FULL = {
    "group": "sums", "name": "test_sum", "fullname": "tests/test_array.py::test_sum",
    "params": None, "param": None, "extra_info": {"rows": 5, "host": "inner"},
    "options": {"timer": "perf_counter", "min_rounds": 5},
    "stats": {"min": 0.1, "max": 0.3, "mean": 0.2, "median": 0.125, "rounds": 5, "iterations": 2,
              "ops": 5.0, "data": [0.1, 0.3]},
}  # fmt: skip


def test_entry_of_pytest_benchmark_is_kept_and_exported_again(store, tmp_path):
    (tmp_path / "in.json").write_text(json.dumps({**PYTEST, "benchmarks": [FULL]}))
    import_results(store, tmp_path / "in.json")
    export_runs(store, tmp_path / "out.json", form="pytest-benchmark")

    [run] = store.runs(group="sums", rows="5", iterations="2", info_host="inner")["id"]
    assert json.loads(json.loads(store.open(run).tree.attrs["tags"])["options"]) == FULL["options"]
    [entry] = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    stats = {name: value for name, value in FULL["stats"].items() if name != "data"}
    assert entry == {**FULL, "stats": stats}


@pytest.mark.parametrize(("change", "reason"), [
    ({"fullname": "tests/test_array.py::test_sum_memory"}, "memory of test_sum"),
    ({"fullname": "a.py::test_b", "extra_info": {"unit": "MB"}}, "unit MB"),
    ({"fullname": "a.py::test_b", "stats": {**FULL["stats"], "mean": 3e2}}, "ops is not 1 / mean"),
])  # fmt: skip
def test_entry_that_holds_no_seconds_is_refused_by_name(store, tmp_path, change, reason):
    content = {**PYTEST, "benchmarks": [FULL, {**FULL, **change}]}
    (tmp_path / "in.json").write_text(json.dumps(content))

    report = import_results(store, tmp_path / "in.json")

    assert report.added == 1
    assert report.odd == [f"1 x {change['fullname']}: not in seconds ({reason}): skipped"]


CODSPEED = {
    "creator": {"name": "pytest-codspeed", "version": "4.0.0", "pid": 7},
    "python": {
        "sysconfig": {"py_version": "3.12.1"}, "dependencies": {"dask": "1.2"},
    },
    "instrument": {"type": "walltime", "clock_info": {}},
    "benchmarks": [
        {"name": "test_sum", "uri": "tests/test_array.py::test_sum", "config": {"max_rounds": 9},
         "stats": {"median_ns": 2.5e8, "mean_ns": 3e8, "rounds": 9, "iter_per_round": 4}},
    ],
}  # fmt: skip


def test_results_of_codspeed_become_runs(store, tmp_path):
    (tmp_path / "results_1760000000000.json").write_text(json.dumps(CODSPEED))
    other = {**CODSPEED, "instrument": {"type": "valgrind"}}
    (tmp_path / "results_1760000000001.json").write_text(json.dumps(other))

    report = import_results(store, tmp_path)

    [run] = store.runs(iterations="4", tool_version="4.0.0").to_dict("records")
    assert (run["workload"], run["duration"]) == ("tests.array.sum", 0.25)
    assert (run["python"], run["dask"]) == ("3.12.1", "1.2")
    assert run["started"] == pd.Timestamp(1760000000000, unit="ms", tz="UTC")
    assert report.odd[0].endswith("CodSpeed measured valgrind, not walltime: skipped")


def test_history_of_github_action_benchmark_becomes_runs(store, tmp_path):
    commit = {"id": "c0ffee", "timestamp": "2024-12-02T19:13:50-05:00"}
    benches = [
        {"name": "tests/test_a.py::test_f[1]", "value": 4.0, "unit": "iter/sec",
         "range": "stddev: 0.1", "extra": "mean: 250 msec\nrounds: 5"},
        {"name": "BenchmarkFib", "value": 500, "unit": "ms/op"},
        {"name": "cache hits", "value": 7, "unit": "Percent"},
        {"name": "broken", "value": None, "unit": "s"},
    ]  # fmt: skip
    entry = {"commit": commit, "date": 1760000000000, "benches": benches}
    history = {"entries": {"Suite": [{**entry, "tool": "customBiggerIsBetter"}]}}
    (tmp_path / "data.js").write_text(f"window.BENCHMARK_DATA = {json.dumps(history)}")

    report = import_results(store, tmp_path / "data.js")

    runs = store.runs(environment="Suite").set_index("workload")
    assert runs["duration"].dropna().to_dict() == {"tests.a.f[1]": 0.25, "BenchmarkFib": 0.5}
    assert runs.loc["cache hits", "cache_hits"] == 7
    assert (METRICS["cache_hits"].units, METRICS["cache_hits"].better) == ("Percent", "higher")
    assert set(runs["started"]) == {pd.Timestamp("2024-12-03T00:13:50", tz="UTC")}
    assert json.loads(runs.loc["tests.a.f[1]", "tags"]) == {
        "measured": "2025-10-09T08:53:20+00:00", "range": "stddev: 0.1", "n_samples": "5",
        "tool": "customBiggerIsBetter", "imported": "github-action-benchmark",
    }  # fmt: skip
    assert report.odd == ["1 x broken: None is no value: skipped"]
    assert import_results(store, tmp_path).added == 0


def test_asv_results_become_one_run_per_case(store, folder):
    import_results(store, folder / "results")
    runs = store.runs().set_index("workload")

    swaps = runs[runs.index.str.startswith("rechunk.")]
    assert swaps["outcome"].to_dict() == {
        "rechunk.Swap.time_swap[1,'a']": "ok",
        "rechunk.Swap.time_swap[1,'b']": "failed",
        "rechunk.Swap.time_swap[2,'a']": "skipped",
        "rechunk.Swap.time_swap[2,'b']": "ok",
    }
    assert swaps["duration"].dropna().tolist() == [0.5, 0.75]
    assert json.loads(swaps["tags"].iloc[0]) == {
        "imported": "asv", "n_samples": "3", "cpu": "i7", "cores": "8",
        "measured": "2025-10-09T08:55:00+00:00",
    }  # fmt: skip
    assert (runs["started"] == pd.Timestamp(1760000000000, unit="ms", tz="UTC")).all()
    assert json.loads(swaps["params"].iloc[0]) == {"n": "1", "kind": "'a'"}
    assert set(swaps["source_hash"]) == {"v1"}
    assert runs.loc["mem.peakmem_sum", "memory_peak"] == 2048.0
    assert "measured" not in json.loads(runs.loc["mem.peakmem_sum", "tags"])
    assert runs.loc["graph.track_tasks", "track_tasks"] == 7.0
    [tasks] = store.runs(workload="graph.track_tasks")["id"]
    assert store.open(tasks).metrics["track_tasks"] == 7.0
    assert METRICS["track_tasks"].units == "tasks"
    assert METRICS["track_tasks"].better == "lower"
    assert runs.loc["mem.time_broken", "outcome"] == "failed"
    first = swaps.iloc[0]
    assert (first["environment"], first["host"]) == ("virtualenv-py3.11-dask", "box")
    assert (first["dask"], first["distributed"]) == ("2025.9.0", "2025.9.1")


def test_asv_reads_imported_results_as_they_were_after_an_export(store, folder, tmp_path):
    results = pytest.importorskip("asv.results")
    import_results(store, folder / "results")
    export_runs(store, tmp_path / "out", form="asv")

    [path] = (tmp_path / "out" / "box").glob("abcdef12-*.json")
    read = results.Results.load(str(path), machine_name="box")
    names = set(read.get_all_result_keys())
    assert names == set(ASV["results"])
    rows, columns = json.loads(path.read_text())["results"], ("result", "params", "version")
    for name in names - {"rechunk.Swap.time_swap"}:
        row = dict(zip(ASV["result_columns"], ASV["results"][name], strict=False))
        written = dict(zip(ASV["result_columns"], rows[name], strict=False))
        result = row["result"] or [None]
        assert repr([written[each] for each in columns]) == repr(
            [result, row["params"], row["version"]]
        )
    swap = read.get_result_value("rechunk.Swap.time_swap", [["1", "2"], ["'a'", "'b'"]])
    np.testing.assert_equal(swap, [0.5, None, np.nan, 0.75])
    about = json.loads((tmp_path / "out" / "benchmarks.json").read_text())
    assert about["rechunk.Swap.time_swap"]["param_names"] == ["n", "kind"]
    assert about["graph.track_tasks"]["unit"] == "tasks"


def test_asv_results_of_the_first_format_become_runs(store, tmp_path):
    path = tmp_path / "old.json"
    first = {
        "version": 1,
        "commit_hash": "c0ffee",
        "date": 1600000000000,
        "params": {"machine": "box"},
        "python": "2.7",
        "requirements": {"numpy": "1.9", "Cython": ""},
        "started_at": {"sum.time_all": 1600000100000},
        "results": {
            "sum.time_all": {"result": [0.5, None], "params": [["1", "2"]]},
            "sum.peakmem_all": 2048.0,
        },
    }
    path.write_text(json.dumps(first))

    assert import_results(store, path).added == 3
    runs = store.runs().set_index("workload")
    assert runs.loc["sum.time_all[1]", "duration"] == 0.5
    assert set(runs["host"]) == {"box"}
    assert set(runs["environment"]) == {"py2.7-Cython-numpy1.9"}
    assert runs.loc["sum.time_all[2]", "outcome"] == "failed"
    assert runs.loc["sum.peakmem_all", "memory_peak"] == 2048.0
    assert runs["started"].max() == pd.Timestamp(1600000000000, unit="ms", tz="UTC")
    assert json.loads(runs.loc["sum.time_all[1]", "params"]) == {"param1": "1"}
    assert json.loads(runs.loc["sum.time_all[1]", "tags"])["measured"].startswith(
        "2020-09-13T12:28"
    )


def test_damaged_description_of_asv_is_named_and_results_are_kept(store, folder):
    (folder / "results" / "benchmarks.json").write_text("{")
    report = import_results(store, folder / "results")

    assert report.added == 7
    assert len(report.odd) == 1
    assert "benchmarks.json: not JSON" in report.odd[0]
    assert json.loads(store.runs().set_index("workload").loc["rechunk.Swap.time_swap[1,'a']"]
                      ["params"]) == {"param1": "1", "param2": "'a'"}  # fmt: skip
    with pytest.raises(InvalidImportError, match=r"benchmarks\.json: not JSON"):
        import_results(store, folder / "results" / "box" / "abcdef12-virtualenv.json")


def asv_history(folder, way, hosts=("box",)):
    """Write results of asv of a commit a day, +50 % from commit 45 of 48."""
    day, start = 86_400_000, 1_767_225_600_000
    random = np.random.default_rng(5)
    order = random.permutation(48) if way in ("backfill", "days") else np.arange(48)
    for position, n in enumerate(order.tolist()):
        date = start + n * day
        started = {
            "backfill": start + 60 * day + position * 120_000,
            "days": start + (60 + position // 2) * day + position * 120_000,
        }.get(way, date + 3_600_000)
        value = 0.1 * random.normal(1, 0.01) * (1.5 if n >= 45 else 1)
        version = "b" if way == "rewritten" and n >= 45 else "a"
        host = hosts[position % len(hosts)]
        content = {
            "commit_hash": f"{n:040x}", "env_name": "py", "date": date, "version": 2,
            "params": {"machine": host}, "python": "3.12", "requirements": {},
            "result_columns": ["result", "params", "version", "started_at", "duration"],
            "results": {"io.time_read": [[value], [], version, started, 1.0]},
        }  # fmt: skip
        path = folder / host / f"{n:08x}-py.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


@pytest.mark.parametrize(("way", "opened"), [
    ("cron", 1), ("backfill", 1), ("days", 1), ("rewritten", 0),
])  # fmt: skip
def test_history_of_asv_is_that_of_its_commits(store, tmp_path, way, opened):
    asv_history(tmp_path / "in", way)
    import_results(store, tmp_path / "in")
    words = ["nightly", "--no-measure", "--no-report", "--metric", "duration", "--json", "--quiet"]
    output = ["--output", str(tmp_path / "out"), "--store", str(store.path)]
    done = CliRunner().invoke(main, [*words, *output])

    events = json.loads(done.stdout)
    assert [event["kind"] for event in events] == ["opened"] * opened
    for event in events:
        assert event["night"] == "2026-02-15T00:00:00"  # of commit 45
        assert event["ratio"] == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize(("host", "names"), [(None, {"a", "b"}), ("runner", {"runner"})])
def test_hosts_are_pooled_under_one_name(store, tmp_path, host, names):
    asv_history(tmp_path / "in", "cron", ("a", "b"))
    import_results(store, tmp_path / "in", host=host)

    assert set(store.runs()["host"]) == names


def test_results_of_a_commit_measured_twice_are_two_runs_and_copies_are_counted(store, tmp_path):
    commit = {"id": "c0ffee", "timestamp": "2024-12-02T19:13:50-05:00"}
    benches = [{"name": "fib", "value": 5, "unit": "ms"}]
    entries = [{"commit": commit, "date": date, "benches": benches} for date in (1, 2, 2)]
    (tmp_path / "data.js").write_text(f"x = {json.dumps({'entries': {'Suite': entries}})}")

    report = import_results(store, tmp_path / "data.js")

    assert (report.rows, report.added) == (2, 2)
    [problem] = report.odd
    assert problem.startswith("1 x second result of the same workload, commit")


def test_import_of_folder_twice_adds_nothing(store, folder):
    (folder / "package.json").write_text("{}")
    first, second = import_results(store, folder), import_results(store, folder)

    assert (first.rows, first.added) == (9, 9)
    assert (second.rows, second.added) == (9, 0)
    assert first.odd == ["1 x file without results of a known tool: skipped"]


def test_imported_results_can_be_exported(store, folder, tmp_path):
    import_results(store, folder)

    assert export_runs(store, tmp_path / "all.db") == 9


@pytest.mark.parametrize(("name", "text", "problem"), [
    ("a.json", "{", r"a\.json: not JSON"),
    ("a.json", "{}", r"a\.json: contains no results of a known tool"),
    ("a.json", "[]", r"a\.json: contains no results"),
    ("a.json", '{"benchmarks": [{}]}', r"a\.json: a result cannot be read: ValueError: datetime"),
    ("a.json", '{"results": {"a": {}}, "date": 1}', "cannot be read: KeyError: 'result'"),
    ("a.txt", "text " * 99, "cannot be read as a benchmark.db"),
    ("none", None, "none: no results"),
    ("missing.json", None, "missing.json: cannot be read: No such file"),
])  # fmt: skip
def test_import_refuses_other_files_and_adds_nothing(tmp_path, name, text, problem):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    elif not Path(name).suffix:
        path.mkdir()

    done = CliRunner().invoke(
        main, ["store", "import", str(path), "--store", str(tmp_path / "store")]
    )

    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert re.search(problem, done.stderr)
    assert not (tmp_path / "store").exists()


def test_folder_without_any_readable_result_says_why(store, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{")

    with pytest.raises(InvalidImportError, match=r"in: no results: .*a\.json: not JSON: .*\)$"):
        import_results(store, tmp_path / "in")


@pytest.mark.parametrize(("name", "problem"), [
    ("there.db", "there.db: --host is for results in JSON"),
    ("missing.db", "missing.db: no such file"),
])  # fmt: skip
def test_host_is_refused_where_it_has_no_meaning(store, tmp_path, name, problem):
    (tmp_path / "there.db").write_text("")

    with pytest.raises(InvalidImportError, match=problem):
        import_results(store, tmp_path / name, host="runner")


@pytest.mark.parametrize("name", ["pipe.json", "pipe.nc"])
def test_import_refuses_a_pipe_instead_of_waiting(store, tmp_path, name):
    os.mkfifo(tmp_path / name)

    with pytest.raises(InvalidImportError, match=f"{name}: not a file"):
        import_results(store, tmp_path / name)


def test_import_of_a_folder_skips_files_that_cannot_be_read(store, folder):
    (folder / "results/cut.json").write_text('{"results": ')
    (folder / "results/odd.json").write_text('{"benchmarks": [{}]}')
    os.mkfifo(folder / "results/pipe.json")

    report = import_results(store, folder)

    assert (report.rows, report.added) == (9, 9)
    odd = "\n".join(report.odd)
    assert "cut.json: not JSON" in odd
    assert "odd.json: a result cannot be read: ValueError: datetime" in odd
    assert "pipe.json: not a file" in odd
