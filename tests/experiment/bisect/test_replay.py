"""Runs of a bisection, with end blocks of an earlier bisection."""

import pandas as pd

from benchkit.experiment.bisect.replay import SCHEDULE, block_of, runs_of
from benchkit.experiment.bisect.search import Search


class StoreOf:
    """A store of one table of runs."""

    def __init__(self, table):
        self.table = table

    def runs(self, *, experiment=None, id=None):
        if experiment is not None:
            return self.table[self.table["experiment"] == experiment].copy()
        return self.table[self.table["id"].isin(id)].copy()


def table_of(versions):
    return pd.DataFrame(
        {
            "id": ["a", "b", "c"],
            "experiment": ["old", "old", "new"],
            "block": [5, 5, 2],
            "memory_mean": [1.0, 2.0, 3.0],
            "duration": 1.0,
            "metric_versions": versions,
        }
    )


def test_runs_of_gives_reused_ends_the_first_blocks():
    runs = runs_of(StoreOf(table_of([None] * 3)), "new", [["a", "b"]])

    assert runs[["id", "block"]].to_numpy().tolist() == [["a", 0], ["b", 0], ["c", 2]]
    assert runs["memory_mean"].tolist() == [1.0, 2.0, 3.0]


def test_runs_of_removes_values_of_older_definitions():
    runs = runs_of(StoreOf(table_of([None, None, '{"memory_mean": 2}'])), "new", [["a", "b"]])

    assert runs["memory_mean"].fillna(-1).tolist() == [-1, -1, 3.0]
    assert runs["duration"].tolist() == [1.0] * 3


def test_change_of_the_schedule_is_found_in_few_blocks():
    """Simulations of a build are equal in each draw; a changed scheduler changes most of them."""
    search = Search(16, by_events=True)
    while (pair := search.next_pair()) is not None:
        draw = len(search.blocks)
        digests = [f"{draw}{'changed' if build >= 11 else ''}" for build in pair]
        records = [{"outcome": "ok", SCHEDULE: digest} for digest in digests]
        search.add(block_of(pair, records, SCHEDULE))

    assert search.found
    assert search.between == (10, 11)
    assert len(search.blocks) <= 20
    unknown = block_of((0, 1), [{"outcome": "ok", SCHEDULE: float("nan")}] * 2, SCHEDULE)
    assert unknown.events == (None, None)
