"""The rows of the list of runs, which are made for a million runs at once."""

import pandas as pd
from helpers.large_index import fill_index

from benchkit.show.dashboard.components.markup import outcome_text
from benchkit.show.dashboard.lists.runs import _pair_link, _run_link, _table


def test_rows_have_the_links_and_texts_of_their_runs(tmp_path):
    runs = fill_index(tmp_path / "store", 120).runs()
    runs["simulated"] = pd.Series([1] + [None] * 119, dtype="Int64")
    runs["tags"] = ["{}", '{"variant": "<b>"}'] * 60
    ids = runs["id"].astype(str).tolist()
    picked = ids[3]

    for first in ("", picked):
        table = _table(runs, first)
        assert table["id"].tolist() == ids
        assert table["open"].tolist() == [_run_link(run_id) for run_id in ids]
        assert table["compare"].tolist() == [_pair_link(run_id, first) for run_id in ids]

    assert table["compare"][3] == "selected"
    outcomes = [outcome_text(outcome) for outcome in runs["outcome"]]
    assert len(set(outcomes)) == 2
    assert table["outcome"].tolist() == [f"{outcomes[0]}, simulated", *outcomes[1:]]
    assert table["tags"].tolist() == ["", "variant=<b>"] * 60
