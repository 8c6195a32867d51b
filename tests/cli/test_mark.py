"""`benchkit mark` and `benchkit regressions`: marks change the analysis and can be undone."""

import json

import pytest
from click.testing import CliRunner

from benchkit.analysis.regression.regression import read_ledger
from benchkit.cli.main import benchkit as main
from benchkit.show.pages.regressions import regression_section
from benchkit.store.store import Store
from validation.synthetic_runs import make_run


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    for day in (1, 2, 3):
        for environment in ("main", "dev"):
            store.add(
                make_run(
                    "array.sum",
                    groups=False,
                    environment=environment,
                    duration=10.0,
                    started=f"2026-08-0{day}T02:00:00+00:00",
                )
            )
    return store


def call(store, *arguments):
    return CliRunner().invoke(main, [*arguments, "--store", str(store.path)])


def shown(store):
    return store.runs(comparable=True)


def test_mark_bankruptcy_can_be_undone(store):
    arguments = ["mark", "bankruptcy", "--before", "2026-08-03", "-m", "new disks", "--by", "me"]
    done = call(store, *arguments)
    assert done.exit_code == 0, done.output
    assert len(shown(store)) == 2
    assert len(store.runs()) == 6  # nothing is deleted
    name = done.stdout.strip()
    assert call(store, "mark", "undo", name, "-m", "they were the old ones").exit_code == 0
    assert len(shown(store)) == 6


def test_mark_exclude_selects_by_id_or_fields(store):
    run_id = store.ids()[0]
    assert call(store, "mark", "exclude", run_id[:18], "-m", "noisy").exit_code in (0, 2)
    assert call(store, "mark", "exclude", run_id, "-m", "noisy").exit_code == 0
    where = ["--where", "environment=dev", "--since", "2026-08-02"]
    assert call(store, "mark", "exclude", *where, "-m", "wrong flags").exit_code == 0
    assert run_id not in set(shown(store)["id"])
    assert set(shown(store)["environment"]) == {"main", "dev"}
    assert len(shown(store)) == 3


def test_mark_rename_changes_names(store):
    assert call(store, "mark", "rename", "array.sum", "array.total", "-m", "clearer").exit_code == 0
    assert set(store.runs()["workload"]) == {"array.total"}
    arguments = ["mark", "rename", "main", "tip", "--field", "environment", "-m", "clearer"]
    assert call(store, *arguments).exit_code == 0
    assert set(store.runs()["environment"]) == {"tip", "dev"}


def test_mark_accept_closes_regression(store):
    event = {"workload": "array.sum", "environment": "main", "host": "bench-1", "scale": 1.0}
    event |= {"capture": "full", "metric": "duration", "night": "2026-08-02T02:00:00"}
    event |= {"seen": "2026-08-03T02:00:00", "cause": "code", "reason": "", "ratio": 1.2}
    store.add_event("opened", regression="abcdef0123", **event)
    rows = json.loads(call(store, "regressions", "--json").stdout)
    assert [(row["id"], row["state"]) for row in rows] == [("abcdef0123", "open")]
    assert call(store, "mark", "accept", "abcdef0123", "-m", "safer code").exit_code == 0
    assert json.loads(call(store, "regressions", "--open", "--json").stdout) == []
    table = call(store, "regressions").stdout
    assert "accepted" in table
    assert "array.sum" in table
    (mark,) = store.marks()
    assert mark["where"] == {"environment": "main", "host": "bench-1"}


def test_mark_decide_is_shown_at_the_change_and_in_the_report(store):
    event = {"workload": "array.sum", "environment": "main", "host": "bench-1", "scale": 1.0}
    event |= {"capture": "full", "metric": "duration", "seen": "2026-08-03T02:00:00"}
    event |= {"cause": "code", "reason": "", "ratio": 1.2, "before": 1.0, "after": 1.2}
    for name, night in (("abcdef0123", "2026-08-02T02:00:00"), ("abcdef0124", "2026-08-03T02:00")):
        store.add_event("opened", regression=name, night=night, **event)
    options = ["--evidence", "0198f2", "--evidence", "https://x.example/1", "--by", "ann"]
    verdict = ["--verdict", "machine", "-m", "new disk"]

    done = call(store, "mark", "decide", "abcdef0123", *verdict, *options)
    assert done.exit_code == 0, done.output
    other = ["--at", "2026-08-03", "--verdict", "noise", "-m", "one night", "--by", "bob"]
    assert call(store, "mark", "decide", "array.sum", *other).exit_code == 0

    rows = json.loads(call(store, "regressions", "--json").stdout)
    verdicts = {row["id"]: [each["verdict"] for each in row["decisions"]] for row in rows}
    assert verdicts == {"abcdef0123": ["machine"], "abcdef0124": ["noise"]}
    assert {row["state"] for row in rows} == {"open"}
    newest, first = json.loads(call(store, "report", "decisions", "--json").stdout)
    assert (newest["regression"], newest["by"]) == ("abcdef0124", "bob")
    assert (first["evidence"], first["reason"]) == (["0198f2", "https://x.example/1"], "new disk")
    assert "0198f2, https://x.example/1" in call(store, "report", "decisions").stdout
    regression = read_ledger(store.events(), store.marks())[-1]
    page = str(regression_section(regression, ""))
    assert "machine, ann on " in page


def test_mark_list_shows_active_marks(store):
    name = call(store, "mark", "exclude", "--workload", "array.*", "-m", "why", "--by", "me").stdout
    call(store, "mark", "undo", name.strip(), "-m", "no")
    rows = json.loads(call(store, "mark", "list", "--json").stdout)
    first = rows[0]
    assert (first["kind"], first["active"], first["by"]) == ("exclude", False, "me")
    assert "exclude" in call(store, "mark", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mark", "exclude", "-m", "all of them"], "select runs by"),
        (["mark", "undo", "nothing", "-m", "x"], "no mark 'nothing'"),
        (["mark", "decide", "array.sum", "--verdict", "real", "-m", "x"], "give --at, the night"),
        (
            ["mark", "decide", "array.sum", "--at", "3d", "--verdict", "bad", "-m", "x"],
            "verdict must be one of real, intended, noise, machine",
        ),
        (
            ["mark", "threshold", "array.*", "--metric", "duration", "--size", "-5%", "-m", "x"],
            "mark threshold: size '-5%': must be a share above 0, such as 10% or 0.1",
        ),
        (
            ["mark", "threshold", "array.*", "--metric", "duration", "--size", "5", "-m", "x"],
            "mark threshold: size '5': must be a share above 0, such as 10% or 0.1",
        ),
        (
            ["mark", "threshold", "array.*", "--metric", "durations", "--size", "5%", "-m", "x"],
            "no metric named 'durations': did you mean 'duration'",
        ),
        (
            ["mark", "threshold", "arra.*", "--metric", "duration", "--size", "5%", "-m", "x"],
            "matches no runs",
        ),
        (["mark", "bankruptcy", "--before", "soon", "-m", "x"], "'soon' is not a time"),
        (["mark", "exclude", "--where", "x", "-m", "x"], "--where 'x': must be NAME=VALUE"),
        (["regressions", "--state", "opened"], "--state 'opened': did you mean 'open'"),
    ],
)
def test_mark_rejects_arguments(store, arguments, message):
    done = call(store, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert store.marks() == []


def test_mark_threshold_keeps_size_and_owner(store):
    options = ["--metric", "duration", "--size", "10%", "--by", "frames team", "-m", "noise"]
    assert call(store, "mark", "threshold", "array.*", *options).exit_code == 0
    (mark,) = store.marks()
    assert (mark["size"], mark["by"], mark["metric"]) == (0.1, "frames team", "duration")
    assert "size=0.1" in call(store, "mark", "list").stdout


@pytest.mark.parametrize("what", ["4dcd78124f", "array.smu"])
def test_mark_accept_refuses_unknown_name(store, what):
    done = call(store, "mark", "accept", what, "-m", "typo")

    assert done.exit_code == 2
    assert done.stderr.startswith("error: mark accept")
    assert what in done.stderr
    assert store.marks() == []
