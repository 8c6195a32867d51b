"""Result of a night."""

from benchkit.experiment.nightly.night import Night
from benchkit.show.reports.night import night_markdown
from benchkit.store.store import Store


def test_night_changes_are_sorted_by_importance(tmp_path):
    kinds = ["night", "dismissed", "opened", "recovered", "grown", "opened"]
    events = [{"kind": kind, "nth": nth} for nth, kind in enumerate(kinds)]
    night = Night("2026-01-02T00:00:00+00:00", Store(tmp_path / "store"), events=events)
    assert [event["nth"] for event in night.changes] == [2, 5, 4, 3, 1]


def test_night_names_limits_of_its_runs(tmp_path):
    record = {"outcome": "ok", "quality": '{"duration": "disturbed"}', "workload": "w"}
    records = [{**record, "environment": "tip"}, {**record, "environment": "tip", "quality": "{}"}]
    night = Night("2026-01-02T00:00:00", Store(tmp_path / "store"), records=records)

    text = "duration: 1 of 2 runs of tip disturbed; `benchkit report run RUN` says why"
    assert night.limits == [text]
    assert f"limited: {text}" in repr(night)
    assert "### What limits the verdicts?" in night_markdown(night, ["duration"])
    assert Night("2026-01-02T00:00:00", Store(tmp_path / "store")).limits == []


def test_night_names_losses_of_the_capture(tmp_path):
    record = {"outcome": "ok", "quality": "{}", "workload": "w", "environment": "tip"}
    records = [{**record, "capture_losses": "memray: ImportError: not here"}, record]
    night = Night("2026-01-02T00:00:00", Store(tmp_path / "store"), records=records)

    assert night.limits == [
        "the capture lost data in 1 of 2 runs of tip; `benchkit report run RUN` says which"
    ]


def test_night_counts_one_run_and_one_part_in_the_singular(tmp_path):
    records = [{"outcome": "ok", "quality": "{}", "workload": "w", "environment": "tip"}]
    night = Night("2026-01-02T00:00:00", Store(tmp_path / "store"), records=records)
    night.failures.append("site: disk full")

    assert "Night 2026-01-02T00:00: 1 run, 0 of them failed;" in repr(night)
    assert "; 1 part failed." in repr(night)


def test_night_publishes_its_failures_without_secrets(tmp_path):
    night = Night("2026-01-02T00:00:00", Store(tmp_path / "store"))

    for _ in range(2):
        night.add_failure("site: ValueError: https://bob:hunter2secret@host/x?token=abcdefgh")

    (line,) = night.failures
    assert line == "site: ValueError: https://***@host/x?token=***"
    assert "hunter2" not in night_markdown(night, ["duration"]) + repr(night)
