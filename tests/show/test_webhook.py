"""Alerts to a webhook: what is posted, and what a failure says."""

import json

import pytest
from click.testing import CliRunner
from helpers.webhook_server import webhook_server

from benchkit.cli.main import benchkit
from benchkit.errors import UsageError
from benchkit.measure.secrets import redact_text
from benchkit.show.issues.webhook import Webhook, WebhookError, webhook_for
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

CHANGE = {
    "kind": "opened",
    "workload": "array.sum",
    "metric": "duration",
    "ratio": 1.25,
    "environment": "main",
    "regression": "abcdef0123",
}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with webhook_server() as server:
        yield server


def test_webhook_json_has_all_facts(server):
    done = Webhook(server.url, "json").post(
        "Night.", [CHANGE | {"low": float("nan")}], ["broken"], site="https://perf"
    )

    assert done == "posted 1 change, 1 failure"
    assert server.content_types == ["application/json"]
    assert server.messages == [
        {
            "title": "Night.",
            "site": "https://perf",
            "changes": [CHANGE | {"low": None}],
            "failures": ["broken"],
        }
    ]


def test_webhook_slack_links_pages_and_escapes_text(server):
    change = CHANGE | {"workload": "<!channel> & co", "regression": None, "kind": "set_aside"}

    Webhook(server.url, "slack").post("Night.", [CHANGE, change], ["a\nb"], site="https://perf/")

    assert server.messages == [
        {
            "text": "Night.\n"
            "• opened: <https://perf/regressions/abcdef0123.html|array.sum: duration>"
            " +25 % (main)\n"
            "• set aside: &lt;!channel&gt; &amp; co: duration +25 % (main)\n"
            "• failed: a b\n"
            "<https://perf/|all nights>"
        }
    ]


def test_webhook_slack_message_is_cut(server):
    Webhook(server.url, "slack").post("Night.", [CHANGE] * 100, [])

    text = server.messages[0]["text"]
    lines = text.splitlines()
    assert len(text) < 1900
    assert lines[-1] == f"… and {100 - (len(lines) - 2)} more"


def test_webhook_posts_nothing_if_there_is_no_news(server):
    assert Webhook(server.url, "slack").post("Night.", [], []) == "nothing to report"
    assert server.messages == []


@pytest.mark.parametrize(
    ("statuses", "message", "n_posted"),
    [
        ([500], "status 500", 1),
        ([404], "status 404", 1),
        ([302], "status 302", 1),
        ([503], "status 503", 3),
        ([503, 429, 200], None, 3),
    ],
)
def test_webhook_repeats_only_what_may_help(server, statuses, message, n_posted):
    server.statuses = statuses
    hook = Webhook(server.url, "json")
    if message is None:
        hook.post("Night.", [], ["x"])
    else:
        with pytest.raises(WebhookError) as caught:
            hook.post("Night.", [], ["x"])
        assert str(caught.value) == message
    assert len(server.messages) == n_posted


def test_webhook_timeout_is_one_line(server):
    server.silent.set()

    with pytest.raises(WebhookError) as caught:
        Webhook(server.url, "json", timeout_s=0.2).post("Night.", [], ["x"])

    assert str(caught.value) == "no answer: TimeoutError"


def test_webhook_without_server_is_one_line():
    with pytest.raises(WebhookError) as caught:
        Webhook("http://127.0.0.1:1/secret", "json").post("Night.", [], ["x"])

    assert str(caught.value) == "no answer: ConnectionRefusedError"


def test_webhook_url_is_a_secret(tmp_path, monkeypatch):
    monkeypatch.delenv("BENCHKIT_WEBHOOK", raising=False)
    path = tmp_path / "url"
    path.write_text("https://chat.example/hooks/c0ffee-in-a-file\n")
    monkeypatch.setenv("BENCHKIT_WEBHOOK_FILE", str(path))

    hook = webhook_for("slack")

    assert repr(hook) == "<benchkit.Webhook slack>"
    assert redact_text("to https://chat.example/hooks/c0ffee-in-a-file now") == "to *** now"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "set $BENCHKIT_WEBHOOK to its URL, or $BENCHKIT_WEBHOOK_FILE to a file of it"),
        ({"BENCHKIT_WEBHOOK": "c0ffee"}, "$BENCHKIT_WEBHOOK must be one URL that begins with"),
        ({"BENCHKIT_WEBHOOK": "ftp://c0ffee/x"}, "$BENCHKIT_WEBHOOK must be one URL"),
        ({"BENCHKIT_WEBHOOK": "https://c0ffee:x/"}, "$BENCHKIT_WEBHOOK must be one URL"),
        ({"BENCHKIT_WEBHOOK": "https://c0ffee/a b"}, "$BENCHKIT_WEBHOOK must be one URL"),
        (
            {"BENCHKIT_WEBHOOK_FILE": "/no/c0ffee"},
            "$BENCHKIT_WEBHOOK_FILE: cannot be read: No such file or directory",
        ),
    ],
)
def test_webhook_wrong_url_is_refused_without_naming_it(monkeypatch, variables, message):
    for name in ("BENCHKIT_WEBHOOK", "BENCHKIT_WEBHOOK_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(UsageError) as caught:
        webhook_for("json")

    assert str(caught.value).startswith("--webhook json: ")
    assert message in str(caught.value)
    assert "c0ffee" not in str(caught.value)


def add_night(store, day, **facts):
    night = f"2026-08-{day:02}T02:00:00"
    facts = {"duration": 10.0, "started": f"{night}+00:00", **facts}
    store.add(make_run("array.sum", groups=False, tags={"night": night}, **facts))


@pytest.fixture
def nights(tmp_path, monkeypatch):
    """Return a store whose last night has a failed run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    store = Store("store")
    for day in range(1, 9):
        failed = {"outcome": "failed", "error": "boom", "duration": None} if day == 8 else {}
        add_night(store, day, **failed)
    return store


def nightly(form):
    return CliRunner().invoke(
        benchkit,
        ["nightly", "--no-measure", "--no-report", "--store", "store", "--webhook", form],
        catch_exceptions=False,
    )


def contents(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_nightly_posts_to_webhook(server, nights, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHKIT_WEBHOOK", server.url)

    done = nightly("json")

    assert "webhook: posted " in done.stderr
    (message,) = server.messages
    assert message["title"].startswith("Night 2026-08-08T02:00")
    assert message["changes"] == json.loads((tmp_path / "benchkit-nightly/news.json").read_text())
    assert [row["workload"] for row in message["changes"]] == ["array.sum"]
    assert "c0ffee" not in done.output
    assert b"c0ffee" not in contents(tmp_path)


def test_nightly_succeeds_if_the_webhook_fails(server, nights, monkeypatch):
    assert nightly("none").exit_code == 1  # the last night failed
    for day in (9, 10, 11):
        add_night(nights, day)
    monkeypatch.setenv("BENCHKIT_WEBHOOK", server.url)
    server.statuses = [500]

    done = nightly("slack")

    assert "recovered: array.sum" in server.messages[0]["text"]
    assert done.stderr.splitlines()[-1] == "warning: webhook: status 500"
    assert done.exit_code == 0


def test_nightly_wrong_webhook_stops_before_the_night(nights, monkeypatch):
    monkeypatch.delenv("BENCHKIT_WEBHOOK", raising=False)
    monkeypatch.delenv("BENCHKIT_WEBHOOK_FILE", raising=False)

    done = nightly("slack")

    assert done.exit_code == 2
    assert done.stderr.startswith("error: --webhook slack: set $BENCHKIT_WEBHOOK to its URL")
    assert nights.events() == []
