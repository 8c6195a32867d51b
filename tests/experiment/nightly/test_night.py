"""Result of a night."""

from __future__ import annotations

from benchkit.experiment.nightly.night import Night
from benchkit.store.store import Store


def test_night_changes_are_sorted_by_importance(tmp_path):
    kinds = ["night", "dismissed", "opened", "recovered", "grown", "opened"]
    events = [{"kind": kind, "nth": nth} for nth, kind in enumerate(kinds)]
    night = Night("2026-01-02T00:00:00+00:00", Store(tmp_path / "store"), events=events)
    assert [event["nth"] for event in night.changes] == [2, 5, 4, 3, 1]
