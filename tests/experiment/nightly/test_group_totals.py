"""Totals of task groups are read once."""

import numpy as np
import xarray as xr

from benchkit.analysis.compare.group_totals import GroupTotals
from benchkit.errors import UnreadableRun
from benchkit.experiment.nightly.group_totals import read_group_totals
from validation.run_trees import run_tree


class Runs:
    """Stands for a store: counts the runs that are opened."""

    path = "store"

    def __init__(self):
        self.opened = []

    def open(self, run_id, groups):
        self.opened.append(run_id)
        if run_id == "damaged":
            raise UnreadableRun("damaged: no file")
        self.tree = run_tree({"a": (2, 9)}, 5.0, n_tasks=[4])
        self.tree["submissions"] = xr.Dataset({"n_nodes": ("submission", [2, 3])})
        return self


def test_read_group_totals_keeps_runs_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path))
    store = Runs()
    first, _ = read_group_totals(store, ["one", "two", "damaged"])
    again, amounts = read_group_totals(store, ["two", "three"])

    assert store.opened == ["one", "two", "damaged", "three"]
    assert set(first) == {"one", "two"}
    assert set(again) == {"two", "three"}
    assert again["two"]["a"][:2] == GroupTotals(2.0, 4, np.nan)[:2]
    assert np.isnan(again["two"]["a"].nbytes)
    assert amounts == {"two": {"graph_tasks": 5.0}, "three": {"graph_tasks": 5.0}}
    (file,) = (tmp_path / "group-totals").iterdir()
    file.write_text("{", encoding="utf-8")  # a damaged cache is made anew
    assert set(read_group_totals(store, ["two"])[0]) == {"two"}
