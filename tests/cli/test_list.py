import json

import numpy as np
import pytest
from click.testing import CliRunner

import benchkit.cli.list as list_module
from benchkit.cli.main import benchkit
from benchkit.cli.rows import print_json
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store
from validation.synthetic_runs import make_record


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(benchkit, arguments, catch_exceptions=False)


def test_list_workloads_has_sizes_of_data(run):
    rows = json.loads(run("list", "workloads", "-e", "baseline", "--json").stdout)
    sizes = {row["name"]: row["size"] for row in rows}

    assert {"name", "category", "tags", "available"} <= set(rows[0])
    assert (
        sizes["rechunk.swap_axes_in_memory[chunks=small,method=tasks]"] == "246 MiB"
    )  # 0.12 x 2 GiB
    assert sizes["join.join_big[factor=0.1]"] == "205 MiB"  # a parameter is its factor
    assert sizes["spill.spilling[data=uncompressible,end=keep]"] == "973 MiB"  # 512 MiB workers


def test_list_workloads_prints_what_matters_first(run, tmp_path):
    (tmp_path / "broken.py").write_text("from benchkit import workload\n\nraise ValueError('no')\n")
    (tmp_path / "own.py").write_text(
        "from benchkit import workload\n\n"
        "@workload(requires=['not_there'])\ndef a(client, scale):\n    'Add.'\n\n"
        "@workload(tags=['few'])\ndef b(client, scale):\n    'Beat.'\n"
    )
    head, *rows = run("list", "--workloads", str(tmp_path)).stdout.splitlines()

    assert head.split("  ")[0] == "name"
    assert [cell.strip() for cell in head.split("  ") if cell] == ["name", "what it does", "tags"]
    assert {row.split()[0]: row.split(maxsplit=1)[1] for row in rows[:2]} == {
        "own.a": "[needs not_there] Add.",
        "own.b": "Beat.                   few",
    }
    assert rows[2].endswith("broken.py:3  ValueError: no")


def test_list_workloads_includes_broken_files(run, tmp_path):
    (tmp_path / "broken.py").write_text("import this_is_not_there\nfrom benchkit import workload\n")
    (tmp_path / "fine.py").write_text(
        "from benchkit.measure import workload\n\n@workload\ndef a(client, scale):\n    'A.'\n"
    )
    rows = json.loads(run("list", "--workloads", str(tmp_path), "--json").stdout)

    assert [row["name"] for row in rows if row["available"]] == ["fine.a"]
    (broken,) = (row for row in rows if not row["available"])
    assert broken["name"].endswith("broken.py:1")
    assert "this_is_not_there" in broken["reason"]


def test_list_runs_of_empty_store_prints_hint(run, tmp_path):
    Store(tmp_path / "s").compact()
    (tmp_path / "s").mkdir(exist_ok=True)
    store = Store(tmp_path / "s")
    store.create()

    assert json.loads(run("list", "runs", "--store", store.path, "--json").stdout) == []
    done = run("list", "runs", "--store", store.path)
    assert done.exit_code == 0
    assert "`benchkit run` measures some" in done.stderr


def test_list_runs_of_missing_store_exits_with_2(run, tmp_path):
    done = run("list", "runs", "--store", str(tmp_path / "none"))

    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_list_runs_filters(run, tmp_path, a_run):
    store = Store(tmp_path / "s")
    store.add(a_run)

    def found(*arguments):
        return len(
            json.loads(run("list", "runs", "--store", store.path, "--json", *arguments).stdout)
        )

    assert found() == 1
    assert found("-k", "category:tests and sum") == 1
    assert found("-k", "not sum") == 0
    assert found("--tag", "way=A", "--since", "1h", "--outcome", "ok") == 1
    assert found("--tag", "way=B") == 0
    empty = run("list", "runs", "--store", store.path, "--outcome", "good")
    assert empty.stderr == "outcome:good matches no runs; outcomes here: ok\n"
    empty = run("list", "runs", "--store", store.path, "-k", "join")
    assert empty.stderr == "none of 1 runs matches\n"


def test_list_noise_has_needed_runs(run, tmp_path, a_run):
    store = Store(tmp_path / "s")
    store.add(a_run)
    record = json.loads(a_run.attrs["record"])
    for number in range(8):
        more = {"id": new_id(), "duration": 10 * 1.05 ** (number % 2)}
        store.index.add({**record, "workload": "made.up", **more})

    rows = json.loads(run("list", "noise", "--store", store.path, "--json").stdout)
    shown = run("list", "noise", "--store", store.path, "-k", "made").stdout

    assert [(row["workload"], row["n_runs"]) for row in rows] == [("made.up", 8), ("tests.sum", 1)]
    assert rows[0]["noise"] == pytest.approx(1.4826 * np.log(1.05) / np.sqrt(2), rel=0.01)
    assert rows[1]["noise"] is None
    assert "5.1%" in shown
    assert "tests.sum" not in shown


def test_list_metrics_have_units_and_long_names(run):
    rows = json.loads(run("list", "metrics", "--json").stdout)

    assert all(row["units"] and row["long_name"] for row in rows)


@pytest.mark.parametrize(
    "command", [["-h"], ["run", "-h"], ["list", "-h"], ["store", "check", "-h"]]
)
def test_help_ends_with_example(run, command):
    lines = run(*command).stdout.splitlines()

    place = next(i for i, line in enumerate(lines) if line.strip() in ("Example:", "Examples:"))
    assert lines[place + 1].strip().startswith("benchkit ")


def test_list_keeps_shipped_files_and_names_replaced_ones(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "array.py").write_text(
        "from benchkit import workload\n@workload\ndef basic_sum(client, scale):\n    'Own sum.'\n"
    )
    (tmp_path / "workloads" / "deploy.py").write_text("open('written', 'w')\n")
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "no-stealing.yaml").write_text("description: own\n")

    workloads = run("list", "--json")
    names = {row["name"]: row["description"] for row in json.loads(workloads.stdout)}
    assert names["array.basic_sum"] == "Own sum."
    assert "sched.tree" in names
    assert not [name for name in names if name.startswith("array.basic_sum[")]
    note = "note: array.basic_sum of ./workloads replaces the shipped one\n"
    assert workloads.stderr == note
    assert not (tmp_path / "written").exists()

    environments = run("list", "environments", "--json")
    found = {row["name"]: row["description"] for row in json.loads(environments.stdout)}
    assert found["no-stealing"] == "own"
    assert "baseline" in found
    assert environments.stderr.startswith("note: environments/no-stealing.yaml replaces /")


def test_list_workloads_refuses_folder_of_pytest_tests(tmp_path):
    (tmp_path / "test_array.py").write_text("def test_sum(small_client): ...\n")

    done = CliRunner().invoke(benchkit, ["list", "workloads", "--workloads", str(tmp_path)])

    assert done.exit_code == 2
    assert done.stderr == (
        f"error: no workloads in {tmp_path}: no file there declares one with benchkit; "
        "--pytest measures tests of pytest\n"
    )


@pytest.mark.parametrize("start", ["different", "equal", "missing"])
def test_list_runs_reads_all_fields_of_the_last_runs_only(tmp_path, monkeypatch, start):
    store = Store(tmp_path / "store")
    records = [make_record(index, np.random.default_rng(0)) for index in range(40)]
    for record in records[5:] if start == "equal" else records[-1:] if start == "missing" else []:
        record["started"] = records[5]["started"] if start == "equal" else None
    store.create()
    store.index.add_many(records)
    read = []
    monkeypatch.setattr(
        list_module, "matching_runs", lambda *args, runs=list_module.matching_runs, **options:
        read.append(runs(*args, **options)) or read[-1]
    )  # fmt: skip

    done = CliRunner().invoke(benchkit, ["list", "runs", "--store", str(store.path)])

    assert done.stderr == "the last 30 of 40 runs; --all shows all\n"
    shown = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    newest = list(store.runs(columns=["id"])["id"])[-30:]
    assert len(shown) == 30
    assert all(full.startswith(short) for full, short in zip(newest, shown, strict=True))
    assert len(read[-1]) == {"different": 30, "equal": 35, "missing": 40}[start]


@pytest.mark.parametrize("rows", [[], [{"a": 1, "tags": '{"b": 2}'}, {"a": float("nan")}]])
def test_json_in_pieces_is_the_text_of_the_array(rows, capsys):
    print_json(iter(rows))

    expected = [{"a": 1, "tags": {"b": 2}}, {"a": None}] if rows else []
    assert capsys.readouterr().out == json.dumps(expected, indent=1) + "\n"
