"""Runs of a bisection, with end blocks of an earlier bisection."""

import pandas as pd
import pytest

from benchkit.experiment.bisect.replay import SCHEDULE, block_of, runs_of, search_options
from benchkit.experiment.bisect.search import MAX_EVENT_BLOCKS, Search


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


@pytest.mark.parametrize("same_draws", [0, 2])
def test_change_of_the_schedule_is_found_in_log2_steps(same_draws):
    """A changed scheduler changes most draws: the first that differs between the ends is kept."""
    search = Search(16, **search_options(SCHEDULE))
    while (pair := search.next_pair()) is not None:
        block = len(search.blocks)
        draw = block if search.draw is None else search.draw
        changed = [build >= 11 and draw >= same_draws for build in pair]
        records = [{"outcome": "ok", "block": block, SCHEDULE: str(each)} for each in changed]
        search.add(block_of(pair, records, SCHEDULE))

    assert search.found
    assert search.between == (10, 11)
    assert search.draw == same_draws
    assert len(search.blocks) <= same_draws + 1 + 4  # log2(16)
    unknown = block_of((0, 1), [{"outcome": "ok", SCHEDULE: float("nan")}] * 2, SCHEDULE)
    assert unknown.events == (None, None)


def test_equal_schedules_of_the_ends_end_the_search():
    search = Search(16, **search_options(SCHEDULE))
    while (pair := search.next_pair()) is not None:
        records = [{"outcome": "ok", "block": len(search.blocks), SCHEDULE: "equal"}] * 2
        search.add(block_of(pair, records, SCHEDULE))

    assert search.ends == "same"
    assert len(search.blocks) == MAX_EVENT_BLOCKS
