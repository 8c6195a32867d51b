"""`benchkit nightly`: measure, suspect, confirm with the last good build, report."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit
from helpers.git_package import WORKLOAD, commit_package
from helpers.github_server import GitHubServer

from benchkit.cli.main import benchkit as main
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store

NIGHT = "2026-10-{:02d}T02:00:00"
FOLDERS = ["--workloads", "w", "--environments", "e", "--no-report"]
#: The memory of workers in the measuring process depends on the runs before: judge times only.
TIMES = ["--metric", "duration"]


def nightly(folder, *arguments, store="store", **variables):
    words = ["nightly", *FOLDERS, "--store", store, *arguments]
    return run_benchkit(words, folder, **variables)


def repeat_nights(folder, n_nights):
    """Copy the runs of the measured night to earlier nights, with a little noise."""
    store, rng = Store(folder / "store"), np.random.default_rng(0)
    for run_id in store.ids():
        tree = store.open(run_id).tree
        for back in range(1, n_nights):
            copy, record = tree.copy(), json.loads(tree.attrs["record"])
            night = pd.Timestamp(NIGHT.format(20)) - pd.Timedelta(days=back)
            record |= {"id": new_id(), "started": night.tz_localize("UTC").isoformat()}
            record["tags"] = json.dumps({"night": night.isoformat()})
            for metric in ("duration", "memory_mean", "memory_peak"):
                record[metric] *= float(np.exp(0.004 * rng.standard_normal()))
                copy[metric] = copy[metric].copy(data=record[metric])
            copy.attrs |= {name: record[name] for name in ("id", "started", "tags")}
            copy.attrs["record"] = json.dumps(record)
            store.add(copy)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder with a repository, workloads that use it, and an environment of its tip."""
    folder = tmp_path_factory.mktemp("nightly")
    for name in ("w", "e"):
        (folder / name).mkdir()
    (folder / "w" / "own.py").write_text(WORKLOAD)
    commit_package(folder / "naplib", "FACTOR = 1.0\n", "one")
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (folder / "e" / "tip.yaml").write_text(
        f"packages: [dask, distributed, 'naplib @ git+{(folder / 'naplib').as_uri()}@main']\n"
        + cluster
    )
    (folder / "e" / "broken.yaml").write_text("packages: [no-such-package-anywhere==0.0.1]\n")
    return folder


@pytest.mark.parametrize(
    ("exists", "message"),
    [
        (False, "error: none: no store there: `benchkit run` creates one\n"),
        (True, "error: none: no nights to judge: `benchkit nightly` measures one\n"),
    ],
)
def test_nightly_without_nights_to_judge_is_wrong_usage(tmp_path, monkeypatch, exists, message):
    monkeypatch.chdir(tmp_path)
    if exists:
        Store("none").create()

    done = CliRunner().invoke(main, ["nightly", "--no-measure", "--store", "none"])

    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)
    assert [path.name for path in tmp_path.iterdir()] == (["none"] if exists else [])


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(600)
def test_nightly_confirms_planted_slowdown_in_one_night(project):
    first = nightly(project, *TIMES, "-e", "tip", "-e", "broken", "--night", NIGHT.format(20))
    assert first.returncode == 3, first.stderr
    assert "failed: environment broken" in first.stdout  # reported, and the other parts ran
    assert "2 runs, 0 of them failed" in first.stdout
    repeat_nights(project, 14)

    commit_package(project / "naplib", "FACTOR = 2.0\n", "two")
    step = project / "step.md"
    arguments = ["-e", "tip", "--night", NIGHT.format(21), "--issues", "github", "--output", "out"]
    server = GitHubServer("night-token")
    second = nightly(
        project, *TIMES, *arguments, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(step),
        GITHUB_TOKEN="night-token", GITHUB_REPOSITORY="dask/perf", GITHUB_API_URL=server.url,
    )  # fmt: skip
    server.close()
    assert second.returncode == 1, second.stderr
    assert "own.naps: wall time of the workload" in second.stdout
    assert "::error title=own.naps" in second.stderr

    events = Store(project / "store").events()
    (event,) = [event for event in events if event["kind"] == "opened"]
    assert (event["workload"], event["metric"], event["cause"]) == ("own.naps", "duration", "code")
    assert event["confirmed"] is True
    assert event["again"]["low"] < event["again"]["ratio"] < event["again"]["high"]
    assert event["night"] == event["seen"] == NIGHT.format(21)
    (source,) = [row for row in event["facts"]["changed"] if row["kind"] == "source"]
    assert source["name"] == "naplib"
    assert source["before"] != source["after"]
    assert f"--good {source['before']} --bad {source['after']}" in event["facts"]["bisect"]
    assert "compute in nap" in event["facts"]["explanation"]
    assert " By cause: +" in event["facts"]["explanation"]

    (issue,) = server.issues.values()
    assert "both builds were measured again, interleaved" in issue["body"]
    assert "### What changed?" in step.read_text()
    assert json.loads((project / "out" / "news.json").read_text())[0]["kind"] == "opened"


def test_nightly_rejects_arguments_before_measuring(project, monkeypatch):
    monkeypatch.chdir(project)
    for name in ("GITHUB_REPOSITORY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "")
    for arguments, message in (
        (["-e", "nowhere"], "no environment named 'nowhere'"),
        (["-e", "tip", "--issues", "github"], "GITHUB_REPOSITORY must be OWNER/NAME"),
        (["-e", "tip", "--budget", "5USD"], "must be a time, such as 90m or 6h"),
        (["-e", "tip", "--metric", "durations"], "no metric named 'durations'"),
        (["-e", "tip", "--night", "yesterday"], "'yesterday' is not a time"),
    ):
        done = CliRunner().invoke(main, ["nightly", *FOLDERS, "--store", "store", *arguments])
        assert done.exit_code == 2, arguments
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
