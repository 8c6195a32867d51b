"""`benchkit env`: output and errors of its commands."""

import json

import pytest
from click.testing import CliRunner

from benchkit.cli.env import _print_differences
from benchkit.cli.main import benchkit as root


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "environments"
    folder.mkdir()
    (folder / "base.yaml").write_text("description: the base\ncluster: {n_workers: 2}\n")
    (folder / "main.yaml").write_text(
        "extends: base\ndescription: no stealing\n"
        "dask:\n  distributed: {scheduler: {work_stealing: false}}\n"
        "variables: {MY_TOKEN: hunter2, A: b}\n"
    )
    (folder / "own.yaml").write_text("extends: base\npackages: [dask==2026.7.1]\n")
    return folder


def env(*arguments):
    return CliRunner().invoke(root, ["env", *arguments])


def rows(*arguments):
    done = env(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_env_list_shows_build_state(folders):
    (folders / "broken.yaml").write_text("packagez: [dask]\n")

    found = {row["name"]: row for row in rows("list")}

    assert found["current"]["built"] is None
    assert found["own"]["built"] is False
    assert found["own"]["dask"] == "2026.7.1"
    assert found["main"]["description"] == "no stealing"
    assert "broken.yaml:1: unknown key 'packagez'" in found["broken"]["error"]
    assert "broken.yaml:1" in env("list").stdout


def test_env_show_has_values_and_origins():
    found = {(row["kind"], row["name"]): row for row in rows("show", "main")}

    stealing = found["config", "distributed.scheduler.work-stealing"]
    assert (stealing["value"], stealing["from"]) == (False, "environments/main.yaml:4")
    assert found["config", "distributed.scheduler.worker-ttl"]["from"] == "default"
    assert found["cluster", "n_workers"]["from"] == "environments/base.yaml:2"
    assert found["variable", "A"]["value"] == "b"
    assert ("package", "distributed") in found


def test_env_prints_no_secrets():
    assert "hunter2" not in env("show", "main").output
    assert "hunter2" not in json.dumps(rows("diff", "base", "main"))


def test_env_diff_has_differences_only():
    assert rows("diff", "base", "base") == []
    found = [row for row in rows("diff", "base", "main") if row["kind"] != "variable"]

    assert found == [
        {"kind": "config", "name": "distributed.scheduler.work-stealing", "a": True, "b": False}
    ]


def test_env_diff_prints_long_values_below_the_table(capsys):
    sides = [f"first {'word ' * 60}end of {side}" for side in "ab"]
    rows = [
        {"kind": "cluster", "name": "workers", "a": sides[0], "b": sides[1]},
        {"kind": "config", "name": "short", "a": 1, "b": 2},
    ]
    _print_differences(rows, "base", "main")
    text = capsys.readouterr().out

    assert max(map(len, text.splitlines())) <= 100
    assert text.splitlines()[2] == "cluster workers"
    assert all(f"end of {side}" in " ".join(text.split()) for side in "ab")


def test_env_diff_of_unbuilt_compares_requirements():
    done = env("diff", "main", "own")

    assert "dask==2026.7.1" in done.stdout
    assert "own is not built: `benchkit env build own`" in done.stderr
    assert "package " not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "mainn"], "no environment named 'mainn': did you mean 'main'?"),
        (["diff", "main", "bse"], "no environment named 'bse': did you mean 'base'?"),
        (["build", "broken"], "broken.yaml:2: python 3.99 without packages"),
        (["remove"], "give names, or --unused, or --all"),
        (["remove", "main", "--all"], "give names, or --unused, or --all"),
        (["remove", "main"], "environment 'main' is not built: nothing to remove"),
        (["remove", "own"], "environment 'own' is not built: nothing to remove"),
        (["import", "environments"], "environments: no files AB_<name>"),
        (["list", "--environments", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_env_mistake_is_one_line_and_exits_with_2(folders, arguments, message):
    (folders / "broken.yaml").write_text("# Python\npython: 3.99\n")

    done = env(*arguments)

    assert done.exit_code == 2
    assert message.replace(" 3.99", "") in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_env_build_checks_environment_without_packages(folders):
    (folders / "typo.yaml").write_text("extends: base\ncluster: {n_wokers: 1}\n")

    assert env("build", "main").exit_code == 0
    done = env("build", "typo")

    assert done.exit_code == 2
    assert "typo.yaml:2: dask.distributed.LocalCluster has no option 'n_wokers'" in done.stderr


def test_env_import_prints_files_and_warnings(tmp_path):
    reference = tmp_path / "AB_environments"
    reference.mkdir()
    (reference / "AB_mine.dask.yaml").write_text("distributed: {worker: {memory: {spill: 0.5}}}\n")

    done = env("import", "AB_environments")

    assert done.exit_code == 0
    assert done.stdout == "environments/mine.yaml  from AB_mine.dask.yaml\n"
    assert "warning: " in done.stderr
    assert "LocalCluster" in done.stderr
    assert env("import", "AB_environments").exit_code == 2
    assert rows("diff", "base", "mine")[0]["b"] == 0.5


@pytest.mark.slow
@pytest.mark.environment
def test_env_build_diff_and_remove(folders):
    (folders / "one.yaml").write_text("packages: [dask==2026.7.1, toolz==1.0.0]\n")
    (folders / "two.yaml").write_text("packages: [dask==2026.7.1, toolz==1.1.0]\n")

    assert env("build", "one", "two").exit_code == 0
    found = [row for row in rows("diff", "one", "two") if row["kind"] == "package"]
    listed = {row["name"]: row for row in rows("list")}
    (folders / "two.yaml").unlink()
    removed = rows("remove", "--unused")

    assert found == [{"kind": "package", "name": "toolz", "a": "1.0.0", "b": "1.1.0"}]
    assert listed["one"]["built"] is True
    assert listed["one"]["bytes"] > 1e6
    assert [row["hash"] for row in removed] == [listed["two"]["hash"]]
    assert {row["name"] for row in rows("list") if row["built"]} == {"one"}
    assert env("remove", "one").exit_code == 0
    assert env("show", "one").stderr.startswith("one is not built")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dask: {distributed.worker.memory.target: false}\n", "should be nested"),
        ("cluster: {kwargs: {n_workers: 2}}\n", "LocalCluster has no option 'kwargs'"),
        ("dask: {dask: {dataframe: {convert-string: false}}}\n", "directly below `dask:`"),
    ],
)
@pytest.mark.parametrize("command", [["env", "show"], ["env", "diff", "base"], ["run", "-e"]])
def test_commands_refuse_the_same_mistakes(folders, command, text, message):
    (folders / "wrong.yaml").write_text(text)
    done = CliRunner().invoke(root, [*command, "wrong"])

    assert done.exit_code == 2
    assert message in done.stderr


def test_env_show_warns_of_absent_cluster_class(folders):
    (folders / "cloud.yaml").write_text("cluster: {class: no_cloud.Cluster, n_workers: 3}\n")
    done = CliRunner().invoke(root, ["env", "show", "cloud"])

    assert done.exit_code == 0
    assert "no_cloud.Cluster" in done.stdout
    assert "warning: environments/cloud.yaml:1: cluster class" in done.stderr
