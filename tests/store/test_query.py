"""Queries by SQL over all runs of a store."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.errors import UsageError
from benchkit.store.query import TableCache
from validation.synthetic_runs import make_run


@pytest.fixture
def runs(store, tmp_path, monkeypatch):
    """Return a store with two runs of one workload and a run without tasks."""
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "cache"))
    store.add(make_run("df.join", seed=1))
    store.add(make_run("df.join", seed=2, environment="dev"))
    store.add(make_run("df.old", groups=False, outcome="failed", error="x"))
    return store


def test_tasks_are_those_of_each_run(runs):
    frames = []
    for run_id in runs.runs("df.join")["id"]:
        run = runs.open(run_id)
        groups = run.tree["task_groups"].to_dataset()
        prefixes = dict(zip(groups["task_group"].values, groups["prefix"].values, strict=True))
        stream = run.task_stream()
        prefix = stream["task_group"].astype(str).map(prefixes)
        frames.append(stream.assign(run=run_id, prefix=prefix).sort_values(["prefix", "duration"]))
    expected = pd.concat(frames, ignore_index=True)
    found = runs.query("SELECT * FROM tasks")

    assert len(found) == len(expected) == 120
    assert found["prefix"].tolist() == expected["prefix"].tolist()
    assert found["duration"].to_numpy() == pytest.approx(
        expected["duration"].to_numpy(), nan_ok=True
    )
    names = ["run", "worker", "thread", "nbytes"]
    assert found[names].values.tolist() == expected[names].values.tolist()
    assert found["start"].to_numpy() == pytest.approx(expected["start"].to_numpy(), nan_ok=True)
    assert set(found["workload"]) == {"df.join"}
    assert found["task_group"].tolist() == expected["task_group"].astype(str).tolist()


def test_sums_of_queries_are_sums_of_runs(runs):
    (row,) = runs.query(
        "SELECT sum(duration) AS s, count(*) AS n FROM tasks WHERE environment = 'dev'"
    ).to_dict("records")
    run = runs.open(runs.runs(environment="dev")["id"].iloc[0])

    assert row["n"] == 60
    assert row["s"] == pytest.approx(run.task_stream()["duration"].sum())


def test_runs_of_a_query_are_the_runs_of_the_store(runs):
    found = runs.query("SELECT id, outcome FROM runs ORDER BY id")
    expected = runs.runs().sort_values("id")

    assert found["id"].tolist() == expected["id"].tolist()
    assert found["outcome"].tolist() == expected["outcome"].tolist()


def test_store_methods_select_runs(runs):
    assert len(runs.tasks("df.join")) == 120
    assert len(runs.tasks(environment="dev")) == 60
    assert len(runs.tasks("df.old")) == 0
    groups = runs.task_groups(environment="dev").set_index("task_group")
    expected = runs.open(runs.runs(environment="dev")["id"].iloc[0]).task_groups()
    compute = expected["compute (s)"].reindex(groups.index)
    assert groups["compute"].to_numpy() == pytest.approx(compute.to_numpy(), nan_ok=True)
    assert groups["n_tasks"].to_dict() == expected["n_tasks"].to_dict()


def test_task_groups_have_quantiles_of_the_durations_of_their_tasks(runs):
    sql = """
        SELECT task_group, duration_median, duration_p95, duration_max FROM task_groups
        WHERE environment = 'dev' ORDER BY task_group
    """
    groups = runs.query(sql).set_index("task_group")
    stream = runs.open(runs.runs(environment="dev")["id"].iloc[0]).task_stream()

    assert len(groups) == 3
    for name, row in groups.iterrows():
        durations = stream.loc[stream["task_group"] == name, "duration"].dropna()
        expected = [durations.median(), durations.quantile(0.95), durations.max()]
        assert row.tolist() == pytest.approx(expected)


def test_cache_follows_new_and_removed_runs(runs):
    assert runs.query("SELECT count(*) AS n FROM tasks")["n"][0] == 120
    runs.add(make_run("df.join", seed=3))
    assert runs.query("SELECT count(*) AS n FROM tasks")["n"][0] == 180
    runs.prune(runs.runs(environment="dev")["id"])
    assert runs.query("SELECT count(*) AS n FROM tasks")["n"][0] == 120


def test_many_small_batches_become_one(runs):
    for seed in range(12):
        runs.add(make_run("df.join", seed=seed))
        n_tasks = runs.query("SELECT count(*) AS n FROM tasks")["n"][0]
        assert n_tasks == 60 * (3 + seed)
    assert len(TableCache(runs).files("tasks")) <= 9


def test_damaged_run_is_left_out_and_named(runs):
    path = runs.file(runs.runs(environment="dev")["id"].iloc[0])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = runs.query("SELECT count(*) AS n FROM tasks")

    assert found["n"][0] == 60
    (problem,) = found.attrs["problems"]
    assert path.name in problem


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC 1", "syntax error"),
        ("COPY (SELECT 1) TO 'x.csv'", "one SELECT statement"),
        ("DROP VIEW tasks", "one SELECT statement"),
        ("SELECT 1; SELECT 2", "one SELECT statement"),
        ("", "one SELECT statement"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM read_text('/etc/passwd'), tasks", "disabled by configuration"),
        ("SELECT * FROM task", r"^query: no table 'task': did you mean 'tasks'\?$"),
        (
            "SELECT * FROM nothing",
            "^query: no table 'nothing': tables are runs, tasks, "
            "task_groups, transfers, workers, events$",
        ),
        ("SELECT nothing FROM tasks", 'column "nothing" not found'),
    ],
)
def test_statements_that_are_wrong_or_not_allowed(runs, sql, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        runs.query(sql)
    assert "\n" not in str(caught.value)


def test_command_prints_rows(runs):
    sql = "SELECT workload, count(*) AS n FROM tasks GROUP BY ALL"
    store = ["--store", str(runs.path)]
    done = CliRunner().invoke(main, ["query", sql, *store, "--json"])
    assert json.loads(done.stdout) == [{"workload": "df.join", "n": 120}]
    done = CliRunner().invoke(main, ["query", sql, *store, "--csv"])
    assert done.stdout == "workload,n\ndf.join,120\n"
    done = CliRunner().invoke(main, ["query", sql, *store])
    assert "df.join" in done.stdout
    done = CliRunner().invoke(main, ["query", "SELECT 1 WHERE false", *store])
    assert done.stdout == "no rows\n"
    done = CliRunner().invoke(main, ["query", *store])
    assert done.exit_code == 2
    assert "--tables" in done.stderr


def test_endless_query_is_stopped(runs):
    endless = (
        "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range = 7"
    )

    with pytest.raises(UsageError, match=r"stopped after 0.5 s: select less, or .* --timeout"):
        runs.query(endless, timeout_s=0.5)


@pytest.mark.parametrize(
    "sql",
    [
        "select range % 9999991 k, count(*) from range(10000000) group by 1",
        "select range from range(100000000)",  # DuckDB does not count rows that it hands over
    ],
)
def test_query_that_needs_more_memory_is_refused(runs, sql):
    with pytest.raises(UsageError, match=r"needs more than 20MiB of memory: .* --memory-limit"):
        runs.query(sql, memory_limit="20MiB")


def test_query_writes_no_file_beyond_its_memory(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    sql = "select range % 9999991 k, count(*) n from range(10000000) group by 1 order by n"

    with pytest.raises(UsageError):
        runs.query(sql, memory_limit="20MiB")

    assert sorted(tmp_path.rglob("*")) == before


def test_query_of_many_rows_keeps_order_and_types(runs):
    sql = "select range n, if(range > 200000, null, 1) as one, 'x' as text from range({})"
    frame = runs.query(sql.format(250_000))

    assert frame["n"].tolist() == list(range(250_000))
    assert frame["one"].notna().sum() == 200_001
    assert runs.query(sql.format(0)).dtypes.to_dict().keys() == frame.dtypes.to_dict().keys()


def test_query_command_refuses_wrong_limits(runs):
    command = ["query", "select 1", "--store", str(runs.path)]

    done = CliRunner().invoke(main, [*command, "--memory-limit", "much"])
    assert done.exit_code == 2
    assert "--memory-limit 'much': not a size such as 500MB or 4GiB" in done.output
    assert CliRunner().invoke(main, [*command, "--timeout", "0"]).exit_code == 2
    endless = (
        "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range = 7"
    )
    command = ["query", endless, "--store", str(runs.path), "--timeout", "0.5"]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "stopped after 0.5 s" in done.output) == (2, True)
