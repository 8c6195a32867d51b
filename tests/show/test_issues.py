"""Issues of regressions, through a server that implements GitHub's API."""

import logging

import pytest
from helpers.github_server import MAX_CHARACTERS, GitHubServer

from benchkit.analysis.regression.regression import FAILING, read_ledger
from benchkit.errors import UsageError
from benchkit.measure.run_ids import new_id
from benchkit.show.issues.sync import LABEL, GitHubTracker, TrackerError, marker, sync_issues

TOKEN = "ghp_very-secret-0123456789"
SERIES_FIELDS = {
    "workload": "array.sum[k=<b>]",
    "environment": "tip",
    "host": "ci",
    "scale": 1.0,
    "capture": "full",
    "metric": "duration",
}


def event(kind, seen, regression="aaaaaaaaaa", **facts):
    event = {"id": new_id(), "kind": kind, "regression": regression, "seen": seen}
    return {**event, **SERIES_FIELDS, **facts}


def opened(**facts):
    fields = {
        "night": "2026-08-01T02:00:00",
        "ratio": 1.2,
        "low": 1.15,
        "high": 1.25,
        "before": 10.0,
        "after": 12.0,
        "cause": "code",
        "reason": "one | of <two> @maintainers",
        "facts": {
            "changed": [
                {
                    "kind": "package",
                    "name": "dask",
                    "before": "2026.7.1",
                    "after": "2026.8.0",
                    "link": "https://github.com/dask/dask/compare/2026.7.1...2026.8.0",
                }
            ],
            "explanation": "Of +2 s, +1.9 s is transfer in sum.",
            "runs": {"before": ["r1"], "after": ["r2"]},
            "bisect": "benchkit bisect 'array.sum' --package dask --good 2026.7.1 --bad 2026.8.0",
        },
    }
    return event("opened", "2026-08-03T02:00:00", **{**fields, **facts})


@pytest.fixture
def server(monkeypatch):
    server = GitHubServer(TOKEN)
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "dask/perf")
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    yield server
    server.close()


def sync(events, **options):
    return sync_issues(read_ledger(events), GitHubTracker(), **options)


def test_sync_issues_keeps_one_issue_per_regression(server):
    events = [opened()]
    assert sync(events) == [
        "opened 1: array.sum[k=<b>]: wall time of the workload +20 % since 2026-08-01"
    ]
    issue = server.issues[1]
    assert issue["state"] == "open"
    assert {label["name"] for label in issue["labels"]} == {LABEL, "duration"}
    assert "https://github.com/dask/dask/compare/2026.7.1...2026.8.0" in issue["body"]
    assert "benchkit bisect 'array.sum' --package dask" in issue["body"]

    assert sync(events) == []  # again: nothing new to report
    assert server.comments[1] == []

    events.append(event("grown", "2026-08-10T02:00:00", ratio=1.5, low=1.4, high=1.6, after=15.0))
    (line,) = sync(events)
    assert line.startswith("updated 1")
    assert "**grown**" in server.comments[1][0]
    assert "+50 %" in server.issues[1]["body"]

    events.append(event("recovered", "2026-08-20T02:00:00", after=10.0))
    assert sync(events)[-1].startswith("closed 1")
    assert server.issues[1]["state"] == "closed"
    assert server.issues[1]["state_reason"] == "completed"

    later = opened() | {"regression": "bbbbbbbbbb", "seen": "2026-09-01T02:00:00"}
    events.append(later | {"id": new_id(), "night": "2026-08-30T02:00:00"})
    assert sync(events)[-1].startswith("reopened 1")
    assert server.issues[1]["state"] == "open"
    assert len(server.issues) == 1
    assert sync(events) == []


def test_sync_issues_leaves_renamed_or_closed_issue_alone(server):
    events = [opened()]
    sync(events)
    server.issues[1] |= {"title": "known, see the meeting", "state": "closed"}
    assert sync(events) == []
    assert server.issues[1]["state"] == "closed"


def test_issue_body_escapes_untrusted_text(server):
    sync([opened(cause="code")])
    body = server.issues[1]["body"]
    assert "<two>" not in body
    assert "@maintainers" not in body
    assert "one \\| of" in body
    assert "array.sum\\[k=&lt;b>\\]" in body


def test_issue_body_shows_arrows_and_names_the_metric_once(server):
    sync([opened(reason="19.6 s -> 27.5 s")])
    body = server.issues[1]["body"]
    assert "19.6 s -> 27.5 s" in body
    assert "| metric | duration, wall time of the workload |" in body
    sync([opened(metric=FAILING, regression="bbbbbbbbbb")])
    assert f"| metric | {FAILING} |" in server.issues[2]["body"]


def test_issue_body_is_within_limit_of_github(server):
    changed = [
        {"kind": "package", "name": f"p{i}", "before": "1" * 3000, "after": "2" * 3000}
        for i in range(200)
    ]
    facts = {"changed": changed, "error": "x" * 500_000, "runs": {}}
    events = [
        opened(facts=facts) | {"regression": f"{n:010d}", "environment": f"e{n}"} for n in range(10)
    ]
    sync(events)
    assert 1000 < len(server.issues[1]["body"]) <= MAX_CHARACTERS
    assert server.issues[1]["body"].startswith(marker(SERIES_FIELDS["workload"], "duration"))


def test_sync_issues_reads_all_pages(server):
    events = [opened() | {"workload": f"array.w{n}", "regression": f"{n:010d}"} for n in range(130)]
    assert len(sync(events)) == 130
    assert sync(events) == []
    assert len(server.issues) == 130


def test_sync_issues_closes_later_duplicate(server):
    events = [opened()]
    sync(events)
    server._create({"title": "twin", "body": server.issues[1]["body"], "labels": [LABEL]})
    assert sync(events) == ["closed 2: duplicate of 1"]
    assert [server.issues[n]["state"] for n in (1, 2)] == ["open", "closed"]


def test_github_tracker_rejects_wrong_token_in_one_line(server, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN + "x")
    with pytest.raises(TrackerError, match="GitHub: status 401: Bad credentials") as caught:
        sync([opened()])
    texts = (str(caught.value), caplog.text, *capfd.readouterr())
    assert not any(TOKEN in text for text in texts)


def test_github_tracker_never_reveals_token(server, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    sync([opened()])
    assert not any(TOKEN in text for text in (caplog.text, *capfd.readouterr()))
    assert not any(TOKEN in str(body) + path for _, path, body in server.requests)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GITHUB_REPOSITORY", "", "must be OWNER/NAME"),
        ("GITHUB_REPOSITORY", "../../user", "must be OWNER/NAME"),
        ("GITHUB_TOKEN", "", "set \\$GITHUB_TOKEN"),
    ],
)
def test_github_tracker_names_missing_setting(server, monkeypatch, name, value, says):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=says):
        GitHubTracker()
    assert server.requests == []


def test_github_tracker_retries_server_errors(server):
    server.failing = 2
    assert len(sync([opened()])) == 1
    assert len(server.issues) == 1


def test_github_tracker_reports_missing_server_in_one_line(server):
    server.close()
    with pytest.raises(TrackerError, match="GitHub: no response"):
        GitHubTracker().issues()
