"""Replay months of nights through the command, and check the issues at the end."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner
from helpers.github_server import GitHubServer

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store
from validation.replayed_nights import CONTROL, FIRST, N_NIGHTS, TIP, Plan, nights

#: Every second night from here on is judged, up to the last.
FIRST_JUDGED = 45


def moment(night: int) -> pd.Timestamp:
    return (FIRST + pd.Timedelta(days=night)).tz_localize(None)


@pytest.fixture(scope="module")
def server():
    server = GitHubServer("night-token")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_TOKEN", "night-token")
        patch.setenv("GITHUB_REPOSITORY", "dask/perf")
        patch.setenv("GITHUB_API_URL", server.url)
        yield server
    server.close()


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, server):
    """Return the folder, the reported changes of each night, and the issues after all nights."""
    plan = Plan()
    plan.step(0, "duration", 60, 1.10)
    plan.step(1, "duration", 80, 1.25)
    plan.step(2, "memory_peak", 70, 1.30)
    plan.step(3, "duration", 50, 1.20, last=85)  # recovers
    plan.step(4, "duration", 65, 0.85)  # an improvement: no issue
    plan.step(5, "duration", 60, 1.40)  # another version of the workload
    plan.new_version[5] = 60
    for night in (48, 77, 99):  # spikes of one night
        plan.step(6, "duration", night, 1.5, last=night + 1)
    plan.failing[7] = range(95, N_NIGHTS)
    plan.failing[8] = range(55, 58)  # recovers
    plan.machine[90:95] = 1.2  # a bad week of the machine, control included
    plan.machine[45] = 1.5  # a bad night

    folder = tmp_path_factory.mktemp("replay")
    store, runner, changes = Store(folder / "store"), CliRunner(), {}
    arguments = [
        "nightly",
        "--no-measure",
        "--store",
        str(folder / "store"),
        "--no-report",
        "--json",
    ]
    arguments += ["--control", CONTROL, "--metric", "duration", "--metric", "memory_peak", "-q"]
    arguments += ["--issues", "github", "--output", str(folder / "out")]
    for number, (_, runs) in enumerate(nights(plan)):
        for run in runs:
            store.add(run)
        if number < FIRST_JUDGED or (number - FIRST_JUDGED) % 2:
            continue
        result = runner.invoke(main, arguments)
        assert result.exit_code in (0, 1), result.output
        changes[number] = json.loads(result.stdout)
        kinds = {event["kind"] for event in changes[number]}
        assert (result.exit_code == 1) == bool(kinds & {"opened", "grown"})
    return folder, changes, states_of(server)


def states_of(server):
    """Return state and body of each issue, by workload and label."""
    return {
        (issue["title"].partition(":")[0], issue["labels"][1]["name"]): (
            issue["state"], issue["body"],
        )
        for issue in server.issues.values()
    }  # fmt: skip


@pytest.mark.slow
def test_replay_creates_expected_issues(replayed):
    _, _, issues = replayed
    assert {name: state for name, (state, _) in issues.items()} == {
        ("planted.w00", "duration"): "open",
        ("planted.w01", "duration"): "open",
        ("planted.w02", "memory_peak"): "open",
        ("planted.w03", "duration"): "closed",
        ("planted.w07", "failure"): "open",
        ("planted.w08", "failure"): "closed",
    }


@pytest.mark.slow
def test_replay_dates_regressions_within_one_night(replayed):
    folder, _, _ = replayed
    result = CliRunner().invoke(main, ["regressions", "--store", str(folder / "store"), "--json"])
    found = {row["workload"]: pd.Timestamp(row["night"]) for row in json.loads(result.stdout)}
    for workload, night in {"w00": 60, "w01": 80, "w02": 70, "w03": 50, "w07": 95}.items():
        distance = abs(found[f"planted.{workload}"] - moment(night)) / pd.Timedelta(days=1)
        assert distance <= 1, workload


@pytest.mark.slow
def test_replay_issue_has_compare_link_and_bisect_command(replayed):
    _, _, issues = replayed
    text = issues["planted.w01", "duration"][1]
    assert "https://github.com/dask/dask/compare/" in text
    assert "benchkit bisect 'planted.w01' --git PATH_OF_DASK --good" in text


@pytest.mark.slow
def test_replay_separates_machine_changes_and_improvements(replayed):
    _, changes, _ = replayed
    tip = {
        night: [event for event in news if event["environment"] == TIP]
        for night, news in changes.items()
    }
    kinds = {(event["kind"], event["workload"]) for news in tip.values() for event in news}
    assert ("improved", "planted.w04") in kinds
    assert ("recovered", "planted.w03") in kinds
    assert not {kind for kind, _ in kinds} & {"grown", "eased"}
    set_aside = [e for news in tip.values() for e in news if e["kind"] == "set_aside"]
    days = {(pd.Timestamp(event["night"]) - moment(0)).days for event in set_aside}
    # The slow week of the machine is from night 90 to night 94.
    assert days
    assert days <= {89, 90, 91, 94, 95, 96}
    better = {e["workload"] for news in tip.values() for e in news if e["kind"] == "improved"}
    assert better == {"planted.w04"}


@pytest.mark.slow
def test_replay_judging_again_adds_nothing(replayed, server):
    folder, _, issues = replayed
    store = Store(folder / "store")
    before = len(store.events())
    arguments = [
        "nightly",
        "--no-measure",
        "--store",
        str(folder / "store"),
        "--no-report",
        "--json",
    ]
    arguments += ["--issues", "github", "--output", str(folder / "out"), "-q"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert len(store.events()) == before
    assert states_of(server) == issues
